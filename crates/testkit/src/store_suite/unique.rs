//! Jobs that may be there only once while unfinished, and many jobs in one submission.

use outhaul_core::job::{Job, JobStatus, NewJob};
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Redriven, StoreError, Submitted};

use super::bench::{Bench, Kit, SETTINGS, at_once, custom, eventually, job, keyed};

/// A custom job that may be there only once under this key.
fn unique(key: &str) -> NewJob {
    NewJob { unique_key: Some(key.to_owned()), ..custom() }
}

async fn submit(bench: &Bench, new: NewJob) -> Submitted {
    bench.other.job_submit(new).await.expect("job_submit")
}

async fn unfinished(bench: &Bench) -> i64 {
    bench.probe.number("select count(*) from job where status in ('SUBMITTED', 'IN_PROGRESS')").await
}

pub(super) async fn an_equal_job_is_there_once_while_unfinished(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let first = bench.submit(unique("daily")).await;
    assert_eq!(submit(&bench, unique("daily")).await, Submitted::Duplicate(first.clone()));
    assert_eq!(bench.probe.number("select count(*) from job_chunk").await, 1, "nothing else is stored");

    bench.submit(unique("Daily")).await;
    bench.submit(NewJob { job_type: "OTHER".to_owned(), ..unique("daily") }).await;
    bench.submit(custom()).await;
    bench.submit(custom()).await;
    assert_eq!(unfinished(&bench).await, 5, "another key, another type, or no key at all");

    let chunk = bench.claim_one().await;
    match submit(&bench, unique("daily")).await {
        Submitted::Duplicate(job) => {
            assert_eq!((job.job_id, job.status), (first.job_id.clone(), JobStatus::InProgress))
        }
        other => panic!("expected the running job, got {other:?}"),
    }
    bench.finish(&[chunk]).await;
    let second = bench.submit(unique("daily")).await;
    assert_ne!(second.job_id, first.job_id, "the first is done");
    assert_eq!(submit(&bench, unique("daily")).await, Submitted::Duplicate(second), "now it is this one");
}

pub(super) async fn an_ended_job_makes_room_for_an_equal_one(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (_, chunks) = bench.running_of(unique("k")).await;
    bench.fail(&chunks[0], None).await.expect("still owned");
    let cancelled = bench.submit(unique("k")).await.job_id;
    bench.store.job_cancel(&cancelled).await.expect("job_cancel");
    bench.submit(unique("k")).await;
    assert_eq!(unfinished(&bench).await, 1);
}

pub(super) async fn the_idempotency_key_is_looked_at_first(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let first = bench.submit(keyed(unique("k"), "key", "hash")).await;
    assert_eq!(submit(&bench, keyed(unique("k"), "key", "hash")).await, Submitted::Existing(first.clone()));
    assert_eq!(submit(&bench, keyed(unique("k"), "key", "another")).await, Submitted::KeyConflict);
    assert_eq!(submit(&bench, keyed(unique("k"), "next", "hash")).await, Submitted::Duplicate(first.clone()));
    let chunk = bench.claim_one().await;
    bench.finish(&[chunk]).await;
    match submit(&bench, keyed(unique("k"), "key", "hash")).await {
        Submitted::Existing(job) => assert_eq!(job.job_id, first.job_id),
        other => panic!("expected the finished job, got {other:?}"),
    }
    let next = bench.submit(keyed(unique("k"), "next", "another")).await;
    assert_ne!(next.job_id, first.job_id, "a duplicate keeps no key");
}

pub(super) async fn fifty_equal_jobs_at_once_make_one(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for round in 0..3 {
        let key = format!("key {round}");
        let acts = (0..50)
            .map(|n| {
                let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
                let new = unique(&key);
                async move { store.job_submit(new).await.expect("job_submit") }
            })
            .collect();
        let (mut created, mut found) = (Vec::new(), Vec::new());
        for answer in at_once(acts).await {
            match answer {
                Submitted::Created(job) => created.push(job.job_id),
                Submitted::Duplicate(job) => found.push(job.job_id),
                other => panic!("expected one of two answers, got {other:?}"),
            }
        }
        assert_eq!((created.len(), found.len()), (1, 49));
        assert!(found.iter().all(|id| *id == created[0]), "all of them are told the same job");
        assert_eq!(unfinished(&bench).await, round + 1);
    }
}

