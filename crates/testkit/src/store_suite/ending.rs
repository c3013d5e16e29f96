//! How jobs end, and how a person starts them again.

use std::time::Duration;

use outhaul_core::clock;
use outhaul_core::id::JobId;
use outhaul_core::job::{JobStatus, NewChunk, NewJob, OnFailure};
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Cancelled, Redriven, Staged};

use super::bench::{Kit, LONG, MAIL, SETTINGS, at_once, chunk, custom, job};

fn unknown() -> JobId {
    JobId::new(clock::now(), 1)
}

pub(super) async fn the_first_dead_chunk_stops_the_job(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let chunks = ["ABC", "DEF", "GHI", "JKL"].map(chunk).to_vec();
    let id = bench.submit(NewJob { chunks, ..job(0) }).await.job_id;
    let running = bench.claim(3).await;
    assert_eq!(bench.fail(&running[1], Some(LONG)).await, Some(ChunkState::Retry));
    assert_eq!(bench.fail(&running[0], None).await, Some(ChunkState::Dead));
    let failed = bench.job(&id).await;
    assert_eq!((failed.status, failed.counts.failed), (JobStatus::Failed, 1), "at once");
    assert_eq!(
        failed.error_message.as_deref(),
        Some("Chunk failed after retries: key=ABC date=2025-03-15: the source went away")
    );
    assert_eq!(failed.completed_at, None, "one is still running");

    let staged = bench.stage().await;
    assert_eq!((staged.held, staged.queued, staged.settled), (2, 0, 0), "RETRY and QUEUED are held");
    use ChunkState::{Created, Dead, Running};
    assert_eq!(bench.states(&id).await, [Dead, Created, Running, Created]);
    assert_eq!(bench.finish(&running[2..]).await, 1, "what runs may finish");
    bench.stage().await;
    let ended = bench.job(&id).await;
    assert_eq!((ended.status, ended.counts.done, ended.counts.failed), (JobStatus::Failed, 1, 1));
    assert_eq!(ended.counts.pending(), 2);
    assert!(ended.completed_at.is_some(), "none is running");
    assert_eq!(ended.error_message, failed.error_message);
    bench.counts_hold().await;
}

pub(super) async fn continue_fails_when_all_are_settled(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for last_one_fails in [false, true] {
        let (id, chunks) = bench.running_of(NewJob { on_failure: OnFailure::Continue, ..job(3) }).await;
        let (last, first) = if last_one_fails { (&chunks[0], &chunks[2]) } else { (&chunks[2], &chunks[0]) };
        if last_one_fails {
            bench.finish(std::slice::from_ref(first)).await;
        } else {
            assert_eq!(bench.fail(first, None).await, Some(ChunkState::Dead));
        }
        bench.finish(&chunks[1..2]).await;
        bench.stage().await;
        let going_on = bench.job(&id).await;
        assert_eq!((going_on.status, going_on.completed_at), (JobStatus::InProgress, None));
        assert_eq!(going_on.counts.failed, i64::from(!last_one_fails));
        if last_one_fails {
            assert_eq!(bench.fail(last, None).await, Some(ChunkState::Dead));
        } else {
            assert_eq!(bench.finish(std::slice::from_ref(last)).await, 1);
        }
        let ended = bench.job(&id).await;
        assert_eq!((ended.status, ended.counts.done, ended.counts.failed), (JobStatus::Failed, 2, 1));
        assert!(ended.completed_at.is_some());
        let message = ended.error_message.expect("a failed job says why");
        assert!(message.starts_with("Chunk failed after retries: key=K0000"), "{message}");
    }
    bench.counts_hold().await;
}

