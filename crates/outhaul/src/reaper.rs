//! The reaper: moves chunks on whose owner stopped renewing its lease. The store tests again, in the
//! same statement, that the lease really ran out.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::retry::Verdict;
use outhaul_core::store::{Store, StoreError, StoreResult};
use outhaul_core::worker::{ExpiredChunk, Failure, Settled};
use tracing::{error, warn};

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
    /// Decides whether the expired attempt is retried or fails for good.
    fn judge(&self, chunk: &ExpiredChunk) -> Failure {
        let verdict = match self.registry.get(&chunk.job_type) {
            Some(handler) => {
                handler.retry(chunk.dataset.as_deref()).judge(chunk.attempt, false, rand::random())
            }
            // Nobody who knows it seems to be left: it waits for one, and nobody here may call it dead.
            None => Verdict::Retry(self.lease),
        };
        let retry_in = match verdict {
            Verdict::Retry(wait) => Some(wait),
            Verdict::Dead => None,
        };
        let cause = "the worker stopped responding (lease ran out)".to_owned();
        Failure { lease: chunk.lease, expired: true, retry_in, cause, step: None, detail: None }
    }

    /// Records the failures. If the store refuses one of them, the others are still recorded.
    async fn fail(&self, failures: &[Failure]) -> StoreResult<Vec<Settled>> {
        match self.store.chunks_fail(failures).await {
            Err(StoreError::Refused(error)) if failures.len() > 1 => {
                warn!(%error, "a batch of expired leases was refused: recording them one by one");
            }
            answer => return answer,
        }
        let mut settled = Vec::new();
        for failure in failures {
            match self.store.chunks_fail(std::slice::from_ref(failure)).await {
                Ok(one) => settled.extend(one),
                Err(StoreError::Refused(error)) => {
                    let chunk = failure.lease;
                    error!(%chunk, %error, "the end of the expired attempt {chunk} was refused: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(settled)
    }
}

#[async_trait]
impl Duty for Reaper {
    const NAME: &'static str = "the reaper";

    fn interval(&self) -> Duration {
        (self.lease / 12).clamp(Duration::from_millis(50), Duration::from_secs(5))
    }

    async fn run_once(&self) -> StoreResult<Next> {
        let known: Vec<String> =
            self.registry.handlers().map(|handler| handler.job_type().to_owned()).collect();
        let abandoned = self.lease.saturating_mul(ABANDONED);
        let expired = self.store.chunks_expired(&known, abandoned, BATCH).await?;
        if expired.is_empty() {
            return Ok(Next::Later);
        }
        let failures: Vec<Failure> = expired.iter().map(|chunk| self.judge(chunk)).collect();
        let settled = self.fail(&failures).await?;
        for settled in &settled {
            warn!(chunk = %settled.lease, state = %settled.state, "a lease ran out: the attempt is over");
        }
        // If no chunk of a full batch was settled, the leases were renewed or the store refused: do not spin on it.
        let more = expired.len() >= BATCH as usize && !settled.is_empty();
        Ok(if more { Next::AtOnce } else { Next::Later })
    }
}
