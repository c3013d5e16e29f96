//! The sweeper: removes staged files and open uploads of writers that no longer run. What it cannot
//! remove stays recorded and is tried again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::file::Leftover;
use outhaul_core::store::{Store, StoreResult};
use tracing::{info, warn};

use crate::duty::{Duty, Next};
use crate::registry::Registry;

const BATCH: u32 = 100;

/// Clears away what unfinished writers left.
pub(crate) struct Sweeper {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Registry,
}

impl Sweeper {
    /// A leftover does not name its job type; removing what is not there is harmless, so all are asked.
    async fn remove(&self, leftover: &Leftover) -> Result<(), String> {
        for handler in self.registry.handlers() {
            handler.remove_leftover(leftover).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Duty for Sweeper {
    const NAME: &'static str = "the sweeper";

    fn interval(&self) -> Duration {
        Duration::from_secs(30)
    }

    async fn run_once(&self) -> StoreResult<Next> {
        let leftovers = self.store.files_leftover(BATCH).await?;
        let mut removed = 0;
        for leftover in &leftovers {
            let attempt = leftover.lease;
            match self.remove(leftover).await {
                Ok(()) => {
                    self.store.file_leftover_removed(leftover).await?;
                    info!(%attempt, "removed what attempt {attempt} left behind");
                    removed += 1;
                }
                Err(error) => warn!(%attempt, %error, "cannot remove what attempt {attempt} left: {error}"),
            }
        }
        let more = removed > 0 && leftovers.len() >= BATCH as usize;
        Ok(if more { Next::AtOnce } else { Next::Later })
    }
}
