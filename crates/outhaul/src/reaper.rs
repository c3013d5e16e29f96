//! The reaper: moves chunks on whose owner stopped renewing its lease. The store tests again, in the
//! same statement, that the lease really ran out.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::retry::{RetryPolicy, Verdict};
use outhaul_core::store::{Store, StoreResult};
use outhaul_core::worker::{ExpiredChunk, Failure};
use tracing::warn;

use crate::duty::{Duty, Next};
use crate::registry::Registry;

const BATCH: u32 = 500;

/// Fails attempts whose lease ran out.
pub(crate) struct Reaper {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Registry,
    pub(crate) lease: Duration,
}

impl Reaper {
    fn judge(&self, chunk: &ExpiredChunk) -> Failure {
        let handler = self.registry.get(&chunk.job_type);
        let policy = handler.map_or_else(RetryPolicy::default, |h| h.retry(chunk.dataset.as_deref()));
        let retry_in = match policy.judge(chunk.attempt, false, rand::random()) {
            Verdict::Retry(wait) => Some(wait),
            Verdict::Dead => None,
        };
        let cause = "the worker stopped responding (lease ran out)".to_owned();
        Failure { lease: chunk.lease, expired: true, retry_in, cause, step: None }
    }
}

#[async_trait]
impl Duty for Reaper {
    const NAME: &'static str = "the reaper";

    fn interval(&self) -> Duration {
        (self.lease / 12).clamp(Duration::from_millis(50), Duration::from_secs(5))
    }

    async fn run_once(&self) -> StoreResult<Next> {
        let expired = self.store.chunks_expired(BATCH).await?;
        if expired.is_empty() {
            return Ok(Next::Later);
        }
        let failures: Vec<Failure> = expired.iter().map(|chunk| self.judge(chunk)).collect();
        let settled = self.store.chunks_fail(&failures).await?;
        for settled in &settled {
            warn!(chunk = %settled.lease, state = %settled.state, "a lease ran out: the attempt is over");
        }
        // A full batch of which nothing moved belongs to others; do not spin on it.
        let more = expired.len() >= BATCH as usize && !settled.is_empty();
        Ok(if more { Next::AtOnce } else { Next::Later })
    }
}
