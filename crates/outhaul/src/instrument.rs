//! Spans and metrics around a store, once for every verb, so that stores hold SQL and nothing else.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    Cancelled, JobFilter, Page, Prioritised, Redriven, Redriver, Staged, Store, StoreResult, Submitted,
    SweepsDue,
};
use outhaul_core::trigger::{
    DueFire, FirePlan, NewTrigger, Trigger, TriggerFire, TriggerId, TriggerPut, TriggerWait,
};
use outhaul_core::vacuum::VacuumLag;
use outhaul_core::worker::{
    Beat, ClaimedChunk, ExpiredChunk, Failure, Finish, NewWorker, Settled, Slot, Want, WorkerRow,
};
use tracing::{Instrument, debug, debug_span};

/// A store that says how long each verb took (`outhaul_store_seconds`) and how often it failed
/// (`outhaul_store_errors_total`).
pub struct Instrumented<S: ?Sized = dyn Store> {
    inner: Arc<S>,
}

impl<S: Store + ?Sized> Instrumented<S> {
    /// Wraps a store.
    pub fn new(inner: Arc<S>) -> Self {
        Self { inner }
    }
}

async fn observe<T>(verb: &'static str, call: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
    let started = Instant::now();
    let answer = call.instrument(debug_span!("store", verb)).await;
    let seconds = started.elapsed().as_secs_f64();
    metrics::histogram!("outhaul_store_seconds", "verb" => verb).record(seconds);
    match &answer {
        Ok(_) => debug!(verb, seconds, "store.{verb}"),
        Err(error) => {
            metrics::counter!("outhaul_store_errors_total", "verb" => verb).increment(1);
            debug!(verb, seconds, %error, "store.{verb} failed");
        }
    }
    answer
}

