//! The outbox: messages for a broker, written with what they tell of and deleted when it has confirmed
//! them.

use std::time::Duration;

use outhaul_core::announcement::{ANNOUNCEMENT_HELD, DeliveryLag};
use outhaul_core::outbox::{NewOutboxMessage, OutboxMessage};
use outhaul_core::store::StoreResult;

use super::SqliteStore;
use super::convert::{json, now};
use super::transaction::Write;
use crate::error::from_sqlx;

/// Puts a parking message for each of these chunks, which just died, where a broker wants to know.
pub(super) async fn park(write: &mut Write, dead: impl Iterator<Item = i64>) -> StoreResult<()> {
    let dead: Vec<i64> = dead.collect();
    if dead.is_empty() || !write.settings.parking {
        return Ok(());
    }
    let now = write.now;
    sqlx::query(include_str!("sql/outbox_park.sql"))
        .bind(json(dead))
        .bind(now)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(())
}

pub(super) async fn put(store: &SqliteStore, messages: &[NewOutboxMessage]) -> StoreResult<()> {
    let messages = messages.to_vec();
    store
        .write(move |write| {
            Box::pin(async move {
                let now = write.now;
                for message in &messages {
                    sqlx::query(include_str!("sql/outbox_put.sql"))
                        .bind(&message.message_id)
                        .bind(&message.body)
                        .bind(now)
                        .execute(write.connection())
                        .await
                        .map_err(from_sqlx)?;
                }
                Ok(())
            })
        })
        .await
}

pub(super) async fn take(store: &SqliteStore, limit: u32) -> StoreResult<Vec<OutboxMessage>> {
    store
        .write(move |write| {
            Box::pin(async move {
                let (now, until) = (write.now, write.after(ANNOUNCEMENT_HELD));
                let mut taken: Vec<(i64, String, String)> =
                    sqlx::query_as(include_str!("sql/outbox_take.sql"))
                        .bind(limit)
                        .bind(now)
                        .bind(until)
                        .fetch_all(write.connection())
                        .await
                        .map_err(from_sqlx)?;
                // RETURNING promises no order.
                taken.sort_unstable_by_key(|(id, ..)| *id);
                let message = |(id, message_id, body)| OutboxMessage { id, message_id, body };
                Ok(taken.into_iter().map(message).collect())
            })
        })
        .await
}

pub(super) async fn delete(store: &SqliteStore, ids: &[i64]) -> StoreResult<()> {
    let ids = json(ids);
    store
        .write(move |write| {
            Box::pin(async move {
                sqlx::query(include_str!("sql/outbox_delete.sql"))
                    .bind(ids)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(())
            })
        })
        .await
}

pub(super) async fn lag(store: &SqliteStore) -> StoreResult<DeliveryLag> {
    let (announced, outbox, oldest): (i64, i64, i64) = sqlx::query_as(include_str!("sql/delivery_lag.sql"))
        .bind(now())
        .fetch_one(store.reader())
        .await
        .map_err(from_sqlx)?;
    Ok(DeliveryLag {
        announced: announced.unsigned_abs(),
        outbox: outbox.unsigned_abs(),
        outbox_oldest: Duration::from_micros(oldest.max(0).unsigned_abs()),
    })
}
