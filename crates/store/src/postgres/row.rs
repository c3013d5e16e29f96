//! Rows as the SQL files return them, and what they become.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};
use outhaul_core::file::{FileRecord, ManifestRow};
use outhaul_core::id::{ChunkId, JobId, Lease, QueueId};
use outhaul_core::job::{ChunkFile, ChunkRow, Counts, Job, JobStatus, OnFailure};
use outhaul_core::progress::{ChunkProgress, Moving};
use outhaul_core::state::ChunkState;
use outhaul_core::store::StoreResult;
use outhaul_core::worker::{ClaimedChunk, Want};
use sqlx::FromRow;
use sqlx::postgres::types::PgInterval;
use sqlx::types::Json;

use crate::error::{corrupt, identity, json, readable};

/// A duration as PostgreSQL takes it.
pub(super) fn interval(duration: Duration) -> PgInterval {
    let microseconds = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    PgInterval { months: 0, days: 0, microseconds }
}

/// The same back; a difference of two times has no months.
pub(super) fn span(interval: &PgInterval) -> Duration {
    const DAY: i64 = 86_400_000_000;
    let micros = i64::from(interval.days).saturating_mul(DAY).saturating_add(interval.microseconds);
    Duration::from_micros(micros.max(0).unsigned_abs())
}

/// Leases as two columns.
pub(super) fn columns(leases: &[Lease]) -> (Vec<i64>, Vec<i64>) {
    leases.iter().map(|lease| (lease.chunk.0, lease.fence)).unzip()
}

/// What a worker wants, as two columns.
pub(super) fn want_columns(wants: &[Want]) -> (Vec<i32>, Vec<i32>) {
    let bounded = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    wants.iter().map(|want| (i32::try_from(want.queue.0).unwrap_or(-1), bounded(want.limit))).unzip()
}

#[derive(FromRow)]
pub(super) struct LeaseRow {
    id: i64,
    fence: i64,
}

impl From<LeaseRow> for Lease {
    fn from(row: LeaseRow) -> Self {
        Self { chunk: ChunkId(row.id), fence: row.fence }
    }
}

#[derive(FromRow)]
pub(super) struct JobRow {
    pub(super) id: i64,
    job_id: String,
    job_type: String,
    dataset: Option<String>,
    owner: String,
    status: String,
    on_failure: String,
    priority: i16,
    labels: Json<BTreeMap<String, String>>,
    base_path: Option<String>,
    error_message: Option<String>,
    total: i32,
    running: i64,
    done: i32,
    failed: i32,
    cancelled: i32,
    reused: i32,
    rows: i64,
    bytes: i64,
    version: i64,
    shown_version: i64,
    run_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    completed_at: Option<DateTime<Utc>>,
    pub(super) request_hash: Option<String>,
    moving_rows: i64,
    moving_bytes: i64,
    moving_chunks: f64,
    /// JSON text.
    identity: Option<String>,
    scope: String,
    /// JSON text; only where one job is read.
    #[sqlx(default)]
    result: Option<String>,
}

impl JobRow {
    pub(super) fn into_job(self) -> StoreResult<Job> {
        Ok(Job {
            job_id: JobId::from_store(self.job_id),
            job_type: self.job_type,
            dataset: self.dataset,
            owner: self.owner,
            identity: self.identity.map(|text| identity(&text)).transpose()?,
            scope: self.scope,
            status: JobStatus::parse(&self.status).ok_or_else(|| corrupt("job.status", &self.status))?,
            on_failure: OnFailure::parse(&self.on_failure)
                .ok_or_else(|| corrupt("job.on_failure", &self.on_failure))?,
            priority: u8::try_from(self.priority).map_err(|_| corrupt("job.priority", self.priority))?,
            labels: self.labels.0,
            base_path: self.base_path,
            error_message: self.error_message,
            result: self.result.map(|text| json("job.result", &text)).transpose()?,
            counts: Counts {
                total: self.total.into(),
                running: self.running,
                done: self.done.into(),
                failed: self.failed.into(),
                cancelled: self.cancelled.into(),
                reused: self.reused.into(),
                rows: self.rows,
                bytes: self.bytes,
            },
            moving: Moving { rows: self.moving_rows, bytes: self.moving_bytes, chunks: self.moving_chunks },
            version: self.version,
            shown_version: self.shown_version,
            run_at: self.run_at,
            created_at: self.created_at,
            updated_at: self.updated_at,
            started_at: self.started_at,
            completed_at: self.completed_at,
        })
    }
}

#[derive(FromRow)]
struct FileColumns {
    path: String,
    rows: i64,
    bytes: i64,
    sha256: String,
    etag: Option<String>,
    format: String,
    reused: bool,
    reason: String,
    generated_at: DateTime<Utc>,
    generation: i64,
}

