//! Progress: what running chunks tell of themselves is summed up in their job, never goes backwards,
//! and is gone when they settle, for then the counts have it.

use std::slice;
use std::time::Duration;

use outhaul_core::id::{ChunkId, JobId, Lease};
use outhaul_core::job::{JobStatus, NewJob, OnFailure};
use outhaul_core::progress::{ChunkProgress, Moving, Progress};
use outhaul_core::reuse::Reuse;
use outhaul_core::state::ChunkState;
use outhaul_core::store::{JobFilter, Redriven, Submitted};
use outhaul_core::worker::{ClaimedChunk, Failure};

use super::bench::{Bench, Kit, SETTINGS, SHORT_LEASE, at_once, job, keyed, plain};
use super::files::{begin, generated};

const NOTHING: Moving = Moving { rows: 0, bytes: 0, chunks: 0.0 };

/// So many rows, ten bytes each. Fractions are quarters throughout, so that sums are exact.
fn progress(lease: Lease, rows: i64, fraction: f64) -> Progress {
    Progress { lease, rows, bytes: 10 * rows, fraction }
}

fn moving(rows: i64, chunks: f64) -> Moving {
    Moving { rows, bytes: 10 * rows, chunks }
}

async fn record(bench: &Bench, batch: &[Progress]) {
    bench.store.progress_record(batch).await.expect("progress_record");
}

async fn shown(bench: &Bench, id: &JobId) -> Moving {
    bench.job(id).await.moving
}

async fn stored(bench: &Bench) -> i64 {
    bench.probe.number("select count(*) from chunk_progress").await
}

pub(super) async fn progress_is_summed_up_by_job(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let new = keyed(job(4), "key", "hash");
    let id = bench.submit(new.clone()).await.job_id;
    let chunks = bench.claim(3).await;
    let (other, others) = bench.running_of(job(1)).await;
    assert!(chunks.iter().all(|chunk| chunk.job_id == id) && others[0].job_id == other);
    assert_eq!(shown(&bench, &id).await, NOTHING);

    let rows = [(100, 0.25), (20, 0.5), (3, 0.0)];
    let batch: Vec<Progress> =
        chunks.iter().zip(rows).map(|(chunk, (rows, part))| progress(chunk.lease, rows, part)).collect();
    record(&bench, &batch).await;
    let sum = moving(123, 0.75);
    let job = bench.job(&id).await;
    assert_eq!((job.moving, job.counts.running, job.counts.rows), (sum, 3, 0));
    assert_eq!(job.counts.progress(&job.moving), 0.75 / 4.0);
    assert_eq!(shown(&bench, &other).await, NOTHING, "another job's is its own");
    record(&bench, &[progress(others[0].lease, 7, 0.25)]).await;
    record(&bench, &[progress(chunks[2].lease, 5, 0.5)]).await;
    let sum = Moving { chunks: 1.25, ..moving(sum.rows + 2, 0.0) };

    let listed = bench.store.jobs_list(&JobFilter { limit: 10, ..JobFilter::default() }).await;
    let listed = listed.expect("jobs_list").items;
    assert_eq!(listed.iter().map(|job| job.moving).collect::<Vec<_>>(), [moving(7, 0.25), sum]);
    let got = bench.store.jobs_get(slice::from_ref(&id)).await.expect("jobs_get");
    assert_eq!(got.iter().map(|job| job.moving).collect::<Vec<_>>(), [sum]);
    match bench.store.job_submit(NewJob { job_id: bench_id(), ..new }).await.expect("job_submit") {
        Submitted::Existing(found) => assert_eq!((found.job_id, found.moving), (id, sum)),
        other => panic!("the key names a job: {other:?}"),
    }
    record(&bench, &[]).await;
}

fn bench_id() -> JobId {
    job(0).job_id
}

pub(super) async fn only_the_owner_records_progress(kit: Kit) {
    let bench = kit.bench(SHORT_LEASE).await;
    let (id, chunks) = bench.running(5).await;
    let [lost, given_back, asleep, done, good] = [0, 1, 2, 3, 4].map(|n| &chunks[n]);
    bench.expired(5).await;
    let failure = Failure {
        lease: lost.lease,
        expired: true,
        retry_in: Some(Duration::ZERO),
        cause: "lost".to_owned(),
        step: None,
        detail: None,
    };
    assert_eq!(bench.store.chunks_fail(&[failure]).await.expect("chunks_fail").len(), 1);
    assert_eq!(bench.store.chunks_return(&[given_back.lease]).await.expect("chunks_return").len(), 1);
    assert!(bench.store.chunk_snooze(asleep.lease, Duration::from_secs(3600)).await.expect("chunk_snooze"));
    assert_eq!(bench.finish(slice::from_ref(done)).await, 1);

    let nobody = Lease { chunk: ChunkId(i64::MAX), fence: 1 };
    let future = Lease { fence: good.lease.fence + 1, ..good.lease };
    let mut leases: Vec<Lease> = [lost, given_back, asleep, done].map(|chunk| chunk.lease).to_vec();
    leases.extend([nobody, future]);
    let refused: Vec<Progress> = leases.iter().map(|lease| progress(*lease, 1000, 0.75)).collect();
    record(&bench, &refused).await;
    assert_eq!((shown(&bench, &id).await, stored(&bench).await), (NOTHING, 0));

    // Beside them in one batch the good one counts, wherever it stands.
    let mut mixed = refused.clone();
    mixed.insert(3, progress(good.lease, 10, 0.25));
    record(&bench, &mixed).await;
    assert_eq!((shown(&bench, &id).await, stored(&bench).await), (moving(10, 0.25), 1));

    bench.stage().await;
    let again = bench.claim(10).await;
    assert_eq!(again.len(), 2, "the lost one and the one given back");
    record(&bench, &refused).await;
    assert_eq!(shown(&bench, &id).await, moving(10, 0.25), "an old fence of a chunk that runs again");
    let now: Vec<Progress> = again.iter().map(|chunk| progress(chunk.lease, 1, 0.25)).collect();
    record(&bench, &now).await;
    assert_eq!(shown(&bench, &id).await, moving(12, 0.75));
}

