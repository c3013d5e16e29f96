//! Submission: jobs and all their chunks in one transaction, or the jobs that their keys already name.

use std::collections::{BTreeMap, BTreeSet};

use outhaul_core::audit::{AuditAct, AuditEntry};
use outhaul_core::id::JobId;
use outhaul_core::identity::Visible;
use outhaul_core::job::{Job, NewJob};
use outhaul_core::store::{StoreError, StoreResult, Submitted};
use sqlx::types::Json;

use super::SqliteStore;
use super::audit;
use super::convert::json;
use super::dependency::Parents;
use super::job;
use super::queue;
use super::transaction::Write;
use crate::error::from_sqlx;
use crate::firing::{self, KEY_CONFLICT, no_such_parents};

pub(super) async fn submit(store: &SqliteStore, job: NewJob) -> StoreResult<Submitted> {
    store.write(move |write| Box::pin(async move { submit_in(write, &job, None).await })).await
}

/// A job of the batch finds those before it like any other job.
pub(super) async fn submit_all(store: &SqliteStore, jobs: Vec<NewJob>) -> StoreResult<Vec<Submitted>> {
    store
        .write(move |write| {
            Box::pin(async move {
                let mut answers = Vec::with_capacity(jobs.len());
                for job in &jobs {
                    answers.push(submit_in(write, job, None).await?);
                }
                Ok(answers)
            })
        })
        .await
}

/// What a firing got for the job it was to submit.
pub(super) enum Made {
    /// This new job.
    Job(JobId),
    /// None, because its idempotency key names this one.
    Named(JobId),
    /// None, because this equal one has not ended.
    Equal(JobId),
    /// None, for this reason.
    Refused(String),
}

/// Submits a job as part of a firing. If the job is refused, the rest of the firing is still stored. `predecessor` is
/// the parent that the engine makes the job wait for.
pub(super) async fn make(write: &mut Write, job: &NewJob, predecessor: Option<&JobId>) -> StoreResult<Made> {
    // A queue may turn out to be unknown when the job's row is there already.
    savepoint(write, "SAVEPOINT made").await?;
    let made = match submit_in(write, job, predecessor).await {
        Ok(Submitted::Created(job)) => Made::Job(job.job_id),
        Ok(Submitted::Existing(job)) => Made::Named(job.job_id),
        Ok(Submitted::Duplicate(job)) => Made::Equal(job.job_id),
        Ok(Submitted::KeyConflict) => Made::Refused(KEY_CONFLICT.to_owned()),
        Ok(Submitted::NoSuchParents(missing)) => Made::Refused(no_such_parents(&missing)),
        Ok(Submitted::OverQuota(open)) => Made::Refused(firing::over_quota(open)),
        Err(error @ StoreError::UnknownQueue(_)) => {
            savepoint(write, "ROLLBACK TO made").await?;
            Made::Refused(error.to_string())
        }
        Err(error) => return Err(error),
    };
    savepoint(write, "RELEASE made").await?;
    Ok(made)
}

async fn savepoint(write: &mut Write, statement: &'static str) -> StoreResult<()> {
    sqlx::query(statement).execute(write.connection()).await.map_err(from_sqlx)?;
    Ok(())
}

async fn submit_in(write: &mut Write, job: &NewJob, predecessor: Option<&JobId>) -> StoreResult<Submitted> {
    release_key(write, job).await?;
    let parents = Parents::of(write, job, predecessor).await?;
    if !parents.missing.is_empty() {
        // A repeated request finds its job, also when a parent has been pruned since.
        return match existing_if_any(write, job).await? {
            Some(found) => Ok(found),
            None => Ok(Submitted::NoSuchParents(parents.missing)),
        };
    }
    if let Some(open) = over_quota(write, job).await? {
        return match existing_if_any(write, job).await? {
            Some(found) => Ok(found),
            None => Ok(Submitted::OverQuota(open)),
        };
    }
    let Some(id) = insert_job(write, job).await? else {
        return existing(write, job).await;
    };
    if job.identity.is_some() {
        // Where callers can be told apart, what they submit is on record for longer than the job.
        let (actor, job_id) = (job.owner.clone(), Some(job.job_id.clone()));
        audit::append(
            write,
            &[AuditEntry { actor, act: AuditAct::Submit, job_id, detail: job.made_by.clone() }],
        )
        .await?;
    }
    insert_chunks(write, job, id).await?;
    parents.insert(write, id).await?;
    Ok(Submitted::Created(stored(write, job.job_id.as_str()).await?))
}

/// A key whose job finished longer ago than the window is free again.
async fn release_key(write: &mut Write, job: &NewJob) -> StoreResult<()> {
    let Some(idempotency) = &job.idempotency else { return Ok(()) };
    let expired = write.before(write.settings.idempotency_window);
    sqlx::query(include_str!("sql/job_submit_release_key.sql"))
        .bind(&job.owner)
        .bind(&idempotency.key)
        .bind(expired)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(())
}