impl From<FileColumns> for ChunkFile {
    fn from(row: FileColumns) -> Self {
        Self {
            path: row.path,
            rows: row.rows,
            bytes: row.bytes,
            sha256: row.sha256,
            etag: row.etag,
            format: row.format,
            reused: row.reused,
            reason: row.reason,
            generated_at: row.generated_at,
            generation: row.generation,
        }
    }
}

/// A row of `chunks_list.sql`.
pub(super) fn chunk_row(row: &sqlx::postgres::PgRow) -> StoreResult<ChunkRow> {
    use sqlx::Row;
    let read = || -> Result<(ChunkRow, String), sqlx::Error> {
        let path: Option<String> = row.try_get("path")?;
        let file = path.is_some().then(|| FileColumns::from_row(row)).transpose()?.map(ChunkFile::from);
        let state: String = row.try_get("state")?;
        let progress = match row.try_get("progress_rows")? {
            Some(rows) => Some(ChunkProgress {
                rows,
                bytes: row.try_get("progress_bytes")?,
                fraction: row.try_get("progress_fraction")?,
            }),
            None => None,
        };
        let chunk = ChunkRow {
            id: ChunkId(row.try_get("id")?),
            chunk_key: row.try_get("chunk_key")?,
            key: row.try_get("key")?,
            effective_date: row.try_get("effective_date")?,
            state: ChunkState::Created,
            file,
            progress,
            error_message: row.try_get("error_message")?,
            started_at: row.try_get("started_at")?,
            completed_at: row.try_get("completed_at")?,
        };
        Ok((chunk, state))
    };
    let (chunk, state) = read().map_err(crate::error::from_sqlx)?;
    let state = ChunkState::parse(&state).ok_or_else(|| corrupt("job_chunk.state", &state))?;
    Ok(ChunkRow { state, ..chunk })
}

#[derive(FromRow)]
pub(super) struct ManifestColumns {
    id: i64,
    pub(super) chunk_key: String,
    key: Option<String>,
    effective_date: Option<NaiveDate>,
    #[sqlx(flatten)]
    file: FileColumns,
    current: Option<bool>,
    current_job: Option<String>,
}

impl From<ManifestColumns> for ManifestRow {
    fn from(row: ManifestColumns) -> Self {
        Self {
            id: ChunkId(row.id),
            key: row.key,
            effective_date: row.effective_date,
            file: row.file.into(),
            current: row.current.unwrap_or(false),
            current_job: row.current_job.map(JobId::from_store),
        }
    }
}

#[derive(FromRow)]
pub(super) struct RecordColumns {
    path: Option<String>,
    rows: Option<i64>,
    bytes: Option<i64>,
    sha256: Option<String>,
    etag: Option<String>,
    format: Option<String>,
    definition: Option<String>,
    pub(super) generation: Option<i64>,
    last_generated_at: Option<DateTime<Utc>>,
    claimed_at: Option<DateTime<Utc>>,
    job_id: Option<String>,
}

impl RecordColumns {
    /// The published file, if there is one.
    pub(super) fn into_record(self) -> Option<FileRecord> {
        let generation = self.generation.filter(|generation| *generation > 0)?;
        Some(FileRecord {
            path: self.path?,
            rows: self.rows?,
            bytes: self.bytes?,
            sha256: self.sha256?,
            etag: self.etag,
            format: self.format?,
            definition: self.definition?,
            generation,
            generated_at: self.last_generated_at?,
            claimed_at: self.claimed_at?,
            job_id: JobId::from_store(self.job_id?),
        })
    }
}

#[derive(FromRow)]
pub(super) struct ClaimRow {
    id: i64,
    fence: i64,
    queue_id: i32,
    chunk_key: String,
    key: Option<String>,
    effective_date: Option<NaiveDate>,
    attempt: i32,
    lost: i16,
    claimed_at: DateTime<Utc>,
    job_id: String,
    job_type: String,
    dataset: Option<String>,
    owner: String,
    params: String,
    submitted_at: DateTime<Utc>,
}

impl ClaimRow {
    pub(super) fn into_chunk(self) -> ClaimedChunk {
        ClaimedChunk {
            lease: Lease { chunk: ChunkId(self.id), fence: self.fence },
            queue: QueueId(self.queue_id.into()),
            job_type: self.job_type,
            dataset: self.dataset,
            owner: self.owner,
            params: readable(&self.job_id, &self.params),
            job_id: JobId::from_store(self.job_id),
            chunk_key: self.chunk_key,
            key: self.key,
            effective_date: self.effective_date,
            attempt: self.attempt.unsigned_abs(),
            lost: self.lost.unsigned_abs().into(),
            submitted_at: self.submitted_at,
            claimed_at: self.claimed_at,
        }
    }
}
