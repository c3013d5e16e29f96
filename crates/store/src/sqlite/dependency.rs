//! Jobs that wait for others: who their parents are, and what the end of one means to them.

use std::collections::BTreeMap;

use outhaul_core::id::JobId;
use outhaul_core::job::NewJob;
use outhaul_core::state::ChunkState;
use outhaul_core::store::StoreResult;

use super::convert::json;
use super::history::{Entry, Waiting, append, ids};
use super::outbox;
use super::transaction::Write;
use crate::error::from_sqlx;

/// The parents of a job that is to be stored.
pub(super) struct Parents {
    found: Vec<i64>,
    /// Those that are not there, or are another's.
    pub(super) missing: Vec<JobId>,
}

impl Parents {
    /// Finds parents of the same owner. `predecessor` is the job that the engine makes this job wait for; any owner.
    pub(super) async fn of(
        write: &mut Write,
        job: &NewJob,
        predecessor: Option<&JobId>,
    ) -> StoreResult<Self> {
        if job.parents.is_empty() {
            return Ok(Self { found: Vec::new(), missing: Vec::new() });
        }
        let rows: Vec<(i64, String)> = sqlx::query_as(include_str!("sql/job_submit_find_parents.sql"))
            .bind(json(&job.parents))
            .bind(&job.owner)
            .bind(predecessor.map(JobId::as_str))
            .fetch_all(write.connection())
            .await
            .map_err(from_sqlx)?;
        let is_missing = |parent: &&JobId| !rows.iter().any(|(_, found)| found == parent.as_str());
        let missing = job.parents.iter().filter(is_missing).cloned().collect();
        Ok(Self { found: rows.iter().map(|(id, _)| *id).collect(), missing })
    }

    pub(super) async fn insert(&self, write: &mut Write, child: i64) -> StoreResult<()> {
        if self.found.is_empty() {
            return Ok(());
        }
        sqlx::query(include_str!("sql/job_submit_parents.sql"))
            .bind(child)
            .bind(json(&self.found))
            .execute(write.connection())
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }
}

/// Chunks of released jobs in one sweep, about: there is one writer, and others want to write too.
const CHUNKS: i64 = 10_000;

/// A wait that is over.
#[derive(sqlx::FromRow)]
struct Ended {
    child_id: i64,
    parent_id: i64,
    parent: String,
    status: String,
    /// The child's chunks.
    total: i64,
    what: String,
}

/// What the ends of some parents mean to one child.
#[derive(Default)]
struct Verdict {
    parents: Vec<i64>,
    total: i64,
    cancel: bool,
    fail: bool,
    /// It has ended itself.
    over: bool,
    reason: Option<String>,
}

/// Settles waits whose parent has ended; returns how many.
pub(super) async fn release(write: &mut Write, limit: u32) -> StoreResult<u64> {
    let ended: Vec<Ended> = sqlx::query_as(include_str!("sql/chunks_stage_release.sql"))
        .bind(limit)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    let mut children: BTreeMap<i64, Verdict> = BTreeMap::new();
    for wait in &ended {
        let verdict = children.entry(wait.child_id).or_default();
        verdict.parents.push(wait.parent_id);
        verdict.total = wait.total;
        verdict.cancel |= wait.what == "cancel";
        verdict.fail |= wait.what == "fail";
        verdict.over |= wait.what == "nothing";
        if ["cancel", "fail"].contains(&wait.what.as_str()) {
            let reason = format!("The job it depends on, {}, is {}", wait.parent, wait.status);
            // Of several the same one on every database.
            let first = verdict.reason.take().map_or(reason.clone(), |other| other.min(reason));
            verdict.reason = Some(first);
        }
    }
    let (mut waits, mut chunks) = (0, 0);
    for (child, verdict) in &children {
        settle(write, *child, verdict).await?;
        waits += verdict.parents.len() as u64;
        chunks += verdict.total;
        if chunks >= CHUNKS {
            break;
        }
    }
    Ok(waits)
}

async fn settle(write: &mut Write, child: i64, verdict: &Verdict) -> StoreResult<()> {
    let now = write.now;
    sqlx::query(include_str!("sql/chunks_stage_release_settle.sql"))
        .bind(child)
        .bind(json(&verdict.parents))
        .bind(verdict.cancel || verdict.fail)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    if verdict.over {
        return Ok(());
    }
    let dead = if verdict.fail && !verdict.cancel { fail_chunks(write, child, verdict).await? } else { 0 };
    let status = match (verdict.cancel, verdict.fail) {
        (true, _) => Some("CANCELLED"),
        (false, true) => Some("FAILED"),
        (false, false) => None,
    };
    let left: Option<i64> = sqlx::query_scalar(include_str!("sql/chunks_stage_release_job.sql"))
        .bind(child)
        .bind(verdict.parents.len() as i64)
        .bind(status)
        .bind(&verdict.reason)
        .bind(dead)
        .bind(now)
        .fetch_optional(write.connection())
        .await
        .map_err(from_sqlx)?;
    if left == Some(0) {
        sqlx::query(include_str!("sql/chunks_stage_release_chunks.sql"))
            .bind(child)
            .execute(write.connection())
            .await
            .map_err(from_sqlx)?;
    }
    Ok(())
}

async fn fail_chunks(write: &mut Write, child: i64, verdict: &Verdict) -> StoreResult<i64> {
    let waiting: Vec<Waiting> = sqlx::query_as(include_str!("sql/chunks_stage_release_waiting.sql"))
        .bind(child)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    let cause = verdict.reason.as_deref();
    let entries: Vec<Entry<'_>> = waiting
        .iter()
        .map(|chunk| Entry {
            chunk: chunk.id,
            from: ChunkState::Created,
            to: ChunkState::Dead,
            attempt: chunk.attempt,
            worker: None,
            step: None,
            cause,
        })
        .collect();
    append(write, &entries).await?;
    let now = write.now;
    sqlx::query(include_str!("sql/chunks_stage_release_dead.sql"))
        .bind(ids(&waiting))
        .bind(cause)
        .bind(now)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    outbox::park(write, waiting.iter().map(|chunk| chunk.id)).await?;
    Ok(waiting.len() as i64)
}
