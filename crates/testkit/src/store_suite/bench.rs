//! What every case uses: a fresh store with a queue and a worker, short words for common acts, and
//! checks that hold after any of them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use outhaul_core::history::Transition;
use outhaul_core::id::{JobId, Lease, QueueId, WorkerId};
use outhaul_core::job::{Idempotency, Job, NewChunk, NewJob};
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Staged, Store, StoreSettings};
use outhaul_core::worker::{ClaimedChunk, ExpiredChunk, Failure, Finish, Settled, Want};
use tokio::task::JoinSet;

use super::{Fixture, Probe};
use crate::sample;

pub(super) use crate::sample::{LONG, MAIL, QUEUE, SETTINGS, chunk, day, job, plain, register};
pub(super) use crate::waiting::eventually;

/// Leases that run out while a case looks on.
pub(super) const SHORT_LEASE: StoreSettings = StoreSettings { lease: Duration::from_millis(20), ..SETTINGS };

/// What a case starts from.
pub struct Kit {
    make: Box<dyn Fn(StoreSettings) -> BoxFuture<'static, Fixture> + Send + Sync>,
}

impl Kit {
    /// `make` opens a fresh store.
    pub fn new<F, Made>(make: F) -> Self
    where
        F: Fn(StoreSettings) -> Made + Send + Sync + 'static,
        Made: Future<Output = Fixture> + Send + 'static,
    {
        Self { make: Box::new(move |settings| Box::pin(make(settings))) }
    }

    /// A fresh store on a database of its own.
    pub(super) async fn bench(&self, settings: StoreSettings) -> Bench {
        let Fixture { store, second, probe, keep } = (self.make)(settings).await;
        let queues = sample::queues(&*store).await;
        let other = second.clone().unwrap_or_else(|| store.clone());
        let worker = register(&*store).await;
        Bench {
            queue: queues[QUEUE],
            mail: queues[MAIL],
            store,
            other,
            worker,
            probe: Arc::new(probe),
            _keep: keep,
        }
    }

    /// A seed for a random case, told with its failure.
    pub(super) fn seed(&self) -> u64 {
        let given = std::env::var("OUTHAUL_SUITE_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| u64::from(rand::random::<u32>()));
        eprintln!("OUTHAUL_SUITE_SEED={seed} repeats this case");
        seed
    }
}

/// A store on a database of its own, with two queues and one worker.
pub(super) struct Bench {
    pub(super) store: Arc<dyn Store>,
    /// As another process sees it, where there may be one; else the same store.
    pub(super) other: Arc<dyn Store>,
    pub(super) probe: Arc<Probe>,
    pub(super) queue: QueueId,
    pub(super) mail: QueueId,
    pub(super) worker: WorkerId,
    _keep: Box<dyn std::any::Any + Send + Sync>,
}

impl Bench {
    /// Submits a job that must be new.
    pub(super) async fn submit(&self, job: NewJob) -> Job {
        sample::submit(&*self.store, job).await
    }

    /// Claims from [`QUEUE`].
    pub(super) async fn claim(&self, limit: u32) -> Vec<ClaimedChunk> {
        let wants = [Want { queue: self.queue, limit }];
        self.store.chunks_claim(self.worker, &wants, limit).await.expect("chunks_claim")
    }

    /// Claims the one chunk that must be there.
    pub(super) async fn claim_one(&self) -> ClaimedChunk {
        self.claim(1).await.pop().expect("a chunk to claim")
    }

    /// Submits a job of `chunks` chunks and claims all of it.
    pub(super) async fn running(&self, chunks: usize) -> (JobId, Vec<ClaimedChunk>) {
        self.running_of(job(chunks)).await
    }

    /// Submits this job and claims all of it.
    pub(super) async fn running_of(&self, new: NewJob) -> (JobId, Vec<ClaimedChunk>) {
        let count = new.chunks.len();
        let job = self.submit(new).await;
        let claimed = self.claim(count as u32).await;
        assert_eq!(claimed.len(), count, "every chunk of a new job can be claimed");
        (job.job_id, claimed)
    }

    /// Finishes without files; returns how many were recorded.
    pub(super) async fn finish(&self, chunks: &[ClaimedChunk]) -> usize {
        let finishes: Vec<Finish> = chunks.iter().map(plain).collect();
        self.store.chunks_finish(&finishes).await.expect("chunks_finish").len()
    }

    /// Fails one chunk by its owner; `None`: it was lost.
    pub(super) async fn fail(&self, chunk: &ClaimedChunk, retry_in: Option<Duration>) -> Option<ChunkState> {
        self.fail_with(chunk, retry_in, None, "the source went away").await
    }

    /// The same, with a step and a cause.
    pub(super) async fn fail_with(
        &self,
        chunk: &ClaimedChunk,
        retry_in: Option<Duration>,
        step: Option<&str>,
        cause: &str,
    ) -> Option<ChunkState> {
        let failure = Failure {
            lease: chunk.lease,
            expired: false,
            retry_in,
            cause: cause.to_owned(),
            step: step.map(str::to_owned),
            detail: None,
        };
        let settled = self.store.chunks_fail(&[failure]).await.expect("chunks_fail");
        state_of(&settled, chunk.lease)
    }

    /// Claims the one chunk that waits, or is due now.
    pub(super) async fn claim_again(&self) -> ClaimedChunk {
        self.stage().await;
        self.claim_one().await
    }

