//! Random acts on a store and on the pure state machine of core; after every one the rows must be
//! what the machine says.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use outhaul_core::id::{ChunkId, JobId, Lease};
use outhaul_core::job::{JobStatus, NewJob, OnFailure};
use outhaul_core::progress::{Moving, Progress};
use outhaul_core::state::{Chunk, ChunkState, Event, apply};
use outhaul_core::store::{Cancelled, Prioritised, Redriven, StoreSettings};
use outhaul_core::worker::{Failure, Finish};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::bench::{Bench, Kit, SETTINGS, eventually, job};
use super::history::{follows, machine_moves};

/// A job as the machine has it. `status` is what the row says, not what is shown.
struct Model {
    status: JobStatus,
    on_failure: OnFailure,
    chunks: BTreeMap<ChunkId, Chunk>,
    told: BTreeMap<ChunkId, Vec<Told>>,
    priority: u8,
    /// Rows so far of what is not settled.
    rows: BTreeMap<ChunkId, i64>,
}

/// From, to and attempt of a transition, as history must tell it.
type Told = (Option<ChunkState>, ChunkState, u32);

impl Model {
    fn new(on_failure: OnFailure, ids: impl Iterator<Item = ChunkId>, eligible: bool) -> Self {
        let chunks: BTreeMap<_, _> = ids.map(|id| (id, Chunk::new(eligible))).collect();
        let told = chunks.iter().map(|(id, chunk)| (*id, vec![(None, chunk.state, 0)])).collect();
        Self { status: JobStatus::Submitted, on_failure, chunks, told, priority: 5, rows: BTreeMap::new() }
    }

    /// What a chunk has become.
    fn becomes(&mut self, id: ChunkId, after: Chunk) {
        let before = self.chunks.insert(id, after).expect("a chunk of this job");
        self.told.entry(id).or_default().extend(machine_moves(before, after));
        if matches!(after.state, ChunkState::Success | ChunkState::Dead | ChunkState::Cancelled) {
            self.rows.remove(&id);
        }
    }

    fn count(&self, state: ChunkState) -> i64 {
        self.chunks.values().filter(|chunk| chunk.state == state).count() as i64
    }

    fn open(&self) -> bool {
        !self.status.is_final()
    }

    /// What a recorded outcome of one of its chunks makes of the job.
    fn outcome(&mut self, died: bool) {
        if !self.open() {
            return;
        }
        let total = self.chunks.len() as i64;
        let (done, dead) = (self.count(ChunkState::Success), self.count(ChunkState::Dead));
        self.status = if done == total {
            JobStatus::Completed
        } else if (died && self.on_failure == OnFailure::Stop) || done + dead == total {
            JobStatus::Failed
        } else {
            JobStatus::InProgress
        };
    }

    /// What the stager makes of its chunks.
    fn stage(&mut self) {
        let event = match self.status {
            JobStatus::Cancelled => Event::Cancel,
            JobStatus::Failed => Event::Hold,
            JobStatus::Submitted | JobStatus::InProgress => Event::Stage,
            JobStatus::Completed => return,
        };
        for (id, chunk) in self.chunks.clone() {
            if chunk.state != ChunkState::Running {
                self.becomes(id, apply(chunk, event).unwrap_or(chunk));
            }
        }
    }
}

struct Walk {
    bench: Bench,
    random: StdRng,
    jobs: BTreeMap<JobId, Model>,
    trail: Trail,
}

/// What was done so far; a failure tells the last of it.
struct Trail(Vec<String>);

impl fmt::Display for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = &self.0[self.0.len().saturating_sub(40)..];
        write!(f, "after\n    {}", last.join("\n    "))
    }
}

/// Acts per walk; every one is followed by a comparison of everything.
const ACTS: usize = 400;

pub(super) async fn stores_agree_with_the_state_machine(kit: Kit) {
    let seed = kit.seed();
    // Every lease is over as soon as it is looked at, so that any chunk may expire at any time.
    let bench = kit.bench(StoreSettings { lease: Duration::from_millis(1), ..SETTINGS }).await;
    let random = StdRng::seed_from_u64(seed);
    let mut walk = Walk { bench, random, jobs: BTreeMap::new(), trail: Trail(Vec::new()) };
    for _ in 0..ACTS {
        let staged = walk.act().await;
        walk.compare(staged).await;
    }
    walk.bench.counts_hold().await;
    walk.compare_history().await;
}

