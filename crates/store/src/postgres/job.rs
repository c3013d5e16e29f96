//! Submitting, reading, cancelling and redriving jobs.

use std::time::Duration;

use outhaul_core::id::JobId;
use outhaul_core::job::{Job, JobStatus, NewJob};
use outhaul_core::store::{Cancelled, JobFilter, Page, Redriven, StoreError, StoreResult, Submitted};
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};

use super::PostgresStore;
use super::row::{JobRow, interval};
use crate::error::{corrupt, from_sqlx};

/// Chunks inserted by one statement of a submission.
const CHUNKS_PER_STATEMENT: usize = 10_000;

impl PostgresStore {
    pub(super) async fn submit(&self, job: NewJob) -> StoreResult<Submitted> {
        let mut queues = Vec::with_capacity(job.chunks.len());
        for chunk in &job.chunks {
            queues.push(self.queue_key(&chunk.queue).await?);
        }
        let (pool, settings) = (self.pool(), self.settings);
        // Spawned: a client that hangs up must not leave a transaction half-way.
        let work = tokio::spawn(async move {
            let window = settings.idempotency_window;
            if let Some(created) = insert(&pool, &job, &queues, window, settings.fairness_step).await? {
                return Ok(Submitted::Created(created));
            }
            let Some(idempotency) = &job.idempotency else {
                return Err(StoreError::Refused("the job's id is taken".into()));
            };
            let existing: JobRow = sqlx::query_as(include_str!("sql/job_submit_existing.sql"))
                .bind(&job.owner)
                .bind(&idempotency.key)
                .fetch_optional(&pool)
                .await
                .map_err(from_sqlx)?
                // Released between the two statements: the client may simply ask again.
                .ok_or_else(|| StoreError::Unavailable("the idempotency key was just released".into()))?;
            if existing.request_hash.as_deref() == Some(idempotency.request_hash.as_str()) {
                Ok(Submitted::Existing(existing.into_job()?))
            } else {
                Ok(Submitted::KeyConflict)
            }
        });
        work.await.map_err(|error| StoreError::Refused(error.into()))?
    }

    pub(super) async fn get_job(&self, job_id: &JobId) -> StoreResult<Option<Job>> {
        let row: Option<JobRow> = sqlx::query_as(include_str!("sql/job_get.sql"))
            .bind(job_id.as_str())
            .fetch_optional(&self.pool())
            .await
            .map_err(from_sqlx)?;
        row.map(JobRow::into_job).transpose()
    }

    pub(super) async fn list_jobs(&self, filter: &JobFilter) -> StoreResult<Page<Job, i64>> {
        // A stored SUBMITTED may be shown as IN_PROGRESS, never the other way round.
        let stored: Vec<&str> = match filter.status {
            Some(JobStatus::InProgress) => vec!["SUBMITTED", "IN_PROGRESS"],
            Some(status) => vec![status.as_str()],
            None => vec![],
        };
        let rows: Vec<JobRow> = sqlx::query_as(include_str!("sql/jobs_list.sql"))
            .bind(filter.status.map(JobStatus::as_str))
            .bind(stored)
            .bind(&filter.job_type)
            .bind(&filter.dataset)
            .bind(&filter.owner)
            .bind(filter.created_after)
            .bind(filter.created_before)
            .bind(filter.before)
            .bind(i64::from(filter.limit) + 1)
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let (rows, next) = crate::page::cut(rows, filter.limit, |row| row.id);
        let items = rows.into_iter().map(JobRow::into_job).collect::<StoreResult<_>>()?;
        Ok(Page { items, next })
    }

