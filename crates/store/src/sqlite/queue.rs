//! Queues, their pauses and their budget slots.

use std::collections::{BTreeMap, BTreeSet};

use outhaul_core::id::{QueueId, WorkerId};
use outhaul_core::queue::{QueueRow, QueueSpec};
use outhaul_core::store::StoreResult;
use outhaul_core::worker::Slot;
use sqlx::{Executor, Sqlite};

use super::SqliteStore;
use super::convert::{json, time};
use crate::error::from_sqlx;

pub(super) async fn sync(
    store: &SqliteStore,
    queues: &[QueueSpec],
) -> StoreResult<BTreeMap<String, QueueId>> {
    let specs = json(queues.iter().map(|queue| (&queue.name, queue.max_concurrent)).collect::<Vec<_>>());
    let names: BTreeSet<String> = queues.iter().map(|queue| queue.name.clone()).collect();
    store
        .write(move |write| {
            Box::pin(async move {
                for sql in [include_str!("sql/queues_sync.sql"), include_str!("sql/queues_sync_slots.sql")] {
                    sqlx::query(sql).bind(&specs).execute(write.connection()).await.map_err(from_sqlx)?;
                }
                let names = names.iter().map(String::as_str).collect();
                let ids = keys(write.connection(), &names).await?;
                Ok(ids.into_iter().map(|(name, id)| (name, QueueId(id))).collect())
            })
        })
        .await
}

/// The keys of those of these queues that exist.
pub(super) async fn keys(
    connection: impl Executor<'_, Database = Sqlite>,
    names: &BTreeSet<&str>,
) -> StoreResult<BTreeMap<String, i64>> {
    let rows: Vec<(i64, String)> = sqlx::query_as(include_str!("sql/queue_keys.sql"))
        .bind(json(names))
        .fetch_all(connection)
        .await
        .map_err(from_sqlx)?;
    Ok(rows.into_iter().map(|(id, name)| (name, id)).collect())
}

pub(super) async fn list(store: &SqliteStore) -> StoreResult<Vec<QueueRow>> {
    type Row = (i64, String, Option<u32>, bool, i64, Option<i64>, i64);
    let rows: Vec<Row> = sqlx::query_as(include_str!("sql/queues_list.sql"))
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    Ok(rows
        .into_iter()
        .map(|(id, name, max_concurrent, paused, depth, oldest, running)| QueueRow {
            id: QueueId(id),
            name,
            max_concurrent,
            paused,
            depth,
            oldest: oldest.map(time),
            running,
        })
        .collect())
}

pub(super) async fn pause(store: &SqliteStore, name: &str, paused: bool) -> StoreResult<bool> {
    let name = name.to_owned();
    store
        .write(move |write| {
            Box::pin(async move {
                let done = sqlx::query(include_str!("sql/queue_pause.sql"))
                    .bind(name)
                    .bind(paused)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(done.rows_affected() > 0)
            })
        })
        .await
}

pub(super) async fn slots_take(
    store: &SqliteStore,
    worker: WorkerId,
    queue: QueueId,
    count: u32,
) -> StoreResult<Vec<Slot>> {
    store
        .write(move |write| {
            Box::pin(async move {
                let (now, lease_until) = (write.now, write.lease_until());
                let mut numbers: Vec<i32> = sqlx::query_scalar(include_str!("sql/slots_take.sql"))
                    .bind(worker.0)
                    .bind(queue.0)
                    .bind(count)
                    .bind(now)
                    .bind(lease_until)
                    .fetch_all(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                numbers.sort_unstable();
                Ok(numbers.into_iter().map(|number| Slot { queue, number }).collect())
            })
        })
        .await
}

pub(super) async fn slots_release(store: &SqliteStore, worker: WorkerId, held: &[Slot]) -> StoreResult<()> {
    let held = slots(held);
    store
        .write(move |write| {
            Box::pin(async move {
                sqlx::query(include_str!("sql/slots_release.sql"))
                    .bind(held)
                    .bind(worker.0)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(())
            })
        })
        .await
}

/// Slots as `[[queue, slot], …]`.
pub(super) fn slots(slots: &[Slot]) -> String {
    json(slots.iter().map(|slot| (slot.queue.0, slot.number)).collect::<Vec<_>>())
}
