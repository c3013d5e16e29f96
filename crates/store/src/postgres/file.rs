//! Files: who may write an identity, what is recorded of it, and what dead writers left.

use chrono::NaiveDate;
use outhaul_core::file::{
    BasePathOwner, FileBegin, FileBegun, FileIdentity, FileRecord, Leftover, ManifestRow, Unfinished, Upload,
    WriteGrant,
};
use outhaul_core::id::{ChunkId, JobId, Lease};
use outhaul_core::store::{Page, StoreError, StoreResult};
use sqlx::postgres::PgArguments;
use sqlx::{Arguments as _, FromRow};

use super::PostgresStore;
use super::row::{ManifestColumns, RecordColumns};
use crate::error::from_sqlx;

/// How often a lost race for an identity is run again before it is left to the next attempt.
const RACES: u32 = 10;

#[derive(FromRow)]
struct BeginRow {
    held: bool,
    id: Option<i64>,
    writer_chunk: Option<i64>,
    writer_fence: Option<i64>,
    upload_path: Option<String>,
    upload_id: Option<String>,
    writer_alive: bool,
    base_path_owner: Option<String>,
    #[sqlx(flatten)]
    record: RecordColumns,
}

#[derive(FromRow)]
struct LeftoverRow {
    id: i64,
    writer_chunk: i64,
    writer_fence: i64,
    upload_path: Option<String>,
    upload_id: Option<String>,
    #[sqlx(flatten)]
    record: RecordColumns,
}

#[derive(FromRow)]
struct RecordedRow {
    key: String,
    effective_date: NaiveDate,
    #[sqlx(flatten)]
    record: RecordColumns,
}

fn upload(path: Option<String>, upload_id: Option<String>) -> Option<Upload> {
    Some(Upload { path: path?, upload_id: upload_id? })
}

impl PostgresStore {
    pub(super) async fn begin_file(&self, begin: &FileBegin) -> StoreResult<FileBegun> {
        for _ in 0..RACES {
            if let Some(begun) = self.try_begin_file(begin).await? {
                return Ok(begun);
            }
        }
        Err(StoreError::Unavailable("too many writers ask for one file".into()))
    }

    /// One look and one guarded write; `None`: someone else was faster, look again.
    async fn try_begin_file(&self, begin: &FileBegin) -> StoreResult<Option<FileBegun>> {
        let (lease, identity) = (begin.lease, &begin.identity);
        let row: BeginRow =
            sqlx::query_as_with(self.sql(include_str!("sql/file_begin.sql")), arguments(lease, identity)?)
                .bind(&begin.place.base_path)
                .fetch_one(&self.pool())
                .await
                .map_err(from_sqlx)?;
        if !row.held {
            return Ok(Some(FileBegun::LeaseLost));
        }
        if let Some(owner) = row.base_path_owner.filter(|owner| *owner != identity.dataset) {
            return Ok(Some(FileBegun::Foreign(owner)));
        }
        let generation = row.record.generation;
        let recorded = row.record.into_record();
        if let Some(record) = recorded.clone().filter(|record| begin.may_reuse(record)) {
            return Ok(Some(FileBegun::Reusable(record)));
        }
        let Some(id) = row.id else {
            let first = sqlx::query_with(
                self.sql(include_str!("sql/file_begin_first.sql")),
                arguments(lease, identity)?,
            )
            .bind(&begin.place.base_path)
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
            let grant = WriteGrant { recorded: None, leftover: None };
            return Ok((first.rows_affected() > 0).then_some(FileBegun::Write(grant)));
        };
        let writer = row.writer_chunk.zip(row.writer_fence);
        let writer = writer.map(|(chunk, fence)| Lease { chunk: ChunkId(chunk), fence });
        if writer == Some(lease) {
            // Asked again: an upload that is recorded now is a predecessor's, not yet aborted.
            let upload = upload(row.upload_path, row.upload_id);
            let leftover = upload.map(|upload| Leftover { file: id, lease, upload: Some(upload) });
            return Ok(Some(FileBegun::Write(WriteGrant { recorded, leftover })));
        }
        if row.writer_alive {
            return Ok(Some(FileBegun::Busy));
        }
        let taken = sqlx::query(self.sql(include_str!("sql/file_begin_next.sql")))
            .bind(lease.chunk.0)
            .bind(lease.fence)
            .bind(id)
            .bind(generation)
            .bind(row.writer_chunk)
            .bind(row.writer_fence)
            .bind(&begin.place.base_path)
            .bind(&identity.dataset)
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        if taken.rows_affected() == 0 {
            return Ok(None);
        }
        let upload = upload(row.upload_path, row.upload_id);
        let leftover = writer.map(|lease| Leftover { file: id, lease, upload });
        Ok(Some(FileBegun::Write(WriteGrant { recorded, leftover })))
    }

