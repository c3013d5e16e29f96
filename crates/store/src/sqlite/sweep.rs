//! Sweeps: stager, reaper's list, count repair, pruner. Every UPDATE tests again what it acts on, and
//! nothing moves between a look and the write that follows it: there is one writer.

use std::time::Duration;

use outhaul_core::state::ChunkState;
use outhaul_core::store::{Staged, StoreResult, SweepsDue};
use outhaul_core::worker::ExpiredChunk;

use super::SqliteStore;
use super::convert::{json, lease, micros, now};
use super::counts::{self, Change};
use super::dependency;
use super::history::{Waiting, append_moves, ids};
use super::progress;
use super::transaction::Write;
use crate::error::from_sqlx;

const DAY: Duration = Duration::from_secs(86_400);

pub(super) async fn due(store: &SqliteStore) -> StoreResult<SweepsDue> {
    let (stage, schedules, triggers, next): (bool, bool, bool, Option<i64>) =
        sqlx::query_as(include_str!("sql/sweeps_due.sql"))
            .bind(now())
            .fetch_one(store.reader())
            .await
            .map_err(from_sqlx)?;
    let next = next.map(|micros| Duration::from_micros(micros.max(0).unsigned_abs()));
    Ok(SweepsDue { stage, schedules, triggers, next })
}

pub(super) async fn stage(store: &SqliteStore, limit: u32) -> StoreResult<Staged> {
    store
        .write(move |write| {
            Box::pin(async move {
                // First, so that what it lets go is queued at once.
                let released = dependency::release(write, limit).await?;
                let queued = queue(write, limit).await?;
                let held = hold(write, limit).await?;
                let cancelled = cancel(write, limit).await?;
                let settled = settle(write, limit).await?;
                Ok(Staged { queued, held, cancelled, settled, released })
            })
        })
        .await
}

async fn queue(write: &mut Write, limit: u32) -> StoreResult<u64> {
    let (now, step) = (write.now, write.fairness_step());
    let due: Vec<Waiting> = sqlx::query_as(include_str!("sql/chunks_stage_queue.sql"))
        .bind(now)
        .bind(limit)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    if due.is_empty() {
        return Ok(0);
    }
    append_moves(write, &due, ChunkState::Queued).await?;
    let done = sqlx::query(include_str!("sql/chunks_stage_queue_move.sql"))
        .bind(ids(&due))
        .bind(now)
        .bind(step)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(done.rows_affected())
}

async fn hold(write: &mut Write, limit: u32) -> StoreResult<u64> {
    let stopped: Vec<Waiting> = sqlx::query_as(include_str!("sql/chunks_stage_hold.sql"))
        .bind(limit)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    if stopped.is_empty() {
        return Ok(0);
    }
    append_moves(write, &stopped, ChunkState::Created).await?;
    let done = sqlx::query(include_str!("sql/chunks_stage_hold_move.sql"))
        .bind(ids(&stopped))
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(done.rows_affected())
}

async fn cancel(write: &mut Write, limit: u32) -> StoreResult<u64> {
    let now = write.now;
    let unwanted: Vec<Waiting> = sqlx::query_as(include_str!("sql/chunks_stage_cancel.sql"))
        .bind(limit)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    if unwanted.is_empty() {
        return Ok(0);
    }
    append_moves(write, &unwanted, ChunkState::Cancelled).await?;
    let done = sqlx::query(include_str!("sql/chunks_stage_cancel_move.sql"))
        .bind(ids(&unwanted))
        .bind(now)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    progress::forget(write, unwanted.iter().map(|chunk| chunk.id)).await?;
    sqlx::query(include_str!("sql/chunks_stage_cancel_count.sql"))
        .bind(json(unwanted.iter().map(|chunk| chunk.job_id).collect::<Vec<_>>()))
        .bind(now)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(done.rows_affected())
}

