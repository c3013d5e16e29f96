//! Count repair: a backstop that recounts jobs whose counts have not moved for a minute. A correction
//! is worth a warning, for nothing should ever need one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::store::{Store, StoreResult};
use tracing::warn;

use crate::duty::{Duty, Next};

const BATCH: u32 = 100;
const QUIET: Duration = Duration::from_secs(60);

/// Corrects counts of jobs.
pub(crate) struct Repair {
    pub(crate) store: Arc<dyn Store>,
}

#[async_trait]
impl Duty for Repair {
    const NAME: &'static str = "the repair of counts";

    fn interval(&self) -> Duration {
        QUIET
    }

    async fn run_once(&self) -> StoreResult<Next> {
        let corrected = self.store.counts_repair(QUIET, BATCH).await?;
        if corrected > 0 {
            warn!(corrected, "the counts of {corrected} jobs were wrong and have been corrected");
        }
        Ok(Next::Later)
    }
}