pub(super) async fn a_chunk_without_key_fails_with_its_cause(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let main =
        NewChunk { chunk_key: "main".to_owned(), queue: MAIL.to_owned(), key: None, effective_date: None };
    let new =
        NewJob { job_type: "MAIL".to_owned(), dataset: None, base_path: None, chunks: vec![main], ..job(0) };
    let id = bench.submit(new).await.job_id;
    let wants = [outhaul_core::worker::Want { queue: bench.mail, limit: 1 }];
    let claimed = bench.store.chunks_claim(bench.worker, &wants, 1).await.expect("chunks_claim");
    assert_eq!((&claimed[0].key, claimed[0].effective_date, &claimed[0].dataset), (&None, None, &None));
    assert_eq!(bench.fail(&claimed[0], None).await, Some(ChunkState::Dead));
    let message = bench.job(&id).await.error_message.expect("a failed job says why");
    assert_eq!(message, "Chunk failed after retries: chunk=main: the source went away");
}

pub(super) async fn a_step_that_fails_is_named(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running_of(custom()).await;
    let state = bench.fail_with(&chunks[0], Some(Duration::ZERO), Some("render"), "no template").await;
    assert_eq!(state, Some(ChunkState::Retry));
    assert_eq!(bench.job(&id).await.error_message, None, "it may still succeed");
    let again = bench.claim_again().await;
    assert_eq!(
        bench.fail_with(&again, None, Some("deliver"), "550 no such user").await,
        Some(ChunkState::Dead)
    );
    assert_eq!(
        bench.job(&id).await.error_message.as_deref(),
        Some("Chunk failed after retries: step=deliver: 550 no such user")
    );
    let (export, chunks) = bench.running(1).await;
    bench.fail_with(&chunks[0], None, Some("upload"), "denied").await.expect("still owned");
    assert_eq!(
        bench.job(&export).await.error_message.as_deref(),
        Some("Chunk failed after retries: step=upload: denied"),
        "whatever the chunk is"
    );
}

pub(super) async fn cancelling_settles_when_nothing_runs(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let id = bench.submit(job(5)).await.job_id;
    let running = bench.claim(3).await;
    bench.fail(&running[0], Some(LONG)).await.expect("still owned");
    for expected in [Cancelled::Yes, Cancelled::Already, Cancelled::Already] {
        assert_eq!(bench.other.job_cancel(&id).await.expect("job_cancel"), expected);
    }
    let at_once = bench.job(&id).await;
    assert_eq!((at_once.status, at_once.completed_at), (JobStatus::Cancelled, None));
    let staged = bench.stage().await;
    assert_eq!((staged.cancelled, staged.queued, staged.held, staged.settled), (3, 0, 0, 0));
    assert_eq!(bench.job(&id).await.completed_at, None, "two still run");

    assert_eq!(bench.finish(&running[1..2]).await, 1, "publishing had begun: it is recorded");
    assert_eq!(bench.store.chunks_cancel(&[running[2].lease]).await.expect("chunks_cancel").len(), 1);
    bench.stage().await;
    let ended = bench.job(&id).await;
    assert_eq!(ended.status, JobStatus::Cancelled, "a cancelled job stays so");
    assert_eq!((ended.counts.cancelled, ended.counts.done, ended.counts.pending()), (4, 1, 0));
    assert!(ended.completed_at.is_some());
    bench.counts_hold().await;
    assert_eq!(bench.stage().await, Staged::default());
    let late = bench.store.job_cancel(&id).await.expect("job_cancel");
    assert_eq!(late, Cancelled::Already, "also when all of it has stopped");
}

/// Whoever records who cancelled a job relies on it.
pub(super) async fn of_many_cancellations_one_cancels(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for _ in 0..10 {
        let id = bench.submit(job(2)).await.job_id;
        let before = bench.job(&id).await.version;
        let acts = (0..12).map(|n| {
            let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
            let id = id.clone();
            async move { store.job_cancel(&id).await.expect("job_cancel") }
        });
        let answers = at_once(acts.collect()).await;
        let of = |answer: Cancelled| answers.iter().filter(|one| **one == answer).count();
        assert_eq!((of(Cancelled::Yes), of(Cancelled::Already)), (1, 11), "{answers:?}");
        let after = bench.job(&id).await;
        assert_eq!((after.status, after.version), (JobStatus::Cancelled, before + 1));
    }
}