impl Walk {
    /// The history of every chunk is what happened to it in the machine.
    async fn compare_history(&self) {
        for (id, model) in &self.jobs {
            let page = self.bench.store.chunks_list(id, None, None, 10).await.expect("chunks_list");
            let whole = self.bench.history(id, None).await;
            for row in page.items {
                let mut told = whole.clone();
                told.retain(|transition| transition.chunk_key == row.chunk_key);
                follows(&told);
                let told: Vec<Told> = told.iter().map(|told| (told.from, told.to, told.attempt)).collect();
                assert_eq!(told, model.told[&row.id], "{id} {}: {}", row.chunk_key, self.trail);
            }
        }
    }

    /// One random act on both; `true`: the stager has seen everything.
    async fn act(&mut self) -> bool {
        let open = self.jobs.values().filter(|job| job.open()).count();
        match self.random.random_range(0..100) {
            _ if open == 0 => self.submit().await,
            0..4 if open < 5 => self.submit().await,
            4..24 => self.claim().await,
            24..38 => {
                self.stage().await;
                return true;
            }
            38..40 => self.cancel().await,
            40..46 => self.redrive().await,
            46..50 => self.prioritise().await,
            50..60 => self.report().await,
            _ => self.chunk_act().await,
        }
        false
    }

    async fn submit(&mut self) {
        let on_failure = if self.random.random_bool(0.5) { OnFailure::Stop } else { OnFailure::Continue };
        let waits = self.random.random_bool(0.2);
        // A run_at just ahead: CREATED, and due by the time the stager looks.
        let run_at = waits.then(|| outhaul_core::clock::now() + chrono::TimeDelta::milliseconds(250));
        let count = self.random.random_range(1..5);
        let id = self.bench.submit(NewJob { on_failure, run_at, ..job(count) }).await.job_id;
        let page = self.bench.store.chunks_list(&id, None, None, 10).await.expect("chunks_list");
        let model = Model::new(on_failure, page.items.iter().map(|row| row.id), !waits);
        self.trail.0.push(format!("submit {id} {on_failure:?} of {count}, waits: {waits}"));
        if let Some(until) = run_at {
            while outhaul_core::clock::now() <= until {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        self.jobs.insert(id, model);
    }

    async fn claim(&mut self) {
        let limit = self.random.random_range(1..6);
        let claimed = self.bench.claim(limit).await;
        self.trail
            .0
            .push(format!("claim {limit}: {:?}", claimed.iter().map(|c| c.lease).collect::<Vec<_>>()));
        let free: usize = self
            .jobs
            .values()
            .filter(|job| job.open())
            .map(|job| job.count(ChunkState::Queued) as usize)
            .sum();
        assert_eq!(claimed.len(), free.min(limit as usize), "claims take what there is: {}", self.trail);
        for got in claimed {
            let job = self.jobs.get_mut(&got.job_id).expect("a job of ours");
            assert!(job.open(), "a claim from a {:?} job: {}", job.status, self.trail);
            let chunk = job.chunks[&got.lease.chunk];
            let chunk =
                apply(chunk, Event::Claim).unwrap_or_else(|refused| panic!("{refused}: {}", self.trail));
            job.becomes(got.lease.chunk, chunk);
            let told = (got.lease.fence, got.attempt, got.lost);
            assert_eq!(told, (chunk.fence, chunk.attempt, chunk.lost), "{}", self.trail);
        }
    }

    async fn stage(&mut self) {
        let staged = self.bench.stage().await;
        self.trail.0.push(format!("stage: {staged:?}"));
        self.jobs.values_mut().for_each(Model::stage);
    }

    async fn cancel(&mut self) {
        let id = self.pick_job();
        let answer = self.bench.store.job_cancel(&id).await.expect("job_cancel");
        self.trail.0.push(format!("cancel {id}: {answer:?}"));
        let job = self.jobs.get_mut(&id).expect("a job of ours");
        let expected = match job.status {
            _ if job.open() => {
                job.status = JobStatus::Cancelled;
                Cancelled::Yes
            }
            JobStatus::Cancelled => Cancelled::Already,
            status => Cancelled::TooLate(status),
        };
        assert_eq!(answer, expected, "{}", self.trail);
    }

    async fn prioritise(&mut self) {
        let (id, priority) = (self.pick_job(), self.random.random_range(0..10));
        let answer = self.bench.store.job_prioritise(&id, priority).await.expect("job_prioritise");
        self.trail.0.push(format!("prioritise {id} {priority}: {answer:?}"));
        let job = self.jobs.get_mut(&id).expect("a job of ours");
        let expected = if job.open() { Prioritised::Yes } else { Prioritised::TooLate(job.status) };
        job.priority = if job.open() { priority } else { job.priority };
        assert_eq!(answer, expected, "{}", self.trail);
    }

    /// How far every chunk of a job is, said of those that run and of those that do not.
    async fn report(&mut self) {
        let (id, rows) = (self.pick_job(), self.random.random_range(0..1000));
        self.trail.0.push(format!("report {id} {rows}"));
        let job = self.jobs.get_mut(&id).expect("a job of ours");
        let mut batch = Vec::new();
        for (chunk, Chunk { fence, state, .. }) in &job.chunks {
            let lease = Lease { chunk: *chunk, fence: *fence };
            batch.push(Progress { lease, rows, bytes: 2 * rows, fraction: 0.5 });
            if *state == ChunkState::Running {
                let so_far = job.rows.entry(*chunk).or_default();
                *so_far = rows.max(*so_far);
            }
        }
        self.bench.store.progress_record(&batch).await.expect("progress_record");
    }

    async fn redrive(&mut self) {
        let id = self.pick_job();
        let answer = self.bench.store.job_redrive(&id).await.expect("job_redrive");
        self.trail.0.push(format!("redrive {id}: {answer:?}"));
        let job = self.jobs.get_mut(&id).expect("a job of ours");
        let mut moved = 0;
        if job.status != JobStatus::Cancelled {
            for (id, chunk) in job.chunks.clone() {
                if let Ok(after) = apply(chunk, Event::Redrive) {
                    job.becomes(id, after);
                    moved += 1;
                }
            }
        }
        if moved > 0 {
            job.status = JobStatus::InProgress;
        }
        let expected = if moved > 0 { Redriven::Yes(moved) } else { Redriven::Nothing };
        assert_eq!(answer, expected, "{}", self.trail);
    }

    /// Something an owner or the reaper does to one chunk, whether it is possible or not.
    async fn chunk_act(&mut self) {
        let id = self.pick_job();
        let job = &self.jobs[&id];
        let all: Vec<ChunkId> = job.chunks.keys().copied().collect();
        let running: Vec<ChunkId> =
            all.iter().copied().filter(|chunk| job.chunks[chunk].state == ChunkState::Running).collect();
        // Mostly something that can happen; now and then something that must be refused.
        let from = if running.is_empty() || self.random.random_bool(0.2) { all } else { running };
        let chunk = *from.choose(&mut self.random).expect("jobs have chunks");
        let event = *[
            Event::Finish,
            Event::Finish,
            Event::FailRetryable,
            Event::FailFinal,
            Event::ExpireRetryable,
            Event::ExpireFinal,
            Event::GiveBack,
            Event::GiveBack,
            Event::Snooze,
            Event::Cancel,
        ]
        .choose(&mut self.random)
        .expect("not empty");
        let before = job.chunks[&chunk];
        let cancelled = job.status == JobStatus::Cancelled;
        let expected = match event {
            // An owner stops what its job no longer wants, and nothing else.
            Event::Cancel if !cancelled || before.state != ChunkState::Running => None,
            Event::FailRetryable | Event::FailFinal | Event::ExpireRetryable | Event::ExpireFinal
                if cancelled && before.state == ChunkState::Running =>
            {
                apply(before, Event::Cancel).ok()
            }
            _ => apply(before, event).ok(),
        };
        let lease = Lease { chunk, fence: before.fence };
        let written = self.write(lease, event, before.state).await;
        self.trail.0.push(format!("{event:?} of {lease} of {id}, {}: {written}", before.state));
        assert_eq!(written, expected.is_some(), "{}", self.trail);
        if let Some(after) = expected {
            let job = self.jobs.get_mut(&id).expect("a job of ours");
            job.becomes(chunk, after);
            job.outcome(after.state == ChunkState::Dead);
        }
    }

    /// The store's verb for the event; `true`: it was written.
    async fn write(&self, lease: Lease, event: Event, state: ChunkState) -> bool {
        let store = &self.bench.store;
        let fail = |expired, last: bool| Failure {
            lease,
            expired,
            retry_in: (!last).then_some(Duration::ZERO),
            cause: "broken".to_owned(),
            step: None,
            detail: None,
        };
        let failed = async |failure| !store.chunks_fail(&[failure]).await.expect("chunks_fail").is_empty();
        if matches!(event, Event::ExpireRetryable | Event::ExpireFinal) && state == ChunkState::Running {
            eventually("the lease runs out", || async {
                let expired = store.chunks_expired(&[], Duration::ZERO, 1000).await.expect("chunks_expired");
                expired.iter().any(|found| found.lease == lease).then_some(())
            })
            .await;
        }
        match event {
            Event::Finish => {
                let claimed_at = outhaul_core::clock::now();
                let finish = Finish { lease, claimed_at, file: None, reason: String::new(), result: None };
                !store.chunks_finish(&[finish]).await.expect("chunks_finish").is_empty()
            }
            Event::FailRetryable => failed(fail(false, false)).await,
            Event::FailFinal => failed(fail(false, true)).await,
            Event::ExpireRetryable => failed(fail(true, false)).await,
            Event::ExpireFinal => failed(fail(true, true)).await,
            Event::GiveBack => !store.chunks_return(&[lease]).await.expect("chunks_return").is_empty(),
            Event::Snooze => store.chunk_snooze(lease, Duration::ZERO).await.expect("chunk_snooze"),
            Event::Cancel => !store.chunks_cancel(&[lease]).await.expect("chunks_cancel").is_empty(),
            other => unreachable!("{other:?} is not an act on one chunk"),
        }
    }

    fn pick_job(&mut self) -> JobId {
        let ids: Vec<&JobId> = self.jobs.keys().collect();
        (*ids.choose(&mut self.random).expect("there are jobs")).clone()
    }

    /// The rows, and what readers see, are what the machine says.
    async fn compare(&self, staged: bool) {
        // How often a cancelled chunk was returned or lost means nothing to anyone: it never runs again.
        let sql = "select id || ' ' || state || ' attempt ' || attempt || ' fence ' || fence
            || case when state = 'CANCELLED' then '' else ' returned ' || returned || ' lost ' || lost end
            || case when held then ' held' else '' end
            from job_chunk order by id";
        let rows = self.bench.probe.texts(sql).await;
        let mut expected: Vec<(ChunkId, String)> = Vec::new();
        for job in self.jobs.values() {
            for (id, chunk) in &job.chunks {
                let held = if chunk.held { " held" } else { "" };
                let Chunk { state, attempt, fence, returned, lost, .. } = chunk;
                let row = match state {
                    ChunkState::Cancelled => String::new(),
                    _ => format!(" returned {returned} lost {lost}"),
                };
                let text = format!("{id} {state} attempt {attempt} fence {fence}{row}{held}");
                expected.push((*id, text));
            }
        }
        expected.sort();
        let expected: Vec<String> = expected.into_iter().map(|(_, text)| text).collect();
        for (row, expected) in rows.iter().zip(&expected) {
            assert_eq!(row, expected, "{}", self.trail);
        }
        assert_eq!(rows.len(), expected.len());
        for (id, model) in &self.jobs {
            self.compare_job(id, model, staged).await;
        }
    }

    async fn compare_job(&self, id: &JobId, model: &Model, staged: bool) {
        let job = self.bench.job(id).await;
        let running = model.count(ChunkState::Running);
        let shown = match model.status {
            JobStatus::Submitted if running > 0 => JobStatus::InProgress,
            status => status,
        };
        assert_eq!(job.status, shown, "{id}: {}", self.trail);
        let counts = (job.counts.running, job.counts.done, job.counts.failed, job.counts.cancelled);
        let [done, dead, gone] =
            [ChunkState::Success, ChunkState::Dead, ChunkState::Cancelled].map(|state| model.count(state));
        assert_eq!(counts, (running, done, dead, gone), "{id}: {}", self.trail);
        let rows = model.rows.values().sum();
        let moving = Moving { rows, bytes: 2 * rows, chunks: 0.5 * model.rows.len() as f64 };
        assert_eq!((job.moving, job.priority), (moving, model.priority), "{id}: {}", self.trail);
        assert_eq!(job.error_message.is_some(), dead > 0, "{id}: {}", self.trail);
        let ended = job.completed_at.is_some();
        let may_have = shown.is_final() && running == 0;
        assert!(!ended || may_have, "{id} ended with chunks running: {}", self.trail);
        let must_have = may_have && (staged || shown == JobStatus::Completed);
        assert!(ended || !must_have, "{id} never got its end: {}", self.trail);
    }
}
