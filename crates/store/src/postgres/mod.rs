//! The PostgreSQL store (15 and later). SQL lives in `sql/`, named after the verbs of the `Store`
//! port; this folder only binds values and reads rows.

mod announcement;
mod audit;
mod chunk;
mod connect;
mod connections;
mod dead_letter;
mod file;
mod gate;
mod history;
mod job;
mod migrate;
mod outbox;
mod pool;
mod queue;
mod redrive;
mod row;
mod schedule;
mod schedule_fire;
mod schema;
mod step;
mod submit;
mod sweep;
mod trigger;
mod trigger_fire;
mod wake;
mod worker;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, RwLock};
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
use outhaul_core::vacuum::VacuumLag;
use outhaul_core::worker::{
    Beat, ClaimedChunk, ExpiredChunk, Failure, Finish, NewWorker, Settled, Slot, Want, WorkerRow,
};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

use connections::Connections;
use pool::Pool;
use schema::Schema;

pub use connect::{PostgresOptions, connect, missing_session_settings};
pub use migrate::migrate;
pub use schema::{DEFAULT as DEFAULT_SCHEMA, check_schema};
pub use step::{Transacted, TransactionError};

/// A PostgreSQL database as a store. Cheap to clone; clones share one pool.
#[derive(Clone)]
pub struct PostgresStore {
    connections: Connections,
    /// For transactions of callers, which may take their time.
    transactions: PgPool,
    settings: StoreSettings,
    installation: Arc<str>,
    schema: Schema,
    /// The job up to which the count repair has walked.
    repaired: Arc<AtomicI64>,
    /// Where hints are listened for; `None`: `database.listen` is off.
    listen: Option<Arc<PgConnectOptions>>,
    /// Queue keys never change once given.
    queue_keys: Arc<RwLock<BTreeMap<String, QueueId>>>,
}