    /// The history of a job, or of one chunk of it.
    pub(super) async fn history(&self, job_id: &JobId, chunk_key: Option<&str>) -> Vec<Transition> {
        let page = self.other.history_list(job_id, chunk_key, None, 10_000).await.expect("history_list");
        assert_eq!(page.next, None);
        page.items
    }

    /// Waits until so many leases ran out.
    pub(super) async fn expired(&self, count: usize) -> Vec<ExpiredChunk> {
        let look = || async {
            let found = self.store.chunks_expired(&[], Duration::ZERO, 10_000).await.expect("chunks_expired");
            (found.len() >= count).then_some(found)
        };
        eventually("leases run out", look).await
    }

    /// One job that must be there.
    pub(super) async fn job(&self, job_id: &JobId) -> Job {
        self.other.job_get(job_id).await.expect("job_get").expect("the job is there")
    }

    /// The states of a job's chunks, by chunk key.
    pub(super) async fn states(&self, job_id: &JobId) -> Vec<ChunkState> {
        let page = self.store.chunks_list(job_id, None, None, 1000).await.expect("chunks_list");
        page.items.into_iter().map(|row| row.state).collect()
    }

    /// Stages until nothing changes; the sum of all rounds.
    pub(super) async fn stage(&self) -> Staged {
        let mut sum = Staged::default();
        for _ in 0..1000 {
            let round = self.store.chunks_stage(1000).await.expect("chunks_stage");
            if round == Staged::default() {
                return sum;
            }
            sum.queued += round.queued;
            sum.held += round.held;
            sum.cancelled += round.cancelled;
            sum.settled += round.settled;
            sum.released += round.released;
        }
        panic!("the stager finds something to do for ever: {sum:?}");
    }

    /// Every job's counts equal a recount of its chunk rows.
    pub(super) async fn counts_hold(&self) {
        let wrong = self.probe.texts(WRONG_COUNTS).await;
        assert!(wrong.is_empty(), "counts differ from chunk rows: {wrong:?}");
    }
}

/// Jobs whose stored counts are not those of their chunks.
const WRONG_COUNTS: &str = "
    select j.job_id || ' says done ' || j.done || ' failed ' || j.failed || ' cancelled ' || j.cancelled
        || ' reused ' || j.reused || ' rows ' || j.rows || ' bytes ' || j.bytes || ' of ' || j.total
        || ', chunks say done ' || c.done || ' failed ' || c.failed || ' cancelled ' || c.cancelled
        || ' reused ' || c.reused || ' rows ' || c.rows || ' bytes ' || c.bytes || ' of ' || c.total
    from job j
    join (
        select x.job_id as id, count(*) as total,
            sum(case when x.state = 'SUCCESS' then 1 else 0 end) as done,
            sum(case when x.state = 'DEAD' then 1 else 0 end) as failed,
            sum(case when x.state = 'CANCELLED' then 1 else 0 end) as cancelled,
            sum(case when x.state = 'SUCCESS' and f.reused then 1 else 0 end) as reused,
            coalesce(sum(f.rows), 0) as rows, coalesce(sum(f.bytes), 0) as bytes
        from job_chunk x left join chunk_file f on f.chunk_id = x.id and x.state = 'SUCCESS'
        group by x.job_id
    ) c on c.id = j.id
    where j.total <> c.total or j.done <> c.done or j.failed <> c.failed or j.cancelled <> c.cancelled
       or j.reused <> c.reused or j.rows <> c.rows or j.bytes <> c.bytes";

/// A new custom job: its one chunk waits in [`QUEUE`], where [`Bench::claim`] looks.
pub(super) fn custom() -> NewJob {
    let main =
        NewChunk { chunk_key: "main".to_owned(), queue: QUEUE.to_owned(), key: None, effective_date: None };
    NewJob {
        job_type: "SEND_EMAIL".to_owned(),
        dataset: None,
        base_path: None,
        request: serde_json::json!({ "jobType": "SEND_EMAIL" }).into(),
        params: serde_json::json!({ "payload": { "to": "user@example.com" } }).into(),
        chunks: vec![main],
        ..job(0)
    }
}

/// The job under this idempotency key.
pub(super) fn keyed(job: NewJob, key: &str, request_hash: &str) -> NewJob {
    let idempotency = Idempotency { key: key.to_owned(), request_hash: request_hash.to_owned() };
    NewJob { idempotency: Some(idempotency), ..job }
}

/// What became of this lease; `None`: it was lost.
pub(super) fn state_of(settled: &[Settled], lease: Lease) -> Option<ChunkState> {
    settled.iter().find(|settled| settled.lease == lease).map(|settled| settled.state)
}

/// Runs all at once on tasks of their own; the answers in the order of the list.
pub(super) async fn at_once<T, Act>(acts: Vec<Act>) -> Vec<T>
where
    T: Send + 'static,
    Act: Future<Output = T> + Send + 'static,
{
    let start = Arc::new(tokio::sync::Barrier::new(acts.len()));
    let mut tasks = JoinSet::new();
    for (n, act) in acts.into_iter().enumerate() {
        let start = start.clone();
        tasks.spawn(async move {
            start.wait().await;
            (n, act.await)
        });
    }
    let mut answers = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        answers.push(ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
    }
    answers.sort_by_key(|(n, _)| *n);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