    pub(super) async fn cancel_job(&self, job_id: &JobId) -> StoreResult<Cancelled> {
        let status: Option<String> = sqlx::query_scalar(include_str!("sql/job_cancel.sql"))
            .bind(job_id.as_str())
            .fetch_optional(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let Some(status) = status else { return Ok(Cancelled::Unknown) };
        match JobStatus::parse(&status).ok_or_else(|| corrupt("job.status", &status))? {
            JobStatus::Cancelled => Ok(Cancelled::Yes),
            // The job's row changed between the two parts of the statement: its snapshot is older
            // than the row, so it ended meanwhile, and a second look tells how.
            JobStatus::Submitted | JobStatus::InProgress => match self.get_job(job_id).await? {
                Some(job) if job.status == JobStatus::Cancelled => Ok(Cancelled::Yes),
                Some(job) => Ok(Cancelled::TooLate(job.status)),
                None => Ok(Cancelled::Unknown),
            },
            ended => Ok(Cancelled::TooLate(ended)),
        }
    }

    pub(super) async fn redrive_job(&self, job_id: &JobId) -> StoreResult<Redriven> {
        let (pool, step, job_id) = (self.pool(), self.settings.fairness_step, job_id.clone());
        let work = tokio::spawn(async move {
            let mut tx = pool.begin().await.map_err(from_sqlx)?;
            let key: Option<i64> = sqlx::query_scalar(include_str!("sql/job_key.sql"))
                .bind(job_id.as_str())
                .fetch_optional(&mut *tx)
                .await
                .map_err(from_sqlx)?;
            let Some(key) = key else { return Ok(Redriven::Unknown) };
            let (moved, dead): (i64, i64) = sqlx::query_as(include_str!("sql/job_redrive_chunks.sql"))
                .bind(key)
                .bind(interval(step))
                .fetch_one(&mut *tx)
                .await
                .map_err(from_sqlx)?;
            if moved == 0 {
                return Ok(Redriven::Nothing);
            }
            let guarded = sqlx::query(include_str!("sql/job_redrive.sql"))
                .bind(key)
                .bind(i32::try_from(dead).unwrap_or(i32::MAX))
                .execute(&mut *tx)
                .await
                .map_err(from_sqlx)?;
            if guarded.rows_affected() == 0 {
                return Ok(Redriven::Nothing);
            }
            let (late, late_dead): (i64, i64) = sqlx::query_as(include_str!("sql/job_redrive_again.sql"))
                .bind(key)
                .bind(interval(step))
                .fetch_one(&mut *tx)
                .await
                .map_err(from_sqlx)?;
            if late_dead > 0 {
                sqlx::query(include_str!("sql/job_redrive_late.sql"))
                    .bind(key)
                    .bind(i32::try_from(late_dead).unwrap_or(i32::MAX))
                    .execute(&mut *tx)
                    .await
                    .map_err(from_sqlx)?;
            }
            tx.commit().await.map_err(from_sqlx)?;
            Ok(Redriven::Yes(moved + late))
        });
        work.await.map_err(|error| StoreError::Refused(error.into()))?
    }
}

/// Inserts the job and its chunks in one transaction; `None`: its idempotency key is taken.
async fn insert(
    pool: &PgPool,
    job: &NewJob,
    queues: &[i32],
    window: Duration,
    step: Duration,
) -> StoreResult<Option<Job>> {
    let mut tx = pool.begin().await.map_err(from_sqlx)?;
    if let Some(idempotency) = &job.idempotency {
        sqlx::query(include_str!("sql/job_submit_release_key.sql"))
            .bind(&job.owner)
            .bind(&idempotency.key)
            .bind(interval(window))
            .execute(&mut *tx)
            .await
            .map_err(from_sqlx)?;
    }
    let total = i32::try_from(job.chunks.len()).map_err(|error| StoreError::Refused(error.into()))?;
    let key: Option<i64> = sqlx::query_scalar(include_str!("sql/job_submit.sql"))
        .bind(job.job_id.as_str())
        .bind(&job.job_type)
        .bind(&job.dataset)
        .bind(&job.owner)
        .bind(job.idempotency.as_ref().map(|idempotency| &idempotency.key))
        .bind(job.idempotency.as_ref().map(|idempotency| &idempotency.request_hash))
        .bind(&job.request)
        .bind(&job.params)
        .bind(job.on_failure.as_str())
        .bind(i16::from(job.priority))
        .bind(Json(&job.labels))
        .bind(&job.base_path)
        .bind(job.run_at)
        .bind(total)
        .fetch_optional(&mut *tx)
        .await
        .map_err(from_sqlx)?;
    let Some(key) = key else { return Ok(None) };
    let mut position = 0;
    for (chunks, queues) in job.chunks.chunks(CHUNKS_PER_STATEMENT).zip(queues.chunks(CHUNKS_PER_STATEMENT)) {
        insert_chunks(&mut tx, key, job, chunks, queues, position, step).await?;
        position += i32::try_from(chunks.len()).unwrap_or(i32::MAX);
    }
    let row: JobRow = sqlx::query_as(include_str!("sql/job_get.sql"))
        .bind(job.job_id.as_str())
        .fetch_one(&mut *tx)
        .await
        .map_err(from_sqlx)?;
    tx.commit().await.map_err(from_sqlx)?;
    row.into_job().map(Some)
}

async fn insert_chunks(
    connection: &mut PgConnection,
    job_key: i64,
    job: &NewJob,
    chunks: &[outhaul_core::job::NewChunk],
    queues: &[i32],
    first: i32,
    step: Duration,
) -> StoreResult<()> {
    let positions: Vec<i32> = (first..).take(chunks.len()).collect();
    let chunk_keys: Vec<&str> = chunks.iter().map(|chunk| chunk.chunk_key.as_str()).collect();
    let keys: Vec<Option<&str>> = chunks.iter().map(|chunk| chunk.key.as_deref()).collect();
    let dates: Vec<_> = chunks.iter().map(|chunk| chunk.effective_date).collect();
    sqlx::query(include_str!("sql/job_submit_chunks.sql"))
        .bind(job_key)
        .bind(positions)
        .bind(chunk_keys)
        .bind(queues)
        .bind(keys)
        .bind(dates)
        .bind(i16::from(job.priority))
        .bind(job.run_at)
        .bind(interval(step))
        .execute(connection)
        .await
        .map_err(from_sqlx)?;
    Ok(())
}
