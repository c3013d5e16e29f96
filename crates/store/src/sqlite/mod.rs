//! The embedded store: one SQLite file, served by one process.
//!
//! Every write runs in `BEGIN IMMEDIATE` on one connection, so a verb that reads and then writes sees
//! nothing move in between; reads have connections of their own. SQL is in `sql/`, named after the verbs.

mod announcement;
mod audit;
mod chunk;
mod connect;
mod convert;
mod counts;
mod dead_letter;
mod dependency;
mod file;
mod finish;
mod history;
mod job;
mod named_claim;
mod outbox;
mod outcome;
mod private;
mod progress;
mod queue;
mod redrive;
mod schedule;
mod schedule_fire;
mod step;
mod submit;
mod sweep;
mod transaction;
mod trigger;
mod trigger_fire;
mod worker;

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, NaiveDate, Utc};
use futures::stream::BoxStream;
use outhaul_core::announcement::{Announcement, ChunkName, DeliveryLag, NamedClaims};
use outhaul_core::audit::{AuditEntry, AuditFilter, AuditRow};
use outhaul_core::dead_letter::{DeadLetter, DeadLetterCursor, DeadLetterFilter};
use outhaul_core::file::{
    BasePathOwner, FileBegin, FileBegun, FileIdentity, FileRecord, Leftover, ManifestRow, Unfinished, Upload,
};
use outhaul_core::history::{HistoryCursor, Transition};
use outhaul_core::id::{ChunkId, JobId, Lease, QueueId, WorkerId};
use outhaul_core::identity::Visible;
use outhaul_core::job::{ChunkRow, Job, NewJob};
use outhaul_core::outbox::{NewOutboxMessage, OutboxMessage};
use outhaul_core::progress::Progress;
use outhaul_core::queue::{QueueRow, QueueSpec};
use outhaul_core::schedule::{
    Deleted, DueSchedules, NewSchedule, NextSlot, Put, Schedule, ScheduleFire, ScheduleFired, SlotRow,
};
use outhaul_core::state::ChunkStatus;
use outhaul_core::step::{StepRecord, StepRow};
use outhaul_core::store::{
    Cancelled, JobFilter, Page, Prioritised, Redriven, Redriver, Staged, Store, StoreResult, StoreSettings,
    Submitted, SweepsDue,
};
use outhaul_core::trigger::{
    DueFire, FirePlan, NewTrigger, Trigger, TriggerFire, TriggerId, TriggerPut, TriggerWait,
};
use outhaul_core::worker::{
    Beat, ClaimedChunk, ExpiredChunk, Failure, Finish, NewWorker, Settled, Slot, Want, WorkerRow,
};
use sqlx::SqlitePool;

/// A SQLite database that this process serves; clones share it. The lock is given back with the last.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

struct Inner {
    writer: SqlitePool,
    reader: SqlitePool,
    settings: StoreSettings,
    installation: String,
    _lock: File,
}

impl SqliteStore {
    /// Opens the database at `path` for the one process that serves it, making the file and its folder
    /// where they are missing and bringing the schema up to date. Chunks and slots that a previous
    /// process held are given back.
    ///
    /// Refuses with [`StoreError::Unsafe`](outhaul_core::store::StoreError::Unsafe) while another
    /// process serves it, and with [`StoreError::NewerSchema`](outhaul_core::store::StoreError::NewerSchema)
    /// when a newer version has been here.
    pub async fn open(path: &Path, settings: StoreSettings) -> StoreResult<Self> {
        connect::open(path, settings).await
    }

    fn reader(&self) -> &SqlitePool {
        &self.inner.reader
    }

