//! The number of what is shown of a job: it rises with claims and progress, which leave the job's row alone, and
//! never falls when chunks stop running.

use std::time::Duration;

use outhaul_core::id::JobId;
use outhaul_core::job::{Counts, JobStatus};
use outhaul_core::progress::Progress;
use outhaul_core::state::ChunkState;
use outhaul_core::store::Cancelled;

use super::bench::{Bench, Kit, SETTINGS, eventually, job};

/// Looks at one job after every act.
struct Looks {
    job_id: JobId,
    version: i64,
    counts: Counts,
    moved: (i64, f64),
}

impl Looks {
    async fn begin(bench: &Bench, job_id: &JobId) -> Self {
        let job = bench.job(job_id).await;
        let moved = (job.moving.rows, job.moving.chunks);
        Self { job_id: job_id.clone(), version: job.shown_version, counts: job.counts, moved }
    }

    /// The act changed what is shown, so the number rose; looking alone changes nothing.
    async fn after(&mut self, bench: &Bench, act: &str) {
        let now = Self::begin(bench, &self.job_id).await;
        assert_ne!((now.counts, now.moved), (self.counts, self.moved), "{act} is shown");
        assert!(now.version > self.version, "{act}: {} after {}", now.version, self.version);
        assert_eq!(Self::begin(bench, &self.job_id).await.version, now.version, "{act}: a second look");
        *self = now;
    }
}

pub(super) async fn a_larger_number_is_a_newer_state(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let id = bench.submit(job(6)).await.job_id;
    let mut looks = Looks::begin(&bench, &id).await;
    let first = bench.claim(2).await;
    looks.after(&bench, "a claim").await;
    let more = bench.claim(2).await;
    looks.after(&bench, "another claim").await;
    for (rows, fraction) in [(10, 0.25), (10, 0.5), (20, 0.75)] {
        let all: Vec<Progress> =
            first.iter().map(|chunk| Progress { lease: chunk.lease, rows, bytes: 0, fraction }).collect();
        bench.store.progress_record(&all).await.expect("progress_record");
        looks.after(&bench, "progress").await;
    }
    bench.store.chunks_return(&[more[0].lease]).await.expect("chunks_return");
    looks.after(&bench, "giving back").await;
    bench.store.chunk_snooze(more[1].lease, Duration::ZERO).await.expect("chunk_snooze");
    looks.after(&bench, "a snooze").await;
    bench.fail(&first[0], Some(Duration::ZERO)).await;
    looks.after(&bench, "a failure that is tried again").await;
    bench.finish(&first[1..]).await;
    looks.after(&bench, "a success with progress").await;
    eventually("all that is left is queued", || async {
        bench.stage().await;
        let states = bench.states(&id).await;
        states.iter().all(|state| matches!(state, ChunkState::Queued | ChunkState::Success)).then_some(())
    })
    .await;
    let rest = bench.claim(5).await;
    looks.after(&bench, "the last claim").await;
    bench.fail(&rest[0], None).await;
    looks.after(&bench, "a death").await;
    assert_eq!(bench.job(&id).await.status, JobStatus::Failed);

    let (id, chunks) = bench.running(3).await;
    let mut looks = Looks::begin(&bench, &id).await;
    assert_eq!(bench.store.job_cancel(&id).await.expect("job_cancel"), Cancelled::Yes);
    let leases: Vec<_> = chunks.iter().map(|chunk| chunk.lease).collect();
    bench.store.chunks_cancel(&leases).await.expect("chunks_cancel");
    looks.after(&bench, "a cancellation").await;
}
