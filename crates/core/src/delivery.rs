//! The delivery port: how a worker learns that a chunk may be ready. Always a hint; the store is the
//! truth, and polling finds what a lost hint would have told.

use async_trait::async_trait;
use futures::future::BoxFuture;

/// A way of telling workers that there is something to claim.
#[async_trait]
pub trait Delivery: Send + Sync {
    /// Says that chunks became QUEUED. Cheap, never blocks, may be forgotten.
    fn announce(&self);

    /// Starts to listen now, and gives what to wait for: it ends at the first announcement made after
    /// this call, also one made before the wait began. So a worker arms, looks at the store, then waits.
    fn arm(&self) -> BoxFuture<'_, ()>;

    /// Waits until something may be ready.
    async fn ready(&self) {
        self.arm().await;
    }
}
