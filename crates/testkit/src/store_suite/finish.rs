//! What an owner may do with a chunk: finish it, fail it, give it back, let it sleep, stop it.

use std::time::Duration;

use outhaul_core::id::{ChunkId, Lease};
use outhaul_core::job::{JobStatus, NewJob};
use outhaul_core::json::Json;
use outhaul_core::state::{ChunkState, ChunkStatus, MAX_RETURNS};
use outhaul_core::store::{Cancelled, JobFilter, Submitted};
use outhaul_core::worker::{Failure, Finish};

use super::bench::{Kit, LONG, SETTINGS, custom, job, keyed, plain};

pub(super) async fn finishing_counts_and_completes(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(3).await;
    assert_eq!(
        bench.store.chunks_finish(&[plain(&chunks[0])]).await.expect("chunks_finish"),
        [chunks[0].lease]
    );
    let half = bench.job(&id).await;
    assert_eq!((half.status, half.counts.done, half.counts.running), (JobStatus::InProgress, 1, 2));
    assert_eq!(half.completed_at, None);
    let started = half.started_at.expect("it has started");
    assert!(started >= half.created_at);

    assert_eq!(bench.finish(&chunks[1..]).await, 2);
    let whole = bench.job(&id).await;
    assert_eq!((whole.status, whole.counts.done, whole.counts.pending()), (JobStatus::Completed, 3, 0));
    assert_eq!(whole.started_at, Some(started));
    assert!(whole.completed_at.is_some_and(|end| end >= started));
    assert!(whole.version > half.version && whole.updated_at >= half.updated_at);
    assert_eq!(bench.states(&id).await, [ChunkState::Success; 3]);
    let rows = bench.store.chunks_list(&id, Some(ChunkStatus::Done), None, 10).await.expect("chunks_list");
    assert!(rows.items.iter().all(|row| row.started_at.is_some() && row.completed_at.is_some()));
    bench.counts_hold().await;
}

pub(super) async fn a_batch_records_what_is_still_owned(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(6).await;
    assert_eq!(
        bench.store.chunks_return(&[chunks[0].lease]).await.expect("chunks_return"),
        [chunks[0].lease]
    );
    assert_eq!(bench.claim(1).await[0].lease.fence, 2, "owned anew");
    bench.fail(&chunks[1], Some(LONG)).await.expect("still owned");
    bench.finish(&chunks[2..3]).await;
    let mut batch: Vec<_> = chunks.iter().map(plain).collect();
    batch.push({
        let nobody = Lease { chunk: ChunkId(987_654_321), fence: 1 };
        outhaul_core::worker::Finish { lease: nobody, ..plain(&chunks[0]) }
    });
    let mut recorded = bench.store.chunks_finish(&batch).await.expect("chunks_finish");
    recorded.sort();
    assert_eq!(recorded, [chunks[3].lease, chunks[4].lease, chunks[5].lease]);
    let job = bench.job(&id).await;
    assert_eq!((job.counts.done, job.counts.running, job.counts.pending()), (4, 1, 1));
    assert_eq!(job.status, JobStatus::InProgress);
    bench.counts_hold().await;
}

pub(super) async fn a_result_is_kept_with_its_job(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let new = keyed(custom(), "key", "hash");
    let (id, chunks) = bench.running_of(new.clone()).await;
    assert_eq!(bench.job(&id).await.result, None);
    let text = r#"{"sent": ["a\u0000b", "ü", null], "n": [9007199254740993, 0.10, 123456789012345678901234567890], "'": "\\ % ?1"}"#;
    let finish = Finish { result: Some(text.to_owned()), ..plain(&chunks[0]) };
    assert_eq!(bench.store.chunks_finish(&[finish]).await.expect("chunks_finish").len(), 1);
    let done = bench.job(&id).await;
    assert_eq!((done.status, done.result.as_ref()), (JobStatus::Completed, Json::stored(text).as_ref()));
    let again = bench.store.job_submit(NewJob { job_id: custom().job_id, ..new }).await.expect("job_submit");
    assert_eq!(again, Submitted::Existing(done), "whoever asks again gets it, too");
    let page =
        bench.store.jobs_list(&JobFilter { limit: 10, ..JobFilter::default() }).await.expect("jobs_list");
    assert_eq!(page.items.iter().map(|job| &job.result).collect::<Vec<_>>(), [&None], "lists stay small");

    let (id, chunks) = bench.running(2).await;
    for (n, result) in [Some("[1]".to_owned()), None].into_iter().enumerate() {
        let finish = Finish { result, ..plain(&chunks[n]) };
        bench.store.chunks_finish(&[finish]).await.expect("chunks_finish");
    }
    assert_eq!(bench.job(&id).await.result, Json::stored("[1]"), "no result takes none away");
    let (id, chunks) = bench.running_of(custom()).await;
    let finish = Finish { result: Some("null".to_owned()), ..plain(&chunks[0]) };
    bench.store.chunks_finish(&[finish]).await.expect("chunks_finish");
    assert_eq!(bench.job(&id).await.result, Some(Json::null()), "null is a result");
}

