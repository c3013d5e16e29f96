//! The job types that a process can run.

use std::collections::BTreeMap;
use std::sync::Arc;

use outhaul_core::job::EXPORT;
use outhaul_core::queue::QueueSpec;
use outhaul_core::retry::RetryPolicy;

use crate::handler::Handler;
use crate::job::{Job, JobHandler, Shared, job_type_problem};

/// Job types by name, and what their jobs share.
///
/// ```
/// # use outhaul::{Context, Job, JobError, Registry};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct SendEmail { to: String }
/// # struct Mailer;
/// # impl Job for SendEmail {
/// #     const TYPE: &'static str = "SEND_EMAIL";
/// #     type Output = ();
/// #     async fn run(&self, _: &Context) -> Result<(), JobError> { Ok(()) }
/// # }
/// let registry = Registry::new().state(Mailer).job::<SendEmail>();
/// assert_eq!(registry.job_types().collect::<Vec<_>>(), ["SEND_EMAIL"]);
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    handlers: BTreeMap<String, Arc<dyn Handler>>,
    shared: Arc<Shared>,
    /// Whether there are jobs in Rust, which run on threads of their own.
    jobs: bool,
}

impl Registry {
    /// Nothing registered yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job type; a second of the same name replaces the first.
    #[must_use]
    pub fn with(mut self, handler: impl Handler + 'static) -> Self {
        self.handlers.insert(handler.job_type().to_owned(), Arc::new(handler));
        self
    }

    /// Adds a job of your own.
    ///
    /// # Panics
    ///
    /// If [`Job::TYPE`] is no name for a job type, is `EXPORT` or `REPORT`, or is there already: a
    /// mistake that no later moment is better to find.
    #[must_use]
    pub fn job<J: Job>(mut self) -> Self {
        let name = J::TYPE;
        if let Some(problem) = job_type_problem(name) {
            panic!("the job type `{name}` {problem}");
        }
        assert!(!self.handlers.contains_key(name), "the job type `{name}` is registered twice");
        self.jobs = true;
        let handler = JobHandler::<J>::new(self.shared.clone());
        self.with(handler)
    }

    /// Keeps a value for [`crate::Context::state`]: a client, a pool. One of each type.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(self, value: T) -> Self {
        self.shared.add(value);
        self
    }

    /// How jobs are tried again that have no policy of their own.
    #[must_use]
    pub fn default_retry(self, policy: RetryPolicy) -> Self {
        self.shared.set_retry(policy);
        self
    }

    /// The handler of a job type.
    pub fn get(&self, job_type: &str) -> Option<&Arc<dyn Handler>> {
        self.handlers.get(job_type)
    }

    /// All handlers.
    pub fn handlers(&self) -> impl Iterator<Item = &Arc<dyn Handler>> {
        self.handlers.values()
    }

    /// The custom job types, by name.
    pub fn job_types(&self) -> impl Iterator<Item = &str> {
        self.handlers.keys().map(String::as_str).filter(|name| *name != EXPORT)
    }

    /// All queues of all handlers.
    pub fn queues(&self) -> Vec<QueueSpec> {
        self.handlers.values().flat_map(|handler| handler.queues()).collect()
    }

    pub(crate) fn needs_job_threads(&self) -> bool {
        self.jobs
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}
