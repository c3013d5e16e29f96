//! Leases: renewal, running out, and the fence that keeps a former owner from writing.

use std::time::Duration;

use outhaul_core::file::{FileBegun, Upload};
use outhaul_core::id::Lease;
use outhaul_core::job::{EXPORT, NewJob};
use outhaul_core::reuse::Reuse;
use outhaul_core::state::ChunkState;
use outhaul_core::store::Store;
use outhaul_core::worker::{ClaimedChunk, Failure};

use super::bench::{Bench, Kit, LONG, SETTINGS, SHORT_LEASE, eventually, job, plain, state_of};
use super::files::{begin, identity};

pub(super) async fn a_heartbeat_moves_the_lease_on(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (_, chunks) = bench.running(3).await;
    let sql = format!("select min({}) from job_chunk", bench.probe.micros("lease_until"));
    let before = bench.probe.number(&sql).await;
    let leases: Vec<Lease> = chunks.iter().map(|chunk| chunk.lease).collect();
    bench.finish(&chunks[2..]).await;
    let store = &bench.store;
    let (worker, leases) = (bench.worker, &leases[..]);
    eventually("the lease ends later", || async {
        let mut beat = store.chunks_heartbeat(worker, leases, &[]).await.expect("chunks_heartbeat");
        beat.renewed.sort();
        assert_eq!((beat.renewed, beat.skipped), (leases[..2].to_vec(), vec![]), "the finished one is lost");
        (bench.probe.number(&sql).await > before).then_some(())
    })
    .await;
    assert_eq!(bench.store.chunks_expired(&[], Duration::ZERO, 10).await.expect("chunks_expired"), []);
}

/// Every verb a worker writes with, under a lease that another claim has replaced.
async fn nothing_is_written(store: &dyn Store, bench: &Bench, stale: &ClaimedChunk) {
    let lease = stale.lease;
    let upload = Upload { path: "exports/x".to_owned(), upload_id: "u".to_owned() };
    let key = stale.key.as_deref().expect("exports have keys");
    let failure = |expired| Failure {
        lease,
        expired,
        retry_in: None,
        cause: "stale".to_owned(),
        step: None,
        detail: None,
    };
    assert_eq!(store.chunks_finish(&[plain(stale)]).await.expect("chunks_finish"), []);
    assert_eq!(store.chunks_fail(&[failure(false)]).await.expect("chunks_fail"), []);
    assert_eq!(store.chunks_fail(&[failure(true)]).await.expect("chunks_fail"), []);
    assert_eq!(store.chunks_return(&[lease]).await.expect("chunks_return"), []);
    assert!(!store.chunk_snooze(lease, Duration::ZERO).await.expect("chunk_snooze"));
    assert_eq!(store.chunks_cancel(&[lease]).await.expect("chunks_cancel"), []);
    let beat = store.chunks_heartbeat(bench.worker, &[lease], &[]).await.expect("chunks_heartbeat");
    assert_eq!(beat.renewed, []);
    assert!(!store.chunk_may_publish(lease).await.expect("chunk_may_publish"));
    assert!(!store.file_upload(lease, &identity(key), &upload).await.expect("file_upload"));
    let begun = store.file_begin(&begin(stale, key, Reuse::Never)).await.expect("file_begin");
    assert_eq!(begun, FileBegun::LeaseLost);
    assert_eq!(store.steps_recorded(lease).await.expect("steps_recorded"), None);
    assert!(!store.step_record(lease, "step", "1").await.expect("step_record"));
}

pub(super) async fn a_stale_fence_is_refused_by_every_verb(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let id = bench.submit(job(1)).await.job_id;
    let stale = bench.claim_one().await;
    let begun = bench.store.file_begin(&begin(&stale, "K00000", Reuse::Never)).await.expect("file_begin");
    assert!(matches!(begun, FileBegun::Write(_)));
    bench.store.chunks_return(&[stale.lease]).await.expect("chunks_return");
    nothing_is_written(&*bench.store, &bench, &stale).await;
    assert_eq!(bench.states(&id).await, [ChunkState::Queued], "it waits for a new owner");

    let owner = bench.claim_one().await;
    let version = bench.job(&id).await.version;
    nothing_is_written(&*bench.other, &bench, &stale).await;
    assert_eq!(bench.job(&id).await.version, version);
    assert_eq!(bench.states(&id).await, [ChunkState::Running], "its new owner has it");
    bench.store.job_cancel(&id).await.expect("job_cancel");
    nothing_is_written(&*bench.store, &bench, &stale).await;
    assert_eq!(bench.states(&id).await, [ChunkState::Running], "also when the job is cancelled");
    assert_eq!(bench.finish(std::slice::from_ref(&owner)).await, 1);
    nothing_is_written(&*bench.store, &bench, &stale).await;
    nothing_is_written(&*bench.store, &bench, &owner).await;
    assert_eq!(bench.states(&id).await, [ChunkState::Success]);
    bench.counts_hold().await;
}

fn lost(lease: Lease, retry_in: Option<Duration>) -> Failure {
    Failure {
        lease,
        expired: true,
        retry_in,
        cause: "the worker stopped answering".to_owned(),
        step: None,
        detail: None,
    }
}

