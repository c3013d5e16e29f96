//! The job types that a process can run.

use std::collections::BTreeMap;
use std::sync::Arc;

use outhaul_core::queue::QueueSpec;

use crate::handler::Handler;

/// Handlers by job type.
#[derive(Clone, Default)]
pub struct Registry {
    handlers: BTreeMap<String, Arc<dyn Handler>>,
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

    /// The handler of a job type.
    pub fn get(&self, job_type: &str) -> Option<&Arc<dyn Handler>> {
        self.handlers.get(job_type)
    }

    /// All handlers.
    pub fn handlers(&self) -> impl Iterator<Item = &Arc<dyn Handler>> {
        self.handlers.values()
    }

    /// All queues of all handlers.
    pub fn queues(&self) -> Vec<QueueSpec> {
        self.handlers.values().flat_map(|handler| handler.queues()).collect()
    }
}
