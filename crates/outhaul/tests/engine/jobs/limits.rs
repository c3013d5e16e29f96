//! What a job type may set: retries, timeout, how many at once. And how jobs are told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outhaul::core::job::JobStatus;
use outhaul::core::store::Cancelled;
use outhaul::{Context, Job, JobError, JobOptions, Registry};
use serde::{Deserialize, Serialize};

use super::{Seen, Stage, error, play, tries};

/// Fails until it may no longer.
#[derive(Serialize, Deserialize)]
struct Failing;

impl Job for Failing {
    const TYPE: &'static str = "FAILING";
    type Output = ();
    async fn run(&self, ctx: &Context) -> Result<(), JobError> {
        ctx.state::<Arc<Seen>>()?.note("failing");
        Err(std::io::Error::other("no luck"))?
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_without_a_policy_of_its_own_has_that_of_the_process() {
    let stage = Stage::new().await;
    // After the job: the order of the calls does not matter.
    let registry = Registry::new().job::<Failing>().state(stage.seen.clone()).default_retry(tries(4));
    let engine = stage.engine(registry, 4).await;
    let id = stage.client.enqueue(Failing).await.unwrap().job_id;
    let job = stage.ended(&id).await;
    assert_eq!(error(&job), "Chunk failed after retries: chunk=main: no luck");
    assert_eq!(stage.seen.events().len(), 4);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fatal_error_is_not_tried_again() {
    let stage = Stage::new().await;
    let job = stage.perform("fatal").await;
    assert_eq!(error(&job), "Chunk failed after retries: chunk=main: never");
    let letters = stage.store.dead_letters_list(&Default::default(), None, 10).await.unwrap().items;
    assert_eq!((letters.len(), letters[0].attempts), (1, 1));
}

/// Waits for ever in a step.
#[derive(Serialize, Deserialize)]
struct Endless;

impl Job for Endless {
    const TYPE: &'static str = "ENDLESS";
    type Output = ();
    fn options() -> JobOptions {
        JobOptions::default().timeout(Duration::from_millis(50)).retry(tries(2))
    }
    async fn run(&self, ctx: &Context) -> Result<(), JobError> {
        ctx.step("deliver", std::future::pending).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_takes_too_long_fails_and_names_its_step() {
    let stage = Stage::new().await;
    let engine = stage.engine(Registry::new().job::<Endless>(), 4).await;
    let id = stage.client.enqueue(Endless).await.unwrap().job_id;
    let job = stage.ended(&id).await;
    assert_eq!(error(&job), "Chunk failed after retries: step=deliver: timed out after 50ms");
    let letters = stage.store.dead_letters_list(&Default::default(), None, 10).await.unwrap().items;
    assert_eq!((letters[0].attempts, letters[0].step.as_deref()), (2, Some("deliver")));
    engine.stop().await;
}

#[derive(Default)]
struct Crowd {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Counts who runs beside it.
#[derive(Serialize, Deserialize)]
struct Crowded;

impl Job for Crowded {
    const TYPE: &'static str = "CROWDED";
    type Output = ();
    fn options() -> JobOptions {
        JobOptions::default().max_concurrent(2)
    }
    async fn run(&self, ctx: &Context) -> Result<(), JobError> {
        let crowd = ctx.state::<Arc<Crowd>>()?;
        let now = crowd.now.fetch_add(1, Ordering::SeqCst) + 1;
        crowd.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(2)).await;
        crowd.now.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_run_at_once_than_their_type_allows_over_all_processes() {
    let stage = Stage::new().await;
    let crowd = Arc::new(Crowd::default());
    let registry = Registry::new().job::<Crowded>().state(crowd.clone());
    let (one, two) = (stage.engine(registry.clone(), 8).await, stage.engine(registry, 8).await);
    let ids = stage.client.enqueue_many((0..60).map(|_| Crowded)).await.unwrap();
    for id in ids {
        assert_eq!(stage.ended(&id.job_id).await.status, JobStatus::Completed);
    }
    assert_eq!(crowd.most.load(Ordering::SeqCst), 2);
    tokio::join!(one.stop(), two.stop());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_looks_for_the_word_may_clean_up_and_others_are_ended_at_once() {
    for (act, waits, events) in [
        ("polite", "waits", vec!["waits", "cleaned up"]),
        ("wait", "two in attempt 1", vec!["one", "two in attempt 1"]),
    ] {
        let stage = Stage::new().await;
        let engine = stage.engine(stage.registry(), 4).await;
        let id = stage.client.enqueue(play(act)).await.unwrap().job_id;
        stage.seen.until(waits).await;
        assert_eq!(stage.store.job_cancel(&id).await.unwrap(), Cancelled::Yes);
        let job = stage.until(&id, |job| job.counts.cancelled == 1).await;
        assert_eq!(job.status, JobStatus::Cancelled);
        assert_eq!(stage.seen.events(), events);
        engine.stop().await;
    }
}

#[test]
#[should_panic(expected = "the job type `EXPORT` is taken by a job type of Outhaul's own")]
fn our_own_job_types_cannot_be_replaced() {
    #[derive(Serialize, Deserialize)]
    struct Sneaky;
    impl Job for Sneaky {
        const TYPE: &'static str = "EXPORT";
        type Output = ();
        async fn run(&self, _: &Context) -> Result<(), JobError> {
            Ok(())
        }
    }
    let _ = Registry::new().job::<Sneaky>();
}

#[test]
#[should_panic(expected = "the job type `FAILING` is registered twice")]
fn a_job_type_is_registered_once() {
    let _ = Registry::new().job::<Failing>().job::<Failing>();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_see_how_far_a_job_says_it_is() {
    let stage = Stage::new().await;
    let engine = stage.engine(stage.registry(), 1).await;
    let id = stage.client.enqueue(play("quarter")).await.unwrap().job_id;
    let job = stage.until(&id, |job| job.moving.rows > 0).await;
    assert_eq!((job.moving.rows, job.counts.progress(&job.moving)), (2, 0.25));
    stage.seen.gate.add_permits(1);
    let job = stage.ended(&id).await;
    assert_eq!(job.counts.progress(&job.moving), 1.0);
    engine.stop().await;
}