impl PostgresStore {
    /// A statement for the schema of this database.
    fn sql(&self, statement: &'static str) -> &'static str {
        self.schema.sql(statement)
    }

    fn pool(&self) -> Pool {
        self.connections.pool()
    }

    async fn bounded<T, F>(&self, verb: impl FnMut() -> F) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>>,
    {
        self.connections.bounded(verb).await
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn ready(&self) -> StoreResult<()> {
        self.bounded(|| connect::ready(self.pool())).await
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn installation(&self) -> &str {
        &self.installation
    }

    async fn wakeups(&self) -> StoreResult<Option<BoxStream<'static, ()>>> {
        self.bounded(|| self.listen_for_wakeups()).await
    }

    async fn wake_others(&self) -> StoreResult<()> {
        self.bounded(|| self.notify()).await
    }

    async fn job_submit(&self, job: NewJob) -> StoreResult<Submitted> {
        self.submit(job).await
    }

    async fn job_get_visible(&self, job_id: &JobId, visible: &Visible) -> StoreResult<Option<Job>> {
        self.bounded(|| self.get_job(job_id, visible)).await
    }

    async fn jobs_get(&self, job_ids: &[JobId]) -> StoreResult<Vec<Job>> {
        self.bounded(|| self.get_jobs(job_ids)).await
    }

    async fn jobs_list(&self, filter: &JobFilter) -> StoreResult<Page<Job, i64>> {
        self.bounded(|| self.list_jobs(filter)).await
    }

    async fn chunks_list(
        &self,
        job_id: &JobId,
        status: Option<ChunkStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Page<ChunkRow, String>> {
        self.bounded(|| self.list_chunks(job_id, status, after, limit)).await
    }

    async fn files_list(
        &self,
        job_id: &JobId,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Page<ManifestRow, String>> {
        self.bounded(|| self.list_files(job_id, after, limit)).await
    }

    async fn file_get(&self, job_id: &JobId, file: ChunkId) -> StoreResult<Option<ManifestRow>> {
        self.bounded(|| self.get_file(job_id, file)).await
    }

    async fn files_recorded(
        &self,
        dataset: &str,
        scope: &str,
        variant: &str,
        wanted: &[(String, NaiveDate)],
    ) -> StoreResult<Vec<(FileIdentity, FileRecord)>> {
        self.bounded(|| self.recorded_files(dataset, scope, variant, wanted)).await
    }

    async fn jobs_submit(&self, jobs: Vec<NewJob>) -> StoreResult<Vec<Submitted>> {
        self.submit_all(jobs).await
    }

    async fn steps_list(&self, job_id: &JobId) -> StoreResult<Vec<StepRow>> {
        self.bounded(|| self.list_steps(job_id)).await
    }

    async fn history_list(
        &self,
        job_id: &JobId,
        chunk_key: Option<&str>,
        after: Option<HistoryCursor>,
        limit: u32,
    ) -> StoreResult<Page<Transition, HistoryCursor>> {
        self.bounded(|| self.list_history(job_id, chunk_key, after, limit)).await
    }

    async fn dead_letters_list(
        &self,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: u32,
    ) -> StoreResult<Page<DeadLetter, DeadLetterCursor>> {
        self.bounded(|| self.list_dead_letters(filter, after, limit)).await
    }

    async fn dead_letters_count(&self, filter: &DeadLetterFilter) -> StoreResult<u64> {
        self.bounded(|| self.count_dead_letters(filter)).await
    }

    async fn dead_letters_redrive(
        &self,
        filter: &DeadLetterFilter,
        limit: u32,
        by: Option<&Redriver>,
    ) -> StoreResult<u64> {
        self.bounded(|| self.redrive_dead_letters(filter, limit, by)).await
    }

    async fn steps_recorded(&self, lease: Lease) -> StoreResult<Option<Vec<StepRecord>>> {
        self.bounded(|| self.recorded_steps(lease)).await
    }

    async fn step_record(&self, lease: Lease, name: &str, result: &str) -> StoreResult<bool> {
        self.bounded(|| self.record_step(lease, name, result)).await
    }

    async fn job_cancel(&self, job_id: &JobId) -> StoreResult<Cancelled> {
        self.bounded(|| self.cancel_job(job_id)).await
    }

    async fn job_prioritise(&self, job_id: &JobId, priority: u8) -> StoreResult<Prioritised> {
        self.bounded(|| self.prioritise_job(job_id, priority)).await
    }

    async fn job_redrive(&self, job_id: &JobId) -> StoreResult<Redriven> {
        self.bounded(|| self.redrive_job(job_id)).await
    }

    async fn queues_sync(&self, queues: &[QueueSpec]) -> StoreResult<BTreeMap<String, QueueId>> {
        self.bounded(|| self.sync_queues(queues)).await
    }

    async fn queues_list(&self) -> StoreResult<Vec<QueueRow>> {
        self.bounded(|| self.list_queues()).await
    }

    async fn queue_pause(&self, name: &str, paused: bool) -> StoreResult<bool> {
        self.bounded(|| self.pause_queue(name, paused)).await
    }

    async fn slots_take(&self, worker: WorkerId, queue: QueueId, count: u32) -> StoreResult<Vec<Slot>> {
        self.bounded(|| self.take_slots(worker, queue, count)).await
    }

    async fn slots_release(&self, worker: WorkerId, slots: &[Slot]) -> StoreResult<()> {
        self.bounded(|| self.release_slots(worker, slots)).await
    }

    async fn worker_register(&self, worker: &NewWorker) -> StoreResult<WorkerId> {
        self.bounded(|| self.register_worker(worker)).await
    }

    async fn worker_leave(&self, worker: WorkerId) -> StoreResult<()> {
        self.bounded(|| self.forget_worker(worker)).await
    }

    async fn workers_list(&self, within: Duration) -> StoreResult<Vec<WorkerRow>> {
        self.bounded(|| self.list_workers(within)).await
    }

    async fn chunks_claim(
        &self,
        worker: WorkerId,
        wants: &[Want],
        total: u32,
    ) -> StoreResult<Vec<ClaimedChunk>> {
        self.bounded(|| self.claim(worker, wants, total)).await
    }

    async fn chunks_claim_named(
        &self,
        worker: WorkerId,
        names: &[ChunkName],
        wants: &[Want],
        total: u32,
    ) -> StoreResult<NamedClaims> {
        self.bounded(|| self.claim_named(worker, names, wants, total)).await
    }

    async fn announcements_take(
        &self,
        queues: &[QueueId],
        window: u32,
        limit: u32,
    ) -> StoreResult<Vec<Announcement>> {
        self.bounded(|| self.take_announcements(queues, window, limit)).await
    }

    async fn announcements_confirm(
        &self,
        announcements: &[Announcement],
        expiry: Duration,
    ) -> StoreResult<()> {
        self.bounded(|| self.confirm_announcements(announcements, expiry)).await
    }

    async fn announcements_clear(&self, chunks: &[ChunkId]) -> StoreResult<()> {
        self.bounded(|| self.clear_announcements(chunks)).await
    }
    async fn announcements_defer(&self, chunks: &[ChunkId], wait: Duration) -> StoreResult<()> {
        self.bounded(|| self.defer_announcements(chunks, wait)).await
    }

    async fn announcements_doubt(&self) -> StoreResult<()> {
        self.bounded(|| self.doubt_announcements()).await
    }

    async fn outbox_put(&self, messages: &[NewOutboxMessage]) -> StoreResult<()> {
        self.bounded(|| self.put_outbox(messages)).await
    }

    async fn outbox_take(&self, limit: u32) -> StoreResult<Vec<OutboxMessage>> {
        self.bounded(|| self.take_outbox(limit)).await
    }

    async fn outbox_delete(&self, ids: &[i64]) -> StoreResult<()> {
        self.bounded(|| self.delete_outbox(ids)).await
    }

    async fn vacuum_lag(&self) -> StoreResult<Option<VacuumLag>> {
        self.bounded(|| self.lag_of_vacuum()).await.map(Some)
    }

    async fn delivery_lag(&self) -> StoreResult<DeliveryLag> {
        self.bounded(|| self.lag_of_delivery()).await
    }

    async fn chunks_heartbeat(
        &self,
        worker: WorkerId,
        leases: &[Lease],
        slots: &[Slot],
    ) -> StoreResult<Beat> {
        self.bounded(|| self.heartbeat(worker, leases, slots)).await
    }

    async fn chunks_of_worker(&self, worker: WorkerId) -> StoreResult<Vec<Lease>> {
        self.bounded(|| self.of_worker(worker)).await
    }

    async fn chunks_cancelled(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        self.bounded(|| self.cancelled_of(leases)).await
    }

    async fn chunks_running(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        self.bounded(|| self.running_of(leases)).await
    }

    async fn chunk_may_publish(&self, lease: Lease) -> StoreResult<bool> {
        self.bounded(|| self.may_publish(lease)).await
    }

    async fn progress_record(&self, progress: &[Progress]) -> StoreResult<()> {
        self.bounded(|| self.record_progress(progress)).await
    }

    async fn chunks_finish(&self, finishes: &[Finish]) -> StoreResult<Vec<Lease>> {
        self.bounded(|| self.finish(finishes)).await
    }

    async fn chunks_fail(&self, failures: &[Failure]) -> StoreResult<Vec<Settled>> {
        self.bounded(|| self.fail(failures)).await
    }

    async fn chunks_return(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        self.bounded(|| self.give_back(leases)).await
    }

    async fn chunk_snooze(&self, lease: Lease, wait: Duration) -> StoreResult<bool> {
        self.bounded(|| self.snooze(lease, wait)).await
    }

    async fn chunks_cancel(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        self.bounded(|| self.cancel_chunks(leases)).await
    }

    async fn file_begin(&self, begin: &FileBegin) -> StoreResult<FileBegun> {
        self.bounded(|| self.begin_file(begin)).await
    }

    async fn base_paths(&self) -> StoreResult<Vec<BasePathOwner>> {
        self.bounded(|| self.base_path_owners()).await
    }

    async fn file_upload(&self, lease: Lease, identity: &FileIdentity, upload: &Upload) -> StoreResult<bool> {
        self.bounded(|| self.record_upload(lease, identity, upload)).await
    }

    async fn files_leftover(&self, limit: u32) -> StoreResult<Vec<Unfinished>> {
        self.bounded(|| self.leftovers(limit)).await
    }

    async fn file_leftover_removed(&self, leftover: &Leftover) -> StoreResult<()> {
        self.bounded(|| self.leftover_removed(leftover)).await
    }

    async fn file_leftover_replaced(&self, leftover: &Leftover, generation: i64) -> StoreResult<()> {
        self.bounded(|| self.leftover_replaced(leftover, generation)).await
    }

    async fn sweeps_due(&self) -> StoreResult<SweepsDue> {
        self.bounded(|| self.due_sweeps()).await
    }

    async fn chunks_stage(&self, limit: u32) -> StoreResult<Staged> {
        self.bounded(|| self.stage(limit)).await
    }

    async fn chunks_expired(
        &self,
        known: &[String],
        abandoned: Duration,
        limit: u32,
    ) -> StoreResult<Vec<ExpiredChunk>> {
        self.bounded(|| self.expired(known, abandoned, limit)).await
    }

    async fn counts_repair(&self, quiet: Duration, limit: u32) -> StoreResult<u64> {
        self.bounded(|| self.repair_counts(quiet, limit)).await
    }

    async fn jobs_prune(&self, keep: Duration, limit: u32) -> StoreResult<u64> {
        self.bounded(|| self.prune_jobs(keep, limit)).await
    }

    async fn workers_prune(&self) -> StoreResult<u64> {
        self.bounded(|| self.prune_workers()).await
    }

    async fn schedule_put(&self, schedule: &NewSchedule) -> StoreResult<Put> {
        self.bounded(|| self.put_schedule(schedule)).await
    }

    async fn schedules_configured(&self, schedules: &[NewSchedule]) -> StoreResult<()> {
        self.bounded(|| self.configure_schedules(schedules)).await
    }

    async fn schedule_get(&self, name: &str) -> StoreResult<Option<Schedule>> {
        self.bounded(|| self.get_schedule(name)).await
    }

    async fn schedules_list(&self) -> StoreResult<Vec<Schedule>> {
        self.bounded(|| self.list_schedules()).await
    }

    async fn schedule_delete(&self, name: &str) -> StoreResult<Deleted> {
        self.bounded(|| self.delete_schedule(name)).await
    }

    async fn schedule_pause(&self, name: &str) -> StoreResult<bool> {
        self.bounded(|| self.pause_schedule(name)).await
    }

    async fn schedule_resume(&self, name: &str, next: Option<NextSlot>) -> StoreResult<bool> {
        self.bounded(|| self.resume_schedule(name, next)).await
    }

    async fn schedule_slots(&self, name: &str, limit: u32) -> StoreResult<Vec<SlotRow>> {
        self.bounded(|| self.list_slots(name, limit)).await
    }

    async fn schedules_due(&self, at: Option<DateTime<Utc>>, limit: u32) -> StoreResult<DueSchedules> {
        self.bounded(|| self.due_schedules(at, limit)).await
    }

    async fn schedule_fire(&self, fire: ScheduleFire) -> StoreResult<ScheduleFired> {
        self.bounded(|| self.fire_schedule(fire.clone())).await
    }

    async fn trigger_put(&self, trigger: &NewTrigger) -> StoreResult<TriggerPut> {
        self.bounded(|| self.put_trigger(trigger)).await
    }

    async fn triggers_configured(&self, triggers: &[NewTrigger]) -> StoreResult<Option<Vec<String>>> {
        self.bounded(|| self.configure_triggers(triggers)).await
    }

    async fn trigger_get(&self, name: &str) -> StoreResult<Option<Trigger>> {
        self.bounded(|| self.get_trigger(name)).await
    }

    async fn triggers_list(&self) -> StoreResult<Vec<Trigger>> {
        self.bounded(|| self.list_triggers()).await
    }

    async fn trigger_delete(&self, name: &str) -> StoreResult<Deleted> {
        self.bounded(|| self.delete_trigger(name)).await
    }

    async fn trigger_fires(&self, trigger: TriggerId, limit: u32) -> StoreResult<Vec<TriggerFire>> {
        self.bounded(|| self.list_fires(trigger, limit)).await
    }

    async fn trigger_waits(&self, trigger: TriggerId, limit: u32) -> StoreResult<Vec<TriggerWait>> {
        self.bounded(|| self.list_waits(trigger, limit)).await
    }

    async fn triggers_match(&self, limit: u32) -> StoreResult<u64> {
        self.bounded(|| self.match_triggers(limit)).await
    }

    async fn trigger_fires_due(&self, limit: u32) -> StoreResult<Vec<DueFire>> {
        self.bounded(|| self.due_fires(limit)).await
    }

    async fn trigger_fire(&self, fire: i64, plan: FirePlan) -> StoreResult<Option<TriggerFire>> {
        self.bounded(|| self.fire_trigger(fire, plan.clone())).await
    }

    async fn firings_prune(&self, keep: Duration, limit: u32) -> StoreResult<u64> {
        self.bounded(|| self.prune_firings(keep, limit)).await
    }

    async fn audit_list(
        &self,
        filter: &AuditFilter,
        before: Option<i64>,
        limit: u32,
    ) -> StoreResult<Page<AuditRow, i64>> {
        self.bounded(|| self.list_audit(filter, before, limit)).await
    }

    async fn audit_record(&self, entries: &[AuditEntry]) -> StoreResult<()> {
        self.bounded(|| self.record_audit(entries)).await
    }

    async fn audit_prune(&self, keep: Duration, limit: u32) -> StoreResult<u64> {
        self.bounded(|| self.prune_audit(keep, limit)).await
    }
}
