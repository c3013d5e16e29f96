//! Sweeps: guarded, batched, harmless in any number of processes at once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use outhaul_core::id::{ChunkId, Lease};
use outhaul_core::store::{Staged, StoreError, StoreResult, SweepsDue};
use outhaul_core::vacuum::VacuumLag;
use outhaul_core::worker::ExpiredChunk;
use sqlx::postgres::types::PgInterval;

use super::PostgresStore;
use super::pool::{Pool, begin};
use super::row::{interval, span};
use super::schema::Schema;
use crate::error::from_sqlx;

/// How many unfinished jobs one call of the count repair looks at.
const REPAIR_PAGE: i64 = 1000;

#[derive(sqlx::FromRow)]
struct ExpiredRow {
    id: i64,
    fence: i64,
    attempt: i32,
    job_type: String,
    dataset: Option<String>,
    cancelled: bool,
    overdue: PgInterval,
}

impl From<ExpiredRow> for ExpiredChunk {
    fn from(row: ExpiredRow) -> Self {
        Self {
            lease: Lease { chunk: ChunkId(row.id), fence: row.fence },
            job_type: row.job_type,
            dataset: row.dataset,
            attempt: row.attempt.unsigned_abs(),
            cancelled: row.cancelled,
            overdue: span(&row.overdue),
        }
    }
}

impl PostgresStore {
    pub(super) async fn due_sweeps(&self) -> StoreResult<SweepsDue> {
        let (stage, schedules, triggers, next): (bool, bool, bool, Option<PgInterval>) =
            sqlx::query_as(self.sql(include_str!("sql/sweeps_due.sql")))
                .fetch_one(&self.pool())
                .await
                .map_err(from_sqlx)?;
        Ok(SweepsDue { stage, schedules, triggers, next: next.as_ref().map(span) })
    }

