//! Steps as recovery points: what is recorded is not run again, whoever stopped and why.

use std::time::Duration;

use outhaul::core::clock;
use outhaul::core::job::JobStatus;
use outhaul::core::queue::QueueSpec;
use outhaul::core::worker::{ClaimedChunk, Failure, NewWorker, Want};
use outhaul::testing;
use outhaul::{Failed, Outcome, Submission, SubmitOptions};
use serde_json::json;

use super::{Stage, error, play};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_goes_on_at_the_step_that_failed() {
    let stage = Stage::new().await;
    let job = stage.perform("fail").await;
    assert_eq!(job.status, JobStatus::Completed);
    let expected = ["one", "two in attempt 1", "two in attempt 2", "two in attempt 3", "three"];
    assert_eq!(stage.seen.events(), expected);
    let result = json!({"one": 1, "key": format!("{}/two", job.job_id)});
    assert_eq!(job.result, Some(result.into()), "also what was taken from the record");
    let steps = stage.store.steps_list(&job.job_id).await.unwrap();
    assert_eq!(steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["one", "two", "three"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_a_failure_like_any_other_and_names_its_step() {
    let stage = Stage::new().await;
    let job = stage.perform("panic").await;
    assert_eq!(job.status, JobStatus::Completed);
    assert_eq!(stage.seen.events(), ["one", "two in attempt 1", "two in attempt 2", "three"]);

    let stage = Stage::new().await;
    let job = stage.perform("doom").await;
    assert_eq!(error(&job), "Chunk failed after retries: step=two: the handler panicked: boom");
    assert_eq!(stage.seen.events().len(), 4, "step one once, step two in each of three attempts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_given_back_goes_on_in_the_next_process_uncounted() {
    let stage = Stage::new().await;
    let engine = stage.engine(stage.registry(), 4).await;
    let id = stage.client.enqueue(play("wait")).await.unwrap().job_id;
    stage.seen.until("two in attempt 1").await;
    engine.stop().await;
    stage.seen.gate.add_permits(1);
    let engine = stage.engine(stage.registry(), 4).await;
    let job = stage.ended(&id).await;
    assert_eq!(job.status, JobStatus::Completed);
    assert_eq!(stage.seen.events(), ["one", "two in attempt 1", "two in attempt 1", "three"]);
    engine.stop().await;
}

/// Claims the one chunk that waits.
async fn claim(stage: &Stage) -> ClaimedChunk {
    let known = NewWorker { host: "test".to_owned(), roles: String::new(), concurrency: 1 };
    let worker = stage.store.worker_register(&known).await.unwrap();
    let queue = QueueSpec { name: "job:PLAY".to_owned(), max_concurrent: None };
    let queue = *stage.store.queues_sync(&[queue]).await.unwrap().values().next().unwrap();
    stage.store.chunks_stage(10).await.unwrap();
    let claimed = stage.store.chunks_claim(worker, &[Want { queue, limit: 1 }], 1).await.unwrap();
    claimed.into_iter().next().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lost_the_lease_records_nothing_and_the_next_owner_goes_on() {
    let stage = Stage::new().await;
    let id = stage.client.enqueue(play("gate")).await.unwrap().job_id;
    let handler = stage.registry().get("PLAY").unwrap().clone();

    let first = claim(&stage).await;
    let lease = first.lease;
    let (context, _stopper) = testing::context(first, stage.store.clone());
    let stale = tokio::spawn({
        let handler = handler.clone();
        async move { handler.run(&context).await }
    });
    stage.seen.until("two in attempt 1").await;
    // Its lease runs out, and somebody else takes over.
    let lost = Failure {
        lease,
        expired: false,
        retry_in: Some(Duration::ZERO),
        cause: "lease ran out".to_owned(),
        step: None,
        detail: None,
    };
    assert_eq!(stage.store.chunks_fail(&[lost]).await.unwrap().len(), 1);
    let second = claim(&stage).await;
    assert_eq!((second.lease.fence, second.attempt), (lease.fence + 1, 2));
    stage.seen.gate.add_permits(1);
    let ended = stale.await.unwrap();
    assert!(matches!(ended, Err(Failed::Stopped)), "{ended:?}");
    let steps = stage.store.steps_list(&id).await.unwrap();
    assert_eq!(steps.len(), 1, "the stale owner's second step is not recorded");

    stage.seen.gate.add_permits(1);
    let (context, _stopper) = testing::context(second, stage.store.clone());
    let ended = handler.run(&context).await;
    assert!(matches!(ended, Ok(Outcome::Done { .. })), "{ended:?}");
    assert_eq!(stage.seen.events(), ["one", "two in attempt 1", "two in attempt 2", "three"]);
    assert_eq!(stage.store.steps_list(&id).await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleep_holds_no_worker_is_not_counted_and_is_slept_once() {
    let stage = Stage::new().await;
    let job = stage.perform("nap").await;
    assert_eq!((job.status, job.result), (JobStatus::Completed, Some(json!(1).into())), "still attempt 1");
    assert_eq!(stage.seen.events(), ["before", "awake", "after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_sleep_is_another_one() {
    let stage = Stage::new().await;
    let engine = stage.engine(stage.registry(), 1).await;
    let id = stage.client.enqueue(play("long-nap")).await.unwrap().job_id;
    stage.seen.until("awake").await;
    stage.until(&id, |job| job.counts.running == 0).await;
    // The one place is free, and the job is not over.
    let other = stage.client.enqueue(play("end")).await.unwrap().job_id;
    assert_eq!(stage.ended(&other).await.status, JobStatus::Completed);
    let job = stage.store.job_get(&id).await.unwrap().unwrap();
    assert_eq!((job.status, job.counts.pending()), (JobStatus::InProgress, 1));
    engine.stop().await;
    assert_eq!(stage.seen.events(), ["before", "awake", "end"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_with_steps_are_fatal_and_say_what_to_do() {
    for (act, cause) in [
        ("twice", "chunk=main: the step `same` is there twice: every step needs a name of its own"),
        ("name", "the name of the step `not a name` may hold letters, digits, `_` and `-` only"),
        ("sql", "step=sql: ctx.transaction needs PostgreSQL as the engine's database; use ctx.step here"),
    ] {
        let stage = Stage::new().await;
        let job = stage.perform(act).await;
        assert_eq!(job.status, JobStatus::Failed);
        assert!(error(&job).ends_with(cause), "{}", error(&job));
        assert!(stage.seen.events().len() <= 1, "{act} was not tried again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_result_of_another_shape_is_not_taken_for_missing() {
    let stage = Stage::new().await;
    stage.client.enqueue(play("child")).await.unwrap();
    let first = claim(&stage).await;
    assert!(stage.store.step_record(first.lease, "child", "17").await.unwrap());
    let again = Failure {
        lease: first.lease,
        expired: false,
        retry_in: Some(Duration::ZERO),
        cause: String::new(),
        step: None,
        detail: None,
    };
    stage.store.chunks_fail(&[again]).await.unwrap();
    let (context, _stopper) = testing::context(claim(&stage).await, stage.store.clone());
    let ended = stage.registry().get("PLAY").unwrap().run(&context).await;
    let Err(Failed::Fatal(cause)) = ended else { panic!("{ended:?}") };
    assert_eq!(cause.step.as_deref(), Some("child"));
    assert!(cause.text.contains("does not fit its type any more"), "{cause}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_are_too_large_fail_and_say_so() {
    for (act, step, tries) in [("huge", "chunk=main", 3), ("huge-step", "step=big", 3)] {
        let stage = Stage::new().await;
        let job = stage.perform(act).await;
        assert_eq!(job.status, JobStatus::Failed);
        let expected = format!("{step}: its result has 1048578 bytes of JSON, 1048576 are allowed");
        assert!(error(&job).ends_with(&expected), "{}", error(&job));
        assert_eq!(stage.seen.events().len(), tries, "{act}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_does_not_fit_is_fatal_at_once_without_its_value() {
    let stage = Stage::new().await;
    let engine = stage.engine(stage.registry(), 4).await;
    let submission = Submission {
        job_type: "PLAY".to_owned(),
        payload: json!({"act": 7777}).into(),
        options: SubmitOptions::default(),
        unique_key: None,
    };
    let job = submission.into_new_job(clock::now(), 7);
    let id = job.job_id.clone();
    stage.store.job_submit(job).await.unwrap();
    let job = stage.ended(&id).await;
    assert_eq!(job.status, JobStatus::Failed);
    assert_eq!(error(&job), "Chunk failed after retries: chunk=main: payload.act: expected a string");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_nobody_gave_is_named() {
    let stage = Stage::new().await;
    let job = stage.perform("stateless").await;
    assert!(error(&job).contains("there is no state of type u128"), "{}", error(&job));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_submits_others() {
    let stage = Stage::new().await;
    let engine = stage.engine(stage.registry(), 4).await;
    let id = stage.client.enqueue(play("child")).await.unwrap().job_id;
    let job = stage.ended(&id).await;
    assert_eq!(job.status, JobStatus::Completed);
    let child = outhaul::core::id::JobId::parse(&job.result.unwrap().read::<String>().unwrap()).unwrap();
    assert_eq!(stage.ended(&child).await.status, JobStatus::Completed);
    engine.stop().await;
}
