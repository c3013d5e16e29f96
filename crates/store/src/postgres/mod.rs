//! The PostgreSQL store (15 and later). SQL lives in `sql/`, named after the verbs of the `Store`
//! port; this folder only binds values and reads rows.

mod chunk;
mod connect;
mod file;
mod job;
mod migrate;
mod queue;
mod row;
mod sweep;
mod wake;
mod worker;

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use chrono::NaiveDate;
use futures::stream::BoxStream;
use outhaul_core::file::{FileBegin, FileBegun, FileIdentity, FileRecord, Leftover, ManifestRow, Upload};
use outhaul_core::id::{ChunkId, JobId, Lease, QueueId, WorkerId};
use outhaul_core::job::{ChunkRow, Job, NewJob};
use outhaul_core::queue::{QueueRow, QueueSpec};
use outhaul_core::state::ChunkStatus;
use outhaul_core::store::{
    Cancelled, JobFilter, Page, Redriven, Staged, Store, StoreResult, StoreSettings, Submitted,
};
use outhaul_core::worker::{
    Beat, ClaimedChunk, ExpiredChunk, Failure, Finish, NewWorker, Settled, Slot, Want, WorkerRow,
};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

pub use connect::{PostgresOptions, connect};
pub use migrate::migrate;

/// A PostgreSQL database as a store. Cheap to clone; clones share one pool.
#[derive(Clone)]
pub struct PostgresStore {
    pool: PgPool,
    settings: StoreSettings,
    installation: Arc<str>,
    /// Where hints are listened for; `None`: `database.listen` is off.
    listen: Option<Arc<PgConnectOptions>>,
    /// Queue keys never change once given.
    queue_keys: Arc<RwLock<BTreeMap<String, QueueId>>>,
}

#[async_trait]
impl Store for PostgresStore {
    async fn ready(&self) -> StoreResult<()> {
        connect::ready(&self.pool).await
    }

    fn installation(&self) -> &str {
        &self.installation
    }

    async fn wakeups(&self) -> StoreResult<Option<BoxStream<'static, ()>>> {
        self.listen_for_wakeups().await
    }

    async fn wake_others(&self) -> StoreResult<()> {
        self.notify().await
    }

    async fn job_submit(&self, job: NewJob) -> StoreResult<Submitted> {
        self.submit(job).await
    }

    async fn job_get(&self, job_id: &JobId) -> StoreResult<Option<Job>> {
        self.get_job(job_id).await
    }

    async fn jobs_list(&self, filter: &JobFilter) -> StoreResult<Page<Job, i64>> {
        self.list_jobs(filter).await
    }

    async fn chunks_list(
        &self,
        job_id: &JobId,
        status: Option<ChunkStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Page<ChunkRow, String>> {
        self.list_chunks(job_id, status, after, limit).await
    }

    async fn files_list(
        &self,
        job_id: &JobId,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Page<ManifestRow, String>> {
        self.list_files(job_id, after, limit).await
    }

    async fn file_get(&self, job_id: &JobId, file: ChunkId) -> StoreResult<Option<ManifestRow>> {
        self.get_file(job_id, file).await
    }

    async fn files_recorded(
        &self,
        dataset: &str,
        scope: &str,
        variant: &str,
        wanted: &[(String, NaiveDate)],
    ) -> StoreResult<Vec<(FileIdentity, FileRecord)>> {
        self.recorded_files(dataset, scope, variant, wanted).await
    }

    async fn job_cancel(&self, job_id: &JobId) -> StoreResult<Cancelled> {
        self.cancel_job(job_id).await
    }

    async fn job_redrive(&self, job_id: &JobId) -> StoreResult<Redriven> {
        self.redrive_job(job_id).await
    }

    async fn queues_sync(&self, queues: &[QueueSpec]) -> StoreResult<BTreeMap<String, QueueId>> {
        self.sync_queues(queues).await
    }

    async fn queues_list(&self) -> StoreResult<Vec<QueueRow>> {
        self.list_queues().await
    }

    async fn queue_pause(&self, name: &str, paused: bool) -> StoreResult<bool> {
        self.pause_queue(name, paused).await
    }

    async fn slots_take(&self, worker: WorkerId, queue: QueueId, count: u32) -> StoreResult<Vec<Slot>> {
        self.take_slots(worker, queue, count).await
    }

    async fn slots_release(&self, worker: WorkerId, slots: &[Slot]) -> StoreResult<()> {
        self.release_slots(worker, slots).await
    }

    async fn worker_register(&self, worker: &NewWorker) -> StoreResult<WorkerId> {
        self.register_worker(worker).await
    }

    async fn worker_leave(&self, worker: WorkerId) -> StoreResult<()> {
        self.forget_worker(worker).await
    }

    async fn workers_list(&self, within: Duration) -> StoreResult<Vec<WorkerRow>> {
        self.list_workers(within).await
    }

    async fn chunks_claim(
        &self,
        worker: WorkerId,
        wants: &[Want],
        total: u32,
    ) -> StoreResult<Vec<ClaimedChunk>> {
        self.claim(worker, wants, total).await
    }

    async fn chunks_heartbeat(&self, worker: WorkerId, leases: &[Lease], slots: &[Slot]) -> StoreResult<Beat> {
        self.heartbeat(worker, leases, slots).await
    }

    async fn chunks_cancelled(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        self.cancelled_of(leases).await
    }

    async fn chunk_may_publish(&self, lease: Lease) -> StoreResult<bool> {
        self.may_publish(lease).await
    }

    async fn chunks_finish(&self, finishes: &[Finish]) -> StoreResult<Vec<Lease>> {
        self.finish(finishes).await
    }

    async fn chunks_fail(&self, failures: &[Failure]) -> StoreResult<Vec<Settled>> {
        self.fail(failures).await
    }

    async fn chunks_return(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        self.give_back(leases).await
    }

    async fn chunk_snooze(&self, lease: Lease, wait: Duration) -> StoreResult<bool> {
        self.snooze(lease, wait).await
    }

    async fn chunks_cancel(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        self.cancel_chunks(leases).await
    }

    async fn file_begin(&self, begin: &FileBegin) -> StoreResult<FileBegun> {
        self.begin_file(begin).await
    }

    async fn file_upload(&self, lease: Lease, identity: &FileIdentity, upload: &Upload) -> StoreResult<bool> {
        self.record_upload(lease, identity, upload).await
    }

    async fn files_leftover(&self, limit: u32) -> StoreResult<Vec<Leftover>> {
        self.leftovers(limit).await
    }

    async fn file_leftover_removed(&self, leftover: &Leftover) -> StoreResult<()> {
        self.leftover_removed(leftover).await
    }

    async fn chunks_stage(&self, limit: u32) -> StoreResult<Staged> {
        self.stage(limit).await
    }

    async fn chunks_expired(&self, limit: u32) -> StoreResult<Vec<ExpiredChunk>> {
        self.expired(limit).await
    }

    async fn counts_repair(&self, quiet: Duration, limit: u32) -> StoreResult<u64> {
        self.repair_counts(quiet, limit).await
    }

    async fn jobs_prune(&self, keep: Duration, limit: u32) -> StoreResult<u64> {
        self.prune_jobs(keep, limit).await
    }
}
