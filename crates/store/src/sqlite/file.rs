//! Files: the manifest of a job, what is recorded per identity, and who may write it next.

use chrono::NaiveDate;
use outhaul_core::file::{
    BasePathOwner, FileBegin, FileBegun, FileIdentity, FileRecord, Leftover, ManifestRow, Unfinished, Upload,
    WriteGrant,
};
use outhaul_core::id::{ChunkId, JobId, Lease};
use outhaul_core::job::ChunkFile;
use outhaul_core::store::{Page, StoreResult};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Sqlite, query_as};

use super::SqliteStore;
use super::convert::{json, lease, time};
use super::transaction::Write;
use crate::error::from_sqlx;
use crate::page::cut;

/// The columns of `chunk_file`; all empty where a chunk has no file.
#[derive(sqlx::FromRow)]
pub(super) struct ManifestColumns {
    path: Option<String>,
    rows: Option<i64>,
    bytes: Option<i64>,
    sha256: Option<String>,
    etag: Option<String>,
    format: Option<String>,
    reused: Option<bool>,
    reason: Option<String>,
    generated_at: Option<i64>,
    generation: Option<i64>,
}

impl ManifestColumns {
    pub(super) fn into_file(self) -> Option<ChunkFile> {
        Some(ChunkFile {
            path: self.path?,
            rows: self.rows?,
            bytes: self.bytes?,
            sha256: self.sha256?,
            etag: self.etag,
            format: self.format?,
            reused: self.reused?,
            reason: self.reason?,
            generated_at: time(self.generated_at?),
            generation: self.generation?,
        })
    }
}

#[derive(sqlx::FromRow)]
struct ListedFile {
    id: i64,
    chunk_key: String,
    key: Option<String>,
    effective_date: Option<NaiveDate>,
    #[sqlx(flatten)]
    file: ManifestColumns,
    current: bool,
    current_job: Option<String>,
}

impl ListedFile {
    fn into_row(self) -> Option<ManifestRow> {
        Some(ManifestRow {
            id: ChunkId(self.id),
            key: self.key,
            effective_date: self.effective_date,
            file: self.file.into_file()?,
            current: self.current,
            current_job: self.current_job.map(JobId::from_store),
        })
    }
}

pub(super) async fn list(
    store: &SqliteStore,
    job_id: &JobId,
    after: Option<&str>,
    limit: u32,
) -> StoreResult<Page<ManifestRow, String>> {
    let rows: Vec<ListedFile> = query_as(include_str!("sql/files_list.sql"))
        .bind(job_id.as_str())
        .bind(after)
        .bind(i64::from(limit) + 1)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    let (rows, next) = cut(rows, limit, |row| row.chunk_key.clone());
    Ok(Page { items: rows.into_iter().filter_map(ListedFile::into_row).collect(), next })
}

pub(super) async fn get(
    store: &SqliteStore,
    job_id: &JobId,
    file: ChunkId,
) -> StoreResult<Option<ManifestRow>> {
    let row: Option<ListedFile> = query_as(include_str!("sql/file_get.sql"))
        .bind(job_id.as_str())
        .bind(file.0)
        .fetch_optional(store.reader())
        .await
        .map_err(from_sqlx)?;
    Ok(row.and_then(ListedFile::into_row))
}

/// The columns of `file_cache` that say what is published.
#[derive(sqlx::FromRow)]
struct Recorded {
    dataset: String,
    scope: String,
    key: String,
    effective_date: NaiveDate,
    variant: String,
    path: Option<String>,
    rows: Option<i64>,
    bytes: Option<i64>,
    sha256: Option<String>,
    etag: Option<String>,
    format: Option<String>,
    definition: Option<String>,
    generation: i64,
    last_generated_at: Option<i64>,
    claimed_at: Option<i64>,
    job_id: Option<String>,
}