    pub(super) async fn base_path_owners(&self) -> StoreResult<Vec<BasePathOwner>> {
        let rows: Vec<(String, String)> = sqlx::query_as(self.sql(include_str!("sql/base_paths.sql")))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(rows.into_iter().map(|(path, dataset)| BasePathOwner { path, dataset }).collect())
    }

    pub(super) async fn record_upload(
        &self,
        lease: Lease,
        identity: &FileIdentity,
        upload: &Upload,
    ) -> StoreResult<bool> {
        let done =
            sqlx::query_with(self.sql(include_str!("sql/file_upload.sql")), arguments(lease, identity)?)
                .bind(&upload.path)
                .bind(&upload.upload_id)
                .execute(&self.pool())
                .await
                .map_err(from_sqlx)?;
        Ok(done.rows_affected() > 0)
    }

    pub(super) async fn leftovers(&self, limit: u32) -> StoreResult<Vec<Unfinished>> {
        let rows: Vec<LeftoverRow> = sqlx::query_as(self.sql(include_str!("sql/files_leftover.sql")))
            .bind(i64::from(limit))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let unfinished = |row: LeftoverRow| Unfinished {
            leftover: Leftover {
                file: row.id,
                lease: Lease { chunk: ChunkId(row.writer_chunk), fence: row.writer_fence },
                upload: upload(row.upload_path, row.upload_id),
            },
            recorded: row.record.into_record(),
        };
        Ok(rows.into_iter().map(unfinished).collect())
    }

    pub(super) async fn leftover_removed(&self, leftover: &Leftover) -> StoreResult<()> {
        sqlx::query(self.sql(include_str!("sql/file_leftover_removed.sql")))
            .bind(leftover.file)
            .bind(leftover.lease.chunk.0)
            .bind(leftover.lease.fence)
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }

    pub(super) async fn leftover_replaced(&self, leftover: &Leftover, generation: i64) -> StoreResult<()> {
        sqlx::query(self.sql(include_str!("sql/file_leftover_replaced.sql")))
            .bind(leftover.file)
            .bind(leftover.lease.chunk.0)
            .bind(leftover.lease.fence)
            .bind(generation)
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }

    pub(super) async fn list_files(
        &self,
        job_id: &JobId,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Page<ManifestRow, String>> {
        let rows: Vec<ManifestColumns> = sqlx::query_as(self.sql(include_str!("sql/files_list.sql")))
            .bind(job_id.as_str())
            .bind(after)
            .bind(i64::from(limit) + 1)
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let (rows, next) = crate::page::cut(rows, limit, |row| row.chunk_key.clone());
        Ok(Page { items: rows.into_iter().map(ManifestRow::from).collect(), next })
    }

    pub(super) async fn get_file(&self, job_id: &JobId, file: ChunkId) -> StoreResult<Option<ManifestRow>> {
        let row: Option<ManifestColumns> = sqlx::query_as(self.sql(include_str!("sql/file_get.sql")))
            .bind(job_id.as_str())
            .bind(file.0)
            .fetch_optional(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(row.map(ManifestRow::from))
    }

    pub(super) async fn recorded_files(
        &self,
        dataset: &str,
        scope: &str,
        variant: &str,
        wanted: &[(String, NaiveDate)],
    ) -> StoreResult<Vec<(FileIdentity, FileRecord)>> {
        let (keys, dates): (Vec<&str>, Vec<NaiveDate>) =
            wanted.iter().map(|(key, date)| (key.as_str(), *date)).unzip();
        let rows: Vec<RecordedRow> = sqlx::query_as(self.sql(include_str!("sql/files_recorded.sql")))
            .bind(dataset)
            .bind(scope)
            .bind(variant)
            .bind(keys)
            .bind(dates)
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let pair = |row: RecordedRow| {
            let identity = FileIdentity {
                dataset: dataset.to_owned(),
                scope: scope.to_owned(),
                key: row.key,
                effective_date: row.effective_date,
                variant: variant.to_owned(),
            };
            row.record.into_record().map(|record| (identity, record))
        };
        Ok(rows.into_iter().filter_map(pair).collect())
    }
}

/// $1 to $7 of the statements that act on an identity under a lease.
fn arguments(lease: Lease, identity: &FileIdentity) -> StoreResult<PgArguments> {
    let mut arguments = PgArguments::default();
    let mut add = || -> Result<(), sqlx::error::BoxDynError> {
        arguments.add(lease.chunk.0)?;
        arguments.add(lease.fence)?;
        arguments.add(&identity.dataset)?;
        arguments.add(&identity.scope)?;
        arguments.add(&identity.key)?;
        arguments.add(identity.effective_date)?;
        arguments.add(&identity.variant)
    };
    add().map_err(StoreError::Refused)?;
    Ok(arguments)
}
