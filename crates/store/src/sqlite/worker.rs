//! Workers: who is there, and the heartbeat that keeps what they own.

use std::collections::BTreeMap;
use std::time::Duration;

use outhaul_core::id::{Lease, QueueId, WorkerId};
use outhaul_core::store::StoreResult;
use outhaul_core::worker::{Beat, NewWorker, Slot, WorkerRow};
use sqlx::types::Json;

use super::SqliteStore;
use super::convert::{lease, leases as leases_json, micros, now, time};
use super::queue::slots as slots_json;
use crate::error::from_sqlx;

pub(super) async fn register(store: &SqliteStore, worker: &NewWorker) -> StoreResult<WorkerId> {
    let worker = worker.clone();
    store
        .write(move |write| {
            Box::pin(async move {
                let now = write.now;
                sqlx::query_scalar(include_str!("sql/worker_register.sql"))
                    .bind(worker.host)
                    .bind(worker.roles)
                    .bind(worker.concurrency)
                    .bind(now)
                    .fetch_one(write.connection())
                    .await
                    .map(WorkerId)
                    .map_err(from_sqlx)
            })
        })
        .await
}

pub(super) async fn leave(store: &SqliteStore, worker: WorkerId) -> StoreResult<()> {
    store
        .write(move |write| {
            Box::pin(async move {
                for sql in [include_str!("sql/worker_leave_slots.sql"), include_str!("sql/worker_leave.sql")]
                {
                    sqlx::query(sql).bind(worker.0).execute(write.connection()).await.map_err(from_sqlx)?;
                }
                Ok(())
            })
        })
        .await
}

pub(super) async fn list(store: &SqliteStore, within: Duration) -> StoreResult<Vec<WorkerRow>> {
    type Row = (i64, String, String, u32, i64, i64, Json<BTreeMap<String, i64>>);
    let rows: Vec<Row> = sqlx::query_as(include_str!("sql/workers_list.sql"))
        .bind(now().saturating_sub(micros(within)))
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    Ok(rows
        .into_iter()
        .map(|(id, host, roles, concurrency, started_at, last_seen_at, running)| WorkerRow {
            id: WorkerId(id),
            host,
            roles,
            concurrency,
            started_at: time(started_at),
            last_seen_at: time(last_seen_at),
            running: running.0.into_iter().collect(),
        })
        .collect())
}

/// One transaction renews everything a worker owns. Nothing is ever skipped: there is one writer.
pub(super) async fn chunks_of(store: &SqliteStore, worker: WorkerId) -> StoreResult<Vec<Lease>> {
    let rows: Vec<(i64, i64)> = sqlx::query_as(include_str!("sql/chunks_of_worker.sql"))
        .bind(worker.0)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    Ok(rows.into_iter().map(lease).collect())
}

pub(super) async fn heartbeat(
    store: &SqliteStore,
    worker: WorkerId,
    leases: &[Lease],
    slots: &[Slot],
) -> StoreResult<Beat> {
    let (leases, slots) = (leases_json(leases), slots_json(slots));
    store
        .write(move |write| {
            Box::pin(async move {
                let (now, lease_until) = (write.now, write.lease_until());
                let renewed: Vec<(i64, i64)> = sqlx::query_as(include_str!("sql/chunks_heartbeat.sql"))
                    .bind(leases)
                    .bind(lease_until)
                    .bind(worker.0)
                    .fetch_all(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                let slots: Vec<(i64, i32)> = sqlx::query_as(include_str!("sql/chunks_heartbeat_slots.sql"))
                    .bind(slots)
                    .bind(lease_until)
                    .bind(worker.0)
                    .fetch_all(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                sqlx::query(include_str!("sql/chunks_heartbeat_worker.sql"))
                    .bind(worker.0)
                    .bind(now)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(Beat {
                    renewed: renewed.into_iter().map(lease).collect(),
                    slots: slots
                        .into_iter()
                        .map(|(queue, number)| Slot { queue: QueueId(queue), number })
                        .collect(),
                    skipped: Vec::new(),
                })
            })
        })
        .await
}