    pub(super) async fn stage(&self, limit: u32) -> StoreResult<Staged> {
        let (limit, step) = (i64::from(limit), interval(self.settings.fairness_step));
        let queued = sqlx::query(self.sql(include_str!("sql/chunks_stage_queue.sql"))).bind(limit).bind(step);
        let queued = queued.execute(&self.pool()).await.map_err(from_sqlx)?.rows_affected();
        let held = sqlx::query(self.sql(include_str!("sql/chunks_stage_hold.sql"))).bind(limit);
        let held = held.execute(&self.pool()).await.map_err(from_sqlx)?.rows_affected();
        let cancelled: i64 = sqlx::query_scalar(self.sql(include_str!("sql/chunks_stage_cancel.sql")))
            .bind(limit)
            .fetch_one(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let settled = sqlx::query(self.sql(include_str!("sql/chunks_stage_settle.sql"))).bind(limit);
        let settled = settled.execute(&self.pool()).await.map_err(from_sqlx)?.rows_affected();
        // Last, so that what has just ended is seen.
        let (released, freed) = self.release(limit).await?;
        let queued = queued + freed;
        Ok(Staged { queued, held, cancelled: cancelled.unsigned_abs(), settled, released })
    }

    /// Waits that are over, with chunks that fail by them, and chunks that are queued by them.
    async fn release(&self, limit: i64) -> StoreResult<(u64, u64)> {
        let waits: i64 = sqlx::query_scalar(self.sql(include_str!("sql/chunks_stage_release.sql")))
            .bind(limit)
            .fetch_one(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let queued = sqlx::query(self.sql(include_str!("sql/chunks_stage_release_queue.sql")))
            .bind(limit)
            .bind(interval(self.settings.fairness_step))
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let dead: i64 = sqlx::query_scalar(self.sql(include_str!("sql/chunks_stage_release_fail.sql")))
            .bind(limit)
            .bind(self.settings.parking)
            .fetch_one(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let done = sqlx::query(self.sql(include_str!("sql/chunks_stage_release_done.sql"))).bind(limit);
        done.execute(&self.pool()).await.map_err(from_sqlx)?;
        Ok(((waits + dead).unsigned_abs(), queued.rows_affected()))
    }

    pub(super) async fn expired(
        &self,
        known: &[String],
        abandoned: Duration,
        limit: u32,
    ) -> StoreResult<Vec<ExpiredChunk>> {
        let rows: Vec<ExpiredRow> = sqlx::query_as(self.sql(include_str!("sql/chunks_expired.sql")))
            .bind(known)
            .bind(interval(abandoned))
            .bind(i64::from(limit))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(rows.into_iter().map(ExpiredChunk::from).collect())
    }

    /// Walks the unfinished jobs, a page at each call. One job per transaction, so that the finishes of others never
    /// wait for a recount.
    pub(super) async fn repair_counts(&self, quiet: Duration, limit: u32) -> StoreResult<u64> {
        let (pool, schema, walked) = (self.pool(), self.schema, self.repaired.clone());
        let page: Vec<(i64, bool)> = sqlx::query_as(self.sql(include_str!("sql/counts_repair_due.sql")))
            .bind(interval(quiet))
            .bind(walked.load(Ordering::Relaxed))
            .bind(REPAIR_PAGE)
            .fetch_all(&pool)
            .await
            .map_err(from_sqlx)?;
        let work = tokio::spawn(async move {
            let mut repaired = 0;
            let due = page.iter().filter(|(_, due)| *due).take(limit as usize);
            let mut last = page.last().map_or(0, |(id, _)| *id);
            for (count, (id, _)) in (1..).zip(due) {
                repaired += u64::from(repair_one(schema, &pool, *id, quiet).await?);
                if count == limit {
                    last = *id;
                }
            }
            // After the last job the walk begins anew.
            let ended = page.len() < REPAIR_PAGE as usize && page.last().is_none_or(|(id, _)| *id == last);
            walked.store(if ended { 0 } else { last }, Ordering::Relaxed);
            Ok(repaired)
        });
        work.await.map_err(|error| StoreError::Refused(error.into()))?
    }

    pub(super) async fn prune_jobs(&self, keep: Duration, limit: u32) -> StoreResult<u64> {
        let limit = i64::from(limit);
        let (mut marked, mut after) = (0, Some(0));
        while let Some(before) = after.filter(|_| marked < limit) {
            let (more, last): (i64, Option<i64>) =
                sqlx::query_as(self.sql(include_str!("sql/jobs_prune_mark.sql")))
                    .bind(interval(keep))
                    .bind(limit)
                    .bind(before)
                    .fetch_one(&self.pool())
                    .await
                    .map_err(from_sqlx)?;
            (marked, after) = (marked + more, last);
        }
        let chunks = sqlx::query(self.sql(include_str!("sql/jobs_prune_chunks.sql"))).bind(limit);
        let chunks = chunks.execute(&self.pool()).await.map_err(from_sqlx)?.rows_affected();
        let jobs = sqlx::query(self.sql(include_str!("sql/jobs_prune.sql")));
        let jobs = jobs.execute(&self.pool()).await.map_err(from_sqlx)?.rows_affected();
        Ok(chunks + jobs)
    }

    pub(super) async fn prune_workers(&self) -> StoreResult<u64> {
        let workers = sqlx::query(self.sql(include_str!("sql/workers_prune.sql")));
        Ok(workers.execute(&self.pool()).await.map_err(from_sqlx)?.rows_affected())
    }

    pub(super) async fn lag_of_vacuum(&self) -> StoreResult<VacuumLag> {
        let (oldest, dead): (Option<PgInterval>, Option<i64>) =
            sqlx::query_as(self.sql(include_str!("sql/vacuum_lag.sql")))
                .fetch_one(&self.pool())
                .await
                .map_err(from_sqlx)?;
        Ok(VacuumLag {
            oldest_transaction: oldest.as_ref().map(span).unwrap_or_default(),
            dead_chunks: dead.unwrap_or_default().unsigned_abs(),
        })
    }

    pub(super) async fn prune_firings(&self, keep: Duration, limit: u32) -> StoreResult<u64> {
        let gone: i64 = sqlx::query_scalar(self.sql(include_str!("sql/firings_prune.sql")))
            .bind(interval(keep))
            .bind(i64::from(limit))
            .fetch_one(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(gone.unsigned_abs())
    }
}

/// Recounts a job, if it is still due; whether its counts were wrong.
async fn repair_one(schema: Schema, pool: &Pool, job: i64, quiet: Duration) -> StoreResult<bool> {
    let mut connection = pool.acquire().await.map_err(from_sqlx)?;
    let mut tx = begin(&mut connection).await.map_err(from_sqlx)?;
    let locked: Vec<i64> = sqlx::query_scalar(schema.sql(include_str!("sql/counts_repair_lock.sql")))
        .bind(job)
        .bind(interval(quiet))
        .fetch_all(&mut *tx)
        .await
        .map_err(from_sqlx)?;
    if locked.is_empty() {
        return Ok(false);
    }
    let repaired: i64 = sqlx::query_scalar(schema.sql(include_str!("sql/counts_repair.sql")))
        .bind(locked)
        .fetch_one(&mut *tx)
        .await
        .map_err(from_sqlx)?;
    tx.commit().await.map_err(from_sqlx)?;
    Ok(repaired > 0)
}
