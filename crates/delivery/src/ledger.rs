//! What the relay and the feed need of a store: the verbs on announcements and the outbox, and no others.
//! Tests put one in its place that fails on demand.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::announcement::{Announcement, DeliveryLag};
use outhaul_core::id::{ChunkId, QueueId};
use outhaul_core::outbox::{NewOutboxMessage, OutboxMessage};
use outhaul_core::store::{Store, StoreResult};

/// The verbs of [`Store`] of the same names.
#[async_trait]
pub(crate) trait Ledger: Send + Sync {
    async fn announcements_take(
        &self,
        queues: &[QueueId],
        window: u32,
        limit: u32,
    ) -> StoreResult<Vec<Announcement>>;
    async fn announcements_confirm(&self, of: &[Announcement], expiry: Duration) -> StoreResult<()>;
    async fn announcements_defer(&self, chunks: &[ChunkId], wait: Duration) -> StoreResult<()>;
    async fn announcements_doubt(&self) -> StoreResult<()>;
    async fn outbox_put(&self, messages: &[NewOutboxMessage]) -> StoreResult<()>;
    async fn outbox_take(&self, limit: u32) -> StoreResult<Vec<OutboxMessage>>;
    async fn outbox_delete(&self, ids: &[i64]) -> StoreResult<()>;
    async fn delivery_lag(&self) -> StoreResult<DeliveryLag>;
}

#[async_trait]
impl Ledger for Arc<dyn Store> {
    async fn announcements_take(
        &self,
        queues: &[QueueId],
        window: u32,
        limit: u32,
    ) -> StoreResult<Vec<Announcement>> {
        (**self).announcements_take(queues, window, limit).await
    }

    async fn announcements_confirm(&self, of: &[Announcement], expiry: Duration) -> StoreResult<()> {
        (**self).announcements_confirm(of, expiry).await
    }

    async fn announcements_defer(&self, chunks: &[ChunkId], wait: Duration) -> StoreResult<()> {
        (**self).announcements_defer(chunks, wait).await
    }

    async fn announcements_doubt(&self) -> StoreResult<()> {
        (**self).announcements_doubt().await
    }

    async fn outbox_put(&self, messages: &[NewOutboxMessage]) -> StoreResult<()> {
        (**self).outbox_put(messages).await
    }

    async fn outbox_take(&self, limit: u32) -> StoreResult<Vec<OutboxMessage>> {
        (**self).outbox_take(limit).await
    }

    async fn outbox_delete(&self, ids: &[i64]) -> StoreResult<()> {
        (**self).outbox_delete(ids).await
    }

    async fn delivery_lag(&self) -> StoreResult<DeliveryLag> {
        (**self).delivery_lag().await
    }
}
