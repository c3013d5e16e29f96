//! The outbox: messages for a broker, deleted when it has confirmed them.

use outhaul_core::announcement::{ANNOUNCEMENT_HELD, DeliveryLag};
use outhaul_core::outbox::{NewOutboxMessage, OutboxMessage};
use outhaul_core::store::StoreResult;
use sqlx::postgres::types::PgInterval;

use super::PostgresStore;
use super::row::{interval, span};
use crate::error::from_sqlx;

impl PostgresStore {
    pub(super) async fn put_outbox(&self, messages: &[NewOutboxMessage]) -> StoreResult<()> {
        sqlx::query(self.sql(include_str!("sql/outbox_put.sql")))
            .bind(messages.iter().map(|message| message.message_id.as_str()).collect::<Vec<_>>())
            .bind(messages.iter().map(|message| message.body.as_str()).collect::<Vec<_>>())
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }

    pub(super) async fn take_outbox(&self, limit: u32) -> StoreResult<Vec<OutboxMessage>> {
        let rows: Vec<(i64, String, String)> = sqlx::query_as(self.sql(include_str!("sql/outbox_take.sql")))
            .bind(i64::from(limit))
            .bind(interval(ANNOUNCEMENT_HELD))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(rows.into_iter().map(|(id, message_id, body)| OutboxMessage { id, message_id, body }).collect())
    }

    pub(super) async fn delete_outbox(&self, ids: &[i64]) -> StoreResult<()> {
        let delete = sqlx::query(self.sql(include_str!("sql/outbox_delete.sql"))).bind(ids);
        delete.execute(&self.pool()).await.map_err(from_sqlx)?;
        Ok(())
    }

    pub(super) async fn lag_of_delivery(&self) -> StoreResult<DeliveryLag> {
        let (announced, outbox, oldest): (i64, i64, Option<PgInterval>) =
            sqlx::query_as(self.sql(include_str!("sql/delivery_lag.sql")))
                .fetch_one(&self.pool())
                .await
                .map_err(from_sqlx)?;
        Ok(DeliveryLag {
            announced: announced.unsigned_abs(),
            outbox: outbox.unsigned_abs(),
            outbox_oldest: oldest.as_ref().map(span).unwrap_or_default(),
        })
    }
}
