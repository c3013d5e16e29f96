//! A planner, a delivery and a store for tests of what fires.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use futures::future::BoxFuture;
use outhaul_core::clock;
use outhaul_core::delivery::Delivery;
use outhaul_core::identity::Identity;
use outhaul_core::job::{Job as JobRow, NewJob};
use outhaul_core::json::Json;
use outhaul_core::queue::QueueSpec;
use outhaul_core::store::{JobFilter, Store};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{PlanProblem, Planner};
use crate::job::{Context, Job, JobError};
use crate::registry::Registry;
use crate::submission::{Submission, SubmitOptions, queue_of};
use crate::testing::{TempStore, drain};

/// A job that does nothing.
#[derive(Serialize, Deserialize)]
pub(crate) struct Touch {}

impl Job for Touch {
    const TYPE: &'static str = "TOUCH";
    type Output = ();

    async fn run(&self, _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

/// Makes one-chunk jobs of bodies with `jobType`, `payload` and `labels`.
#[derive(Default)]
pub(crate) struct TestPlanner {
    /// While it is set, nothing can be made.
    pub(crate) refuse: AtomicBool,
    /// What happens meanwhile.
    pub(crate) meanwhile: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Planner for TestPlanner {
    fn plan_as(&self, body: &Json, identity: &Identity) -> Result<NewJob, Vec<PlanProblem>> {
        let job = self.plan(body, &identity.subject)?;
        Ok(NewJob { identity: Some(identity.clone()), ..job })
    }

    fn plan(&self, body: &Json, owner: &str) -> Result<NewJob, Vec<PlanProblem>> {
        if let Some(meanwhile) = &self.meanwhile {
            meanwhile();
        }
        if self.refuse.load(Ordering::SeqCst) {
            let message = "is not what it was".to_owned();
            return Err(vec![PlanProblem { pointer: "/jobType".to_owned(), message }]);
        }
        let body: Value = body.read().unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let labels = body["labels"].as_object().into_iter().flatten();
        let options = SubmitOptions {
            labels: labels.map(|(name, value)| (name.clone(), text(value))).collect(),
            owner: owner.to_owned(),
            ..SubmitOptions::default()
        };
        let (job_type, payload) = (text(&body["jobType"]), Json::parse("{}").unwrap());
        let submission = Submission { job_type, payload, options, unique_key: None };
        let mut job = submission.into_new_job(clock::now(), rand::random());
        if body["broken"] == true {
            // No store takes two chunks of one name.
            job.chunks.extend_from_within(..);
        }
        Ok(job)
    }
}

/// Counts what it is told.
#[derive(Default)]
pub(crate) struct TestDelivery(pub(crate) AtomicU32);

#[async_trait]
impl Delivery for TestDelivery {
    fn announce(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn arm(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// A type of jobs that nobody runs.
pub(crate) const CHILD: &str = "CHILD";

/// A store that knows the queues of [`Touch`] and [`CHILD`].
pub(crate) async fn store() -> TempStore {
    let temporary = TempStore::open().await.unwrap();
    let queues =
        [Touch::TYPE, CHILD].map(|job_type| QueueSpec { name: queue_of(job_type), max_concurrent: None });
    temporary.store().queues_sync(&queues).await.unwrap();
    temporary
}

/// All jobs, the newest first.
pub(crate) async fn jobs(store: &Arc<dyn Store>) -> Vec<JobRow> {
    let filter = JobFilter { limit: 1000, ..JobFilter::default() };
    store.jobs_list(&filter).await.unwrap().items
}

/// Runs every job that waits.
pub(crate) async fn complete_all(store: &Arc<dyn Store>) {
    drain(store, &Registry::new().job::<Touch>()).await.unwrap();
}
