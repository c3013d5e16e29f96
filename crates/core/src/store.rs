//! The store port: every act on jobs and chunks, named after what happens to them. One conformance
//! suite runs against every implementation; the `.sql` files carry the same names.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, NaiveDate, Utc};
use futures::stream::BoxStream;

use crate::announcement::{Announcement, ChunkName, DeliveryLag, NamedClaims};
use crate::audit::{AuditEntry, AuditFilter, AuditRow};
use crate::dead_letter::{DeadLetter, DeadLetterCursor, DeadLetterFilter};
use crate::file::{
    BasePathOwner, FileBegin, FileBegun, FileIdentity, FileRecord, Leftover, ManifestRow, Unfinished, Upload,
};
use crate::history::{HistoryCursor, Transition};
use crate::id::{ChunkId, JobId, Lease, QueueId, WorkerId};
use crate::identity::Visible;
use crate::job::{ChunkRow, Job, JobStatus, NewJob};
use crate::outbox::{NewOutboxMessage, OutboxMessage};
use crate::progress::Progress;
use crate::queue::{QueueRow, QueueSpec};
use crate::schedule::{
    Deleted, DueSchedules, NewSchedule, NextSlot, Put, Schedule, ScheduleFire, ScheduleFired, SlotRow,
};
use crate::state::ChunkStatus;
use crate::step::{StepRecord, StepRow};
use crate::trigger::{
    DueFire, FirePlan, NewTrigger, Trigger, TriggerFire, TriggerId, TriggerPut, TriggerWait,
};
use crate::vacuum::VacuumLag;
use crate::worker::{
    Beat, ClaimedChunk, ExpiredChunk, Failure, Finish, NewWorker, Settled, Slot, Want, WorkerRow,
};

/// Why a store call did not happen.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, is read-only, full or restarting: try again later.
    #[error("the database is not available: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database holds a newer schema than this binary knows.
    #[error("the database has schema version {found}, this binary knows {known}: use a newer outhaul")]
    NewerSchema {
        /// What the database has.
        found: i64,
        /// What this binary was built with.
        known: i64,
    },
    /// The database is set up in a way that could lose acknowledged work.
    #[error("the database is not safe to use: {0}")]
    Unsafe(String),
    /// The request names a queue that no process has made.
    #[error("there is no queue `{0}`")]
    UnknownQueue(String),
    /// A defect of ours.
    #[error("the database refused a statement: {0}")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Result of a store call.
pub type StoreResult<T> = Result<T, StoreError>;

/// How a submission ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Submitted {
    /// A new job was stored.
    Created(Job),
    /// The key names this job already, and the request is the same.
    Existing(Job),
    /// The key names another request.
    KeyConflict,
    /// An equal job that may be there only once has not ended yet: this one.
    Duplicate(Job),
    /// These parents are not there, or are not the owner's; nothing was stored.
    NoSuchParents(Vec<JobId>),
    /// The owner would have more open chunks than their quota allows; they have so many now.
    OverQuota(u64),
}

/// How a cancellation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The job is CANCELLED now, by this call and no other.
    Yes,
    /// The job had been cancelled before.
    Already,
    /// The job had already ended so.
    TooLate(JobStatus),
    /// There is no such job.
    Unknown,
}

/// How a change of priority ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prioritised {
    /// It has the priority now.
    Yes,
    /// The job had already ended so.
    TooLate(JobStatus),
    /// There is no such job.
    Unknown,
}

/// How a redrive ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redriven {
    /// So many chunks are QUEUED again.
    Yes(i64),
    /// It has no dead or held chunks, or is CANCELLED.
    Nothing,
    /// An equal job that may be there only once was submitted since, and has not ended.
    Duplicate,
    /// There is no such job.
    Unknown,
}

/// Who redrives dead letters, for the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redriver {
    /// The subject.
    pub actor: String,
    /// More about it, such as the filter. Never a payload, never a secret.
    pub detail: Option<String>,
}

