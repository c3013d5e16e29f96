//! Submitting from Rust: keys, uniqueness, bulk; and that the HTTP API would mean the same by them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chrono::TimeDelta;
use futures::future::BoxFuture;
use outhaul::core::clock;
use outhaul::core::delivery::Delivery;
use outhaul::core::job::JobStatus;
use outhaul::core::queue::QueueSpec;
use outhaul::{Client, Context, Engine, EnqueueError, EnqueueOptions, Job, JobError, JobOptions, Registry};
use outhaul::{Stores, Submission, SubmitOptions};
use outhaul_delivery::DatabaseDelivery;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Play, Stage, play};
use crate::fake::settings;

fn keyed(key: &str) -> EnqueueOptions {
    EnqueueOptions { idempotency_key: Some(key.to_owned()), ..EnqueueOptions::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_finds_its_job_and_refuses_another() {
    let stage = Stage::new().await;
    let first = stage.client.enqueue_with(play("end"), keyed("k")).await.unwrap();
    let again = stage.client.enqueue_with(play("end"), keyed("k")).await.unwrap();
    assert_eq!((first.new, again.new), (true, false));
    assert_eq!(first.job_id, again.job_id);
    let other = stage.client.enqueue_with(play("fail"), keyed("k")).await;
    assert!(matches!(other, Err(EnqueueError::KeyConflict)), "{other:?}");
    let urgent = EnqueueOptions { priority: 9, ..keyed("k") };
    let other = stage.client.enqueue_with(play("end"), urgent).await;
    assert!(matches!(other, Err(EnqueueError::KeyConflict)), "{other:?}");

    // As the HTTP API submits it, with the members in another order.
    let options = SubmitOptions { idempotency_key: Some("k".to_owned()), ..SubmitOptions::default() };
    let payload = json!({"note": null, "act": "end"}).into();
    let submission = Submission { job_type: "PLAY".to_owned(), payload, options, unique_key: None };
    let submitted = stage.store.job_submit(submission.into_new_job(clock::now(), 1)).await.unwrap();
    let outhaul::core::store::Submitted::Existing(job) = submitted else { panic!("{submitted:?}") };
    assert_eq!(job.job_id, first.job_id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_job_that_is_submitted_again_goes_on_at_the_failed_step() {
    let stage = Stage::new().await;
    let engine = stage.engine(Registry::new().job::<Fragile>().state(stage.seen.clone()), 4).await;
    let first = stage.client.enqueue_with(Fragile { from: 1 }, keyed("k")).await.unwrap();
    assert_eq!(stage.ended(&first.job_id).await.status, JobStatus::Failed);
    stage.seen.gate.add_permits(1);
    let again = stage.client.enqueue_with(Fragile { from: 1 }, keyed("k")).await.unwrap();
    assert_eq!((&again.job_id, again.new), (&first.job_id, false));
    assert_eq!(stage.ended(&first.job_id).await.status, JobStatus::Completed);
    assert_eq!(stage.seen.events(), ["first", "second", "second"]);
    engine.stop().await;
}

/// Its second step fails for good until the test opens the gate.
#[derive(Serialize, Deserialize)]
struct Fragile {
    from: u32,
}

impl Job for Fragile {
    const TYPE: &'static str = "FRAGILE";
    type Output = u32;
    async fn run(&self, ctx: &Context) -> Result<u32, JobError> {
        let seen = ctx.state::<std::sync::Arc<super::Seen>>()?;
        let first = ctx.step("first", || async {
            seen.note("first");
            Ok(self.from + 1)
        });
        let first = first.await?;
        let second = ctx.step("second", || async {
            seen.note("second");
            if seen.gate.available_permits() == 0 { Err(JobError::fatal("closed")) } else { Ok(first + 1) }
        });
        second.await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_options_are_refused() {
    let stage = Stage::new().await;
    for key in ["", "a\nb", "ü", &"x".repeat(256)] {
        let refused = stage.client.enqueue_with(play("end"), keyed(key)).await;
        assert!(matches!(refused, Err(EnqueueError::Invalid(_))), "{key}");
    }
    for (name, text) in [("", "x"), ("a\0", "x"), ("a", "x\n"), ("a", &"x".repeat(257))] {
        let labels = [(name.to_owned(), text.to_owned())].into();
        let options = EnqueueOptions { labels, ..EnqueueOptions::default() };
        let refused = stage.client.enqueue_with(play("end"), options).await;
        assert!(matches!(refused, Err(EnqueueError::Invalid(_))), "{name:?} {text:?}");
    }
    let urgent = EnqueueOptions { priority: 10, ..EnqueueOptions::default() };
    assert!(matches!(stage.client.enqueue_with(play("end"), urgent).await, Err(EnqueueError::Invalid(_))));
}

/// One at a time per account; another note makes no difference.
#[derive(Serialize, Deserialize)]
struct Sync {
    account: u64,
    note: String,
}

impl Job for Sync {
    const TYPE: &'static str = "SYNC";
    type Output = ();
    fn unique_key(&self) -> Option<String> {
        Some(self.account.to_string())
    }
    async fn run(&self, _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

/// One at a time per payload.
#[derive(Serialize, Deserialize)]
struct Rebuild {
    index: String,
    #[serde(default)]
    deep: bool,
}

impl Job for Rebuild {
    const TYPE: &'static str = "REBUILD";
    type Output = ();
    fn options() -> JobOptions {
        JobOptions::default().unique()
    }
    async fn run(&self, _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_equal_unique_jobs_one_waits_and_after_it_ended_another_may() {
    let stage = Stage::new().await;
    let sync = |account, note: &str| Sync { account, note: note.to_owned() };
    let first = stage.client.enqueue(sync(1, "a")).await.unwrap();
    let same = stage.client.enqueue(sync(1, "b")).await.unwrap();
    let other = stage.client.enqueue(sync(2, "a")).await.unwrap();
    assert_eq!((first.new, same.new, other.new), (true, false, true));
    assert_eq!(first.job_id, same.job_id);
    let rebuild = |index: &str| Rebuild { index: index.to_owned(), deep: false };
    assert!(stage.client.enqueue(rebuild("a")).await.unwrap().new);
    assert!(!stage.client.enqueue(rebuild("a")).await.unwrap().new);
    assert!(stage.client.enqueue(rebuild("b")).await.unwrap().new);

    let engine = stage.engine(Registry::new().job::<Sync>().job::<Rebuild>(), 4).await;
    stage.ended(&first.job_id).await;
    assert!(stage.client.enqueue(sync(1, "c")).await.unwrap().new);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_unique_is_the_same_over_http() {
    let stage = Stage::new().await;
    let registry = Registry::new().job::<Sync>().job::<Rebuild>().job::<Play>();
    let first = stage.client.enqueue(Rebuild { index: "a".to_owned(), deep: false }).await.unwrap();
    // The default left out, as a client of the API may.
    let payload = json!({"index": "a"}).into();
    let unique_key = registry.get("REBUILD").unwrap().unique_key(&payload);
    let options = SubmitOptions::default();
    let submission = Submission { job_type: "REBUILD".to_owned(), payload, options, unique_key };
    let submitted = stage.store.job_submit(submission.into_new_job(clock::now(), 1)).await.unwrap();
    let outhaul::core::store::Submitted::Duplicate(job) = submitted else { panic!("{submitted:?}") };
    assert_eq!(job.job_id, first.job_id);
    assert_eq!(registry.get("PLAY").unwrap().unique_key(&json!({"act": "end"}).into()), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_are_stored_at_once_in_their_order() {
    let stage = Stage::new().await;
    assert!(stage.client.enqueue_many(Vec::<Play>::new()).await.unwrap().is_empty());
    let jobs = (0..200).map(|n| Play { act: "end".to_owned(), note: Some(format!("{n:03}")) });
    let ids = stage.client.enqueue_many(jobs).await.unwrap();
    assert!(ids.len() == 200 && ids.iter().all(|id| id.new));
    let engine = stage.engine(stage.registry(), 8).await;
    for (n, id) in ids.iter().enumerate() {
        let job = stage.ended(&id.job_id).await;
        assert_eq!(job.result, Some(json!(format!("{n:03}")).into()));
    }
    engine.stop().await;
    let mut events = stage.seen.events();
    events.sort();
    events.dedup();
    assert_eq!(events.len(), 200, "each ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_for_later_waits_and_labels_are_kept() {
    let stage = Stage::new().await;
    let engine = stage.engine(stage.registry(), 4).await;
    let later = clock::now() + TimeDelta::from_std(Duration::from_secs(3600)).unwrap();
    let labels = [("team".to_owned(), "mail".to_owned())].into();
    let options = EnqueueOptions { run_at: Some(later), labels, ..EnqueueOptions::default() };
    let id = stage.client.enqueue_with(play("end"), options).await.unwrap().job_id;
    let now = stage.client.enqueue(play("end")).await.unwrap().job_id;
    stage.ended(&now).await;
    let job = stage.store.job_get(&id).await.unwrap().unwrap();
    assert_eq!((job.status, job.labels["team"].as_str()), (JobStatus::Submitted, "mail"));
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_the_url_may_submit() {
    let folder = tempfile::TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("outhaul.db").display());
    let client = Client::connect(&url).await.unwrap();
    assert!(client.enqueue(play("end")).await.unwrap().new);
    assert!(matches!(Client::connect("mysql://x").await.err(), Some(EnqueueError::Store(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submitter_leaves_a_queues_budget_to_its_workers() {
    let stage = Stage::new().await;
    let budget = QueueSpec { name: "job:PLAY".to_owned(), max_concurrent: Some(4) };
    stage.store.queues_sync(&[budget]).await.unwrap();
    stage.client.enqueue(play("end")).await.unwrap();
    let queues = stage.store.queues_list().await.unwrap();
    let play = queues.iter().find(|queue| queue.name == "job:PLAY").unwrap();
    assert_eq!((play.max_concurrent, play.depth), (Some(4), 1));
}

/// Anything, as deep as it comes.
#[derive(Serialize, Deserialize)]
struct Deep {
    body: serde_json::Value,
}

impl Job for Deep {
    const TYPE: &'static str = "DEEP";
    type Output = ();

    async fn run(&self, _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_read_back_is_not_stored() {
    let stage = Stage::new().await;
    let nested = (0..130).fold(json!(1), |inner, _| json!([inner]));
    let reserved = json!({ "$serde_json::private::RawValue": "[1]" });
    for body in [nested, reserved] {
        let refused = stage.client.enqueue(Deep { body }).await;
        assert!(matches!(refused, Err(EnqueueError::Invalid(_))), "{refused:?}");
    }
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    assert!(stage.client.enqueue(Deep { body: deep }).await.unwrap().new);
}

/// A delivery that counts what it is told.
struct Counting {
    told: AtomicUsize,
    inner: Arc<DatabaseDelivery>,
}

impl Delivery for Counting {
    fn announce(&self) {
        self.told.fetch_add(1, Ordering::SeqCst);
        self.inner.announce();
    }

    fn arm(&self) -> BoxFuture<'_, ()> {
        self.inner.arm()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_job_submits_is_told_by_the_delivery_of_its_engine() {
    let stage = Stage::new().await;
    let (store, inner) = (stage.store.clone(), DatabaseDelivery::start(stage.store.clone()));
    let delivery = Arc::new(Counting { told: AtomicUsize::new(0), inner });
    let stores = Stores { api: store.clone(), engine: store.clone(), keeper: store };
    let settings = settings(2, Duration::from_secs(60));
    let engine = Engine::start(stores, delivery.clone(), stage.registry(), settings).await.unwrap();
    let id = stage.client.enqueue(play("children")).await.unwrap().job_id;
    assert_eq!(stage.ended(&id).await.status, JobStatus::Completed);
    // Which sends no more than one hint in 50 ms, however many clients there are.
    assert!(delivery.told.load(Ordering::SeqCst) >= 20);
    engine.stop().await;
}
