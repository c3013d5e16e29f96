//! For tests of handlers: run one chunk without a worker, a lease keeper or any sleeping.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outhaul_core::store::Store;
use outhaul_core::worker::ClaimedChunk;
use tokio::sync::watch;

use crate::context::{ChunkContext, Pulse, Stop};
use crate::lease::LocalLease;

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