pub(super) async fn progress_never_goes_backwards(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, mut chunks) = bench.running(1).await;
    let mut chunk = chunks.remove(0);
    record(&bench, &[progress(chunk.lease, 100, 0.5)]).await;
    record(&bench, &[progress(chunk.lease, 40, 0.25)]).await;
    assert_eq!(shown(&bench, &id).await, moving(100, 0.5), "a late report");
    // Each number by itself.
    record(&bench, &[Progress { lease: chunk.lease, rows: 110, bytes: 1, fraction: 0.0 }]).await;
    record(&bench, &[Progress { lease: chunk.lease, rows: 1, bytes: 1100, fraction: 0.0 }]).await;
    record(&bench, &[Progress { lease: chunk.lease, rows: 1, bytes: 1, fraction: 0.75 }]).await;
    let most = moving(110, 0.75);
    assert_eq!(shown(&bench, &id).await, most);

    for end in ["failed", "given back", "asleep"] {
        match end {
            "failed" => {
                let state = bench.fail(&chunk, Some(Duration::ZERO)).await;
                assert_eq!(state, Some(ChunkState::Retry));
            }
            "given back" => {
                assert_eq!(bench.store.chunks_return(&[chunk.lease]).await.expect("chunks_return").len(), 1);
            }
            _ => assert!(bench.store.chunk_snooze(chunk.lease, Duration::ZERO).await.expect("chunk_snooze")),
        }
        assert_eq!(shown(&bench, &id).await, most, "{end}, it waits with what it had");
        chunk = bench.claim_again().await;
        assert_eq!(shown(&bench, &id).await, most, "{end}, it runs again");
        record(&bench, &[progress(chunk.lease, 5, 0.25)]).await;
        assert_eq!(shown(&bench, &id).await, most, "{end}, it is behind where it was");
    }
    record(&bench, &[progress(chunk.lease, 111, 0.75)]).await;
    assert_eq!(shown(&bench, &id).await, moving(111, 0.75), "and goes on from there");
    assert_eq!(stored(&bench).await, 1);
}

/// What the list of a job's chunks shows of each.
async fn listed(bench: &Bench, id: &JobId) -> Vec<(ChunkId, Option<ChunkProgress>)> {
    let page = bench.store.chunks_list(id, None, None, 10).await.expect("chunks_list");
    page.items.into_iter().map(|row| (row.id, row.progress)).collect()
}

pub(super) async fn running_chunks_show_how_far_they_are(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(4).await;
    let half = ChunkProgress { rows: 100, bytes: 1000, fraction: 0.5 };
    let of = |rows: &[(ChunkId, Option<ChunkProgress>)], chunk: &ClaimedChunk| {
        rows.iter().find(|(id, _)| *id == chunk.lease.chunk).expect("it is listed").1
    };
    assert!(listed(&bench, &id).await.iter().all(|(_, progress)| progress.is_none()), "nobody told");
    let batch: Vec<Progress> = chunks[..3].iter().map(|chunk| progress(chunk.lease, 100, 0.5)).collect();
    record(&bench, &batch).await;
    assert_eq!(bench.finish(&chunks[..1]).await, 1);
    assert_eq!(bench.store.chunks_return(&[chunks[1].lease]).await.expect("chunks_return").len(), 1);
    let rows = listed(&bench, &id).await;
    assert_eq!(of(&rows, &chunks[0]), None, "what is done has a file");
    assert_eq!(of(&rows, &chunks[1]), None, "what waits does not run");
    assert_eq!(of(&rows, &chunks[2]), Some(half));
    assert_eq!(of(&rows, &chunks[3]), None, "it has not told yet");
    let again = bench.claim_again().await;
    assert_eq!(again.lease.chunk, chunks[1].lease.chunk);
    assert_eq!(of(&listed(&bench, &id).await, &again), Some(half), "it goes on from there");
}