impl Recorded {
    /// The identity with its file; `None` before the first one is published.
    fn into_file(self) -> Option<(FileIdentity, FileRecord)> {
        let identity = FileIdentity {
            dataset: self.dataset,
            scope: self.scope,
            key: self.key,
            effective_date: self.effective_date,
            variant: self.variant,
        };
        let record = FileRecord {
            path: self.path?,
            rows: self.rows?,
            bytes: self.bytes?,
            sha256: self.sha256?,
            etag: self.etag,
            format: self.format?,
            definition: self.definition?,
            generation: self.generation,
            generated_at: time(self.last_generated_at?),
            claimed_at: time(self.claimed_at?),
            job_id: JobId::from_store(self.job_id?),
        };
        (record.generation > 0).then_some((identity, record))
    }
}

pub(super) async fn recorded(
    store: &SqliteStore,
    dataset: &str,
    scope: &str,
    variant: &str,
    wanted: &[(String, NaiveDate)],
) -> StoreResult<Vec<(FileIdentity, FileRecord)>> {
    let rows: Vec<Recorded> = query_as(include_str!("sql/files_recorded.sql"))
        .bind(dataset)
        .bind(scope)
        .bind(variant)
        .bind(json(wanted))
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    Ok(rows.into_iter().filter_map(Recorded::into_file).collect())
}

/// The columns of `file_cache` that say who writes.
#[derive(sqlx::FromRow)]
struct Writer {
    id: i64,
    writer_chunk: Option<i64>,
    writer_fence: Option<i64>,
    upload_path: Option<String>,
    upload_id: Option<String>,
}

impl Writer {
    fn lease(&self) -> Option<Lease> {
        self.writer_chunk.zip(self.writer_fence).map(lease)
    }

    fn into_leftover(self) -> Option<Leftover> {
        let lease = self.lease()?;
        let upload = self.upload_path.zip(self.upload_id).map(|(path, upload_id)| Upload { path, upload_id });
        Some(Leftover { file: self.id, lease, upload })
    }
}

/// An identity whose writer no longer runs.
#[derive(sqlx::FromRow)]
struct Ended {
    #[sqlx(flatten)]
    recorded: Recorded,
    #[sqlx(flatten)]
    writer: Writer,
}

impl Ended {
    fn into_unfinished(self) -> Option<Unfinished> {
        let recorded = self.recorded.into_file().map(|(_, record)| record);
        Some(Unfinished { leftover: self.writer.into_leftover()?, recorded })
    }
}

#[derive(sqlx::FromRow)]
struct Identity {
    #[sqlx(flatten)]
    recorded: Recorded,
    #[sqlx(flatten)]
    writer: Writer,
    writer_runs: bool,
}

pub(super) async fn begin(store: &SqliteStore, begin: &FileBegin) -> StoreResult<FileBegun> {
    let begin = begin.clone();
    store.write(move |write| Box::pin(async move { begin_in(write, &begin).await })).await
}

