//! What else becomes of a running chunk: it fails, is given back, sleeps, or is cancelled. Every
//! UPDATE names the fence; what it does not answer with was lost.

use std::time::Duration;

use chrono::NaiveDate;
use outhaul_core::id::Lease;
use outhaul_core::state::{ChunkState, MAX_RETURNS};
use outhaul_core::store::StoreResult;
use outhaul_core::worker::{Failure, Settled};
use serde::Serialize;

use super::SqliteStore;
use super::convert::{json, leases as leases_json, micros};
use super::counts::{Changes, Moved};
use super::transaction::Write;
use crate::error::{corrupt, from_sqlx};

#[derive(Serialize)]
struct Failed<'a> {
    chunk: i64,
    fence: i64,
    expired: bool,
    run_at: Option<i64>,
    cause: &'a str,
}

#[derive(sqlx::FromRow)]
struct FailedChunk {
    #[sqlx(flatten)]
    moved: Moved,
    state: String,
    chunk_key: String,
    key: Option<String>,
    effective_date: Option<NaiveDate>,
    error_message: Option<String>,
}

impl FailedChunk {
    /// What the job says of its first dead chunk.
    fn sentence(&self) -> String {
        let name = match (&self.key, self.effective_date) {
            (Some(key), Some(date)) => format!("key={key} date={date}"),
            (Some(key), None) => format!("key={key}"),
            (None, _) => format!("chunk={}", self.chunk_key),
        };
        format!("Chunk failed after retries: {name}: {}", self.error_message.as_deref().unwrap_or_default())
    }
}

pub(super) async fn fail(store: &SqliteStore, failures: &[Failure]) -> StoreResult<Vec<Settled>> {
    let failures = failures.to_vec();
    store.write(move |write| Box::pin(async move { fail_in(write, &failures).await })).await
}

async fn fail_in(write: &mut Write, failures: &[Failure]) -> StoreResult<Vec<Settled>> {
    let now = write.now;
    let asked: Vec<Failed<'_>> = failures
        .iter()
        .map(|failure| Failed {
            chunk: failure.lease.chunk.0,
            fence: failure.lease.fence,
            expired: failure.expired,
            run_at: failure.retry_in.map(|wait| now.saturating_add(micros(wait))),
            cause: &failure.cause,
        })
        .collect();
    let mut failed: Vec<FailedChunk> = sqlx::query_as(include_str!("sql/chunks_fail.sql"))
        .bind(json(&asked))
        .bind(now)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    failed.sort_unstable_by_key(|chunk| chunk.moved.id);
    let mut changes = Changes::default();
    let mut settled = Vec::with_capacity(failed.len());
    for chunk in &failed {
        let state =
            ChunkState::parse(&chunk.state).ok_or_else(|| corrupt("job_chunk.state", &chunk.state))?;
        let change = changes.of(&chunk.moved);
        match state {
            ChunkState::Dead => {
                change.failed += 1;
                // Of several in one batch the same one on every database.
                let sentence = chunk.sentence();
                change.error =
                    Some(change.error.take().map_or(sentence.clone(), |other| other.min(sentence)));
            }
            ChunkState::Cancelled => change.cancelled += 1,
            _ => {}
        }
        settled.push(Settled { lease: chunk.moved.lease(), state });
    }
    changes.record(write).await?;
    Ok(settled)
}

pub(super) async fn give_back(store: &SqliteStore, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
    let leases = leases_json(leases);
    store
        .write(move |write| {
            Box::pin(async move {
                let moved: Vec<Moved> = sqlx::query_as(include_str!("sql/chunks_return.sql"))
                    .bind(leases)
                    .bind(MAX_RETURNS)
                    .fetch_all(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                record(write, &moved, 0).await
            })
        })
        .await
}

pub(super) async fn snooze(store: &SqliteStore, lease: Lease, wait: Duration) -> StoreResult<bool> {
    store
        .write(move |write| {
            Box::pin(async move {
                let until = write.after(wait);
                let moved: Option<Moved> = sqlx::query_as(include_str!("sql/chunk_snooze.sql"))
                    .bind(lease.chunk.0)
                    .bind(lease.fence)
                    .bind(until)
                    .fetch_optional(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(!record(write, moved.as_slice(), 0).await?.is_empty())
            })
        })
        .await
}

pub(super) async fn cancel(store: &SqliteStore, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
    let leases = leases_json(leases);
    store
        .write(move |write| {
            Box::pin(async move {
                let now = write.now;
                let moved: Vec<Moved> = sqlx::query_as(include_str!("sql/chunks_cancel.sql"))
                    .bind(leases)
                    .bind(now)
                    .fetch_all(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                record(write, &moved, 1).await
            })
        })
        .await
}

/// Tells the jobs that chunks moved, each of them counting so much as cancelled.
async fn record(write: &mut Write, moved: &[Moved], cancelled: i64) -> StoreResult<Vec<Lease>> {
    let mut changes = Changes::default();
    for chunk in moved {
        changes.of(chunk).cancelled += cancelled;
    }
    changes.record(write).await?;
    Ok(moved.iter().map(Moved::lease).collect())
}
