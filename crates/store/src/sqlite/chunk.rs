//! Chunks as workers and clients look at them: list, claim, and the questions an owner asks.

use chrono::NaiveDate;
use outhaul_core::id::{ChunkId, JobId, Lease, QueueId, WorkerId};
use outhaul_core::job::ChunkRow;
use outhaul_core::progress::ChunkProgress;
use outhaul_core::state::{ChunkState, ChunkStatus};
use outhaul_core::store::{Page, StoreResult};
use outhaul_core::worker::{ClaimedChunk, Want};

use super::SqliteStore;
use super::convert::{json, lease, leases as leases_json, now, time};
use super::file::ManifestColumns;
use super::history::{self, Entry};
use super::transaction::Write;
use crate::error::{corrupt, from_sqlx, readable};
use crate::page::cut;

#[derive(sqlx::FromRow)]
struct ListedChunk {
    id: i64,
    chunk_key: String,
    key: Option<String>,
    effective_date: Option<NaiveDate>,
    state: String,
    error_message: Option<String>,
    started_at: Option<i64>,
    completed_at: Option<i64>,
    progress_rows: Option<i64>,
    progress_bytes: Option<i64>,
    progress_fraction: Option<f64>,
    #[sqlx(flatten)]
    file: ManifestColumns,
}

impl ListedChunk {
    fn into_row(self) -> StoreResult<ChunkRow> {
        let counted = self.progress_rows.zip(self.progress_bytes).zip(self.progress_fraction);
        let progress = counted.map(|((rows, bytes), fraction)| ChunkProgress { rows, bytes, fraction });
        Ok(ChunkRow {
            id: ChunkId(self.id),
            chunk_key: self.chunk_key,
            key: self.key,
            effective_date: self.effective_date,
            state: ChunkState::parse(&self.state).ok_or_else(|| corrupt("job_chunk.state", &self.state))?,
            file: self.file.into_file(),
            progress,
            error_message: self.error_message,
            started_at: self.started_at.map(time),
            completed_at: self.completed_at.map(time),
        })
    }
}

pub(super) async fn list(
    store: &SqliteStore,
    job_id: &JobId,
    status: Option<ChunkStatus>,
    after: Option<&str>,
    limit: u32,
) -> StoreResult<Page<ChunkRow, String>> {
    let states = status.map(|status| json(status.states().iter().map(|s| s.as_str()).collect::<Vec<_>>()));
    let rows: Vec<ListedChunk> = sqlx::query_as(include_str!("sql/chunks_list.sql"))
        .bind(job_id.as_str())
        .bind(states)
        .bind(after)
        .bind(i64::from(limit) + 1)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    let (rows, next) = cut(rows, limit, |row| row.chunk_key.clone());
    Ok(Page { items: rows.into_iter().map(ListedChunk::into_row).collect::<StoreResult<_>>()?, next })
}

/// A chunk that may be claimed, as it is before the claim.
#[derive(sqlx::FromRow)]
pub(super) struct QueuedChunk {
    pub(super) id: i64,
    fence: i64,
    pub(super) queue_id: i64,
    chunk_key: String,
    key: Option<String>,
    effective_date: Option<NaiveDate>,
    attempt: u32,
    lost: u32,
    job_id: String,
    job_type: String,
    dataset: Option<String>,
    owner: String,
    params: String,
    created_at: i64,
}

pub(super) async fn claim(
    store: &SqliteStore,
    worker: WorkerId,
    wants: &[Want],
    total: u32,
) -> StoreResult<Vec<ClaimedChunk>> {
    let wants = json(wants.iter().map(|want| (want.queue.0, want.limit)).collect::<Vec<_>>());
    store
        .write(move |write| {
            Box::pin(async move {
                let queued: Vec<QueuedChunk> = sqlx::query_as(include_str!("sql/chunks_claim.sql"))
                    .bind(wants)
                    .bind(total)
                    .fetch_all(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                own(write, worker, queued).await
            })
        })
        .await
}

/// Makes these chunks the worker's. They were read in this transaction, so that none can have moved since.
pub(super) async fn own(
    write: &mut Write,
    worker: WorkerId,
    queued: Vec<QueuedChunk>,
) -> StoreResult<Vec<ClaimedChunk>> {
    if queued.is_empty() {
        return Ok(Vec::new());
    }
    let (now, lease_until) = (write.now, write.lease_until());
    sqlx::query(include_str!("sql/chunks_claim_own.sql"))
        .bind(json(queued.iter().map(|chunk| chunk.id).collect::<Vec<_>>()))
        .bind(worker.0)
        .bind(now)
        .bind(lease_until)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    let again: Vec<Entry<'_>> = queued.iter().filter_map(|chunk| chunk.claimed_again(worker)).collect();
    history::append(write, &again).await?;
    Ok(queued.into_iter().map(|chunk| chunk.claimed_at(now)).collect())
}

impl QueuedChunk {
    /// The claim as history tells it; the first one is told by the chunk's own row.
    fn claimed_again(&self, worker: WorkerId) -> Option<Entry<'static>> {
        (self.fence > 0).then_some(Entry {
            chunk: self.id,
            from: ChunkState::Queued,
            to: ChunkState::Running,
            attempt: self.attempt + 1,
            worker: Some(worker.0),
            step: None,
            cause: None,
        })
    }

    /// The chunk as the claim leaves it.
    fn claimed_at(self, now: i64) -> ClaimedChunk {
        ClaimedChunk {
            lease: lease((self.id, self.fence + 1)),
            queue: QueueId(self.queue_id),
            job_type: self.job_type,
            dataset: self.dataset,
            owner: self.owner,
            params: readable(&self.job_id, &self.params),
            job_id: JobId::from_store(self.job_id),
            chunk_key: self.chunk_key,
            key: self.key,
            effective_date: self.effective_date,
            attempt: self.attempt + 1,
            lost: self.lost,
            submitted_at: time(self.created_at),
            claimed_at: time(now),
        }
    }
}

pub(super) async fn cancelled(store: &SqliteStore, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
    among(store, include_str!("sql/chunks_cancelled.sql"), leases).await
}

pub(super) async fn running(store: &SqliteStore, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
    among(store, include_str!("sql/chunks_running.sql"), leases).await
}

/// Those of the leases that a statement finds.
async fn among(store: &SqliteStore, sql: &'static str, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
    let rows: Vec<(i64, i64)> =
        sqlx::query_as(sql).bind(leases_json(leases)).fetch_all(store.reader()).await.map_err(from_sqlx)?;
    Ok(rows.into_iter().map(lease).collect())
}

pub(super) async fn may_publish(store: &SqliteStore, lease: Lease) -> StoreResult<bool> {
    sqlx::query_scalar(include_str!("sql/chunk_may_publish.sql"))
        .bind(lease.chunk.0)
        .bind(lease.fence)
        .bind(now())
        .fetch_one(store.reader())
        .await
        .map_err(from_sqlx)
}
