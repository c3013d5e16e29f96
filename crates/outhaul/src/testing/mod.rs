//! For tests of jobs and handlers, without a worker, a lease keeper or any sleeping: [`run_inline`] runs
//! one job, [`drain()`] everything that waits in a store.

mod drain;
mod inline;
mod temp_store;

use std::sync::Arc;
use std::time::{Duration, Instant};

use outhaul_core::store::Store;
use outhaul_core::worker::ClaimedChunk;
use tokio::sync::watch;

use crate::context::{ChunkContext, Pulse, Stop};
use crate::lease::LocalLease;

pub use drain::{Drained, drain};
pub use inline::{run_inline, run_inline_with};
pub use temp_store::TempStore;

/// Tells the handler of a [`context()`] to stop. Dropping it looks like a lost lease.
pub struct Stopper(watch::Sender<Option<Stop>>);

impl Stopper {
    /// Tells it.
    pub fn tell(&self, reason: Stop) {
        self.0.send_replace(Some(reason));
    }
}

/// The context of a chunk that a test claimed itself; its lease is believed in for an hour.
pub fn context(chunk: ClaimedChunk, store: Arc<dyn Store>) -> (ChunkContext, Stopper) {
    let (stop, told) = watch::channel(None);
    let pulse = Pulse::new(LocalLease::new(Instant::now(), Duration::from_secs(3600)));
    pulse.start();
    (ChunkContext::new(chunk, None, None, store, told, Arc::new(pulse)), Stopper(stop))
}
