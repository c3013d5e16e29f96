//! Sweeps: stager, reaper's list, count repair, pruner. Every UPDATE tests again what it acts on.

use std::time::Duration;

use outhaul_core::store::{Staged, StoreResult};
use outhaul_core::worker::ExpiredChunk;

use super::SqliteStore;
use super::convert::{lease, now, refused};
use super::counts::{self, Change, Moved};
use super::outcome;
use super::transaction::Write;

const DAY: Duration = Duration::from_secs(86_400);

pub(super) async fn stage(store: &SqliteStore, limit: u32) -> StoreResult<Staged> {
    store
        .write(move |write| {
            Box::pin(async move {
                let queued = queue(write, limit).await?;
                let held = hold(write, limit).await?;
                let cancelled = cancel(write, limit).await?;
                let settled = settle(write, limit).await?;
                Ok(Staged { queued, held, cancelled, settled })
            })
        })
        .await
}

async fn queue(write: &mut Write, limit: u32) -> StoreResult<u64> {
    let (now, step) = (write.now, write.fairness_step());
    let done = sqlx::query(include_str!("sql/chunks_stage_queue.sql"))
        .bind(now)
        .bind(step)
        .bind(limit)
        .execute(write.connection())
        .await
        .map_err(refused)?;
    Ok(done.rows_affected())
}

async fn hold(write: &mut Write, limit: u32) -> StoreResult<u64> {
    let since = write.before(DAY);
    let done = sqlx::query(include_str!("sql/chunks_stage_hold.sql"))
        .bind(limit)
        .bind(since)
        .execute(write.connection())
        .await
        .map_err(refused)?;
    Ok(done.rows_affected())
}

async fn cancel(write: &mut Write, limit: u32) -> StoreResult<u64> {
    let now = write.now;
    let moved: Vec<Moved> = sqlx::query_as(include_str!("sql/chunks_stage_cancel.sql"))
        .bind(limit)
        .bind(now)
        .fetch_all(write.connection())
        .await
        .map_err(refused)?;
    Ok(outcome::record(write, &moved, 1).await?.len() as u64)
}

async fn settle(write: &mut Write, limit: u32) -> StoreResult<u64> {
    let now = write.now;
    let done = sqlx::query(include_str!("sql/chunks_stage_settle.sql"))
        .bind(limit)
        .bind(now)
        .execute(write.connection())
        .await
        .map_err(refused)?;
    Ok(done.rows_affected())
}

pub(super) async fn expired(store: &SqliteStore, limit: u32) -> StoreResult<Vec<ExpiredChunk>> {
    type Row = (i64, i64, u32, String, Option<String>, bool);
    let rows: Vec<Row> = sqlx::query_as(include_str!("sql/chunks_expired.sql"))
        .bind(now())
        .bind(limit)
        .fetch_all(store.reader())
        .await
        .map_err(refused)?;
    Ok(rows
        .into_iter()
        .map(|(chunk, fence, attempt, job_type, dataset, cancelled)| ExpiredChunk {
            lease: lease((chunk, fence)),
            job_type,
            dataset,
            attempt,
            cancelled,
        })
        .collect())
}

pub(super) async fn repair(store: &SqliteStore, quiet: Duration, limit: u32) -> StoreResult<u64> {
    store
        .write(move |write| {
            Box::pin(async move {
                let since = write.before(quiet);
                let wrong: Vec<Change> = sqlx::query_as(include_str!("sql/counts_repair.sql"))
                    .bind(since)
                    .bind(limit)
                    .fetch_all(write.connection())
                    .await
                    .map_err(refused)?;
                counts::record(write, &wrong).await?;
                Ok(wrong.len() as u64)
            })
        })
        .await
}

pub(super) async fn prune(store: &SqliteStore, keep: Duration, limit: u32) -> StoreResult<u64> {
    store
        .write(move |write| {
            Box::pin(async move {
                let (completed, seen) = (write.before(keep), write.before(DAY));
                let mut gone = 0;
                for sql in [include_str!("sql/jobs_prune_chunks.sql"), include_str!("sql/jobs_prune.sql")] {
                    let done = sqlx::query(sql)
                        .bind(completed)
                        .bind(limit)
                        .execute(write.connection())
                        .await
                        .map_err(refused)?;
                    gone += done.rows_affected();
                }
                let done = sqlx::query(include_str!("sql/jobs_prune_workers.sql"))
                    .bind(seen)
                    .execute(write.connection())
                    .await
                    .map_err(refused)?;
                Ok(gone + done.rows_affected())
            })
        })
        .await
}
