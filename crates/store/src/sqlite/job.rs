//! Jobs as people handle them: read, list, cancel, prioritise.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use outhaul_core::id::JobId;
use outhaul_core::identity::Visible;
use outhaul_core::job::{Counts, Job, JobStatus, OnFailure};
use outhaul_core::progress::Moving;
use outhaul_core::store::{Cancelled, JobFilter, Page, Prioritised, StoreResult};
use sqlx::types::Json;
use sqlx::{Executor, Sqlite};

use super::SqliteStore;
use super::convert::{json as json_list, time};
use crate::error::{corrupt, from_sqlx, identity, json};
use crate::page::{cut, visible_columns};

#[derive(sqlx::FromRow)]
struct JobRow {
    id: i64,
    job_id: String,
    job_type: String,
    dataset: Option<String>,
    owner: String,
    status: String,
    on_failure: String,
    priority: u8,
    labels: Json<BTreeMap<String, String>>,
    base_path: Option<String>,
    error_message: Option<String>,
    total: i64,
    running: i64,
    done: i64,
    failed: i64,
    cancelled: i64,
    reused: i64,
    rows: i64,
    bytes: i64,
    version: i64,
    shown_version: i64,
    run_at: Option<i64>,
    created_at: i64,
    updated_at: i64,
    started_at: Option<i64>,
    completed_at: Option<i64>,
    moving_rows: i64,
    moving_bytes: i64,
    moving_chunks: f64,
    /// JSON text.
    identity: Option<String>,
    scope: String,
    /// JSON text; not in lists.
    #[sqlx(default)]
    result: Option<String>,
}

impl JobRow {
    fn into_job(self) -> StoreResult<Job> {
        Ok(Job {
            job_id: JobId::from_store(self.job_id),
            job_type: self.job_type,
            dataset: self.dataset,
            owner: self.owner,
            identity: self.identity.map(|text| identity(&text)).transpose()?,
            scope: self.scope,
            status: parse_status(&self.status)?,
            on_failure: OnFailure::parse(&self.on_failure)
                .ok_or_else(|| corrupt("job.on_failure", &self.on_failure))?,
            priority: self.priority,
            labels: self.labels.0,
            base_path: self.base_path,
            error_message: self.error_message,
            result: self.result.map(|text| json("job.result", &text)).transpose()?,
            counts: Counts {
                total: self.total,
                running: self.running,
                done: self.done,
                failed: self.failed,
                cancelled: self.cancelled,
                reused: self.reused,
                rows: self.rows,
                bytes: self.bytes,
            },
            moving: Moving { rows: self.moving_rows, bytes: self.moving_bytes, chunks: self.moving_chunks },
            version: self.version,
            shown_version: self.shown_version,
            run_at: self.run_at.map(time),
            created_at: time(self.created_at),
            updated_at: time(self.updated_at),
            started_at: self.started_at.map(time),
            completed_at: self.completed_at.map(time),
        })
    }
}

/// One job, as `connection` sees it.
pub(super) async fn get(
    connection: impl Executor<'_, Database = Sqlite>,
    job_id: &str,
    visible: &Visible,
) -> StoreResult<Option<Job>> {
    let (anything, subject, department) = visible_columns(visible);
    if !anything {
        return Ok(None);
    }
    let row: Option<JobRow> = sqlx::query_as(include_str!("sql/job_get.sql"))
        .bind(job_id)
        .bind(subject)
        .bind(department)
        .fetch_optional(connection)
        .await
        .map_err(from_sqlx)?;
    row.map(JobRow::into_job).transpose()
}

/// These jobs, as far as they are there.
pub(super) async fn get_all(store: &SqliteStore, job_ids: &[JobId]) -> StoreResult<Vec<Job>> {
    let rows: Vec<JobRow> = sqlx::query_as(include_str!("sql/jobs_get.sql"))
        .bind(json_list(job_ids.iter().map(JobId::as_str).collect::<Vec<_>>()))
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    rows.into_iter().map(JobRow::into_job).collect()
}