pub(super) async fn cancelling_an_ended_job_is_too_late(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (done, chunks) = bench.running(1).await;
    bench.finish(&chunks).await;
    let (failed, chunks) = bench.running(1).await;
    bench.fail(&chunks[0], None).await.expect("still owned");
    let cancel = async |id: &JobId| bench.store.job_cancel(id).await.expect("job_cancel");
    assert_eq!(cancel(&done).await, Cancelled::TooLate(JobStatus::Completed));
    assert_eq!(cancel(&failed).await, Cancelled::TooLate(JobStatus::Failed));
    assert_eq!(cancel(&unknown()).await, Cancelled::Unknown);
    assert_eq!(bench.job(&done).await.status, JobStatus::Completed);
    assert_eq!(bench.job(&failed).await.status, JobStatus::Failed);
}

pub(super) async fn redrive_queues_dead_and_held_chunks(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let id = bench.submit(job(4)).await.job_id;
    let running = bench.claim(2).await;
    bench.finish(&running[1..]).await;
    bench.fail(&running[0], None).await.expect("still owned");
    bench.stage().await;
    let failed = bench.job(&id).await;
    assert!(failed.completed_at.is_some());

    assert_eq!(bench.store.job_redrive(&id).await.expect("job_redrive"), Redriven::Yes(3));
    let again = bench.job(&id).await;
    assert_eq!((again.status, again.error_message, again.completed_at), (JobStatus::InProgress, None, None));
    assert_eq!((again.counts.failed, again.counts.done, again.counts.pending()), (0, 1, 3));
    assert!(again.version > failed.version);
    assert_eq!(bench.store.job_redrive(&id).await.expect("job_redrive"), Redriven::Nothing);
    bench.counts_hold().await;

    let claimed = bench.claim(10).await;
    assert_eq!(claimed.len(), 3);
    assert!(claimed.iter().all(|chunk| chunk.attempt == 1), "attempts start anew");
    let dead = claimed.iter().find(|chunk| chunk.lease.chunk == running[0].lease.chunk).expect("it is back");
    assert_eq!(dead.lease.fence, 2, "the fence does not");
    assert_eq!(bench.finish(&claimed).await, 3);
    let ended = bench.job(&id).await;
    assert_eq!((ended.status, ended.counts.done), (JobStatus::Completed, 4));
    bench.counts_hold().await;
}

pub(super) async fn redrive_goes_on_with_a_continuing_job(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running_of(NewJob { on_failure: OnFailure::Continue, ..job(2) }).await;
    bench.fail(&chunks[0], None).await.expect("still owned");
    assert_eq!(bench.store.job_redrive(&id).await.expect("job_redrive"), Redriven::Yes(1));
    let job = bench.job(&id).await;
    assert_eq!((job.status, job.counts.failed, job.error_message), (JobStatus::InProgress, 0, None));
    let again = bench.claim_one().await;
    assert_eq!(bench.finish(&[again, chunks[1].clone()]).await, 2);
    assert_eq!(bench.job(&id).await.status, JobStatus::Completed);
    bench.counts_hold().await;
}

pub(super) async fn redrive_has_nothing_to_do_elsewhere(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let redrive = async |id: &JobId| bench.store.job_redrive(id).await.expect("job_redrive");
    assert_eq!(redrive(&unknown()).await, Redriven::Unknown);
    let waiting = bench.submit(NewJob { run_at: Some(clock::now() + LONG), ..job(1) }).await.job_id;
    assert_eq!(redrive(&waiting).await, Redriven::Nothing, "CREATED, but not held");
    let (done, chunks) = bench.running(1).await;
    assert_eq!(redrive(&done).await, Redriven::Nothing);
    bench.finish(&chunks).await;
    assert_eq!(redrive(&done).await, Redriven::Nothing);

    let (cancelled, chunks) = bench.running_of(NewJob { on_failure: OnFailure::Continue, ..job(2) }).await;
    bench.fail(&chunks[0], None).await.expect("still owned");
    bench.store.job_cancel(&cancelled).await.expect("job_cancel");
    assert_eq!(redrive(&cancelled).await, Redriven::Nothing, "a cancelled job stays so");
    assert_eq!(bench.states(&cancelled).await[0], ChunkState::Dead);
    bench.counts_hold().await;
}