/// A job of two: one that settles as `end` says, and one that goes on.
async fn settles<End>(bench: &Bench, what: &str, end: End) -> JobId
where
    End: AsyncFnOnce(&JobId, &ClaimedChunk),
{
    let before = stored(bench).await;
    let (id, chunks) = bench.running_of(NewJob { on_failure: OnFailure::Continue, ..job(2) }).await;
    record(bench, &[progress(chunks[0].lease, 100, 0.5), progress(chunks[1].lease, 7, 0.25)]).await;
    assert_eq!(shown(bench, &id).await, moving(107, 0.75), "{what}");
    end(&id, &chunks[0]).await;
    assert_eq!(shown(bench, &id).await, moving(7, 0.25), "{what}: only what still runs is on its way");
    assert_eq!(stored(bench).await, before + 1, "{what}");
    id
}

pub(super) async fn what_is_settled_is_in_the_counts_alone(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let store = &bench.store;
    let id = settles(&bench, "done", async |_, chunk| {
        let key = chunk.key.as_deref().expect("exports have keys");
        store.file_begin(&begin(chunk, key, Reuse::Never)).await.expect("file_begin");
        let done = store.chunks_finish(&[generated(chunk, key)]).await.expect("chunks_finish");
        assert_eq!(done.len(), 1);
    })
    .await;
    let counts = bench.job(&id).await.counts;
    assert!(counts.done == 1 && counts.rows > 0 && counts.bytes > 0, "{counts:?}");

    let id = settles(&bench, "dead", async |_, chunk| {
        assert_eq!(bench.fail(chunk, None).await, Some(ChunkState::Dead));
    })
    .await;
    assert_eq!(bench.job(&id).await.counts.failed, 1);
    // A redrive is a new beginning of that chunk.
    assert_eq!(store.job_redrive(&id).await.expect("job_redrive"), Redriven::Yes(1));
    let again = bench.claim_one().await;
    assert_eq!(shown(&bench, &id).await, moving(7, 0.25));
    record(&bench, &[progress(again.lease, 1, 0.25)]).await;
    assert_eq!(shown(&bench, &id).await, moving(8, 0.5));
    assert_eq!(bench.finish(&[again]).await, 1);

    let cancel = async |id: &JobId| {
        store.job_cancel(id).await.expect("job_cancel");
    };
    let by_owner = settles(&bench, "cancelled by its owner", async |id, chunk| {
        cancel(id).await;
        assert_eq!(store.chunks_cancel(&[chunk.lease]).await.expect("chunks_cancel").len(), 1);
    })
    .await;
    let failing = settles(&bench, "failed when its job was cancelled", async |id, chunk| {
        cancel(id).await;
        assert_eq!(bench.fail(chunk, Some(Duration::ZERO)).await, Some(ChunkState::Cancelled));
    })
    .await;
    let by_sweep = settles(&bench, "cancelled while it waited", async |id, chunk| {
        assert_eq!(bench.fail(chunk, Some(Duration::from_secs(3600))).await, Some(ChunkState::Retry));
        cancel(id).await;
        assert_eq!(bench.stage().await.cancelled, 1);
    })
    .await;
    for id in [by_owner, failing, by_sweep] {
        let job = bench.job(&id).await;
        assert_eq!((job.status, job.counts.cancelled), (JobStatus::Cancelled, 1));
    }
}

/// A report that is late by a moment, from the process that does not know yet.
pub(super) async fn recording_against_finishing(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for round in 0..20 {
        let (id, chunks) = bench.running(4).await;
        let finishes: Vec<_> = chunks.iter().map(plain).collect();
        let reports: Vec<Progress> = chunks.iter().map(|chunk| progress(chunk.lease, 9, 0.5)).collect();
        let (store, other) = (bench.store.clone(), bench.other.clone());
        let finish: futures::future::BoxFuture<'static, usize> =
            Box::pin(async move { store.chunks_finish(&finishes).await.expect("chunks_finish").len() });
        let report: futures::future::BoxFuture<'static, usize> = Box::pin(async move {
            for _ in 0..3 {
                other.progress_record(&reports).await.expect("progress_record");
            }
            0
        });
        assert_eq!(at_once(vec![finish, report]).await, [4, 0], "round {round}");
        let job = bench.job(&id).await;
        assert_eq!((job.status, job.moving), (JobStatus::Completed, NOTHING), "round {round}");
    }
}

/// Reports of two processes that name the same chunks in another order. None may fail.
pub(super) async fn reports_that_cross_do_not_deadlock(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(40).await;
    let mut acts = Vec::new();
    for n in 0..6_i64 {
        let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
        let mut leases: Vec<Lease> = chunks.iter().map(|chunk| chunk.lease).collect();
        if n % 2 == 0 {
            leases.reverse();
        }
        acts.push(async move {
            for rows in 1..=10 {
                let batch: Vec<Progress> =
                    leases.iter().map(|lease| progress(*lease, 10 * rows + n, 0.25)).collect();
                store.progress_record(&batch).await.expect("progress_record");
            }
        });
    }
    at_once(acts).await;
    assert_eq!(shown(&bench, &id).await, moving(40 * 105, 10.0), "the furthest report of each");
}
