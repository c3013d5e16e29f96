//! A mixed storm: many tasks do everything at once at random. No call may fail (a deadlock would be
//! an error), no chunk may be lost, every accepted finish counts once, and every job ends.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use outhaul_core::announcement::ChunkName;
use outhaul_core::dead_letter::DeadLetterFilter;
use outhaul_core::file::FileBegun;
use outhaul_core::id::{ChunkId, JobId, QueueId, WorkerId};
use outhaul_core::job::{JobStatus, NewJob, OnFailure};
use outhaul_core::progress::{Moving, Progress};
use outhaul_core::reuse::Reuse;
use outhaul_core::store::{Store, StoreSettings};
use outhaul_core::worker::{ClaimedChunk, Failure, Finish, Want};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};

use super::announcements::name;
use super::bench::{Bench, Kit, SETTINGS, at_once, job, plain, register};
use super::files::{begin, generated, reused};
use super::history::follows;

const JOBS: usize = 12;
const CHUNKS: usize = 15;
const TASKS: usize = 8;
const ACTS: usize = 120;

pub(super) async fn a_mixed_storm_loses_nothing(kit: Kit) {
    let seed = kit.seed();
    let bench =
        kit.bench(StoreSettings { lease: Duration::from_millis(50), parking: true, ..SETTINGS }).await;
    let mut ids = Vec::new();
    for n in 0..JOBS {
        let on_failure = if n % 2 == 0 { OnFailure::Stop } else { OnFailure::Continue };
        // Every job asks for the same keys, so that their chunks compete for the same files.
        ids.push(bench.submit(NewJob { on_failure, priority: (n % 3) as u8, ..job(CHUNKS) }).await.job_id);
    }
    let ids = Arc::new(ids);
    let tasks = (0..TASKS)
        .map(|n| {
            let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
            let random = StdRng::seed_from_u64(seed.wrapping_add(n as u64));
            let (ids, queue) = (ids.clone(), bench.queue);
            async move {
                let worker = register(&*store).await;
                let mut task =
                    Task { store, worker, queue, ids, random, mine: Vec::new(), finished: Vec::new() };
                for _ in 0..ACTS {
                    task.act().await;
                }
                task.finished
            }
        })
        .collect();
    let mut finished: Vec<ChunkId> = at_once(tasks).await.into_iter().flatten().collect();
    bench.counts_hold().await;

    finished.extend(drain(&bench, &ids).await);
    for id in ids.iter() {
        bench.store.job_redrive(id).await.expect("job_redrive");
    }
    finished.extend(drain(&bench, &ids).await);
    for id in ids.iter() {
        let job = bench.job(id).await;
        assert!(matches!(job.status, JobStatus::Completed | JobStatus::Cancelled), "{job:?}");
        assert_eq!(job.counts.total, job.counts.done + job.counts.cancelled + job.counts.failed, "{job:?}");
        assert_eq!(job.moving, Moving::default(), "nothing is on its way any more: {job:?}");
    }
    bench.counts_hold().await;
    let distinct: HashSet<ChunkId> = finished.iter().copied().collect();
    assert_eq!(finished.len(), distinct.len(), "no chunk was finished twice");
    let success = bench.probe.number("select count(*) from job_chunk where state = 'SUCCESS'").await;
    assert_eq!(success, distinct.len() as i64, "every accepted finish is a SUCCESS, and nothing else is");
    let rows = bench.probe.number("select count(*) from job_chunk").await;
    assert_eq!(rows, (JOBS * CHUNKS) as i64, "no chunk is lost");
    assert!(success > 0, "a storm in which nothing happened shows nothing");
    let generations = bench.probe.number("select cast(sum(generation) as bigint) from file_cache").await;
    let made = bench.probe.number("select count(*) from chunk_file where not reused").await;
    assert_eq!(generations, made, "every recorded file raised its identity's generation by one");
    let deaths = bench.probe.number("select count(*) from chunk_history where to_state = 'DEAD'").await;
    let parked = bench.probe.number("select count(*) from outbox").await;
    assert_eq!(parked, deaths, "every death left its message");
    for id in ids.iter() {
        history_holds(&bench, id).await;
    }
}