pub(super) async fn a_lease_named_twice_counts_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(2).await;
    let twice = [plain(&chunks[0]), plain(&chunks[0])];
    bench.store.chunks_finish(&twice).await.expect("chunks_finish");
    let job = bench.job(&id).await;
    assert_eq!((job.status, job.counts.done, job.counts.running), (JobStatus::InProgress, 1, 1));
    let again = bench.store.chunks_finish(&twice).await.expect("chunks_finish");
    assert_eq!(again, [], "what was finished is no longer owned");
    let returned = bench.store.chunks_return(&[chunks[1].lease; 2]).await.expect("chunks_return");
    assert!(returned.contains(&chunks[1].lease));
    assert_eq!(bench.claim(10).await.len(), 1);
    bench.counts_hold().await;
}

/// A worker that lost a chunk and claimed it again may flush both outcomes in one batch.
pub(super) async fn a_stale_lease_beside_the_current_one_changes_nothing(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(4).await;
    let leases: Vec<Lease> = chunks.iter().map(|chunk| chunk.lease).collect();
    assert_eq!(bench.store.chunks_return(&leases).await.expect("chunks_return").len(), 4);
    let mut again = bench.claim(4).await;
    again.sort_by_key(|chunk| chunk.lease);
    let finishes = [plain(&chunks[0]), plain(&again[0]), plain(&again[1]), plain(&chunks[1])];
    let mut recorded = bench.store.chunks_finish(&finishes).await.expect("chunks_finish");
    recorded.sort();
    assert_eq!(recorded, [again[0].lease, again[1].lease], "the current ones");
    let job = bench.job(&id).await;
    assert_eq!((job.status, job.counts.done, job.counts.running), (JobStatus::InProgress, 2, 2));

    let failure = |lease, cause: &str| Failure {
        lease,
        expired: false,
        retry_in: (cause == "stale").then_some(LONG),
        cause: cause.to_owned(),
        step: None,
        detail: None,
    };
    let failures = [failure(chunks[2].lease, "stale"), failure(again[2].lease, "current")];
    let settled = bench.store.chunks_fail(&failures).await.expect("chunks_fail");
    assert_eq!(settled.len(), 1);
    assert_eq!((settled[0].lease, settled[0].state), (again[2].lease, ChunkState::Dead));
    let rows = bench.store.chunks_list(&id, Some(ChunkStatus::Failed), None, 10).await.expect("chunks_list");
    assert_eq!(rows.items.len(), 1);
    assert_eq!(
        rows.items[0].error_message.as_deref(),
        Some("current"),
        "the owner's cause, not the stale one's"
    );
    let message = bench.job(&id).await.error_message.expect("it failed");
    assert!(message.ends_with(": current"), "{message}");
    bench.counts_hold().await;
}

pub(super) async fn one_batch_may_finish_several_jobs(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut ids = Vec::new();
    let mut all = Vec::new();
    for chunks in [100, 1, 30] {
        let (id, claimed) = bench.running(chunks).await;
        ids.push((id, chunks as i64));
        all.extend(claimed);
    }
    assert_eq!(bench.finish(&all).await, 131);
    for (id, chunks) in ids {
        let job = bench.job(&id).await;
        assert_eq!((job.status, job.counts.done), (JobStatus::Completed, chunks));
    }
    bench.counts_hold().await;
}

