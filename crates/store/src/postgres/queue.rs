//! Queues and their budget slots.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use outhaul_core::id::{QueueId, WorkerId};
use outhaul_core::queue::{QueueRow, QueueSpec};
use outhaul_core::store::{StoreError, StoreResult};
use outhaul_core::worker::Slot;

use super::PostgresStore;
use super::row::interval;
use crate::error::from_sqlx;

type QueueColumns = (i32, String, Option<i32>, bool, i64, Option<DateTime<Utc>>, i64);

impl PostgresStore {
    /// A queue's key by its name, from memory where it is known.
    pub(super) async fn queue_key(&self, name: &str) -> StoreResult<i32> {
        let known = |store: &Self| store.queue_keys.read().ok().and_then(|keys| keys.get(name).copied());
        if known(self).is_none() {
            let rows: Vec<(i32, String)> = sqlx::query_as(self.sql(include_str!("sql/queue_keys.sql")))
                .fetch_all(&self.pool())
                .await
                .map_err(from_sqlx)?;
            self.remember(rows);
        }
        let key = known(self).ok_or_else(|| StoreError::UnknownQueue(name.to_owned()))?;
        i32::try_from(key.0).map_err(|error| StoreError::Refused(error.into()))
    }

    fn remember(&self, rows: Vec<(i32, String)>) {
        if let Ok(mut keys) = self.queue_keys.write() {
            keys.extend(rows.into_iter().map(|(id, name)| (name, QueueId(id.into()))));
        }
    }

    pub(super) async fn sync_queues(&self, queues: &[QueueSpec]) -> StoreResult<BTreeMap<String, QueueId>> {
        let names: Vec<&str> = queues.iter().map(|queue| queue.name.as_str()).collect();
        let budgets: Vec<Option<i32>> =
            queues.iter().map(|queue| queue.max_concurrent.and_then(|n| i32::try_from(n).ok())).collect();
        let rows: Vec<(i32, String)> = sqlx::query_as(self.sql(include_str!("sql/queues_sync.sql")))
            .bind(names)
            .bind(budgets)
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let keys = rows.iter().map(|(id, name)| (name.clone(), QueueId((*id).into()))).collect();
        self.remember(rows);
        Ok(keys)
    }

    pub(super) async fn list_queues(&self) -> StoreResult<Vec<QueueRow>> {
        let rows: Vec<QueueColumns> = sqlx::query_as(self.sql(include_str!("sql/queues_list.sql")))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let row = |(id, name, max_concurrent, paused, depth, oldest, running): QueueColumns| QueueRow {
            id: QueueId(id.into()),
            name,
            max_concurrent: max_concurrent.map(i32::unsigned_abs),
            paused,
            depth,
            oldest,
            running,
        };
        Ok(rows.into_iter().map(row).collect())
    }

    pub(super) async fn pause_queue(&self, name: &str, paused: bool) -> StoreResult<bool> {
        let done = sqlx::query(self.sql(include_str!("sql/queue_pause.sql")))
            .bind(name)
            .bind(paused)
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(done.rows_affected() > 0)
    }

    pub(super) async fn take_slots(
        &self,
        worker: WorkerId,
        queue: QueueId,
        count: u32,
    ) -> StoreResult<Vec<Slot>> {
        let rows: Vec<(i32, i32)> = sqlx::query_as(self.sql(include_str!("sql/slots_take.sql")))
            .bind(worker.0)
            .bind(queue.0)
            .bind(i64::from(count))
            .bind(interval(self.settings.lease))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(rows.into_iter().map(|(queue, number)| Slot { queue: QueueId(queue.into()), number }).collect())
    }

    pub(super) async fn release_slots(&self, worker: WorkerId, slots: &[Slot]) -> StoreResult<()> {
        let (queues, numbers) = slot_columns(slots);
        sqlx::query(self.sql(include_str!("sql/slots_release.sql")))
            .bind(worker.0)
            .bind(queues)
            .bind(numbers)
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }
}

/// Slots as two columns.
pub(super) fn slot_columns(slots: &[Slot]) -> (Vec<i32>, Vec<i32>) {
    slots.iter().map(|slot| (i32::try_from(slot.queue.0).unwrap_or(-1), slot.number)).unzip()
}