/// Which jobs to list; newest first.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Only this status.
    pub status: Option<JobStatus>,
    /// Only this job type.
    pub job_type: Option<String>,
    /// Only this dataset.
    pub dataset: Option<String>,
    /// Only this owner.
    pub owner: Option<String>,
    /// Only what the asker may see.
    pub visible: Visible,
    /// Only jobs created at or after this moment.
    pub created_after: Option<DateTime<Utc>>,
    /// Only jobs created before this moment.
    pub created_before: Option<DateTime<Utc>>,
    /// Only jobs older than this one (its internal position, from the previous page).
    pub before: Option<i64>,
    /// At most this many.
    pub limit: u32,
}

/// A page of a list, with where the next one starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T, C> {
    /// The rows.
    pub items: Vec<T>,
    /// Pass this to get the next page; `None`: this was the last.
    pub next: Option<C>,
}

/// What one round of the stager did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staged {
    /// CREATED or RETRY → QUEUED.
    pub queued: u64,
    /// QUEUED or RETRY → CREATED (held), of FAILED jobs.
    pub held: u64,
    /// CREATED, QUEUED or RETRY → CANCELLED, of CANCELLED jobs.
    pub cancelled: u64,
    /// FAILED or CANCELLED jobs that got their `completedAt`.
    pub settled: u64,
    /// Waits of jobs for their parents that came to an end.
    pub released: u64,
}

/// Which sweeps have something to do, and when the next one has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepsDue {
    /// [`Store::chunks_stage`] may have something to do.
    pub stage: bool,
    /// A schedule is due.
    pub schedules: bool,
    /// A completed job is to be judged by triggers, or a trigger is to fire.
    pub triggers: bool,
    /// The time until the next chunk or schedule is due; `None`: none has a time.
    pub next: Option<Duration>,
}

/// How the store behaves for its callers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoreSettings {
    /// How long a claim holds without a heartbeat.
    pub lease: Duration,
    /// How far apart the chunks of one job queue up.
    pub fairness_step: Duration,
    /// How long an idempotency key is held after its job finished.
    pub idempotency_window: Duration,
    /// Whether a chunk that dies leaves a parking message in the outbox, for a broker.
    pub parking: bool,
}

/// Jobs, chunks, queues, files and workers in a database. All times are the database's own.
#[async_trait]
pub trait Store: Send + Sync {
    /// Whether the database answers and takes writes.
    async fn ready(&self) -> StoreResult<()>;

    /// The store itself, for callers that know which one it is and need what only that one can do.
    fn as_any(&self) -> &dyn Any;

    /// A random name of this database, the same for every process on it; it marks our sessions on sources.
    fn installation(&self) -> &str;

    /// Hints from other processes that chunks became QUEUED; `None` where there are no others, or
    /// where `database.listen` is off.
    async fn wakeups(&self) -> StoreResult<Option<BoxStream<'static, ()>>>;

    /// Tells other processes that chunks became QUEUED. A hint, outside any hot transaction.
    async fn wake_others(&self) -> StoreResult<()>;

    // --- submission and reading ---

    /// Stores a job with all its chunks in one transaction, or finds the one its key names.
    async fn job_submit(&self, job: NewJob) -> StoreResult<Submitted>;

    /// Stores many jobs in one transaction; the answers stand in the order of the jobs.
    async fn jobs_submit(&self, jobs: Vec<NewJob>) -> StoreResult<Vec<Submitted>>;

    /// One job.
    async fn job_get(&self, job_id: &JobId) -> StoreResult<Option<Job>> {
        self.job_get_visible(job_id, &Visible::All).await
    }

    /// One job, if the caller may see it. Somebody else's job is not read, so that asking for it takes as long as
    /// asking for a job that does not exist.
    async fn job_get_visible(&self, job_id: &JobId, visible: &Visible) -> StoreResult<Option<Job>>;

    /// These jobs, as far as they are there, in any order; for those who watch them.
    async fn jobs_get(&self, job_ids: &[JobId]) -> StoreResult<Vec<Job>>;

    /// Jobs, newest first.
    async fn jobs_list(&self, filter: &JobFilter) -> StoreResult<Page<Job, i64>>;

