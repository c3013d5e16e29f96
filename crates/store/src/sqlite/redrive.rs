//! Redrive: dead chunks, and what was held because of them, are queued again. One transaction per job
//! looks at it as it is then, so that of many at once one moves each chunk.

use std::collections::BTreeMap;

use outhaul_core::audit::AuditAct;
use outhaul_core::dead_letter::DeadLetterFilter;
use outhaul_core::id::JobId;
use outhaul_core::job::JobStatus;
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Redriven, Redriver, StoreResult};

use super::SqliteStore;
use super::convert::json;
use super::history::{Waiting, append_moves, ids};
use super::transaction::Write;
use super::{dead_letter, job};
use crate::error::from_sqlx;

pub(super) async fn redrive(store: &SqliteStore, job_id: &JobId) -> StoreResult<Redriven> {
    let job_id = job_id.clone();
    store
        .write(move |write| {
            Box::pin(async move {
                let Some((job, status)) = job::key(write.connection(), &job_id).await? else {
                    return Ok(Redriven::Unknown);
                };
                let chunks = waiting(write, job, None).await?;
                if chunks.is_empty() {
                    return Ok(Redriven::Nothing);
                }
                redrive_in(write, job, status, &chunks).await
            })
        })
        .await
}

/// The oldest `limit` letters that match. A letter is a chunk under the fence it died with: one that was
/// redriven meanwhile and died again is another letter.
pub(super) async fn letters(
    store: &SqliteStore,
    filter: &DeadLetterFilter,
    limit: u32,
    by: Option<&Redriver>,
) -> StoreResult<u64> {
    let found: Vec<(i64, i64, i64)> =
        dead_letter::bind(sqlx::query_as(include_str!("sql/dead_letters_redrive.sql")), filter)
            .bind(limit)
            .fetch_all(store.reader())
            .await
            .map_err(from_sqlx)?;
    let mut jobs: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
    for (chunk, fence, job) in found {
        jobs.entry(job).or_default().push((chunk, fence));
    }
    let mut moved = 0;
    for (job, letters) in jobs {
        moved += letters_of(store, job, json(&letters), by.cloned()).await?;
    }
    Ok(moved)
}

/// Redrives these letters of one job, and records by whom; nothing if none of them is left.
async fn letters_of(
    store: &SqliteStore,
    job: i64,
    letters: String,
    by: Option<Redriver>,
) -> StoreResult<u64> {
    store
        .write(move |write| {
            Box::pin(async move {
                let chunks = waiting(write, job, Some(letters)).await?;
                let dead = dead(&chunks);
                let Some(status) = job::status(write.connection(), job).await? else { return Ok(0) };
                if dead == 0 {
                    return Ok(0);
                }
                if !matches!(redrive_in(write, job, status, &chunks).await?, Redriven::Yes(_)) {
                    return Ok(0);
                }
                if let Some(by) = by {
                    record(write, job, by).await?;
                }
                Ok(dead.unsigned_abs())
            })
        })
        .await
}

async fn record(write: &mut Write, job: i64, by: Redriver) -> StoreResult<()> {
    let now = write.now;
    sqlx::query(include_str!("sql/dead_letters_redrive_audit.sql"))
        .bind(job)
        .bind(now)
        .bind(by.actor)
        .bind(AuditAct::Redrive.as_str())
        .bind(by.detail)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(())
}

async fn waiting(write: &mut Write, job: i64, letters: Option<String>) -> StoreResult<Vec<Waiting>> {
    sqlx::query_as(include_str!("sql/job_redrive_chunks.sql"))
        .bind(job)
        .bind(letters)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)
}

fn dead(chunks: &[Waiting]) -> i64 {
    chunks.iter().filter(|chunk| chunk.is(ChunkState::Dead)).count() as i64
}

async fn redrive_in(
    write: &mut Write,
    job: i64,
    status: JobStatus,
    chunks: &[Waiting],
) -> StoreResult<Redriven> {
    if !matches!(status, JobStatus::Failed | JobStatus::InProgress) {
        return Ok(Redriven::Nothing);
    }
    // An unfinished job holds its key itself.
    if status == JobStatus::Failed && has_duplicate(write, job).await? {
        return Ok(Redriven::Duplicate);
    }
    let (now, step) = (write.now, write.fairness_step());
    append_moves(write, chunks, ChunkState::Queued).await?;
    sqlx::query(include_str!("sql/job_redrive_queue.sql"))
        .bind(ids(chunks))
        .bind(now)
        .bind(step)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    sqlx::query(include_str!("sql/job_redrive.sql"))
        .bind(job)
        .bind(dead(chunks))
        .bind(now)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(Redriven::Yes(chunks.len() as i64))
}

async fn has_duplicate(write: &mut Write, job: i64) -> StoreResult<bool> {
    sqlx::query_scalar(include_str!("sql/job_redrive_duplicate.sql"))
        .bind(job)
        .fetch_one(write.connection())
        .await
        .map_err(from_sqlx)
}
