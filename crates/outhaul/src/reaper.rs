//! The reaper: moves chunks on whose owner stopped renewing its lease. The store tests again, in the
//! same statement, that the lease really ran out.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::retry::Verdict;
use outhaul_core::store::{Store, StoreResult};
use outhaul_core::worker::{ExpiredChunk, Failure};
use tracing::warn;

use crate::duty::{Duty, Next};
use crate::registry::Registry;

const BATCH: u32 = 500;
/// After so many leases an attempt of a job type that this process does not know is taken to be nobody's.
const ABANDONED: u32 = 10;

/// Fails attempts whose lease ran out.
pub(crate) struct Reaper {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Registry,
    pub(crate) lease: Duration,
}

impl Reaper {
    /// What becomes of the attempt; `None`: it is for a process that knows the job type to say.
    fn judge(&self, chunk: &ExpiredChunk) -> Option<Failure> {
        let verdict = match self.registry.get(&chunk.job_type) {
            Some(handler) => {
                handler.retry(chunk.dataset.as_deref()).judge(chunk.attempt, false, rand::random())
            }
            // Nobody who knows it seems to be left: it waits for one, and nobody here may call it dead.
            None if chunk.overdue > self.lease * ABANDONED => Verdict::Retry(self.lease),
            None => return None,
        };
        let retry_in = match verdict {
            Verdict::Retry(wait) => Some(wait),
            Verdict::Dead => None,
        };
        let cause = "the worker stopped responding (lease ran out)".to_owned();
        Some(Failure { lease: chunk.lease, expired: true, retry_in, cause, step: None })
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
        let failures: Vec<Failure> = expired.iter().filter_map(|chunk| self.judge(chunk)).collect();
        if failures.is_empty() {
            return Ok(Next::Later);
        }
        let settled = self.store.chunks_fail(&failures).await?;
        for settled in &settled {
            warn!(chunk = %settled.lease, state = %settled.state, "a lease ran out: the attempt is over");
        }
        // A full batch of which nothing moved belongs to others; do not spin on it.
        let more = expired.len() >= BATCH as usize && !settled.is_empty();
        Ok(if more { Next::AtOnce } else { Next::Later })
    }
}