/// Writes each verb once: its signature, and the call to the store inside.
macro_rules! verbs {
    ($($verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl<S: Store + ?Sized> Store for Instrumented<S> {
            fn as_any(&self) -> &dyn Any {
                self.inner.as_any()
            }

            fn installation(&self) -> &str {
                self.inner.installation()
            }

            $(async fn $verb(&self, $($name: $type),*) -> StoreResult<$answer> {
                observe(stringify!($verb), self.inner.$verb($($name),*)).await
            })*
        }
    };
}

verbs! {
    ready() -> ();
    wakeups() -> Option<BoxStream<'static, ()>>;
    wake_others() -> ();
    job_submit(job: NewJob) -> Submitted;
    jobs_submit(jobs: Vec<NewJob>) -> Vec<Submitted>;
    job_get(job_id: &JobId) -> Option<Job>;
    job_get_visible(job_id: &JobId, visible: &Visible) -> Option<Job>;
    jobs_get(job_ids: &[JobId]) -> Vec<Job>;
    jobs_list(filter: &JobFilter) -> Page<Job, i64>;
    chunks_list(job_id: &JobId, status: Option<ChunkStatus>, after: Option<&str>, limit: u32) -> Page<ChunkRow, String>;
    files_list(job_id: &JobId, after: Option<&str>, limit: u32) -> Page<ManifestRow, String>;
    file_get(job_id: &JobId, file: ChunkId) -> Option<ManifestRow>;
    files_recorded(dataset: &str, scope: &str, variant: &str, wanted: &[(String, NaiveDate)]) -> Vec<(FileIdentity, FileRecord)>;
    steps_list(job_id: &JobId) -> Vec<StepRow>;
    history_list(job_id: &JobId, chunk_key: Option<&str>, after: Option<HistoryCursor>, limit: u32) -> Page<Transition, HistoryCursor>;
    dead_letters_list(filter: &DeadLetterFilter, after: Option<DeadLetterCursor>, limit: u32) -> Page<DeadLetter, DeadLetterCursor>;
    dead_letters_count(filter: &DeadLetterFilter) -> u64;
    job_cancel(job_id: &JobId) -> Cancelled;
    job_prioritise(job_id: &JobId, priority: u8) -> Prioritised;
    job_redrive(job_id: &JobId) -> Redriven;
    dead_letters_redrive(filter: &DeadLetterFilter, limit: u32, by: Option<&Redriver>) -> u64;
    queues_sync(queues: &[QueueSpec]) -> BTreeMap<String, QueueId>;
    queues_list() -> Vec<QueueRow>;
    queue_pause(name: &str, paused: bool) -> bool;
    slots_take(worker: WorkerId, queue: QueueId, count: u32) -> Vec<Slot>;
    slots_release(worker: WorkerId, slots: &[Slot]) -> ();
    worker_register(worker: &NewWorker) -> WorkerId;
    worker_leave(worker: WorkerId) -> ();
    workers_list(within: Duration) -> Vec<WorkerRow>;
    chunks_claim(worker: WorkerId, wants: &[Want], total: u32) -> Vec<ClaimedChunk>;
    chunks_claim_named(worker: WorkerId, names: &[ChunkName], wants: &[Want], total: u32) -> NamedClaims;
    chunks_heartbeat(worker: WorkerId, leases: &[Lease], slots: &[Slot]) -> Beat;
    chunks_of_worker(worker: WorkerId) -> Vec<Lease>;
    chunks_cancelled(leases: &[Lease]) -> Vec<Lease>;
    chunks_running(leases: &[Lease]) -> Vec<Lease>;
    chunk_may_publish(lease: Lease) -> bool;
    progress_record(progress: &[Progress]) -> ();
    chunks_finish(finishes: &[Finish]) -> Vec<Lease>;
    chunks_fail(failures: &[Failure]) -> Vec<Settled>;
    chunks_return(leases: &[Lease]) -> Vec<Lease>;
    chunk_snooze(lease: Lease, wait: Duration) -> bool;
    chunks_cancel(leases: &[Lease]) -> Vec<Lease>;
    steps_recorded(lease: Lease) -> Option<Vec<StepRecord>>;
    step_record(lease: Lease, name: &str, result: &str) -> bool;
    file_begin(begin: &FileBegin) -> FileBegun;
    base_paths() -> Vec<BasePathOwner>;
    file_upload(lease: Lease, identity: &FileIdentity, upload: &Upload) -> bool;
    files_leftover(limit: u32) -> Vec<Unfinished>;
    file_leftover_removed(leftover: &Leftover) -> ();
    file_leftover_replaced(leftover: &Leftover, generation: i64) -> ();
    announcements_take(queues: &[QueueId], window: u32, limit: u32) -> Vec<Announcement>;
    announcements_confirm(announcements: &[Announcement], expiry: Duration) -> ();
    announcements_clear(chunks: &[ChunkId]) -> ();
    announcements_defer(chunks: &[ChunkId], wait: Duration) -> ();
    announcements_doubt() -> ();
    outbox_put(messages: &[NewOutboxMessage]) -> ();
    outbox_take(limit: u32) -> Vec<OutboxMessage>;
    outbox_delete(ids: &[i64]) -> ();
    vacuum_lag() -> Option<VacuumLag>;
    delivery_lag() -> DeliveryLag;
    sweeps_due() -> SweepsDue;
    chunks_stage(limit: u32) -> Staged;
    chunks_expired(known: &[String], abandoned: Duration, limit: u32) -> Vec<ExpiredChunk>;
    counts_repair(quiet: Duration, limit: u32) -> u64;
    jobs_prune(keep: Duration, limit: u32) -> u64;
    workers_prune() -> u64;
    schedule_put(schedule: &NewSchedule) -> Put;
    schedules_configured(schedules: &[NewSchedule]) -> ();
    schedule_get(name: &str) -> Option<Schedule>;
    schedules_list() -> Vec<Schedule>;
    schedule_delete(name: &str) -> Deleted;
    schedule_pause(name: &str) -> bool;
    schedule_resume(name: &str, next: Option<NextSlot>) -> bool;
    schedule_slots(name: &str, limit: u32) -> Vec<SlotRow>;
    schedules_due(at: Option<DateTime<Utc>>, limit: u32) -> DueSchedules;
    schedule_fire(fire: ScheduleFire) -> ScheduleFired;
    trigger_put(trigger: &NewTrigger) -> TriggerPut;
    triggers_configured(triggers: &[NewTrigger]) -> Option<Vec<String>>;
    trigger_get(name: &str) -> Option<Trigger>;
    triggers_list() -> Vec<Trigger>;
    trigger_delete(name: &str) -> Deleted;
    trigger_fires(trigger: TriggerId, limit: u32) -> Vec<TriggerFire>;
    trigger_waits(trigger: TriggerId, limit: u32) -> Vec<TriggerWait>;
    triggers_match(limit: u32) -> u64;
    trigger_fires_due(limit: u32) -> Vec<DueFire>;
    trigger_fire(fire: i64, plan: FirePlan) -> Option<TriggerFire>;
    firings_prune(keep: Duration, limit: u32) -> u64;
    audit_list(filter: &AuditFilter, before: Option<i64>, limit: u32) -> Page<AuditRow, i64>;
    audit_record(entries: &[AuditEntry]) -> ();
    audit_prune(keep: Duration, limit: u32) -> u64;
}
