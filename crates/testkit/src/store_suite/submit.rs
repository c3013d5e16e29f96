//! Submission: what is stored, when it may start, and what an idempotency key finds.

use std::time::Duration;

use chrono::TimeDelta;
use outhaul_core::clock;
use outhaul_core::job::{Counts, JobStatus, NewJob, OnFailure};
use outhaul_core::state::ChunkState;
use outhaul_core::store::{JobFilter, StoreError, StoreSettings, Submitted};

use super::bench::{Kit, SETTINGS, at_once, chunk, day, eventually, job, keyed};

pub(super) async fn a_job_is_stored_and_read_back(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let new = NewJob {
        priority: 9,
        on_failure: OnFailure::Continue,
        labels: [("team".to_owned(), "risk".to_owned())].into(),
        owner: "alice".to_owned(),
        ..job(3)
    };
    let created = bench.submit(new.clone()).await;
    assert_eq!(bench.job(&new.job_id).await, created, "what a submission answers is what a reader sees");

    assert_eq!(created.job_id, new.job_id);
    assert_eq!((created.job_type, created.dataset, created.owner), (new.job_type, new.dataset, new.owner));
    assert_eq!((created.priority, created.on_failure, created.labels), (9, OnFailure::Continue, new.labels));
    assert_eq!((created.status, created.base_path), (JobStatus::Submitted, new.base_path));
    assert_eq!(created.counts, Counts { total: 3, ..Counts::default() });
    assert_eq!(
        (created.error_message, created.run_at, created.started_at, created.completed_at),
        (None, None, None, None)
    );

    let page = bench.store.chunks_list(&new.job_id, None, None, 10).await.expect("chunks_list");
    assert_eq!(page.items.len(), 3);
    for (row, chunk) in page.items.iter().zip(&new.chunks) {
        assert_eq!(
            (&row.chunk_key, &row.key, row.effective_date),
            (&chunk.chunk_key, &chunk.key, Some(day()))
        );
        assert_eq!((row.state, &row.file, &row.error_message), (ChunkState::Queued, &None, &None));
        assert_eq!((row.started_at, row.completed_at), (None, None));
    }
}

pub(super) async fn an_unknown_queue_stores_nothing(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut new = keyed(job(2), "key", "hash");
    new.chunks[1].queue = "source:nowhere".to_owned();
    match bench.store.job_submit(new.clone()).await {
        Err(StoreError::UnknownQueue(name)) => assert_eq!(name, "source:nowhere"),
        other => panic!("expected UnknownQueue, got {other:?}"),
    }
    assert_eq!(bench.store.job_get(&new.job_id).await.expect("job_get"), None);
    let page =
        bench.store.jobs_list(&JobFilter { limit: 10, ..JobFilter::default() }).await.expect("jobs_list");
    assert_eq!(page.items, []);
    assert_eq!(bench.probe.number("select count(*) from job_chunk").await, 0);
    new.chunks[1].queue = new.chunks[0].queue.clone();
    bench.submit(new).await;
}

pub(super) async fn the_same_request_finds_the_same_job(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let first = bench.submit(keyed(job(2), "key", "hash")).await;
    let again = bench.other.job_submit(keyed(job(2), "key", "hash")).await.expect("job_submit");
    assert_eq!(again, Submitted::Existing(first.clone()));
    let dead = bench.claim_one().await;
    bench.fail(&dead, None).await;
    match bench.store.job_submit(keyed(job(2), "key", "hash")).await.expect("job_submit") {
        Submitted::Existing(job) => assert_eq!((job.job_id, job.status), (first.job_id, JobStatus::Failed)),
        other => panic!("a failed job keeps its key: {other:?}"),
    }
    assert_eq!(bench.probe.number("select count(*) from job_chunk").await, 2);
}

pub(super) async fn another_request_under_the_key_conflicts(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let first = bench.submit(keyed(job(1), "key", "hash")).await;
    let other = keyed(job(1), "key", "another");
    let id = other.job_id.clone();
    assert_eq!(bench.store.job_submit(other).await.expect("job_submit"), Submitted::KeyConflict);
    assert_eq!(bench.store.job_get(&id).await.expect("job_get"), None);
    assert_eq!(bench.job(&first.job_id).await, first);
}

pub(super) async fn keys_belong_to_their_owner(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for owner in ["alice", "bob"] {
        bench.submit(NewJob { owner: owner.to_owned(), ..keyed(job(1), "key", owner) }).await;
    }
    bench.submit(job(1)).await;
    bench.submit(job(1)).await;
    assert_eq!(bench.probe.number("select count(*) from job").await, 4, "jobs without a key never clash");
}

