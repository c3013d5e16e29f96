//! The delivery port: how a worker learns that a chunk may be ready. Always a hint; the store is the
//! truth, and polling finds what a lost hint would have told.

use async_trait::async_trait;

/// A way of telling workers that there is something to claim.
#[async_trait]
pub trait Delivery: Send + Sync {
    /// Says that chunks became QUEUED. Cheap, never blocks, may be forgotten.
    fn announce(&self);

    /// Waits until something may be ready. Calls that overlap an announcement return at once.
    async fn ready(&self);
}
