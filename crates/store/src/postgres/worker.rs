//! Worker processes: coming, going, and who is there.

use std::time::Duration;

use chrono::{DateTime, Utc};
use outhaul_core::id::WorkerId;
use outhaul_core::store::StoreResult;
use outhaul_core::worker::{NewWorker, WorkerRow};

use super::PostgresStore;
use super::row::interval;
use crate::error::from_sqlx;

type WorkerColumns = (i64, String, String, i32, DateTime<Utc>, DateTime<Utc>, Option<String>, Option<i64>);

impl PostgresStore {
    pub(super) async fn register_worker(&self, worker: &NewWorker) -> StoreResult<WorkerId> {
        let id = sqlx::query_scalar(self.sql(include_str!("sql/worker_register.sql")))
            .bind(&worker.host)
            .bind(&worker.roles)
            .bind(i32::try_from(worker.concurrency).unwrap_or(i32::MAX))
            .fetch_one(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(WorkerId(id))
    }

    pub(super) async fn forget_worker(&self, worker: WorkerId) -> StoreResult<()> {
        sqlx::query(self.sql(include_str!("sql/worker_leave.sql")))
            .bind(worker.0)
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }

    pub(super) async fn list_workers(&self, within: Duration) -> StoreResult<Vec<WorkerRow>> {
        let rows: Vec<WorkerColumns> = sqlx::query_as(self.sql(include_str!("sql/workers_list.sql")))
            .bind(interval(within))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let mut workers: Vec<WorkerRow> = Vec::new();
        for (id, host, roles, concurrency, started_at, last_seen_at, queue, running) in rows {
            let id = WorkerId(id);
            if workers.last().is_none_or(|worker| worker.id != id) {
                let concurrency = concurrency.unsigned_abs();
                workers.push(WorkerRow {
                    id,
                    host,
                    roles,
                    concurrency,
                    started_at,
                    last_seen_at,
                    running: vec![],
                });
            }
            if let (Some(worker), Some(queue), Some(running)) = (workers.last_mut(), queue, running) {
                worker.running.push((queue, running));
            }
        }
        Ok(workers)
    }
}
