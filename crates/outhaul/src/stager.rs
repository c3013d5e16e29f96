//! The stager: queues chunks that became eligible, holds and cancels those that must not start.
//! Runs in every worker and scheduler process; the store's guarded updates make that harmless.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::delivery::Delivery;
use outhaul_core::fault;
use outhaul_core::store::{Store, StoreResult};

use crate::duty::{BACKSTOP, Duty, Next};

const BATCH: u32 = 500;

/// Moves chunks on whose time has come.
pub(crate) struct Stager {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) delivery: Arc<dyn Delivery>,
}

#[async_trait]
impl Duty for Stager {
    const NAME: &'static str = "the stager";

    fn interval(&self) -> Duration {
        BACKSTOP
    }

    async fn run_once(&self) -> StoreResult<Next> {
        let staged = self.store.chunks_stage(BATCH).await?;
        if staged.queued > 0 {
            fault::point("stager");
            self.delivery.announce();
        }
        let most =
            staged.queued.max(staged.held).max(staged.cancelled).max(staged.settled).max(staged.released);
        Ok(if most >= u64::from(BATCH) { Next::AtOnce } else { Next::Later })
    }
}
