//! What both suites start their cases from: two queues, a worker, an export with its chunks. A case says
//! where it differs.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::NaiveDate;
use outhaul_core::clock;
use outhaul_core::id::{JobId, QueueId, WorkerId};
use outhaul_core::job::{EXPORT, Job, NewChunk, NewJob, OnFailure};
use outhaul_core::queue::QueueSpec;
use outhaul_core::store::{Store, StoreSettings, Submitted};
use outhaul_core::worker::{ClaimedChunk, Finish, NewWorker};

/// The queue of most cases; it has no budget.
pub(crate) const QUEUE: &str = "source:warehouse";
/// A second one.
pub(crate) const MAIL: &str = "job:MAIL";

/// Longer than any case takes: what it sets off does not happen.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// What stores are opened with unless a case says otherwise.
pub(crate) const SETTINGS: StoreSettings = StoreSettings {
    lease: LONG,
    fairness_step: Duration::from_millis(100),
    idempotency_window: Duration::from_secs(24 * 3600),
    parking: false,
};

/// Makes both queues.
pub(crate) async fn queues(store: &dyn Store) -> BTreeMap<String, QueueId> {
    let specs = [QUEUE, MAIL].map(|name| QueueSpec { name: name.to_owned(), max_concurrent: None });
    store.queues_sync(&specs).await.expect("queues_sync")
}

/// Makes a worker known.
pub(crate) async fn register(store: &dyn Store) -> WorkerId {
    let worker = NewWorker { host: "host".to_owned(), roles: "worker".to_owned(), concurrency: 8 };
    store.worker_register(&worker).await.expect("worker_register")
}

/// Submits a job that must be new.
pub(crate) async fn submit(store: &dyn Store, job: NewJob) -> Job {
    match store.job_submit(job).await.expect("job_submit") {
        Submitted::Created(job) => job,
        other => panic!("expected a new job, got {other:?}"),
    }
}

/// The date of every export.
pub(crate) fn day() -> NaiveDate {
    NaiveDate::from_ymd_opt(2025, 3, 15).expect("a real date")
}

/// A new export of so many chunks: keys K00000, K00001 …
pub(crate) fn job(chunks: usize) -> NewJob {
    NewJob {
        job_id: JobId::new(clock::now(), rand::random()),
        job_type: EXPORT.to_owned(),
        dataset: Some("positions".to_owned()),
        owner: "anonymous".to_owned(),
        idempotency: None,
        unique_key: None,
        request: serde_json::json!({ "dataset": "positions" }).into(),
        params: serde_json::json!({ "format": "CSV" }).into(),
        priority: 5,
        on_failure: OnFailure::Stop,
        labels: BTreeMap::new(),
        run_at: None,
        parents: Vec::new(),
        on_parent_failure: Default::default(),
        base_path: Some("exports/".to_owned()),
        identity: None,
        scope: String::new(),
        made_by: None,
        quota: None,
        chunks: (0..chunks).map(|n| chunk(&format!("K{n:05}"))).collect(),
    }
}

/// A chunk of an export, in [`QUEUE`].
pub(crate) fn chunk(key: &str) -> NewChunk {
    NewChunk {
        chunk_key: format!("key={key}:date=20250315"),
        queue: QUEUE.to_owned(),
        key: Some(key.to_owned()),
        effective_date: Some(day()),
    }
}

/// A success without a file.
pub(crate) fn plain(chunk: &ClaimedChunk) -> Finish {
    Finish {
        lease: chunk.lease,
        claimed_at: chunk.claimed_at,
        file: None,
        reason: String::new(),
        result: None,
    }
}
