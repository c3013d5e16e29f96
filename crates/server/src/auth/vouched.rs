//! Puts the question whether a job may still run in front of every job type: exports, HTTP steps and jobs written in
//! Rust alike. The engine knows nothing of it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul::{ChunkContext, Failed, Handler, Outcome, Registry, StepSpec};
use outhaul_core::file::{FileRecord, Leftover};
use outhaul_core::id::Lease;
use outhaul_core::json::Json;
use outhaul_core::queue::QueueSpec;
use outhaul_core::retry::RetryPolicy;
use outhaul_core::store::Store;

use super::settings::AuthSettings;
use super::vouch::Vouch;
use crate::steps::{Allow, ClientError};

/// The same job types, each of which runs only what its submitter is still good for. Where callers cannot be told
/// apart they stay as they are.
pub fn vouched(
    registry: Registry,
    auth: &AuthSettings,
    allow: &Allow,
    store: &Arc<dyn Store>,
) -> Result<Registry, ClientError> {
    let Some(jwt) = auth.jwt() else { return Ok(registry) };
    let vouch = Arc::new(Vouch::new(store.clone(), jwt, allow)?);
    let handlers: Vec<Arc<dyn Handler>> = registry.handlers().cloned().collect();
    let vouched = |handler| Vouched { handler, vouch: vouch.clone() };
    Ok(handlers.into_iter().map(vouched).fold(registry, Registry::with))
}

/// One job type.
struct Vouched {
    handler: Arc<dyn Handler>,
    vouch: Arc<Vouch>,
}

/// Every method is passed on, those that have a default too.
#[async_trait]
impl Handler for Vouched {
    fn job_type(&self) -> &str {
        self.handler.job_type()
    }

    fn queues(&self) -> Vec<QueueSpec> {
        self.handler.queues()
    }

    fn retry(&self, dataset: Option<&str>) -> RetryPolicy {
        self.handler.retry(dataset)
    }

    fn timeout(&self, dataset: Option<&str>) -> Option<Duration> {
        self.handler.timeout(dataset)
    }

    fn stall_timeout(&self, dataset: Option<&str>) -> Option<Duration> {
        self.handler.stall_timeout(dataset)
    }

    async fn run(&self, context: &ChunkContext) -> Result<Outcome, Failed> {
        {
            // Whoever is asked is no source that could have stalled.
            let _waiting = context.waiting();
            tokio::select! {
                biased;
                _ = context.stopped() => return Err(Failed::Stopped),
                admitted = self.vouch.admit(context.chunk()) => admitted?,
            }
        }
        self.handler.run(context).await
    }

    async fn remove_leftover(&self, leftover: &Leftover) -> Result<(), String> {
        self.handler.remove_leftover(leftover).await
    }

    async fn staged_attempts(&self) -> Result<HashSet<Lease>, String> {
        self.handler.staged_attempts().await
    }

    async fn remove_staged(&self, ended: HashSet<Lease>) -> Result<u64, String> {
        self.handler.remove_staged(ended).await
    }

    async fn is_published(&self, record: &FileRecord) -> Result<bool, String> {
        self.handler.is_published(record).await
    }

    fn steps(&self) -> Vec<StepSpec> {
        self.handler.steps()
    }

    fn unique_key(&self, payload: &Json) -> Option<String> {
        self.handler.unique_key(payload)
    }
}
