//! The pruner: deletes jobs that finished longer ago than they are kept, in small batches, so that no
//! statement of it holds others up.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::store::{Store, StoreResult};
use tracing::debug;

use crate::duty::{Duty, Next};

const BATCH: u32 = 1000;

/// Deletes what is past its retention.
pub(crate) struct Pruner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keep: Duration,
}

#[async_trait]
impl Duty for Pruner {
    const NAME: &'static str = "the pruner";

    fn interval(&self) -> Duration {
        Duration::from_secs(300)
    }

    async fn run_once(&self) -> StoreResult<Next> {
        if self.keep == Duration::MAX {
            return Ok(Next::Later);
        }
        let gone = self.store.jobs_prune(self.keep, BATCH).await?;
        if gone > 0 {
            debug!(gone, "deleted rows of jobs past their retention");
        }
        Ok(if gone > 0 { Next::AtOnce } else { Next::Later })
    }
}
