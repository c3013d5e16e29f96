//! Submission: a job and all its chunks in one transaction, or the job that its key already names.

use std::collections::{BTreeMap, BTreeSet};

use outhaul_core::job::NewJob;
use outhaul_core::store::{StoreError, StoreResult, Submitted};
use sqlx::types::Json;

use super::SqliteStore;
use super::convert::json;
use super::job;
use super::queue;
use super::transaction::Write;
use crate::error::from_sqlx;

pub(super) async fn submit(store: &SqliteStore, job: NewJob) -> StoreResult<Submitted> {
    store.write(move |write| Box::pin(submit_in(write, job))).await
}

async fn submit_in(write: &mut Write, job: NewJob) -> StoreResult<Submitted> {
    release_key(write, &job).await?;
    let Some(id) = insert_job(write, &job).await? else {
        return existing(write, &job).await;
    };
    insert_chunks(write, &job, id).await?;
    let stored = job::get(write.connection(), job.job_id.as_str()).await?;
    Ok(Submitted::Created(stored.ok_or_else(vanished)?))
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

/// Stores the job row; `None`: the key names another job.
async fn insert_job(write: &mut Write, job: &NewJob) -> StoreResult<Option<i64>> {
    let now = write.now;
    sqlx::query_scalar(include_str!("sql/job_submit.sql"))
        .bind(job.job_id.as_str())
        .bind(&job.job_type)
        .bind(&job.dataset)
        .bind(&job.owner)
        .bind(job.idempotency.as_ref().map(|idempotency| &idempotency.key))
        .bind(job.idempotency.as_ref().map(|idempotency| &idempotency.request_hash))
        .bind(Json(&job.request))
        .bind(Json(&job.params))
        .bind(job.on_failure.as_str())
        .bind(job.priority)
        .bind(Json(&job.labels))
        .bind(&job.base_path)
        .bind(job.run_at.map(|at| at.timestamp_micros()))
        .bind(job.chunks.len() as i64)
        .bind(now)
        .fetch_optional(write.connection())
        .await
        .map_err(from_sqlx)
}

async fn existing(write: &mut Write, job: &NewJob) -> StoreResult<Submitted> {
    let idempotency = job.idempotency.as_ref().ok_or_else(vanished)?;
    let (job_id, request_hash): (String, String) =
        sqlx::query_as(include_str!("sql/job_submit_existing.sql"))
            .bind(&job.owner)
            .bind(&idempotency.key)
            .fetch_one(write.connection())
            .await
            .map_err(from_sqlx)?;
    if request_hash != idempotency.request_hash {
        return Ok(Submitted::KeyConflict);
    }
    let stored = job::get(write.connection(), &job_id).await?;
    Ok(Submitted::Existing(stored.ok_or_else(vanished)?))
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
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(())
}

fn vanished() -> StoreError {
    StoreError::Refused("a job is not there in the transaction that stored it".into())
}