async fn settle(write: &mut Write, limit: u32) -> StoreResult<u64> {
    let now = write.now;
    let done = sqlx::query(include_str!("sql/chunks_stage_settle.sql"))
        .bind(limit)
        .bind(now)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(done.rows_affected())
}

pub(super) async fn expired(
    store: &SqliteStore,
    known: &[String],
    abandoned: Duration,
    limit: u32,
) -> StoreResult<Vec<ExpiredChunk>> {
    type Row = (i64, i64, u32, String, Option<String>, bool, i64);
    let now = now();
    let rows: Vec<Row> = sqlx::query_as(include_str!("sql/chunks_expired.sql"))
        .bind(now)
        .bind(json(known))
        .bind(now.saturating_sub(micros(abandoned)))
        .bind(limit)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    Ok(rows
        .into_iter()
        .map(|(chunk, fence, attempt, job_type, dataset, cancelled, overdue)| ExpiredChunk {
            lease: lease((chunk, fence)),
            job_type,
            dataset,
            attempt,
            cancelled,
            overdue: Duration::from_micros(overdue.max(0).unsigned_abs()),
        })
        .collect())
}

pub(super) async fn repair(store: &SqliteStore, quiet: Duration, limit: u32) -> StoreResult<u64> {
    store.write(move |write| Box::pin(repair_in(write, quiet, limit))).await
}

async fn repair_in(write: &mut Write, quiet: Duration, limit: u32) -> StoreResult<u64> {
    let (now, since) = (write.now, write.before(quiet));
    let due: Vec<i64> = sqlx::query_scalar(include_str!("sql/counts_repair_due.sql"))
        .bind(since)
        .bind(limit)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    if due.is_empty() {
        return Ok(0);
    }
    let due = json(&due);
    let wrong: Vec<Change> = sqlx::query_as(include_str!("sql/counts_repair.sql"))
        .bind(&due)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    sqlx::query(include_str!("sql/counts_repair_looked.sql"))
        .bind(due)
        .bind(now)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    counts::record(write, &wrong).await?;
    Ok(wrong.len() as u64)
}

pub(super) async fn prune(store: &SqliteStore, keep: Duration, limit: u32) -> StoreResult<u64> {
    store.write(move |write| Box::pin(prune_in(write, keep, limit))).await
}

async fn prune_in(write: &mut Write, keep: Duration, limit: u32) -> StoreResult<u64> {
    let (now, completed) = (write.now, write.before(keep));
    sqlx::query(include_str!("sql/jobs_prune_mark.sql"))
        .bind(completed)
        .bind(limit)
        .bind(now)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    let chunks = sqlx::query(include_str!("sql/jobs_prune_chunks.sql"))
        .bind(limit)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    let jobs = sqlx::query(include_str!("sql/jobs_prune.sql"))
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(chunks.rows_affected() + jobs.rows_affected())
}

pub(super) async fn prune_workers(store: &SqliteStore) -> StoreResult<u64> {
    store
        .write(move |write| {
            Box::pin(async move {
                let seen = write.before(DAY);
                let workers = sqlx::query(include_str!("sql/workers_prune.sql")).bind(seen);
                Ok(workers.execute(write.connection()).await.map_err(from_sqlx)?.rows_affected())
            })
        })
        .await
}

pub(super) async fn prune_firings(store: &SqliteStore, keep: Duration, limit: u32) -> StoreResult<u64> {
    store
        .write(move |write| {
            Box::pin(async move {
                let before = write.before(keep);
                let mut rows = 0;
                for sql in [
                    include_str!("sql/firings_prune_slots.sql"),
                    include_str!("sql/firings_prune_fires.sql"),
                    include_str!("sql/firings_prune_arrivals.sql"),
                ] {
                    let prune = sqlx::query(sql).bind(before).bind(limit);
                    rows += prune.execute(write.connection()).await.map_err(from_sqlx)?.rows_affected();
                }
                Ok(rows)
            })
        })
        .await
}