pub(super) async fn a_retry_waits_for_its_backoff(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(2).await;
    assert_eq!(bench.fail(&chunks[0], Some(LONG)).await, Some(ChunkState::Retry));
    assert_eq!(bench.fail(&chunks[1], Some(Duration::ZERO)).await, Some(ChunkState::Retry));
    let job = bench.job(&id).await;
    assert_eq!((job.status, job.counts.failed, job.counts.pending()), (JobStatus::InProgress, 0, 2));
    assert_eq!(job.error_message, None, "a chunk that is tried again has not failed");
    let page = bench.store.chunks_list(&id, None, None, 10).await.expect("chunks_list");
    assert!(page.items.iter().all(|row| row.error_message.as_deref() == Some("the source went away")));

    assert!(bench.claim(10).await.is_empty(), "RETRY waits for the stager");
    assert_eq!(bench.stage().await.queued, 1);
    let again = bench.claim(10).await;
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].lease.chunk, again[0].attempt), (chunks[1].lease.chunk, 2));
    assert_eq!(again[0].lease.fence, 2);
    bench.counts_hold().await;
}

pub(super) async fn giving_back_is_free_three_times_in_a_row(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let created = bench.submit(job(1)).await;
    for n in 1..=i64::from(MAX_RETURNS) {
        let chunk = bench.claim_one().await;
        assert_eq!((chunk.attempt, chunk.lease.fence), (1, n), "not counted");
        assert_eq!(bench.store.chunks_return(&[chunk.lease]).await.expect("chunks_return"), [chunk.lease]);
        assert_eq!(bench.job(&created.job_id).await.status, JobStatus::InProgress);
    }
    let chunk = bench.claim_one().await;
    assert_eq!(bench.store.chunks_return(&[chunk.lease]).await.expect("chunks_return"), [], "once too often");
    assert_eq!(bench.states(&created.job_id).await, [ChunkState::Running], "and it stays owned");
    assert_eq!(bench.fail(&chunk, Some(Duration::ZERO)).await, Some(ChunkState::Retry));
    bench.stage().await;
    let chunk = bench.claim_one().await;
    assert_eq!(chunk.attempt, 2);
    assert_eq!(
        bench.store.chunks_return(&[chunk.lease]).await.expect("chunks_return"),
        [chunk.lease],
        "a real outcome starts the row anew"
    );
}

pub(super) async fn a_snooze_is_not_an_attempt(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let created = bench.submit(job(2)).await;
    let (one, two) = (bench.claim_one().await, bench.claim_one().await);
    assert!(bench.store.chunk_snooze(one.lease, Duration::ZERO).await.expect("chunk_snooze"));
    assert!(bench.store.chunk_snooze(two.lease, LONG).await.expect("chunk_snooze"));
    assert_eq!(bench.states(&created.job_id).await, [ChunkState::Created; 2]);
    let job = bench.job(&created.job_id).await;
    assert_eq!((job.status, job.counts.pending()), (JobStatus::InProgress, 2));
    assert!(bench.claim(10).await.is_empty(), "it sleeps until the stager wakes it");
    assert_eq!(bench.stage().await.queued, 1);
    let again = bench.claim(10).await;
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].lease.chunk, again[0].attempt, again[0].lease.fence), (one.lease.chunk, 1, 2));
}

pub(super) async fn only_cancelled_jobs_have_chunks_stopped(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(2).await;
    let leases = [chunks[0].lease, chunks[1].lease];
    assert_eq!(bench.store.chunks_cancelled(&leases).await.expect("chunks_cancelled"), []);
    assert_eq!(bench.store.chunks_cancel(&leases).await.expect("chunks_cancel"), [], "the job goes on");
    assert!(bench.store.chunk_may_publish(leases[0]).await.expect("chunk_may_publish"));

    assert_eq!(bench.other.job_cancel(&id).await.expect("job_cancel"), Cancelled::Yes);
    let mut cancelled = bench.store.chunks_cancelled(&leases).await.expect("chunks_cancelled");
    cancelled.sort();
    assert_eq!(cancelled, leases);
    assert!(!bench.store.chunk_may_publish(leases[0]).await.expect("chunk_may_publish"));
    assert_eq!(bench.store.chunks_cancel(&leases[..1]).await.expect("chunks_cancel"), leases[..1]);
    assert_eq!(bench.fail(&chunks[1], Some(Duration::ZERO)).await, Some(ChunkState::Cancelled), "no retry");
    bench.stage().await;
    let job = bench.job(&id).await;
    assert_eq!((job.status, job.counts.cancelled, job.counts.failed), (JobStatus::Cancelled, 2, 0));
    assert!(job.completed_at.is_some());
    bench.counts_hold().await;
}