pub(super) async fn twenty_at_once_make_one_job(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for round in 0..5 {
        let key = format!("key {round}");
        let submissions = (0..20)
            .map(|n| {
                let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
                let new = keyed(job(3), &key, "hash");
                async move { store.job_submit(new).await }
            })
            .collect();
        let mut created = Vec::new();
        let mut existing = Vec::new();
        for answer in at_once(submissions).await {
            match answer.expect("job_submit") {
                Submitted::Created(job) => created.push(job.job_id),
                Submitted::Existing(job) => existing.push(job.job_id),
                other => panic!("the same request never conflicts: {other:?}"),
            }
        }
        assert_eq!((created.len(), existing.len()), (1, 19));
        assert!(existing.iter().all(|id| *id == created[0]));
    }
    assert_eq!(bench.probe.number("select count(*) from job_chunk").await, 15);
}

pub(super) async fn a_key_is_free_after_the_window(kit: Kit) {
    let bench = kit.bench(StoreSettings { idempotency_window: Duration::ZERO, ..SETTINGS }).await;
    let first = bench.submit(keyed(job(1), "key", "hash")).await;
    let unfinished = bench.store.job_submit(keyed(job(1), "key", "hash")).await.expect("job_submit");
    assert!(matches!(unfinished, Submitted::Existing(_)), "a key is held until its job has finished");
    let chunk = bench.claim_one().await;
    assert_eq!(bench.finish(&[chunk]).await, 1);

    let store = &bench.store;
    let second = eventually("the key is free", || async move {
        match store.job_submit(keyed(job(1), "key", "another")).await.expect("job_submit") {
            Submitted::Created(job) => Some(job),
            Submitted::KeyConflict => None,
            other => panic!("another request found {other:?}"),
        }
    })
    .await;
    assert_ne!(second.job_id, first.job_id);
    assert_eq!(bench.job(&first.job_id).await.status, JobStatus::Completed, "the first job is still there");
    let again = bench.store.job_submit(keyed(job(1), "key", "another")).await.expect("job_submit");
    assert_eq!(again, Submitted::Existing(second), "the key now names the second");
}

pub(super) async fn a_key_is_held_while_the_window_lasts(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let first = bench.submit(keyed(job(1), "key", "hash")).await;
    let chunk = bench.claim_one().await;
    assert_eq!(bench.finish(&[chunk]).await, 1);
    match bench.store.job_submit(keyed(job(1), "key", "hash")).await.expect("job_submit") {
        Submitted::Existing(job) => {
            assert_eq!((job.job_id, job.status), (first.job_id, JobStatus::Completed))
        }
        other => panic!("expected the finished job, got {other:?}"),
    }
    let other = bench.store.job_submit(keyed(job(1), "key", "another")).await.expect("job_submit");
    assert_eq!(other, Submitted::KeyConflict);
}

pub(super) async fn a_future_run_at_waits_for_the_stager(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let later = |delta| Some(clock::now() + delta);
    let far = bench.submit(NewJob { run_at: later(TimeDelta::hours(1)), ..job(2) }).await;
    assert!(far.run_at.is_some());
    assert_eq!(bench.states(&far.job_id).await, [ChunkState::Created; 2]);
    assert_eq!(bench.stage().await.queued, 0);
    assert!(bench.claim(10).await.is_empty());

    let past = bench.submit(NewJob { run_at: later(TimeDelta::hours(-1)), ..job(1) }).await;
    assert_eq!(bench.states(&past.job_id).await, [ChunkState::Queued]);
    assert_eq!(bench.claim(10).await.len(), 1);

    let near = bench.submit(NewJob { run_at: later(TimeDelta::milliseconds(300)), ..job(2) }).await;
    let bench = &bench;
    let claimed = eventually("its time comes", || async move {
        bench.stage().await;
        let claimed = bench.claim(10).await;
        (!claimed.is_empty()).then_some(claimed)
    })
    .await;
    assert_eq!(claimed.len(), 2);
    assert!(claimed.iter().all(|chunk| chunk.job_id == near.job_id));
    assert_eq!(bench.states(&far.job_id).await, [ChunkState::Created; 2]);
}

/// More chunks than a database takes parameters in one statement.
pub(super) async fn a_large_job_is_one_submission(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let new = NewJob { chunks: (0..20_000).map(|n| chunk(&format!("K{n:05}"))).collect(), ..job(0) };
    let created = bench.submit(new).await;
    assert_eq!(created.counts.total, 20_000);
    assert_eq!(bench.probe.number("select count(*) from job_chunk where state = 'QUEUED'").await, 20_000);
    let claimed = bench.claim(700).await;
    assert_eq!(bench.finish(&claimed).await, 700);
    assert_eq!(bench.job(&created.job_id).await.counts.done, 700);
}