pub(super) async fn a_redrive_waits_for_a_newer_equal_job(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (first, chunks) = bench.running_of(unique("k")).await;
    bench.fail(&chunks[0], None).await.expect("still owned");
    bench.stage().await;
    let failed = bench.job(&first).await;
    let (second, running) = bench.running_of(unique("k")).await;

    let told = bench.history(&first, None).await;
    assert_eq!(bench.store.job_redrive(&first).await.expect("job_redrive"), Redriven::Duplicate);
    let moved = bench.store.dead_letters_redrive(&Default::default(), 10, None).await;
    assert_eq!(moved.expect("dead_letters_redrive"), 0, "that job is skipped");
    assert_eq!(bench.job(&first).await, failed, "nothing changed");
    assert_eq!(bench.states(&first).await, [ChunkState::Dead]);
    assert_eq!(bench.history(&first, None).await, told);

    bench.finish(&running).await;
    assert_eq!(bench.store.job_redrive(&first).await.expect("job_redrive"), Redriven::Yes(1));
    match submit(&bench, unique("k")).await {
        Submitted::Duplicate(job) => assert_eq!(job.job_id, first, "it holds the key again"),
        other => panic!("expected the redriven job, got {other:?}"),
    }
    assert_eq!(bench.job(&second).await.status, JobStatus::Completed);
    bench.counts_hold().await;
}

/// Dead letters of other jobs move although one of them may not.
pub(super) async fn a_skipped_job_holds_no_other_back(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for new in [unique("k"), custom(), unique("other")] {
        let (_, chunks) = bench.running_of(new).await;
        bench.fail(&chunks[0], None).await.expect("still owned");
    }
    bench.submit(unique("k")).await;
    let moved = bench.store.dead_letters_redrive(&Default::default(), 10, None).await.expect("redrive");
    assert_eq!(moved, 2);
    let left = bench.store.dead_letters_count(&Default::default()).await.expect("dead_letters_count");
    assert_eq!(left, 1);
    bench.counts_hold().await;
}

pub(super) async fn redrive_against_an_equal_submission(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for round in 0..20 {
        let key = format!("key {round}");
        let (failed, chunks) = bench.running_of(unique(&key)).await;
        bench.fail(&chunks[0], None).await.expect("still owned");
        let acts = (0..6)
            .map(|n| {
                let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
                let (failed, new) = (failed.clone(), unique(&key));
                async move {
                    if n < 3 {
                        let answer = store.job_redrive(&failed).await.expect("job_redrive");
                        usize::from(matches!(answer, Redriven::Yes(_)))
                    } else {
                        let answer = store.job_submit(new).await.expect("job_submit");
                        usize::from(matches!(answer, Submitted::Created(_)))
                    }
                }
            })
            .collect();
        assert_eq!(at_once(acts).await.iter().sum::<usize>(), 1, "one of them runs");
        assert_eq!(unfinished(&bench).await, 1);
        // A loser's transaction may still be ending, and a claim passes by what is locked.
        let chunk = eventually("it runs", || async { bench.claim(1).await.pop() }).await;
        assert_eq!(bench.finish(&[chunk]).await, 1);
    }
    bench.counts_hold().await;
}

