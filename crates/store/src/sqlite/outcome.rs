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
use super::history::{self, Entry, Owners};
use super::transaction::Write;
use super::{outbox, progress};
use crate::error::{corrupt, from_sqlx};

#[derive(Serialize)]
struct Failed<'a> {
    chunk: i64,
    fence: i64,
    expired: bool,
    run_at: Option<i64>,
    cause: &'a str,
    detail: Option<&'a str>,
    step: Option<&'a str>,
}

#[derive(sqlx::FromRow)]
struct FailedChunk {
    #[sqlx(flatten)]
    moved: Moved,
    state: String,
    chunk_key: String,
    key: Option<String>,
    effective_date: Option<NaiveDate>,
    step: Option<String>,
    error_message: Option<String>,
    error_detail: Option<String>,
}

impl FailedChunk {
    /// What the job says of its first dead chunk.
    fn sentence(&self) -> String {
        let name = match (&self.step, &self.key, self.effective_date) {
            (Some(step), ..) => format!("step={step}"),
            (None, Some(key), Some(date)) => format!("key={key} date={date}"),
            (None, Some(key), None) => format!("key={key}"),
            (None, None, _) => format!("chunk={}", self.chunk_key),
        };
        format!("Chunk failed after retries: {name}: {}", self.error_message.as_deref().unwrap_or_default())
    }

    /// The failure as history tells operators of it: a final one is two transitions in one.
    fn entries(&self, owners: &Owners, state: ChunkState) -> Vec<Entry<'_>> {
        let cause = self.error_detail.as_deref().or(self.error_message.as_deref());
        let step = self.step.as_deref();
        let entry = |from, to| Entry { from, step, cause, ..owners.entry(&self.moved, to) };
        match state {
            ChunkState::Dead => vec![
                entry(ChunkState::Running, ChunkState::Retry),
                entry(ChunkState::Retry, ChunkState::Dead),
            ],
            state => vec![entry(ChunkState::Running, state)],
        }
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
            detail: failure.detail.as_deref(),
            step: failure.step.as_deref(),
        })
        .collect();
    let leases: Vec<Lease> = failures.iter().map(|failure| failure.lease).collect();
    let owners = Owners::of(write, &leases).await?;
    let mut failed: Vec<FailedChunk> = sqlx::query_as(include_str!("sql/chunks_fail.sql"))
        .bind(json(&asked))
        .bind(now)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    failed.sort_unstable_by_key(|chunk| chunk.moved.id);
    let mut changes = Changes::default();
    let mut settled = Vec::with_capacity(failed.len());
    let mut entries = Vec::with_capacity(failed.len());
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
        entries.extend(chunk.entries(&owners, state));
    }
    history::append(write, &entries).await?;
    let ended = settled.iter().filter(|settled| settled.state != ChunkState::Retry);
    progress::forget(write, ended.map(|settled| settled.lease.chunk.0)).await?;
    let dead = settled.iter().filter(|settled| settled.state == ChunkState::Dead);
    outbox::park(write, dead.map(|settled| settled.lease.chunk.0)).await?;
    changes.record(write).await?;
    Ok(settled)
}

pub(super) async fn give_back(store: &SqliteStore, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
    let leases = leases.to_vec();
    store
        .write(move |write| {
            Box::pin(async move {
                let owners = Owners::of(write, &leases).await?;
                let moved: Vec<Moved> = sqlx::query_as(include_str!("sql/chunks_return.sql"))
                    .bind(leases_json(&leases))
                    .bind(MAX_RETURNS)
                    .fetch_all(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                record(write, &owners, &moved, ChunkState::Queued).await
            })
        })
        .await
}

pub(super) async fn snooze(store: &SqliteStore, lease: Lease, wait: Duration) -> StoreResult<bool> {
    store
        .write(move |write| {
            Box::pin(async move {
                let until = write.after(wait);
                let owners = Owners::of(write, &[lease]).await?;
                let moved: Option<Moved> = sqlx::query_as(include_str!("sql/chunk_snooze.sql"))
                    .bind(lease.chunk.0)
                    .bind(lease.fence)
                    .bind(until)
                    .fetch_optional(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(!record(write, &owners, moved.as_slice(), ChunkState::Created).await?.is_empty())
            })
        })
        .await
}

pub(super) async fn cancel(store: &SqliteStore, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
    let leases = leases.to_vec();
    store
        .write(move |write| {
            Box::pin(async move {
                let now = write.now;
                let owners = Owners::of(write, &leases).await?;
                let moved: Vec<Moved> = sqlx::query_as(include_str!("sql/chunks_cancel.sql"))
                    .bind(leases_json(&leases))
                    .bind(now)
                    .fetch_all(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                record(write, &owners, &moved, ChunkState::Cancelled).await
            })
        })
        .await
}

/// Tells the history and the jobs where their owners' chunks went.
async fn record(
    write: &mut Write,
    owners: &Owners,
    moved: &[Moved],
    to: ChunkState,
) -> StoreResult<Vec<Lease>> {
    let entries: Vec<Entry<'_>> = moved.iter().map(|chunk| owners.entry(chunk, to)).collect();
    history::append(write, &entries).await?;
    if to == ChunkState::Cancelled {
        progress::forget(write, moved.iter().map(|chunk| chunk.id)).await?;
    }
    let mut changes = Changes::default();
    for chunk in moved {
        changes.of(chunk).cancelled += i64::from(to == ChunkState::Cancelled);
    }
    changes.record(write).await?;
    Ok(moved.iter().map(Moved::lease).collect())
}