pub(super) async fn list(store: &SqliteStore, filter: &JobFilter) -> StoreResult<Page<Job, i64>> {
    let (anything, subject, department) = visible_columns(&filter.visible);
    if !anything {
        return Ok(Page { items: Vec::new(), next: None });
    }
    let moment = |at: Option<DateTime<Utc>>| at.map(|at| at.timestamp_micros());
    let rows: Vec<JobRow> = sqlx::query_as(include_str!("sql/jobs_list.sql"))
        .bind(filter.status.map(JobStatus::as_str))
        .bind(&filter.job_type)
        .bind(&filter.dataset)
        .bind(&filter.owner)
        .bind(moment(filter.created_after))
        .bind(moment(filter.created_before))
        .bind(filter.before)
        .bind(i64::from(filter.limit) + 1)
        .bind(subject)
        .bind(department)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    let (rows, next) = cut(rows, filter.limit, |row| row.id);
    Ok(Page { items: rows.into_iter().map(JobRow::into_job).collect::<StoreResult<_>>()?, next })
}

pub(super) async fn cancel(store: &SqliteStore, job_id: &JobId) -> StoreResult<Cancelled> {
    let job_id = job_id.clone();
    store
        .write(move |write| {
            Box::pin(async move {
                let now = write.now;
                let done = sqlx::query(include_str!("sql/job_cancel.sql"))
                    .bind(job_id.as_str())
                    .bind(now)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                if done.rows_affected() > 0 {
                    return Ok(Cancelled::Yes);
                }
                Ok(match key(write.connection(), &job_id).await? {
                    None => Cancelled::Unknown,
                    Some((_, JobStatus::Cancelled)) => Cancelled::Already,
                    Some((_, ended)) => Cancelled::TooLate(ended),
                })
            })
        })
        .await
}

pub(super) async fn prioritise(
    store: &SqliteStore,
    job_id: &JobId,
    priority: u8,
) -> StoreResult<Prioritised> {
    let job_id = job_id.clone();
    store
        .write(move |write| {
            Box::pin(async move {
                let now = write.now;
                let job: Option<i64> = sqlx::query_scalar(include_str!("sql/job_prioritise.sql"))
                    .bind(job_id.as_str())
                    .bind(priority)
                    .bind(now)
                    .fetch_optional(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                let Some(job) = job else {
                    let ended = key(write.connection(), &job_id).await?;
                    return Ok(ended.map_or(Prioritised::Unknown, |(_, status)| Prioritised::TooLate(status)));
                };
                sqlx::query(include_str!("sql/job_prioritise_chunks.sql"))
                    .bind(job)
                    .bind(priority)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(Prioritised::Yes)
            })
        })
        .await
}

/// A job's internal key and stored status.
pub(super) async fn key(
    connection: impl Executor<'_, Database = Sqlite>,
    job_id: &JobId,
) -> StoreResult<Option<(i64, JobStatus)>> {
    let row: Option<(i64, String)> = sqlx::query_as(include_str!("sql/job_key.sql"))
        .bind(job_id.as_str())
        .fetch_optional(connection)
        .await
        .map_err(from_sqlx)?;
    row.map(|(id, text)| Ok((id, parse_status(&text)?))).transpose()
}

/// The stored status of a job by its internal key.
pub(super) async fn status(
    connection: impl Executor<'_, Database = Sqlite>,
    job: i64,
) -> StoreResult<Option<JobStatus>> {
    let text: Option<String> = sqlx::query_scalar(include_str!("sql/job_status.sql"))
        .bind(job)
        .fetch_optional(connection)
        .await
        .map_err(from_sqlx)?;
    text.as_deref().map(parse_status).transpose()
}

fn parse_status(text: &str) -> StoreResult<JobStatus> {
    JobStatus::parse(text).ok_or_else(|| corrupt("job.status", text))
}