/// Whatever happened at once, each chunk's history is one line that ends where the chunk is.
async fn history_holds(bench: &Bench, id: &JobId) {
    let rows = bench.store.chunks_list(id, None, None, 1000).await.expect("chunks_list").items;
    let whole = bench.history(id, None).await;
    for row in rows {
        let mut told = whole.clone();
        told.retain(|transition| transition.chunk_key == row.chunk_key);
        follows(&told);
        assert_eq!(told.last().map(|transition| transition.to), Some(row.state), "{told:#?}");
    }
}

/// Does what workers and sweepers do, until every job has ended; returns what was finished.
async fn drain(bench: &Bench, ids: &[JobId]) -> Vec<ChunkId> {
    let mut finished = Vec::new();
    for _ in 0..2000 {
        bench.stage().await;
        let claimed = bench.claim(50).await;
        let finishes: Vec<Finish> = claimed.iter().map(plain).collect();
        let done = bench.store.chunks_finish(&finishes).await.expect("chunks_finish");
        finished.extend(done.into_iter().map(|lease| lease.chunk));
        reap(&*bench.store, 100).await;
        let mut open = 0;
        for id in ids {
            open += usize::from(bench.job(id).await.completed_at.is_none());
        }
        if open == 0 {
            return finished;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut left = Vec::new();
    for id in ids {
        left.push((bench.job(id).await, bench.states(id).await));
    }
    left.retain(|(job, _)| job.completed_at.is_none());
    panic!("these jobs never end: {left:#?}");
}

async fn reap(store: &dyn Store, limit: u32) {
    let expired = store.chunks_expired(&[], Duration::ZERO, limit).await.expect("chunks_expired");
    let failures: Vec<Failure> = expired
        .iter()
        .map(|found| Failure {
            lease: found.lease,
            expired: true,
            retry_in: (found.attempt < 4).then_some(Duration::ZERO),
            cause: "lost".to_owned(),
            step: None,
            detail: None,
        })
        .collect();
    store.chunks_fail(&failures).await.expect("chunks_fail");
}

struct Task {
    store: Arc<dyn Store>,
    worker: WorkerId,
    queue: QueueId,
    ids: Arc<Vec<JobId>>,
    random: StdRng,
    mine: Vec<ClaimedChunk>,
    finished: Vec<ChunkId>,
}

impl Task {
    async fn act(&mut self) {
        match self.random.random_range(0..100) {
            0..17 => self.claim().await,
            17..25 => self.announce().await,
            25..42 => self.finish().await,
            42..52 => self.fail().await,
            52..58 => {
                let leases: Vec<_> = self.take(3).iter().map(|chunk| chunk.lease).collect();
                self.store.chunks_return(&leases).await.expect("chunks_return");
            }
            58..62 => {
                for chunk in self.take(1) {
                    self.store.chunk_snooze(chunk.lease, Duration::ZERO).await.expect("chunk_snooze");
                }
            }
            62..65 => self.report().await,
            65..70 => {
                let leases: Vec<_> = self.mine.iter().map(|chunk| chunk.lease).collect();
                self.store.chunks_heartbeat(self.worker, &leases, &[]).await.expect("chunks_heartbeat");
                let gone = self.store.chunks_cancelled(&leases).await.expect("chunks_cancelled");
                self.store.chunks_cancel(&gone).await.expect("chunks_cancel");
                self.mine.retain(|chunk| !gone.contains(&chunk.lease));
            }
            70..78 => reap(&*self.store, 10).await,
            78..88 => {
                let limit = self.random.random_range(1..20);
                self.store.chunks_stage(limit).await.expect("chunks_stage");
            }
            88..91 => {
                let id = self.pick();
                self.store.job_redrive(&id).await.expect("job_redrive");
            }
            91..93 => {
                let limit = self.random.random_range(1..10);
                let filter = DeadLetterFilter::default();
                self.store.dead_letters_redrive(&filter, limit, None).await.expect("dead_letters_redrive");
            }
            93 => {
                let (id, priority) = (self.pick(), self.random.random_range(0..10));
                self.store.job_prioritise(&id, priority).await.expect("job_prioritise");
            }
            94 => {
                // Few of them, or there would be no storm left.
                let id = self.ids[self.random.random_range(0..JOBS / 4)].clone();
                self.store.job_cancel(&id).await.expect("job_cancel");
            }
            95 => {
                self.store.counts_repair(Duration::ZERO, 5).await.expect("counts_repair");
            }
            96 => {
                for chunk in &self.mine {
                    self.store.step_record(chunk.lease, "step", "1").await.expect("step_record");
                    self.store.steps_recorded(chunk.lease).await.expect("steps_recorded");
                }
                self.store.files_leftover(10).await.expect("files_leftover");
                self.store.queues_list().await.expect("queues_list");
            }
            _ => {
                let id = self.pick();
                let job = self.store.job_get(&id).await.expect("job_get").expect("jobs stay");
                let settled = job.counts.done + job.counts.failed + job.counts.cancelled;
                assert!((0..=job.counts.total).contains(&settled), "{job:?}");
                self.store.chunks_list(&id, None, None, 5).await.expect("chunks_list");
            }
        }
    }

    /// How far what it owns is, or owned: leases run out.
    async fn report(&mut self) {
        let rows = self.random.random_range(0..100);
        let report = |chunk: &ClaimedChunk| Progress { lease: chunk.lease, rows, bytes: rows, fraction: 0.5 };
        let reports: Vec<Progress> = self.mine.iter().map(report).collect();
        self.store.progress_record(&reports).await.expect("progress_record");
    }

    fn pick(&mut self) -> JobId {
        self.ids.choose(&mut self.random).expect("there are jobs").clone()
    }

    /// Some of what this task owns (or owned: leases run out), in any order.
    fn take(&mut self, at_most: usize) -> Vec<ClaimedChunk> {
        self.mine.shuffle(&mut self.random);
        let count = self.random.random_range(0..=at_most).min(self.mine.len());
        self.mine.split_off(self.mine.len() - count)
    }

    async fn claim(&mut self) {
        let limit = self.random.random_range(1..8);
        let wants = [Want { queue: self.queue, limit }];
        let claimed = self.store.chunks_claim(self.worker, &wants, limit).await.expect("chunks_claim");
        self.mine.extend(claimed);
    }

    /// Announces some, and claims what is announced, as a relay and a worker with a broker do.
    async fn announce(&mut self) {
        let (window, limit) = (self.random.random_range(1..40), self.random.random_range(1..10));
        let taken = self.store.announcements_take(&[self.queue], window, limit).await;
        let taken = taken.expect("announcements_take");
        let names: Vec<ChunkName> = taken.iter().map(name).collect();
        let chunks: Vec<ChunkId> = taken.iter().map(|taken| taken.chunk).collect();
        match self.random.random_range(0..6) {
            0 => self.store.announcements_clear(&chunks).await.expect("announcements_clear"),
            1 => self.store.announcements_defer(&chunks, Duration::from_millis(1)).await.expect("defer"),
            2 => self.store.announcements_doubt().await.expect("announcements_doubt"),
            _ => self.store.announcements_confirm(&taken, Duration::from_millis(5)).await.expect("confirm"),
        }
        let wants = [Want { queue: self.queue, limit }];
        let claims = self.store.chunks_claim_named(self.worker, &names, &wants, 5).await;
        self.mine.extend(claims.expect("chunks_claim_named").claimed.into_iter().map(|(_, chunk)| chunk));
    }

    /// Some with files, as an export would; what is Busy is given back later or lost.
    async fn finish(&mut self) {
        let mut batch = Vec::new();
        for chunk in self.take(6) {
            let key = chunk.key.clone().expect("exports have keys");
            let reuse = if self.random.random_bool(0.5) { Reuse::Any } else { Reuse::Never };
            if self.random.random_bool(0.3) {
                batch.push(plain(&chunk));
                continue;
            }
            match self.store.file_begin(&begin(&chunk, &key, reuse)).await.expect("file_begin") {
                FileBegun::Reusable(record) => batch.push(reused(&chunk, &key, record)),
                FileBegun::Write(_) => batch.push(generated(&chunk, &key)),
                FileBegun::Busy => self.mine.push(chunk),
                FileBegun::LeaseLost | FileBegun::Foreign(_) => {}
            }
        }
        let done = self.store.chunks_finish(&batch).await.expect("chunks_finish");
        self.finished.extend(done.into_iter().map(|lease| lease.chunk));
    }

    async fn fail(&mut self) {
        let mut failures = Vec::new();
        for chunk in self.take(3) {
            let last = self.random.random_bool(0.15);
            failures.push(Failure {
                lease: chunk.lease,
                expired: false,
                retry_in: (!last).then_some(Duration::ZERO),
                cause: "broken".to_owned(),
                step: None,
                detail: None,
            });
        }
        self.store.chunks_fail(&failures).await.expect("chunks_fail");
    }
}
