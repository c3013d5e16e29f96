//! Chunks in the hands of a worker: claim, heartbeat, finish, fail, give back. One statement each,
//! for many chunks at once.

use std::time::Duration;

use outhaul_core::file::FileOutcome;
use outhaul_core::id::{ChunkId, JobId, Lease, QueueId, WorkerId};
use outhaul_core::job::ChunkRow;
use outhaul_core::progress::Progress;
use outhaul_core::state::{ChunkState, ChunkStatus, MAX_RETURNS};
use outhaul_core::store::{Page, StoreResult};
use outhaul_core::worker::{Beat, ClaimedChunk, Failure, Finish, Settled, Slot, Want};

use super::PostgresStore;
use super::queue::slot_columns;
use super::row::{ClaimRow, LeaseRow, chunk_row, columns, interval, want_columns};
use crate::error::{corrupt, from_sqlx};

/// Success of chunks without files.
const FINISH: &str =
    concat!(include_str!("sql/parts/finish_plain.sql"), include_str!("sql/parts/finish_end.sql"));
/// Success of chunks of which some have files.
const FINISH_WITH_FILES: &str =
    concat!(include_str!("sql/parts/finish_files.sql"), include_str!("sql/parts/finish_end.sql"));

impl PostgresStore {
    pub(super) async fn list_chunks(
        &self,
        job_id: &JobId,
        status: Option<ChunkStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Page<ChunkRow, String>> {
        let states: Option<Vec<&str>> =
            status.map(|status| status.states().into_iter().map(ChunkState::as_str).collect());
        let rows = sqlx::query(self.sql(include_str!("sql/chunks_list.sql")))
            .bind(job_id.as_str())
            .bind(states)
            .bind(after)
            .bind(i64::from(limit) + 1)
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let rows = rows.iter().map(chunk_row).collect::<StoreResult<Vec<_>>>()?;
        let (items, next) = crate::page::cut(rows, limit, |row| row.chunk_key.clone());
        Ok(Page { items, next })
    }

    pub(super) async fn claim(
        &self,
        worker: WorkerId,
        wants: &[Want],
        total: u32,
    ) -> StoreResult<Vec<ClaimedChunk>> {
        let (queues, limits) = want_columns(wants);
        let rows: Vec<ClaimRow> = sqlx::query_as(self.sql(include_str!("sql/chunks_claim.sql")))
            .bind(worker.0)
            .bind(queues)
            .bind(limits)
            .bind(i32::try_from(total).unwrap_or(i32::MAX))
            .bind(interval(self.settings.lease))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(rows.into_iter().map(ClaimRow::into_chunk).collect())
    }

    pub(super) async fn heartbeat(
        &self,
        worker: WorkerId,
        leases: &[Lease],
        slots: &[Slot],
    ) -> StoreResult<Beat> {
        let (ids, fences) = columns(leases);
        let (queues, numbers) = slot_columns(slots);
        let rows: Vec<(String, i64, i64)> =
            sqlx::query_as(self.sql(include_str!("sql/chunks_heartbeat.sql")))
                .bind(worker.0)
                .bind(ids)
                .bind(fences)
                .bind(queues)
                .bind(numbers)
                .bind(interval(self.settings.lease))
                .fetch_all(&self.pool())
                .await
                .map_err(from_sqlx)?;
        let mut beat = Beat::default();
        for (what, a, b) in rows {
            match what.as_str() {
                "renewed" => beat.renewed.push(Lease { chunk: ChunkId(a), fence: b }),
                "skipped" => beat.skipped.push(Lease { chunk: ChunkId(a), fence: b }),
                _ => beat.slots.push(Slot { queue: QueueId(a), number: i32::try_from(b).unwrap_or(-1) }),
            }
        }
        Ok(beat)
    }

    pub(super) async fn of_worker(&self, worker: WorkerId) -> StoreResult<Vec<Lease>> {
        let rows: Vec<(i64, i64)> = sqlx::query_as(self.sql(include_str!("sql/chunks_of_worker.sql")))
            .bind(worker.0)
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(rows.into_iter().map(|(id, fence)| Lease { chunk: ChunkId(id), fence }).collect())
    }

    pub(super) async fn cancelled_of(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        self.leases(self.sql(include_str!("sql/chunks_cancelled.sql")), leases).await
    }

    pub(super) async fn running_of(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        self.leases(self.sql(include_str!("sql/chunks_running.sql")), leases).await
    }

    pub(super) async fn may_publish(&self, lease: Lease) -> StoreResult<bool> {
        sqlx::query_scalar(self.sql(include_str!("sql/chunk_may_publish.sql")))
            .bind(lease.chunk.0)
            .bind(lease.fence)
            .fetch_one(&self.pool())
            .await
            .map_err(from_sqlx)
    }

    pub(super) async fn record_progress(&self, progress: &[Progress]) -> StoreResult<()> {
        sqlx::query(self.sql(include_str!("sql/progress_record.sql")))
            .bind(progress.iter().map(|one| one.lease.chunk.0).collect::<Vec<_>>())
            .bind(progress.iter().map(|one| one.lease.fence).collect::<Vec<_>>())
            .bind(progress.iter().map(|one| one.rows).collect::<Vec<_>>())
            .bind(progress.iter().map(|one| one.bytes).collect::<Vec<_>>())
            .bind(progress.iter().map(|one| one.fraction).collect::<Vec<_>>())
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }

    /// A batch without files goes by a statement that knows of none.
    pub(super) async fn finish(&self, finishes: &[Finish]) -> StoreResult<Vec<Lease>> {
        let leases: Vec<Lease> = finishes.iter().map(|finish| finish.lease).collect();
        let (ids, fences) = columns(&leases);
        let results: Vec<Option<&str>> = finishes.iter().map(|finish| finish.result.as_deref()).collect();
        let plain = finishes.iter().all(|finish| finish.file.is_none());
        let sql = self.sql(if plain { FINISH } else { FINISH_WITH_FILES });
        let mut finish = sqlx::query_as(sql).bind(ids).bind(fences).bind(results);
        if !plain {
            let mut files = FileArrays::default();
            for finish in finishes {
                files.push(finish.file.as_ref());
            }
            finish = finish
                .bind(finishes.iter().map(|finish| finish.claimed_at).collect::<Vec<_>>())
                .bind(files.kind)
                .bind(finishes.iter().map(|finish| finish.reason.as_str()).collect::<Vec<_>>())
                .bind(files.dataset)
                .bind(files.scope)
                .bind(files.key)
                .bind(files.effective_date)
                .bind(files.variant)
                .bind(files.path)
                .bind(files.rows)
                .bind(files.bytes)
                .bind(files.sha256)
                .bind(files.etag)
                .bind(files.format)
                .bind(files.definition)
                .bind(files.generation)
                .bind(files.generated_at);
        }
        let rows: Vec<LeaseRow> = finish.fetch_all(&self.pool()).await.map_err(from_sqlx)?;
        Ok(rows.into_iter().map(Lease::from).collect())
    }

    pub(super) async fn fail(&self, failures: &[Failure]) -> StoreResult<Vec<Settled>> {
        let leases: Vec<Lease> = failures.iter().map(|failure| failure.lease).collect();
        let (ids, fences) = columns(&leases);
        let rows: Vec<(i64, i64, String)> = sqlx::query_as(self.sql(include_str!("sql/chunks_fail.sql")))
            .bind(ids)
            .bind(fences)
            .bind(failures.iter().map(|failure| failure.expired).collect::<Vec<_>>())
            .bind(failures.iter().map(|failure| failure.retry_in.map(interval)).collect::<Vec<_>>())
            .bind(failures.iter().map(|failure| failure.cause.as_str()).collect::<Vec<_>>())
            .bind(failures.iter().map(|failure| failure.step.as_deref()).collect::<Vec<_>>())
            .bind(self.settings.parking)
            .bind(failures.iter().map(|failure| failure.detail.as_deref()).collect::<Vec<_>>())
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let settled = |(id, fence, state): (i64, i64, String)| {
            let state = ChunkState::parse(&state).ok_or_else(|| corrupt("job_chunk.state", &state))?;
            Ok(Settled { lease: Lease { chunk: ChunkId(id), fence }, state })
        };
        rows.into_iter().map(settled).collect()
    }

    pub(super) async fn give_back(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        let (ids, fences) = columns(leases);
        let rows: Vec<LeaseRow> = sqlx::query_as(self.sql(include_str!("sql/chunks_return.sql")))
            .bind(ids)
            .bind(fences)
            .bind(i16::try_from(MAX_RETURNS).unwrap_or(i16::MAX))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(rows.into_iter().map(Lease::from).collect())
    }

    pub(super) async fn snooze(&self, lease: Lease, wait: Duration) -> StoreResult<bool> {
        sqlx::query_scalar(self.sql(include_str!("sql/chunk_snooze.sql")))
            .bind(lease.chunk.0)
            .bind(lease.fence)
            .bind(interval(wait))
            .fetch_one(&self.pool())
            .await
            .map_err(from_sqlx)
    }

    pub(super) async fn cancel_chunks(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        self.leases(self.sql(include_str!("sql/chunks_cancel.sql")), leases).await
    }

    /// Runs a statement that takes leases and answers with those it applied to.
    async fn leases(&self, sql: &'static str, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        let (ids, fences) = columns(leases);
        let rows: Vec<LeaseRow> =
            sqlx::query_as(sql).bind(ids).bind(fences).fetch_all(&self.pool()).await.map_err(from_sqlx)?;
        Ok(rows.into_iter().map(Lease::from).collect())
    }
}

/// Outcomes as columns, one entry per chunk; empty where the chunk has no file.
#[derive(Default)]
struct FileArrays<'a> {
    kind: Vec<&'static str>,
    dataset: Vec<Option<&'a str>>,
    scope: Vec<Option<&'a str>>,
    key: Vec<Option<&'a str>>,
    effective_date: Vec<Option<chrono::NaiveDate>>,
    variant: Vec<Option<&'a str>>,
    path: Vec<Option<&'a str>>,
    rows: Vec<Option<i64>>,
    bytes: Vec<Option<i64>>,
    sha256: Vec<Option<&'a str>>,
    etag: Vec<Option<&'a str>>,
    format: Vec<Option<&'a str>>,
    definition: Vec<Option<&'a str>>,
    generation: Vec<Option<i64>>,
    generated_at: Vec<Option<chrono::DateTime<chrono::Utc>>>,
}