    /// Chunks of a job by chunk key, after the given one.
    async fn chunks_list(
        &self,
        job_id: &JobId,
        status: Option<ChunkStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Page<ChunkRow, String>>;

    /// Files of a job by chunk key, after the given one.
    async fn files_list(
        &self,
        job_id: &JobId,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Page<ManifestRow, String>>;

    /// One file of a job.
    async fn file_get(&self, job_id: &JobId, file: ChunkId) -> StoreResult<Option<ManifestRow>>;

    /// The recorded files of many keys and dates of one dataset, scope and variant, for `dryRun`.
    async fn files_recorded(
        &self,
        dataset: &str,
        scope: &str,
        variant: &str,
        wanted: &[(String, NaiveDate)],
    ) -> StoreResult<Vec<(FileIdentity, FileRecord)>>;

    /// The finished steps of a job, in the order in which they were recorded.
    async fn steps_list(&self, job_id: &JobId) -> StoreResult<Vec<StepRow>>;

    /// Transitions of a job's chunks, or of one of them, oldest first, after the given place.
    async fn history_list(
        &self,
        job_id: &JobId,
        chunk_key: Option<&str>,
        after: Option<HistoryCursor>,
        limit: u32,
    ) -> StoreResult<Page<Transition, HistoryCursor>>;

    /// Dead letters, newest first, after the given place.
    async fn dead_letters_list(
        &self,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: u32,
    ) -> StoreResult<Page<DeadLetter, DeadLetterCursor>>;

    /// How many dead letters match that a redrive may move: not those of CANCELLED jobs.
    async fn dead_letters_count(&self, filter: &DeadLetterFilter) -> StoreResult<u64>;

    /// The audit trail, newest first, before the given place.
    async fn audit_list(
        &self,
        filter: &AuditFilter,
        before: Option<i64>,
        limit: u32,
    ) -> StoreResult<Page<AuditRow, i64>>;

    // --- what people do to jobs ---

    /// Adds to the audit trail. Submissions are there already: they are recorded with their jobs. So are redrives
    /// of dead letters.
    async fn audit_record(&self, entries: &[AuditEntry]) -> StoreResult<()>;

    /// Marks a job CANCELLED; its chunks follow in sweeps.
    async fn job_cancel(&self, job_id: &JobId) -> StoreResult<Cancelled>;

    /// Gives a job and all its chunks that have not started another priority.
    async fn job_prioritise(&self, job_id: &JobId, priority: u8) -> StoreResult<Prioritised>;

    /// Queues a job's dead and held chunks again, in one guarded transaction.
    async fn job_redrive(&self, job_id: &JobId) -> StoreResult<Redriven>;

    /// Queues up to `limit` dead letters again, the oldest first, with what was held because of them;
    /// returns how many. One guarded transaction per job, in which it is recorded that they were redriven by
    /// whom; `None`: nobody is known, and nothing is recorded.
    async fn dead_letters_redrive(
        &self,
        filter: &DeadLetterFilter,
        limit: u32,
        by: Option<&Redriver>,
    ) -> StoreResult<u64>;

    // --- schedules ---

    /// Stores a schedule under its name. What it waits for is kept if cron, time zone and jitter are
    /// as they were; so is its pause. A schedule of the configuration takes the place of one of the API.
    async fn schedule_put(&self, schedule: &NewSchedule) -> StoreResult<Put>;

    /// Makes the schedules of the configuration these and no others, in one transaction.
    async fn schedules_configured(&self, schedules: &[NewSchedule]) -> StoreResult<()>;

    /// One schedule.
    async fn schedule_get(&self, name: &str) -> StoreResult<Option<Schedule>>;

    /// All schedules by name, without their `job`, which may be large.
    async fn schedules_list(&self) -> StoreResult<Vec<Schedule>>;

    /// Deletes a schedule with its slots; jobs it submitted stay. Never one of the configuration.
    async fn schedule_delete(&self, name: &str) -> StoreResult<Deleted>;

    /// Lets a schedule fire nothing; `false`: there is none.
    async fn schedule_pause(&self, name: &str) -> StoreResult<bool>;

    /// Lets a schedule fire again, from `next` on; one that is not paused is left as it is. `false`:
    /// there is none.
    async fn schedule_resume(&self, name: &str, next: Option<NextSlot>) -> StoreResult<bool>;

    /// The last slots of a schedule, newest first.
    async fn schedule_slots(&self, name: &str, limit: u32) -> StoreResult<Vec<SlotRow>>;

    /// Schedules that are not paused and whose `fire_at` is not after `at`, or the database's now.
    async fn schedules_due(&self, at: Option<DateTime<Utc>>, limit: u32) -> StoreResult<DueSchedules>;

    /// Records slots, submits their jobs and moves the schedule on, in one guarded transaction. A slot
    /// that is recorded already is left out of the answer.
    async fn schedule_fire(&self, fire: ScheduleFire) -> StoreResult<ScheduleFired>;

    // --- triggers ---

    /// Stores a trigger under its name, unless it would trigger itself. A trigger of the configuration
    /// takes the place of one of the API.
    async fn trigger_put(&self, trigger: &NewTrigger) -> StoreResult<TriggerPut>;

    /// Makes the triggers of the configuration these and no others, in one transaction; the names of a
    /// cycle, and nothing stored, if there would be one.
    async fn triggers_configured(&self, triggers: &[NewTrigger]) -> StoreResult<Option<Vec<String>>>;

    /// One trigger.
    async fn trigger_get(&self, name: &str) -> StoreResult<Option<Trigger>>;

    /// All triggers by name, without their `job`, which may be large.
    async fn triggers_list(&self) -> StoreResult<Vec<Trigger>>;

    /// Deletes a trigger with its firings; jobs it submitted stay. Never one of the configuration.
    async fn trigger_delete(&self, name: &str) -> StoreResult<Deleted>;

    /// The last firings of a trigger, newest first.
    async fn trigger_fires(&self, trigger: TriggerId, limit: u32) -> StoreResult<Vec<TriggerFire>>;

    /// Values for which a trigger waits for the rest of its terms, the newest arrival first.
    async fn trigger_waits(&self, trigger: TriggerId, limit: u32) -> StoreResult<Vec<TriggerWait>>;

    /// Judges COMPLETED jobs that triggers ask for, in the order in which they completed, and records the
    /// firings that became due; returns how many jobs were judged.
    async fn triggers_match(&self, limit: u32) -> StoreResult<u64>;

    /// Firings whose jobs are to be made, oldest first.
    async fn trigger_fires_due(&self, limit: u32) -> StoreResult<Vec<DueFire>>;

    /// Submits the job of a due firing, or records why there is none, in one guarded transaction;
    /// `None`: it is no longer due, and nothing was done.
    async fn trigger_fire(&self, fire: i64, plan: FirePlan) -> StoreResult<Option<TriggerFire>>;

    // --- queues and budgets ---

    /// Makes sure that these queues and their budget slots exist; returns their keys by name.
    async fn queues_sync(&self, queues: &[QueueSpec]) -> StoreResult<BTreeMap<String, QueueId>>;

    /// All queues as they are now.
    async fn queues_list(&self) -> StoreResult<Vec<QueueRow>>;

    /// Pauses or resumes a queue; `false`: there is no such queue.
    async fn queue_pause(&self, name: &str, paused: bool) -> StoreResult<bool>;

    /// Takes up to `count` free or expired budget slots of a queue.
    async fn slots_take(&self, worker: WorkerId, queue: QueueId, count: u32) -> StoreResult<Vec<Slot>>;

    /// Gives budget slots back.
    async fn slots_release(&self, worker: WorkerId, slots: &[Slot]) -> StoreResult<()>;

    // --- workers ---

    /// Makes a process known and gives it an identity of its own.
    async fn worker_register(&self, worker: &NewWorker) -> StoreResult<WorkerId>;

    /// Forgets a process that stops, and frees its slots.
    async fn worker_leave(&self, worker: WorkerId) -> StoreResult<()>;

    /// All processes seen within `within`.
    async fn workers_list(&self, within: Duration) -> StoreResult<Vec<WorkerRow>>;

    // --- running chunks ---

    /// Claims QUEUED chunks by priority, then turn: at most `limit` of each queue and `total` in all.
    async fn chunks_claim(
        &self,
        worker: WorkerId,
        wants: &[Want],
        total: u32,
    ) -> StoreResult<Vec<ClaimedChunk>>;

    /// Claims the named chunks that are QUEUED, under the same guards: at most `limit` of each wanted queue
    /// and `total` in all, in the order of the names; and says of the others why not. The announcement of one
    /// without a slot is deferred with the claim, in the same transaction. Where nothing is wanted, nothing is
    /// claimed or deferred, and the answer says which chunks these are.
    async fn chunks_claim_named(
        &self,
        worker: WorkerId,
        names: &[ChunkName],
        wants: &[Want],
        total: u32,
    ) -> StoreResult<NamedClaims>;

    /// Renews leases and slots of a worker in one statement.
    async fn chunks_heartbeat(&self, worker: WorkerId, leases: &[Lease], slots: &[Slot])
    -> StoreResult<Beat>;

    /// The leases of all chunks that this worker runs according to the store.
    async fn chunks_of_worker(&self, worker: WorkerId) -> StoreResult<Vec<Lease>>;

    /// Which of these leases belong to CANCELLED jobs.
    async fn chunks_cancelled(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>>;

    /// The leases among these whose chunks are RUNNING. All other attempts have ended and never run again.
    async fn chunks_running(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>>;

    /// Whether the lease is still held, unexpired, and its job not CANCELLED: asked right before publishing.
    async fn chunk_may_publish(&self, lease: Lease) -> StoreResult<bool>;

    /// Records how far running chunks are, under their fences; what was lost is left out. Never backwards.
    async fn progress_record(&self, progress: &[Progress]) -> StoreResult<()>;

    /// Records successes with their files and the jobs' counts, in one transaction. What is not in
    /// the answer was lost.
    async fn chunks_finish(&self, finishes: &[Finish]) -> StoreResult<Vec<Lease>>;

    /// Records failures; what is not in the answer was lost (or, if `expired`, renewed meanwhile).
    async fn chunks_fail(&self, failures: &[Failure]) -> StoreResult<Vec<Settled>>;

    /// Gives chunks back uncounted; what is not in the answer was lost or given back too often.
    async fn chunks_return(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>>;

    /// Lets a chunk sleep uncounted for `wait`; `false`: the lease was lost.
    async fn chunk_snooze(&self, lease: Lease, wait: Duration) -> StoreResult<bool>;

    /// Records that owners stopped chunks of CANCELLED jobs; what is not in the answer was lost.
    async fn chunks_cancel(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>>;

    // --- steps ---

    /// What earlier attempts of this chunk recorded; `None`: the lease is lost.
    async fn steps_recorded(&self, lease: Lease) -> StoreResult<Option<Vec<StepRecord>>>;

    /// Records a step's result (JSON text) under the fence; `false`: the lease is lost. Repeating it
    /// under the same fence changes nothing and is `true`.
    async fn step_record(&self, lease: Lease, name: &str, result: &str) -> StoreResult<bool>;

    // --- files ---

    /// Finds a file to reuse, or makes the chunk the one writer of the identity. The base path belongs for ever to the
    /// dataset of its first writer; writers of other datasets are refused.
    async fn file_begin(&self, begin: &FileBegin) -> StoreResult<FileBegun>;

    /// All base paths with their owners, by path. There are about as many as datasets.
    async fn base_paths(&self) -> StoreResult<Vec<BasePathOwner>>;

    /// Records a multipart upload under the writer's fence; `false`: no longer the writer.
    async fn file_upload(&self, lease: Lease, identity: &FileIdentity, upload: &Upload) -> StoreResult<bool>;

    /// Identities whose writer no longer runs, with the writer's staged files and the recorded file.
    async fn files_leftover(&self, limit: u32) -> StoreResult<Vec<Unfinished>>;

    /// Forgets a leftover that was removed, unless a new writer took its place.
    async fn file_leftover_removed(&self, leftover: &Leftover) -> StoreResult<()>;

    /// Forgets a leftover whose writer replaced the recorded file in the storage: the generation rises by one, and no
    /// file is recorded for it. Changes nothing if a new writer took over, or if another generation is recorded.
    async fn file_leftover_replaced(&self, leftover: &Leftover, generation: i64) -> StoreResult<()>;

    // --- announcements and the outbox ---

    /// Marks QUEUED chunks of these queues as announced, in claim order, and returns them to be published:
    /// at most `limit`, and only so many that no queue has more than `window` announced and unclaimed. Not
    /// of paused queues, nor of jobs that ended. A queue that another relay looks at is left out.
    /// They count as announced for [`crate::announcement::ANNOUNCEMENT_HELD`].
    async fn announcements_take(
        &self,
        queues: &[QueueId],
        window: u32,
        limit: u32,
    ) -> StoreResult<Vec<Announcement>>;

    /// Notes that the broker has them: they count as announced for `expiry`, twice as long with every time
    /// that they ran out before (32 times at most). Only under the mark that the caller was given: what another
    /// relay has marked since is not touched, and what was cleared or deferred stays so, for its message was
    /// faster than this call.
    async fn announcements_confirm(
        &self,
        announcements: &[Announcement],
        expiry: Duration,
    ) -> StoreResult<()>;

    /// Lets chunks be announced again at once.
    async fn announcements_clear(&self, chunks: &[ChunkId]) -> StoreResult<()>;

    /// Lets chunks be announced again after `wait`, twice as long with every time that they were deferred
    /// before, up to [`crate::announcement::ANNOUNCEMENT_DEFERRED`]. Never later than they would have been.
    async fn announcements_defer(&self, chunks: &[ChunkId], wait: Duration) -> StoreResult<()>;

    /// The broker may have lost its messages: what is not claimed within
    /// [`crate::announcement::ANNOUNCEMENT_DOUBTED`] is announced again.
    async fn announcements_doubt(&self) -> StoreResult<()>;

    /// Puts messages into the outbox that tell of no chunk's death.
    async fn outbox_put(&self, messages: &[NewOutboxMessage]) -> StoreResult<()>;

    /// Messages of the outbox, oldest first; each is handed to one relay at a time, and to another when
    /// it is still there after [`crate::announcement::ANNOUNCEMENT_HELD`].
    async fn outbox_take(&self, limit: u32) -> StoreResult<Vec<OutboxMessage>>;

    /// Deletes messages that the broker has confirmed.
    async fn outbox_delete(&self, ids: &[i64]) -> StoreResult<()>;

    /// How far the relays are behind.
    async fn delivery_lag(&self) -> StoreResult<DeliveryLag>;

    /// How far vacuum is behind; `None`: the database keeps no dead rows.
    async fn vacuum_lag(&self) -> StoreResult<Option<VacuumLag>> {
        Ok(None)
    }

    // --- sweeps: guarded, batched, harmless in any number ---

    /// Which sweeps have something to do. One cheap look that stands for many: a sweep that would find nothing is not
    /// started.
    async fn sweeps_due(&self) -> StoreResult<SweepsDue>;

    /// Queues what became eligible, holds and cancels what must not start, settles ended jobs.
    async fn chunks_stage(&self, limit: u32) -> StoreResult<Staged>;

    /// RUNNING chunks whose lease ran out: those of the `known` job types, and those of other job types
    /// whose lease ran out longer ago than `abandoned`. Chunks of unknown types that are not abandoned yet do not count
    /// towards `limit`.
    async fn chunks_expired(
        &self,
        known: &[String],
        abandoned: Duration,
        limit: u32,
    ) -> StoreResult<Vec<ExpiredChunk>>;

    /// Corrects counts of unfinished jobs that have not moved for `quiet`; returns how many were wrong.
    async fn counts_repair(&self, quiet: Duration, limit: u32) -> StoreResult<u64>;

    /// Deletes jobs finished longer ago than `keep`, in batches; returns how many rows went.
    async fn jobs_prune(&self, keep: Duration, limit: u32) -> StoreResult<u64>;

    /// Deletes workers that have not been heard of for a day; returns how many.
    async fn workers_prune(&self) -> StoreResult<u64>;

    /// Deletes what the audit trail recorded longer ago than `keep`; returns how many rows went.
    async fn audit_prune(&self, keep: Duration, limit: u32) -> StoreResult<u64>;

    /// Deletes slots, firings and arrivals recorded longer ago than `keep`; returns how many rows went.
    async fn firings_prune(&self, keep: Duration, limit: u32) -> StoreResult<u64>;
}