async fn begin_in(write: &mut Write, begin: &FileBegin) -> StoreResult<FileBegun> {
    let owned: bool = sqlx::query_scalar(include_str!("sql/file_begin_lease.sql"))
        .bind(begin.lease.chunk.0)
        .bind(begin.lease.fence)
        .fetch_one(write.connection())
        .await
        .map_err(from_sqlx)?;
    if !owned {
        return Ok(FileBegun::LeaseLost);
    }
    let (base_path, dataset) = (&begin.place.base_path, &begin.identity.dataset);
    let owner: Option<String> = sqlx::query_scalar(include_str!("sql/file_begin_owner.sql"))
        .bind(base_path)
        .fetch_optional(write.connection())
        .await
        .map_err(from_sqlx)?;
    if let Some(owner) = owner.as_ref().filter(|owner| *owner != dataset) {
        return Ok(FileBegun::Foreign(owner.clone()));
    }
    let now = write.now;
    identified(include_str!("sql/file_begin_row.sql"), &begin.identity)
        .bind(now)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    let Identity { recorded, writer, writer_runs } = query_as(include_str!("sql/file_begin.sql"))
        .bind(&begin.identity.dataset)
        .bind(&begin.identity.scope)
        .bind(&begin.identity.key)
        .bind(begin.identity.effective_date)
        .bind(&begin.identity.variant)
        .fetch_one(write.connection())
        .await
        .map_err(from_sqlx)?;
    let recorded = recorded.into_file().map(|(_, record)| record);
    if let Some(record) = recorded.as_ref().filter(|record| begin.may_reuse(record)) {
        return Ok(FileBegun::Reusable(record.clone()));
    }
    let before = writer.lease();
    if before == Some(begin.lease) {
        // Asked again: an upload that is recorded now is a predecessor's, not yet aborted.
        let leftover = writer.into_leftover().filter(|leftover| leftover.upload.is_some());
        return Ok(FileBegun::Write(WriteGrant { recorded, leftover }));
    }
    if writer_runs {
        return Ok(FileBegun::Busy);
    }
    if owner.is_none() {
        sqlx::query(include_str!("sql/file_begin_base_path.sql"))
            .bind(base_path)
            .bind(dataset)
            .bind(now)
            .execute(write.connection())
            .await
            .map_err(from_sqlx)?;
    }
    sqlx::query(include_str!("sql/file_begin_own.sql"))
        .bind(writer.id)
        .bind(begin.lease.chunk.0)
        .bind(begin.lease.fence)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(FileBegun::Write(WriteGrant { recorded, leftover: writer.into_leftover() }))
}

pub(super) async fn base_paths(store: &SqliteStore) -> StoreResult<Vec<BasePathOwner>> {
    let rows: Vec<(String, String)> =
        query_as(include_str!("sql/base_paths.sql")).fetch_all(store.reader()).await.map_err(from_sqlx)?;
    Ok(rows.into_iter().map(|(path, dataset)| BasePathOwner { path, dataset }).collect())
}

pub(super) async fn upload(
    store: &SqliteStore,
    lease: Lease,
    identity: &FileIdentity,
    upload: &Upload,
) -> StoreResult<bool> {
    let (identity, upload) = (identity.clone(), upload.clone());
    store
        .write(move |write| {
            Box::pin(async move {
                let done = identified(include_str!("sql/file_upload.sql"), &identity)
                    .bind(lease.chunk.0)
                    .bind(lease.fence)
                    .bind(upload.path)
                    .bind(upload.upload_id)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(done.rows_affected() > 0)
            })
        })
        .await
}

pub(super) async fn leftover(store: &SqliteStore, limit: u32) -> StoreResult<Vec<Unfinished>> {
    let rows: Vec<Ended> = query_as(include_str!("sql/files_leftover.sql"))
        .bind(limit)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    Ok(rows.into_iter().filter_map(Ended::into_unfinished).collect())
}

pub(super) async fn leftover_removed(store: &SqliteStore, leftover: &Leftover) -> StoreResult<()> {
    let (file, lease) = (leftover.file, leftover.lease);
    store
        .write(move |write| {
            Box::pin(async move {
                sqlx::query(include_str!("sql/file_leftover_removed.sql"))
                    .bind(file)
                    .bind(lease.chunk.0)
                    .bind(lease.fence)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(())
            })
        })
        .await
}

pub(super) async fn leftover_replaced(
    store: &SqliteStore,
    leftover: &Leftover,
    generation: i64,
) -> StoreResult<()> {
    let (file, lease) = (leftover.file, leftover.lease);
    store
        .write(move |write| {
            Box::pin(async move {
                sqlx::query(include_str!("sql/file_leftover_replaced.sql"))
                    .bind(file)
                    .bind(lease.chunk.0)
                    .bind(lease.fence)
                    .bind(generation)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(())
            })
        })
        .await
}

/// A statement whose first five parameters are the identity.
fn identified(sql: &'static str, identity: &FileIdentity) -> Query<'static, Sqlite, SqliteArguments> {
    sqlx::query(sql)
        .bind(identity.dataset.clone())
        .bind(identity.scope.clone())
        .bind(identity.key.clone())
        .bind(identity.effective_date)
        .bind(identity.variant.clone())
}