impl<'a> FileArrays<'a> {
    fn push(&mut self, outcome: Option<&'a FileOutcome>) {
        let (kind, identity, generated, reused) = match outcome {
            None => ("none", None, None, None),
            Some(FileOutcome::Generated(file)) => ("generated", Some(&file.identity), Some(file), None),
            Some(FileOutcome::Reused { identity, record }) => ("reused", Some(identity), None, Some(record)),
        };
        self.kind.push(kind);
        self.dataset.push(identity.map(|identity| identity.dataset.as_str()));
        self.scope.push(identity.map(|identity| identity.scope.as_str()));
        self.key.push(identity.map(|identity| identity.key.as_str()));
        self.effective_date.push(identity.map(|identity| identity.effective_date));
        self.variant.push(identity.map(|identity| identity.variant.as_str()));
        self.generation.push(reused.map(|record| record.generation));
        self.generated_at.push(reused.map(|record| record.generated_at));
        macro_rules! either {
            ($field:ident, $get:expr) => {
                self.$field.push(
                    generated.map(|file| $get(&file.$field)).or(reused.map(|record| $get(&record.$field))),
                )
            };
        }
        either!(path, String::as_str);
        either!(rows, |rows: &i64| *rows);
        either!(bytes, |bytes: &i64| *bytes);
        either!(sha256, String::as_str);
        either!(format, String::as_str);
        either!(definition, String::as_str);
        let etag = generated.map(|file| &file.etag).or(reused.map(|record| &record.etag));
        self.etag.push(etag.and_then(|etag| etag.as_deref()));
    }
}