/// How many chunks the owner has open, if this job's would be too many.
async fn over_quota(write: &mut Write, job: &NewJob) -> StoreResult<Option<u64>> {
    let Some(quota) = job.quota else { return Ok(None) };
    let open: i64 = sqlx::query_scalar(include_str!("sql/job_submit_open.sql"))
        .bind(&job.owner)
        .fetch_one(write.connection())
        .await
        .map_err(from_sqlx)?;
    let open = open.max(0).unsigned_abs();
    Ok(Some(open).filter(|open| open.saturating_add(job.chunks.len() as u64) > quota))
}

/// Stores the job row; `None`: a key of it names another job.
async fn insert_job(write: &mut Write, job: &NewJob) -> StoreResult<Option<i64>> {
    let now = write.now;
    sqlx::query_scalar(include_str!("sql/job_submit.sql"))
        .bind(job.job_id.as_str())
        .bind(&job.job_type)
        .bind(&job.dataset)
        .bind(&job.owner)
        .bind(job.idempotency.as_ref().map(|idempotency| &idempotency.key))
        .bind(job.idempotency.as_ref().map(|idempotency| &idempotency.request_hash))
        .bind(job.request.as_str())
        .bind(job.params.as_str())
        .bind(job.on_failure.as_str())
        .bind(job.priority)
        .bind(Json(&job.labels))
        .bind(&job.base_path)
        .bind(job.run_at.map(|at| at.timestamp_micros()))
        .bind(job.chunks.len() as i64)
        .bind(now)
        .bind(&job.unique_key)
        .bind(job.parents.len() as i64)
        .bind(job.on_parent_failure.as_str())
        .bind(job.identity.as_ref().map(json))
        .bind(&job.scope)
        .fetch_optional(write.connection())
        .await
        .map_err(from_sqlx)
}

/// The job that kept this one out: the one its idempotency key names, else the equal one that runs.
async fn existing(write: &mut Write, job: &NewJob) -> StoreResult<Submitted> {
    existing_if_any(write, job).await?.ok_or_else(|| {
        let taken = format!("job {} is there already, and not as an answer to this request", job.job_id);
        StoreError::Refused(taken.into())
    })
}

async fn existing_if_any(write: &mut Write, job: &NewJob) -> StoreResult<Option<Submitted>> {
    if let Some(idempotency) = &job.idempotency {
        let named: Option<(String, String)> = sqlx::query_as(include_str!("sql/job_submit_existing.sql"))
            .bind(&job.owner)
            .bind(&idempotency.key)
            .fetch_optional(write.connection())
            .await
            .map_err(from_sqlx)?;
        if let Some((job_id, request_hash)) = named {
            if request_hash != idempotency.request_hash {
                return Ok(Some(Submitted::KeyConflict));
            }
            return Ok(Some(Submitted::Existing(stored(write, &job_id).await?)));
        }
    }
    let equal: Option<String> = sqlx::query_scalar(include_str!("sql/job_submit_duplicate.sql"))
        .bind(&job.job_type)
        .bind(&job.unique_key)
        .fetch_optional(write.connection())
        .await
        .map_err(from_sqlx)?;
    match equal {
        Some(job_id) => Ok(Some(Submitted::Duplicate(stored(write, &job_id).await?))),
        None => Ok(None),
    }
}

/// A job that this transaction stored or saw.
async fn stored(write: &mut Write, job_id: &str) -> StoreResult<Job> {
    let vanished = || StoreError::Refused("a job is not there in the transaction that saw it".into());
    job::get(write.connection(), job_id, &Visible::All).await?.ok_or_else(vanished)
}

async fn insert_chunks(write: &mut Write, job: &NewJob, id: i64) -> StoreResult<()> {
    let names: BTreeSet<&str> = job.chunks.iter().map(|chunk| chunk.queue.as_str()).collect();
    let queues: BTreeMap<String, i64> = queue::keys(write.connection(), &names).await?;
    if let Some(unknown) = names.iter().find(|name| !queues.contains_key(**name)) {
        return Err(StoreError::UnknownQueue((*unknown).to_owned()));
    }
    let chunks: Vec<_> = job
        .chunks
        .iter()
        .map(|chunk| (&chunk.chunk_key, queues[&chunk.queue], &chunk.key, chunk.effective_date))
        .collect();
    let (now, step) = (write.now, write.fairness_step());
    sqlx::query(include_str!("sql/job_submit_chunks.sql"))
        .bind(json(&chunks))
        .bind(id)
        .bind(job.priority)
        .bind(now)
        .bind(step)
        .bind(job.run_at.map(|at| at.timestamp_micros()).filter(|at| *at > now))
        .bind(!job.parents.is_empty())
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(())
}