pub(super) async fn a_batch_answers_in_its_order(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let there = bench.submit(keyed(job(1), "there", "hash")).await;
    let batch = vec![
        keyed(job(2), "z", "hash"),
        unique("k"),
        custom(),
        keyed(job(9), "z", "hash"),
        unique("k"),
        keyed(job(1), "z", "another"),
        keyed(job(1), "there", "hash"),
        keyed(unique("k"), "a", "hash"),
    ];
    let ids: Vec<_> = batch.iter().map(|new| new.job_id.clone()).collect();
    let answers = bench.store.jobs_submit(batch).await.expect("jobs_submit");
    let place = |job: &Job| ids.iter().position(|id| *id == job.job_id);
    let brief: Vec<(&str, Option<usize>)> = answers
        .iter()
        .map(|answer| match answer {
            Submitted::Created(job) => ("created", place(job)),
            Submitted::Existing(job) => ("existing", place(job)),
            Submitted::NoSuchParents(missing) => panic!("no job here has parents: {missing:?}"),
            Submitted::OverQuota(open) => panic!("no job here has a quota: {open}"),
            Submitted::Duplicate(job) => ("duplicate", place(job)),
            Submitted::KeyConflict => ("conflict", None),
        })
        .collect();
    assert_eq!(
        brief,
        [
            ("created", Some(0)),
            ("created", Some(1)),
            ("created", Some(2)),
            ("existing", Some(0)),
            ("duplicate", Some(1)),
            ("conflict", None),
            ("existing", None),
            ("duplicate", Some(1)),
        ]
    );
    assert_eq!(answers[6], Submitted::Existing(there));
    let first = bench.job(&ids[0]).await;
    assert_eq!(first.counts.total, 2, "the one that came first");
    assert_eq!(answers[3], Submitted::Existing(first));
    assert_eq!(bench.probe.number("select count(*) from job").await, 4);
    assert_eq!(bench.probe.number("select count(*) from job_chunk").await, 5);
    assert_eq!(bench.store.jobs_submit(Vec::new()).await.expect("jobs_submit"), [], "nothing is nothing");
}

pub(super) async fn a_batch_is_stored_whole_or_not_at_all(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut batch = vec![custom(), unique("k"), custom()];
    batch[2].chunks[0].queue = "job:NOWHERE".to_owned();
    match bench.store.jobs_submit(batch.clone()).await {
        Err(StoreError::UnknownQueue(name)) => assert_eq!(name, "job:NOWHERE"),
        other => panic!("expected UnknownQueue, got {other:?}"),
    }
    assert_eq!(bench.probe.number("select count(*) from job").await, 0);
    assert_eq!(bench.probe.number("select count(*) from job_chunk").await, 0);
    batch.truncate(2);
    assert_eq!(bench.store.jobs_submit(batch).await.expect("jobs_submit").len(), 2);
}

pub(super) async fn a_thousand_jobs_are_one_batch(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let batch: Vec<NewJob> = (0..1000)
        .map(|n| NewJob {
            params: serde_json::json!({ "n": n }).into(),
            ..keyed(custom(), &format!("{n}"), "hash")
        })
        .collect();
    let ids: Vec<_> = batch.iter().map(|new| new.job_id.clone()).collect();
    let answers = bench.store.jobs_submit(batch.clone()).await.expect("jobs_submit");
    let created: Vec<_> = answers
        .into_iter()
        .map(|answer| match answer {
            Submitted::Created(job) => job.job_id,
            other => panic!("expected a new job, got {other:?}"),
        })
        .collect();
    assert_eq!(created, ids);
    let again = bench.other.jobs_submit(batch).await.expect("jobs_submit");
    assert!(again.iter().all(|answer| matches!(answer, Submitted::Existing(_))));
    let claimed = bench.claim(2000).await;
    assert_eq!(claimed.len(), 1000);
    for chunk in &claimed {
        let n = chunk.params.value()["n"].as_u64().expect("each has its own") as usize;
        assert_eq!(chunk.job_id, ids[n], "chunks belong to their own job");
    }
    assert_eq!(bench.finish(&claimed).await, 1000);
    bench.counts_hold().await;
}

/// Batches with the same keys in opposite orders, which would deadlock if locks followed the batch.
pub(super) async fn batches_that_cross_store_each_key_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for round in 0..5 {
        let acts = (0..6)
            .map(|n| {
                let mut batch: Vec<NewJob> = (0..40)
                    .map(|k| match k % 2 {
                        0 => keyed(custom(), &format!("{round} {k}"), "hash"),
                        _ => unique(&format!("{round} {k}")),
                    })
                    .collect();
                if n % 2 == 1 {
                    batch.reverse();
                }
                let store = if n < 3 { bench.store.clone() } else { bench.other.clone() };
                async move {
                    let answers = store.jobs_submit(batch).await.expect("jobs_submit");
                    answers.iter().filter(|answer| matches!(answer, Submitted::Created(_))).count()
                }
            })
            .collect();
        assert_eq!(at_once(acts).await.iter().sum::<usize>(), 40);
    }
    assert_eq!(bench.probe.number("select count(*) from job").await, 200);
    assert_eq!(bench.probe.number("select count(*) from job_chunk").await, 200);
}