pub(super) async fn only_a_lease_that_ran_out_expires(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(1).await;
    let lease = chunks[0].lease;
    assert_eq!(bench.store.chunks_expired(&[], Duration::ZERO, 10).await.expect("chunks_expired"), []);
    assert_eq!(bench.store.chunks_fail(&[lost(lease, None)]).await.expect("chunks_fail"), [], "it is held");
    assert_eq!(bench.states(&id).await, [ChunkState::Running]);

    let bench = kit.bench(SHORT_LEASE).await;
    let (id, chunks) = bench.running(2).await;
    let expired = bench.expired(2).await;
    assert_eq!(expired.len(), 2);
    for (found, chunk) in expired.iter().zip(&chunks) {
        assert_eq!((found.lease, found.attempt, found.cancelled), (chunk.lease, 1, false));
        assert_eq!((&found.job_type, &found.dataset), (&chunk.job_type, &chunk.dataset));
    }
    let failures = [lost(chunks[0].lease, Some(Duration::ZERO)), lost(chunks[1].lease, None)];
    let settled = bench.store.chunks_fail(&failures).await.expect("chunks_fail");
    assert_eq!(state_of(&settled, chunks[0].lease), Some(ChunkState::Retry));
    assert_eq!(state_of(&settled, chunks[1].lease), Some(ChunkState::Dead));
    let job = bench.job(&id).await;
    assert_eq!(
        job.error_message.as_deref(),
        Some("Chunk failed after retries: key=K00001 date=2025-03-15: the worker stopped answering")
    );
    bench.counts_hold().await;
}

pub(super) async fn expired_chunks_that_nobody_may_judge_hide_no_others(kit: Kit) {
    let bench = kit.bench(SHORT_LEASE).await;
    let strange = NewJob { job_type: "STRANGE".to_owned(), dataset: None, ..job(3) };
    let (_, strange) = bench.running_of(strange).await;
    let (_, known) = bench.running(1).await;
    bench.expired(4).await;
    let expired = async |known: &[&str], abandoned, limit| {
        let known: Vec<String> = known.iter().map(|&name| name.to_owned()).collect();
        let found = bench.store.chunks_expired(&known, abandoned, limit).await.expect("chunks_expired");
        found.into_iter().map(|chunk| chunk.lease).collect::<Vec<Lease>>()
    };
    assert_eq!(expired(&[EXPORT, "OTHER"], LONG, 1).await, [known[0].lease]);
    assert_eq!(expired(&["STRANGE"], LONG, 10).await, strange.iter().map(|c| c.lease).collect::<Vec<_>>());
    assert_eq!(expired(&[], LONG, 10).await, []);
    assert_eq!(expired(&[EXPORT], Duration::ZERO, 10).await.len(), 4, "abandoned ones are anybody's");
}

pub(super) async fn lost_leases_are_counted_in_a_row(kit: Kit) {
    let bench = kit.bench(SHORT_LEASE).await;
    bench.submit(job(1)).await;
    for lost_before in 0..3 {
        let chunk = bench.claim_one().await;
        assert_eq!((chunk.lost, chunk.attempt), (lost_before, lost_before + 1));
        bench.expired(1).await;
        bench.store.chunks_fail(&[lost(chunk.lease, Some(Duration::ZERO))]).await.expect("chunks_fail");
        bench.stage().await;
    }
    let chunk = bench.claim_one().await;
    assert_eq!(chunk.lost, 3);
    assert_eq!(bench.fail(&chunk, Some(Duration::ZERO)).await, Some(ChunkState::Retry), "not yet reaped");
    bench.stage().await;
    assert_eq!(bench.claim_one().await.lost, 0, "an outcome of its own starts the row anew");
}

pub(super) async fn an_expired_chunk_of_a_cancelled_job_is_cancelled(kit: Kit) {
    let bench = kit.bench(SHORT_LEASE).await;
    let (id, chunks) = bench.running(1).await;
    bench.store.job_cancel(&id).await.expect("job_cancel");
    let expired = bench.expired(1).await;
    assert!(expired[0].cancelled);
    let settled = bench.store.chunks_fail(&[lost(chunks[0].lease, Some(LONG))]).await.expect("chunks_fail");
    assert_eq!(state_of(&settled, chunks[0].lease), Some(ChunkState::Cancelled));
    bench.stage().await;
    let job = bench.job(&id).await;
    assert_eq!((job.counts.cancelled, job.counts.failed), (1, 0));
    assert!(job.completed_at.is_some());
    bench.counts_hold().await;
}

pub(super) async fn an_expired_lease_may_not_publish(kit: Kit) {
    let bench = kit.bench(SHORT_LEASE).await;
    let (_, chunks) = bench.running(1).await;
    bench.expired(1).await;
    assert!(!bench.store.chunk_may_publish(chunks[0].lease).await.expect("chunk_may_publish"));
    assert_eq!(bench.finish(&chunks).await, 1, "but nobody else took it: what was published is recorded");
}