    /// Closes the connections, waiting for calls under way; later calls are refused as unavailable.
    /// Another process may open the database once every clone is dropped.
    pub async fn close(&self) {
        self.inner.reader.close().await;
        self.inner.writer.close().await;
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("installation", &self.inner.installation).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn ready(&self) -> StoreResult<()> {
        transaction::ready(self).await
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn installation(&self) -> &str {
        &self.inner.installation
    }

    async fn wakeups(&self) -> StoreResult<Option<BoxStream<'static, ()>>> {
        Ok(None)
    }

    async fn wake_others(&self) -> StoreResult<()> {
        Ok(())
    }

    async fn job_submit(&self, job: NewJob) -> StoreResult<Submitted> {
        submit::submit(self, job).await
    }

    async fn jobs_submit(&self, jobs: Vec<NewJob>) -> StoreResult<Vec<Submitted>> {
        submit::submit_all(self, jobs).await
    }

    async fn job_get_visible(&self, job_id: &JobId, visible: &Visible) -> StoreResult<Option<Job>> {
        job::get(self.reader(), job_id.as_str(), visible).await
    }

    async fn jobs_get(&self, job_ids: &[JobId]) -> StoreResult<Vec<Job>> {
        job::get_all(self, job_ids).await
    }

    async fn jobs_list(&self, filter: &JobFilter) -> StoreResult<Page<Job, i64>> {
        job::list(self, filter).await
    }

    async fn chunks_list(
        &self,
        job_id: &JobId,
        status: Option<ChunkStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Page<ChunkRow, String>> {
        chunk::list(self, job_id, status, after, limit).await
    }

    async fn files_list(
        &self,
        job_id: &JobId,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Page<ManifestRow, String>> {
        file::list(self, job_id, after, limit).await
    }

    async fn file_get(&self, job_id: &JobId, file: ChunkId) -> StoreResult<Option<ManifestRow>> {
        file::get(self, job_id, file).await
    }

    async fn files_recorded(
        &self,
        dataset: &str,
        scope: &str,
        variant: &str,
        wanted: &[(String, NaiveDate)],
    ) -> StoreResult<Vec<(FileIdentity, FileRecord)>> {
        file::recorded(self, dataset, scope, variant, wanted).await
    }

    async fn steps_list(&self, job_id: &JobId) -> StoreResult<Vec<StepRow>> {
        step::list(self, job_id).await
    }

    async fn history_list(
        &self,
        job_id: &JobId,
        chunk_key: Option<&str>,
        after: Option<HistoryCursor>,
        limit: u32,
    ) -> StoreResult<Page<Transition, HistoryCursor>> {
        history::list(self, job_id, chunk_key, after, limit).await
    }

    async fn dead_letters_list(
        &self,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: u32,
    ) -> StoreResult<Page<DeadLetter, DeadLetterCursor>> {
        dead_letter::list(self, filter, after, limit).await
    }

    async fn dead_letters_count(&self, filter: &DeadLetterFilter) -> StoreResult<u64> {
        dead_letter::count(self, filter).await
    }

    async fn job_cancel(&self, job_id: &JobId) -> StoreResult<Cancelled> {
        job::cancel(self, job_id).await
    }

    async fn job_prioritise(&self, job_id: &JobId, priority: u8) -> StoreResult<Prioritised> {
        job::prioritise(self, job_id, priority).await
    }

    async fn job_redrive(&self, job_id: &JobId) -> StoreResult<Redriven> {
        redrive::redrive(self, job_id).await
    }

    async fn dead_letters_redrive(
        &self,
        filter: &DeadLetterFilter,
        limit: u32,
        by: Option<&Redriver>,
    ) -> StoreResult<u64> {
        redrive::letters(self, filter, limit, by).await
    }

    async fn queues_sync(&self, queues: &[QueueSpec]) -> StoreResult<BTreeMap<String, QueueId>> {
        queue::sync(self, queues).await
    }

    async fn queues_list(&self) -> StoreResult<Vec<QueueRow>> {
        queue::list(self).await
    }

    async fn queue_pause(&self, name: &str, paused: bool) -> StoreResult<bool> {
        queue::pause(self, name, paused).await
    }

    async fn slots_take(&self, worker: WorkerId, queue: QueueId, count: u32) -> StoreResult<Vec<Slot>> {
        queue::slots_take(self, worker, queue, count).await
    }

    async fn slots_release(&self, worker: WorkerId, slots: &[Slot]) -> StoreResult<()> {
        queue::slots_release(self, worker, slots).await
    }

    async fn worker_register(&self, worker: &NewWorker) -> StoreResult<WorkerId> {
        worker::register(self, worker).await
    }

    async fn worker_leave(&self, worker: WorkerId) -> StoreResult<()> {
        worker::leave(self, worker).await
    }

    async fn workers_list(&self, within: Duration) -> StoreResult<Vec<WorkerRow>> {
        worker::list(self, within).await
    }

    async fn chunks_claim(
        &self,
        worker: WorkerId,
        wants: &[Want],
        total: u32,
    ) -> StoreResult<Vec<ClaimedChunk>> {
        chunk::claim(self, worker, wants, total).await
    }

    async fn chunks_claim_named(
        &self,
        worker: WorkerId,
        names: &[ChunkName],
        wants: &[Want],
        total: u32,
    ) -> StoreResult<NamedClaims> {
        named_claim::claim(self, worker, names, wants, total).await
    }

    async fn announcements_take(
        &self,
        queues: &[QueueId],
        window: u32,
        limit: u32,
    ) -> StoreResult<Vec<Announcement>> {
        announcement::take(self, queues, window, limit).await
    }

    async fn announcements_confirm(
        &self,
        announcements: &[Announcement],
        expiry: Duration,
    ) -> StoreResult<()> {
        announcement::confirm(self, announcements, expiry).await
    }

    async fn announcements_clear(&self, chunks: &[ChunkId]) -> StoreResult<()> {
        announcement::clear(self, chunks).await
    }

    async fn announcements_defer(&self, chunks: &[ChunkId], wait: Duration) -> StoreResult<()> {
        announcement::defer(self, chunks, wait).await
    }

    async fn announcements_doubt(&self) -> StoreResult<()> {
        announcement::doubt(self).await
    }

    async fn outbox_put(&self, messages: &[NewOutboxMessage]) -> StoreResult<()> {
        outbox::put(self, messages).await
    }

    async fn outbox_take(&self, limit: u32) -> StoreResult<Vec<OutboxMessage>> {
        outbox::take(self, limit).await
    }

    async fn outbox_delete(&self, ids: &[i64]) -> StoreResult<()> {
        outbox::delete(self, ids).await
    }

    async fn delivery_lag(&self) -> StoreResult<DeliveryLag> {
        outbox::lag(self).await
    }

    async fn chunks_heartbeat(
        &self,
        worker: WorkerId,
        leases: &[Lease],
        slots: &[Slot],
    ) -> StoreResult<Beat> {
        worker::heartbeat(self, worker, leases, slots).await
    }

    async fn chunks_of_worker(&self, worker: WorkerId) -> StoreResult<Vec<Lease>> {
        worker::chunks_of(self, worker).await
    }

    async fn chunks_cancelled(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        chunk::cancelled(self, leases).await
    }

    async fn chunks_running(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        chunk::running(self, leases).await
    }

    async fn chunk_may_publish(&self, lease: Lease) -> StoreResult<bool> {
        chunk::may_publish(self, lease).await
    }

    async fn progress_record(&self, progress: &[Progress]) -> StoreResult<()> {
        progress::record(self, progress).await
    }

    async fn chunks_finish(&self, finishes: &[Finish]) -> StoreResult<Vec<Lease>> {
        finish::finish(self, finishes).await
    }

    async fn chunks_fail(&self, failures: &[Failure]) -> StoreResult<Vec<Settled>> {
        outcome::fail(self, failures).await
    }

    async fn chunks_return(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        outcome::give_back(self, leases).await
    }

    async fn chunk_snooze(&self, lease: Lease, wait: Duration) -> StoreResult<bool> {
        outcome::snooze(self, lease, wait).await
    }

    async fn chunks_cancel(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        outcome::cancel(self, leases).await
    }

    async fn steps_recorded(&self, lease: Lease) -> StoreResult<Option<Vec<StepRecord>>> {
        step::recorded(self, lease).await
    }

    async fn step_record(&self, lease: Lease, name: &str, result: &str) -> StoreResult<bool> {
        step::record(self, lease, name, result).await
    }

    async fn file_begin(&self, begin: &FileBegin) -> StoreResult<FileBegun> {
        file::begin(self, begin).await
    }

    async fn base_paths(&self) -> StoreResult<Vec<BasePathOwner>> {
        file::base_paths(self).await
    }

    async fn file_upload(&self, lease: Lease, identity: &FileIdentity, upload: &Upload) -> StoreResult<bool> {
        file::upload(self, lease, identity, upload).await
    }

    async fn files_leftover(&self, limit: u32) -> StoreResult<Vec<Unfinished>> {
        file::leftover(self, limit).await
    }

    async fn file_leftover_removed(&self, leftover: &Leftover) -> StoreResult<()> {
        file::leftover_removed(self, leftover).await
    }

    async fn file_leftover_replaced(&self, leftover: &Leftover, generation: i64) -> StoreResult<()> {
        file::leftover_replaced(self, leftover, generation).await
    }

    async fn sweeps_due(&self) -> StoreResult<SweepsDue> {
        sweep::due(self).await
    }

    async fn chunks_stage(&self, limit: u32) -> StoreResult<Staged> {
        sweep::stage(self, limit).await
    }

    async fn chunks_expired(
        &self,
        known: &[String],
        abandoned: Duration,
        limit: u32,
    ) -> StoreResult<Vec<ExpiredChunk>> {
        sweep::expired(self, known, abandoned, limit).await
    }

    async fn counts_repair(&self, quiet: Duration, limit: u32) -> StoreResult<u64> {
        sweep::repair(self, quiet, limit).await
    }

    async fn jobs_prune(&self, keep: Duration, limit: u32) -> StoreResult<u64> {
        sweep::prune(self, keep, limit).await
    }

    async fn workers_prune(&self) -> StoreResult<u64> {
        sweep::prune_workers(self).await
    }

    async fn schedule_put(&self, schedule: &NewSchedule) -> StoreResult<Put> {
        schedule::put(self, schedule).await
    }

    async fn schedules_configured(&self, schedules: &[NewSchedule]) -> StoreResult<()> {
        schedule::configured(self, schedules).await
    }

    async fn schedule_get(&self, name: &str) -> StoreResult<Option<Schedule>> {
        schedule::get(self, name).await
    }

    async fn schedules_list(&self) -> StoreResult<Vec<Schedule>> {
        schedule::list(self).await
    }

    async fn schedule_delete(&self, name: &str) -> StoreResult<Deleted> {
        schedule::delete(self, name).await
    }

    async fn schedule_pause(&self, name: &str) -> StoreResult<bool> {
        schedule::pause(self, name).await
    }

    async fn schedule_resume(&self, name: &str, next: Option<NextSlot>) -> StoreResult<bool> {
        schedule::resume(self, name, next).await
    }

    async fn schedule_slots(&self, name: &str, limit: u32) -> StoreResult<Vec<SlotRow>> {
        schedule::slots(self, name, limit).await
    }

    async fn schedules_due(&self, at: Option<DateTime<Utc>>, limit: u32) -> StoreResult<DueSchedules> {
        schedule_fire::due(self, at, limit).await
    }

    async fn schedule_fire(&self, fire: ScheduleFire) -> StoreResult<ScheduleFired> {
        schedule_fire::fire(self, fire).await
    }

    async fn trigger_put(&self, trigger: &NewTrigger) -> StoreResult<TriggerPut> {
        trigger::put(self, trigger).await
    }

    async fn triggers_configured(&self, triggers: &[NewTrigger]) -> StoreResult<Option<Vec<String>>> {
        trigger::configured(self, triggers).await
    }

    async fn trigger_get(&self, name: &str) -> StoreResult<Option<Trigger>> {
        trigger::get(self, name).await
    }

    async fn triggers_list(&self) -> StoreResult<Vec<Trigger>> {
        trigger::list(self).await
    }

    async fn trigger_delete(&self, name: &str) -> StoreResult<Deleted> {
        trigger::delete(self, name).await
    }

    async fn trigger_fires(&self, trigger: TriggerId, limit: u32) -> StoreResult<Vec<TriggerFire>> {
        trigger::fires(self, trigger, limit).await
    }

    async fn trigger_waits(&self, trigger: TriggerId, limit: u32) -> StoreResult<Vec<TriggerWait>> {
        trigger::waits(self, trigger, limit).await
    }

    async fn triggers_match(&self, limit: u32) -> StoreResult<u64> {
        trigger_fire::match_all(self, limit).await
    }

    async fn trigger_fires_due(&self, limit: u32) -> StoreResult<Vec<DueFire>> {
        trigger_fire::due(self, limit).await
    }

    async fn trigger_fire(&self, fire: i64, plan: FirePlan) -> StoreResult<Option<TriggerFire>> {
        trigger_fire::fire(self, fire, plan).await
    }

    async fn firings_prune(&self, keep: Duration, limit: u32) -> StoreResult<u64> {
        sweep::prune_firings(self, keep, limit).await
    }

    async fn audit_list(
        &self,
        filter: &AuditFilter,
        before: Option<i64>,
        limit: u32,
    ) -> StoreResult<Page<AuditRow, i64>> {
        audit::list(self, filter, before, limit).await
    }

    async fn audit_record(&self, entries: &[AuditEntry]) -> StoreResult<()> {
        audit::record(self, entries).await
    }

    async fn audit_prune(&self, keep: Duration, limit: u32) -> StoreResult<u64> {
        audit::prune(self, keep, limit).await
    }
}
