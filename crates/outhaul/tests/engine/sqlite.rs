//! The engine on the real embedded store: whole jobs from submission to their end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use outhaul::Instrumented;
use outhaul::core::clock;
use outhaul::core::id::JobId;
use outhaul::core::job::{Job, JobStatus, NewChunk, NewJob, OnFailure};
use outhaul::core::store::{Cancelled, Store, StoreSettings, Submitted};
use outhaul_store::sqlite::SqliteStore;
use tempfile::TempDir;

use crate::fake::{TestHandler, settings, start};

const LEASE: Duration = Duration::from_secs(60);

async fn open(folder: &TempDir) -> Arc<dyn Store> {
    let settings = StoreSettings {
        lease: LEASE,
        fairness_step: Duration::from_millis(100),
        idempotency_window: Duration::from_secs(60),
        parking: false,
    };
    let store = SqliteStore::open(&folder.path().join("outhaul.db"), settings).await.unwrap();
    Arc::new(Instrumented::new(Arc::new(store)))
}

async fn submit(store: &Arc<dyn Store>, on_failure: OnFailure, keys: &[String]) -> JobId {
    let chunk = |key: &String| NewChunk {
        chunk_key: key.clone(),
        queue: "job:TEST".to_owned(),
        key: None,
        effective_date: None,
    };
    let job = NewJob {
        job_id: JobId::new(clock::now(), rand::random()),
        job_type: "TEST".to_owned(),
        dataset: None,
        owner: "anonymous".to_owned(),
        idempotency: None,
        unique_key: None,
        request: serde_json::json!({}).into(),
        params: serde_json::json!({}).into(),
        priority: 5,
        on_failure,
        labels: Default::default(),
        run_at: None,
        parents: Vec::new(),
        on_parent_failure: Default::default(),
        base_path: None,
        identity: None,
        scope: String::new(),
        made_by: None,
        quota: None,
        chunks: keys.iter().map(chunk).collect(),
    };
    match store.job_submit(job).await.unwrap() {
        Submitted::Created(job) => job.job_id,
        other => panic!("a new job was expected: {other:?}"),
    }
}

fn keys(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}-{n:04}")).collect()
}

/// Looks at the job until it is as it should be: the store has no signal for this.
async fn until(store: &Arc<dyn Store>, id: &JobId, test: impl Fn(&Job) -> bool) -> Job {
    for _ in 0..3000 {
        let job = store.job_get(id).await.unwrap().unwrap();
        if test(&job) {
            return job;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened; the job is {:#?}", store.job_get(id).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_to_its_end_and_every_chunk_once() {
    let folder = TempDir::new().unwrap();
    let (store, handler) = (open(&folder).await, TestHandler::new());
    let engine = start(store.clone(), &handler, settings(8, LEASE)).await;
    let id = submit(&store, OnFailure::Stop, &keys("ok", 300)).await;
    let job = until(&store, &id, |job| job.status.is_final()).await;
    assert_eq!((job.status, job.counts.done, job.counts.running), (JobStatus::Completed, 300, 0));
    assert_eq!(handler.seen.started.lock().unwrap().len(), 300);
    assert!(handler.seen.most.load(Ordering::SeqCst) <= 8);
    engine.stop().await;
    assert!(store.workers_list(LEASE).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_that_always_fails_is_tried_exactly_as_often_as_it_may() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let handler = TestHandler { retry_after: Duration::from_millis(1), ..TestHandler::new() };
    let engine = start(store.clone(), &handler, settings(2, LEASE)).await;
    let mut chunks = keys("ok", 5);
    chunks.extend(["panic".to_owned(), "fail".to_owned()]);
    let id = submit(&store, OnFailure::Continue, &chunks).await;
    let job = until(&store, &id, |job| job.status.is_final()).await;
    assert_eq!((job.status, job.counts.done, job.counts.failed), (JobStatus::Failed, 5, 2));
    let message = job.error_message.unwrap_or_default();
    assert!(message.starts_with("Chunk failed after retries: "), "{message}");
    let started = handler.seen.started.lock().unwrap().clone();
    for key in ["panic", "fail"] {
        assert_eq!(started.iter().filter(|word| *word == key).count(), 3, "{key}");
    }
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_stops_a_running_job() {
    let folder = TempDir::new().unwrap();
    let (store, handler) = (open(&folder).await, TestHandler::new());
    let engine = start(store.clone(), &handler, settings(4, LEASE)).await;
    let id = submit(&store, OnFailure::Stop, &keys("wait", 100)).await;
    handler.until("four run", |seen| seen.now.load(Ordering::SeqCst) == 4).await;
    assert_eq!(store.job_cancel(&id).await.unwrap(), Cancelled::Yes);
    let job = until(&store, &id, |job| job.counts.cancelled == 100).await;
    assert_eq!((job.status, job.counts.running), (JobStatus::Cancelled, 0));
    assert_eq!(handler.seen.started.lock().unwrap().len(), 4, "nothing else started");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_worker_gives_back_and_the_next_one_finishes() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let handler = TestHandler { budget: Some(3), ..TestHandler::new() };
    let engine = start(store.clone(), &handler, settings(8, LEASE)).await;
    let id = submit(&store, OnFailure::Stop, &keys("gate", 10)).await;
    handler.until("the budget is used", |seen| seen.now.load(Ordering::SeqCst) == 3).await;
    // `gate` ignores the word to stop, as a handler must not: it is aborted and given back all the same.
    engine.stop().await;
    let job = until(&store, &id, |job| job.counts.running == 0).await;
    assert_eq!(job.counts.pending(), 10);

    handler.gate.add_permits(20);
    let engine = start(store.clone(), &handler, settings(8, LEASE)).await;
    let job = until(&store, &id, |job| job.status.is_final()).await;
    assert_eq!((job.status, job.counts.done), (JobStatus::Completed, 10));
    engine.stop().await;
}
