//! Applied once, or not at all.

use std::sync::atomic::Ordering;
use std::time::Duration;

use outhaul::core::job::JobStatus;
use outhaul::core::worker::Failure;
use outhaul::{EngineSettings, Failed, Outcome, testing};
use outhaul_store::OpenOptions;
use serde_json::json;

use crate::bench::{Bench, transfer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_found_out_about() {
    let bench = Bench::new().await;
    let engine = bench.engine().await;
    let id = bench.client.enqueue(transfer(21, "after")).await.unwrap().job_id;
    let job = bench.ended(&id).await;
    assert_eq!((job.status, job.result), (JobStatus::Completed, Some(json!(42).into())));
    assert_eq!(bench.effects().await, [21]);
    assert_eq!(bench.lost.load(Ordering::SeqCst), 1);
    let history = bench.store.history_list(&id, None, None, 100).await.unwrap().items;
    assert!(history.iter().all(|moved| moved.cause.is_none()), "it cost no attempt: {history:?}");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_is_done_again() {
    let bench = Bench::new().await;
    let engine = bench.engine().await;
    let id = bench.client.enqueue(transfer(21, "before")).await.unwrap().job_id;
    assert_eq!(bench.ended(&id).await.result, Some(json!(42).into()));
    assert_eq!(bench.effects().await, [21]);
    assert_eq!(bench.lost.load(Ordering::SeqCst), 1);
    assert_eq!(bench.seen.events(), ["debit in attempt 1", "debit in attempt 2"]);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_with_faults_of_every_kind_are_applied_once_each() {
    let bench = Bench::new().await;
    let engine = bench.engine().await;
    let faults = ["none", "before", "after", "late"];
    let jobs = (0..60).map(|n| transfer(n, faults[n as usize % faults.len()]));
    for enqueued in bench.client.enqueue_many(jobs).await.unwrap() {
        let job = bench.ended(&enqueued.job_id).await;
        assert_eq!(job.status, JobStatus::Completed, "{:?}", job.error_message);
    }
    assert_eq!(bench.effects().await, (0..60).collect::<Vec<_>>());
    assert_eq!(bench.lost.load(Ordering::SeqCst), 30);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_attempt_takes_the_recorded_result() {
    let bench = Bench::new().await;
    let engine = bench.engine().await;
    let id = bench.client.enqueue(transfer(4, "late")).await.unwrap().job_id;
    assert_eq!(bench.ended(&id).await.result, Some(json!(8).into()));
    assert_eq!(bench.seen.events(), ["debit in attempt 1"]);
    assert_eq!(bench.effects().await, [4]);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_rolls_everything_back_and_names_the_step() {
    let bench = Bench::new().await;
    let engine = bench.engine().await;
    let id = bench.client.enqueue(transfer(4, "fatal")).await.unwrap().job_id;
    let job = bench.ended(&id).await;
    assert_eq!(job.error_message.as_deref(), Some("Chunk failed after retries: step=debit: no money"));
    assert!(bench.effects().await.is_empty());
    assert!(bench.store.steps_list(&id).await.unwrap().is_empty());
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lost_the_lease_commits_nothing() {
    for second_is_done in [false, true] {
        let bench = Bench::new().await;
        bench.client.enqueue(transfer(7, "gate")).await.unwrap();
        let handler = bench.registry().get("TRANSFER").unwrap().clone();
        let first = bench.claim().await;
        let lease = first.lease;
        let (context, _first_stopper) = testing::context(first, bench.store.clone());
        let stale = tokio::spawn({
            let handler = handler.clone();
            async move { handler.run(&context).await }
        });
        bench.seen.until("debit in attempt 1").await;
        // Its lease runs out while its transaction is open, and somebody else takes over.
        let lost = Failure {
            lease,
            expired: false,
            retry_in: Some(Duration::ZERO),
            cause: "lease ran out".to_owned(),
            step: None,
            detail: None,
        };
        assert_eq!(bench.store.chunks_fail(&[lost]).await.unwrap().len(), 1);
        let (context, _second_stopper) = testing::context(bench.claim().await, bench.store.clone());
        let second = tokio::spawn(async move { handler.run(&context).await });
        bench.seen.until("debit in attempt 2").await;
        // Permits go to the waiters in order: the first to come is the stale one.
        bench.seen.gate.add_permits(1 + usize::from(second_is_done));
        let ended = stale.await.unwrap();
        if second_is_done {
            let known = matches!(ended, Err(Failed::Stopped) | Ok(Outcome::Done { .. }));
            assert!(known, "stopped, or told what the other recorded: {ended:?}");
        } else {
            assert!(matches!(ended, Err(Failed::Stopped)), "{ended:?}");
            assert!(bench.effects().await.is_empty(), "the stale owner's change is gone");
            bench.seen.gate.add_permits(1);
        }
        let ended = second.await.unwrap();
        assert!(matches!(ended, Ok(Outcome::Done { .. })), "{ended:?}");
        assert_eq!(bench.effects().await, [7]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_waits_for_a_connection_loses_no_attempt() {
    let bench = Bench::new().await;
    let engine = bench.engine().await;
    // As many as there are connections hold them for longer than one look for a connection takes.
    let holding = OpenOptions::default().engine_connections;
    let jobs = (0..i64::from(holding)).map(|n| transfer(n, "gate"));
    let held = bench.client.enqueue_many(jobs).await.unwrap();
    bench.seen.until_events(held.len()).await;
    let settings = EngineSettings { host: "other".to_owned(), ..bench.settings() };
    let other = bench.engine_with(settings).await;
    let late = bench.client.enqueue(transfer(100, "none")).await.unwrap().job_id;
    bench.running(&late).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    bench.seen.gate.add_permits(held.len());
    assert_eq!(bench.ended(&late).await.status, JobStatus::Completed);
    let history = bench.store.history_list(&late, None, None, 100).await.unwrap().items;
    assert!(history.iter().all(|moved| moved.cause.is_none()), "it cost no attempt: {history:?}");
    tokio::join!(engine.stop(), other.stop());
}
