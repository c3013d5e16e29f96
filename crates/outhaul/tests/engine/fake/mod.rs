//! A store in memory, for what a real one cannot be made to do: refuse a statement, be away for a
//! moment, lose a lease at will. Transitions are those of `core::state`, so that it cannot drift.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use chrono::{DateTime, NaiveDate, Utc};
use futures::StreamExt;
use futures::stream::BoxStream;
use outhaul::core::announcement::*;
use outhaul::core::audit::*;
use outhaul::core::clock;
use outhaul::core::dead_letter::*;
use outhaul::core::file::*;
use outhaul::core::history::*;
use outhaul::core::id::*;
use outhaul::core::identity::Visible;
use outhaul::core::job::*;
use outhaul::core::outbox::*;
use outhaul::core::progress::Progress;
use outhaul::core::queue::{QueueRow, QueueSpec};
use outhaul::core::schedule::*;
use outhaul::core::state::{self, Chunk, ChunkState, ChunkStatus, Event};
use outhaul::core::step::*;
use outhaul::core::store::*;
use outhaul::core::trigger::*;
use outhaul::core::worker::*;
use tokio::sync::watch;

mod claims;
mod handler;
mod mailbox;
mod rows;

pub(crate) use handler::{TestHandler, settings, start, start_on};
pub(crate) use mailbox::{Mailbox, Post};
pub(crate) use rows::{Row, Rows};

/// How long a slow machine may take for anything.
const PATIENCE: Duration = Duration::from_secs(300);

type Fault = Box<dyn FnMut(&str, &[Lease]) -> Option<StoreError> + Send>;

pub(crate) struct Fake {
    rows: Mutex<Rows>,
    fault: Mutex<Option<Fault>>,
    /// The verb whose answers wait, after it was done.
    held: watch::Sender<Option<&'static str>>,
    lease: Duration,
    pub(crate) changed: watch::Sender<u64>,
    /// Hints from "other processes".
    pub(crate) others: watch::Sender<u64>,
}

impl Fake {
    pub(crate) fn new(lease: Duration) -> std::sync::Arc<Self> {
        let (changed, others, held) = (watch::channel(0).0, watch::channel(0).0, watch::channel(None).0);
        let (rows, fault) = (Mutex::default(), Mutex::default());
        std::sync::Arc::new(Self { rows, fault, held, lease, changed, others })
    }

    /// Adds a QUEUED chunk to the first queue.
    pub(crate) fn add(&self, job_type: &str, key: &str) {
        self.add_to(0, job_type, key);
    }

    /// Adds a QUEUED chunk to a queue.
    pub(crate) fn add_to(&self, queue: i64, job_type: &str, key: &str) {
        self.edit(|rows| {
            let now = Instant::now();
            rows.chunks.push(Row {
                key: key.to_owned(),
                job_type: job_type.to_owned(),
                queue: QueueId(queue),
                chunk: Chunk::new(true),
                expires: now,
                due: now,
                cause: String::new(),
                job_cancelled: false,
            });
        });
    }

    pub(crate) fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap()
    }

    pub(crate) fn edit<T>(&self, act: impl FnOnce(&mut Rows) -> T) -> T {
        let mut rows = self.rows();
        let answer = act(&mut rows);
        rows.count_running();
        drop(rows);
        self.changed.send_modify(|count| *count += 1);
        answer
    }

    /// Makes calls fail: the verb and its leases decide.
    pub(crate) fn fail(&self, fault: impl FnMut(&str, &[Lease]) -> Option<StoreError> + Send + 'static) {
        *self.fault.lock().unwrap() = Some(Box::new(fault));
    }

    /// Lets the answers of this verb wait, although it is done; `None`: of no verb.
    pub(crate) fn hold(&self, verb: Option<&'static str>) {
        self.held.send_replace(verb);
    }

    async fn answer<T>(&self, verb: &str, answer: T) -> StoreResult<T> {
        self.held.subscribe().wait_for(|held| *held != Some(verb)).await.unwrap();
        Ok(answer)
    }

    fn check(&self, verb: &str, leases: &[Lease]) -> StoreResult<()> {
        // Faults may panic.
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        match fault.as_mut().and_then(|fault| fault(verb, leases)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Waits until the rows are as they should be; a long silence is a failure.
    pub(crate) async fn until(&self, what: &str, test: impl Fn(&Rows) -> bool) {
        let mut changed = self.changed.subscribe();
        let wait = async {
            loop {
                if test(&self.rows()) {
                    return;
                }
                changed.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            panic!("never happened: {what}; chunks are {:#?}", self.rows().chunks);
        }
    }
}

pub(crate) fn unavailable() -> StoreError {
    StoreError::Unavailable("gone for a moment".into())
}

pub(crate) fn refused() -> StoreError {
    StoreError::Refused("bad row".into())
}

fn keys(leases: impl IntoIterator<Item = Lease>) -> Vec<Lease> {
    leases.into_iter().collect()
}

#[async_trait]
impl Store for Fake {
    async fn ready(&self) -> StoreResult<()> {
        Ok(())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn installation(&self) -> &str {
        "fake"
    }
    async fn wakeups(&self) -> StoreResult<Option<BoxStream<'static, ()>>> {
        self.check("wakeups", &[])?;
        let others = self.others.subscribe();
        let hints = futures::stream::unfold(others, |mut others| async {
            others.changed().await.ok()?;
            Some(((), others))
        });
        Ok(Some(hints.boxed()))
    }
    async fn wake_others(&self) -> StoreResult<()> {
        self.edit(|rows| rows.hints += 1);
        Ok(())
    }

    async fn queues_sync(&self, queues: &[QueueSpec]) -> StoreResult<BTreeMap<String, QueueId>> {
        self.edit(|rows| rows.queues = queues.to_vec());
        Ok(queues.iter().zip(0..).map(|(spec, id)| (spec.name.clone(), QueueId(id))).collect())
    }
    async fn slots_take(&self, worker: WorkerId, queue: QueueId, count: u32) -> StoreResult<Vec<Slot>> {
        self.check("slots_take", &[])?;
        Ok(self.edit(|rows| {
            let budget =
                rows.queues[queue.0 as usize].max_concurrent.expect("only budgeted queues have slots");
            let free = (0..budget as i32).filter(|number| !rows.slots.contains_key(&(queue.0, *number)));
            let taken: Vec<i32> = free.take(count as usize).collect();
            taken.iter().for_each(|&number| {
                rows.slots.insert((queue.0, number), worker.0);
            });
            taken.into_iter().map(|number| Slot { queue, number }).collect()
        }))
    }
    async fn slots_release(&self, worker: WorkerId, slots: &[Slot]) -> StoreResult<()> {
        self.edit(|rows| {
            rows.slots.retain(|&(queue, number), holder| {
                *holder != worker.0 || !slots.contains(&Slot { queue: QueueId(queue), number })
            });
        });
        Ok(())
    }

    async fn worker_register(&self, _: &NewWorker) -> StoreResult<WorkerId> {
        Ok(self.edit(|rows| {
            rows.next_worker += 1;
            let id = rows.next_worker;
            rows.workers.insert(id);
            WorkerId(id)
        }))
    }
    async fn worker_leave(&self, worker: WorkerId) -> StoreResult<()> {
        self.edit(|rows| {
            rows.workers.remove(&worker.0);
            rows.slots.retain(|_, holder| *holder != worker.0);
        });
        Ok(())
    }

    async fn chunks_claim(&self, _: WorkerId, wants: &[Want], total: u32) -> StoreResult<Vec<ClaimedChunk>> {
        self.check("chunks_claim", &[])?;
        let claimed = self.edit(|rows| rows.claim(wants, total, self.lease));
        self.check("the answer to chunks_claim", &[]).map(|()| claimed)
    }
    async fn chunks_claim_named(
        &self,
        _: WorkerId,
        names: &[ChunkName],
        wants: &[Want],
        total: u32,
    ) -> StoreResult<NamedClaims> {
        self.check("chunks_claim_named", &[])?;
        let claims = self.edit(|rows| rows.claim_named(names, wants, total, self.lease));
        self.check("the answer to chunks_claim_named", &[]).map(|()| claims)
    }
    async fn announcements_take(&self, _: &[QueueId], _: u32, _: u32) -> StoreResult<Vec<Announcement>> {
        Ok(Default::default())
    }
    async fn announcements_confirm(&self, _: &[Announcement], _: Duration) -> StoreResult<()> {
        Ok(())
    }
    async fn announcements_clear(&self, chunks: &[ChunkId]) -> StoreResult<()> {
        self.announcements_defer(chunks, Duration::ZERO).await
    }
    async fn announcements_defer(&self, chunks: &[ChunkId], wait: Duration) -> StoreResult<()> {
        self.check("announcements_defer", &[])?;
        self.edit(|rows| rows.deferred.extend(chunks.iter().map(|chunk| (*chunk, wait))));
        self.answer("announcements_defer", ()).await
    }
    async fn announcements_doubt(&self) -> StoreResult<()> {
        Ok(())
    }
    async fn outbox_put(&self, _: &[NewOutboxMessage]) -> StoreResult<()> {
        Ok(())
    }
    async fn outbox_take(&self, _: u32) -> StoreResult<Vec<OutboxMessage>> {
        Ok(Default::default())
    }
    async fn outbox_delete(&self, _: &[i64]) -> StoreResult<()> {
        Ok(())
    }
    async fn delivery_lag(&self) -> StoreResult<DeliveryLag> {
        Ok(Default::default())
    }
    async fn chunks_heartbeat(
        &self,
        worker: WorkerId,
        leases: &[Lease],
        slots: &[Slot],
    ) -> StoreResult<Beat> {
        self.check("chunks_heartbeat", leases)?;
        let until = Instant::now() + self.lease;
        Ok(self.edit(|rows| {
            let renewed = leases.iter().filter(|lease| {
                rows.owned(**lease).is_some_and(|row| {
                    row.expires = until;
                    true
                })
            });
            let renewed = keys(renewed.copied());
            let held = |slot: &&Slot| rows.slots.get(&(slot.queue.0, slot.number)) == Some(&worker.0);
            Beat { renewed, slots: slots.iter().filter(held).copied().collect(), skipped: Vec::new() }
        }))
    }
    async fn chunks_of_worker(&self, _: WorkerId) -> StoreResult<Vec<Lease>> {
        let rows = self.rows();
        let running = rows.chunks.iter().zip(0..).filter(|(row, _)| row.chunk.state == ChunkState::Running);
        Ok(running.map(|(row, id)| Lease { chunk: ChunkId(id), fence: row.chunk.fence }).collect())
    }
    async fn chunks_cancelled(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        let mut rows = self.rows();
        Ok(keys(
            leases.iter().copied().filter(|lease| rows.owned(*lease).is_some_and(|row| row.job_cancelled)),
        ))
    }
    async fn chunks_running(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        let mut rows = self.rows();
        Ok(keys(leases.iter().copied().filter(|lease| rows.owned(*lease).is_some())))
    }
    async fn chunk_may_publish(&self, lease: Lease) -> StoreResult<bool> {
        self.check("chunk_may_publish", &[lease])?;
        Ok(self.rows().owned(lease).is_some_and(|row| !row.job_cancelled))
    }
    async fn progress_record(&self, progress: &[Progress]) -> StoreResult<()> {
        let leases: Vec<Lease> = progress.iter().map(|one| one.lease).collect();
        self.check("progress_record", &leases)?;
        self.edit(|rows| {
            rows.progress_calls.push(leases);
            let held = progress.iter().copied().filter(|one| rows.owned(one.lease).is_some());
            let held: Vec<Progress> = held.collect();
            rows.progress.extend(held);
        });
        Ok(())
    }

    async fn chunks_finish(&self, finishes: &[Finish]) -> StoreResult<Vec<Lease>> {
        let leases: Vec<Lease> = finishes.iter().map(|finish| finish.lease).collect();
        self.check("chunks_finish", &leases)?;
        let finished = self.edit(|rows| {
            let finished = |lease: &Lease| rows.apply("chunks_finish", *lease, Event::Finish).is_some();
            keys(leases.into_iter().filter(finished))
        });
        self.answer("chunks_finish", finished).await
    }
    async fn chunks_fail(&self, failures: &[Failure]) -> StoreResult<Vec<Settled>> {
        let leases: Vec<Lease> = failures.iter().map(|failure| failure.lease).collect();
        self.check("chunks_fail", &leases)?;
        let now = Instant::now();
        let settled = self.edit(|rows| {
            let settle = |failure: &Failure| {
                let lease = failure.lease;
                let row = rows.owned(lease)?;
                if failure.expired && row.expires > now {
                    return None;
                }
                row.cause = failure.cause.clone();
                row.due = now + failure.retry_in.unwrap_or_default();
                let event = match (row.job_cancelled, failure.expired, failure.retry_in) {
                    (true, ..) => Event::Cancel,
                    (_, true, Some(_)) => Event::ExpireRetryable,
                    (_, true, None) => Event::ExpireFinal,
                    (_, false, Some(_)) => Event::FailRetryable,
                    (_, false, None) => Event::FailFinal,
                };
                let verb = if failure.expired { "expired" } else { "chunks_fail" };
                Some(Settled { lease, state: rows.apply(verb, lease, event)? })
            };
            failures.iter().filter_map(settle).collect()
        });
        self.answer("chunks_fail", settled).await
    }
    async fn chunks_return(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        self.check("chunks_return", leases)?;
        Ok(self.edit(|rows| {
            let given = |lease: &Lease| rows.apply("chunks_return", *lease, Event::GiveBack).is_some();
            keys(leases.iter().copied().filter(given))
        }))
    }
    async fn chunk_snooze(&self, lease: Lease, wait: Duration) -> StoreResult<bool> {
        Ok(self.edit(|rows| {
            let Some(row) = rows.owned(lease) else { return false };
            row.due = Instant::now() + wait;
            rows.apply("chunk_snooze", lease, Event::Snooze).is_some()
        }))
    }
    async fn chunks_cancel(&self, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
        Ok(self.edit(|rows| {
            let cancelled = |lease: &Lease| rows.apply("chunks_cancel", *lease, Event::Cancel).is_some();
            keys(leases.iter().copied().filter(cancelled))
        }))
    }

    async fn steps_recorded(&self, lease: Lease) -> StoreResult<Option<Vec<StepRecord>>> {
        self.check("steps_recorded", &[lease])?;
        let mut rows = self.rows();
        if rows.owned(lease).is_none() {
            return Ok(None);
        }
        let steps = rows.steps.iter().filter(|(chunk, ..)| *chunk == lease.chunk);
        Ok(Some(steps.map(|(.., step)| step.clone()).collect()))
    }
    async fn step_record(&self, lease: Lease, name: &str, result: &str) -> StoreResult<bool> {
        self.check("step_record", &[lease])?;
        Ok(self.edit(|rows| {
            if rows.owned(lease).is_none() {
                return false;
            }
            let recorded =
                |(chunk, _, step): &&(ChunkId, i64, StepRecord)| *chunk == lease.chunk && step.name == name;
            if let Some((_, fence, _)) = rows.steps.iter().find(recorded) {
                return *fence == lease.fence;
            }
            let (name, result) = (name.to_owned(), result.to_owned());
            let step = StepRecord { name, result, completed_at: clock::now() };
            rows.steps.push((lease.chunk, lease.fence, step));
            rows.writes.push(("step_record", lease));
            true
        }))
    }

    async fn files_leftover(&self, _: u32) -> StoreResult<Vec<Unfinished>> {
        Ok(Vec::new())
    }
    async fn sweeps_due(&self) -> StoreResult<SweepsDue> {
        Ok(SweepsDue { stage: true, ..SweepsDue::default() })
    }
    async fn chunks_stage(&self, _: u32) -> StoreResult<Staged> {
        self.check("chunks_stage", &[])?;
        let now = Instant::now();
        let due = |row: &&mut Row| {
            matches!(row.chunk.state, ChunkState::Created | ChunkState::Retry) && row.due <= now
        };
        let mut queued = 0;
        for row in self.rows().chunks.iter_mut().filter(due) {
            row.chunk = state::apply(row.chunk, Event::Stage).unwrap();
            queued += 1;
        }
        if queued > 0 {
            self.edit(|_| ());
        }
        Ok(Staged { queued, ..Staged::default() })
    }
    async fn chunks_expired(
        &self,
        known: &[String],
        abandoned: Duration,
        limit: u32,
    ) -> StoreResult<Vec<ExpiredChunk>> {
        self.check("chunks_expired", &[])?;
        let now = Instant::now();
        let rows = self.rows();
        let expired = rows
            .chunks
            .iter()
            .zip(0..)
            .filter(|(row, _)| row.chunk.state == ChunkState::Running && row.expires <= now);
        let chunk = |(row, id): (&Row, i64)| ExpiredChunk {
            lease: Lease { chunk: ChunkId(id), fence: row.chunk.fence },
            job_type: row.job_type.clone(),
            dataset: None,
            attempt: row.chunk.attempt,
            cancelled: row.job_cancelled,
            overdue: now - row.expires,
        };
        let judged = |chunk: &ExpiredChunk| known.contains(&chunk.job_type) || chunk.overdue > abandoned;
        Ok(expired.map(chunk).filter(judged).take(limit as usize).collect())
    }
    async fn counts_repair(&self, _: Duration, _: u32) -> StoreResult<u64> {
        Ok(0)
    }
    async fn workers_prune(&self) -> StoreResult<u64> {
        Ok(0)
    }
    async fn jobs_prune(&self, _: Duration, _: u32) -> StoreResult<u64> {
        Ok(0)
    }
    async fn firings_prune(&self, _: Duration, _: u32) -> StoreResult<u64> {
        Ok(0)
    }
    async fn audit_list(&self, _: &AuditFilter, _: Option<i64>, _: u32) -> StoreResult<Page<AuditRow, i64>> {
        unreachable!("the engine never asks for this")
    }
    async fn audit_record(&self, _: &[AuditEntry]) -> StoreResult<()> {
        unreachable!("the engine never asks for this")
    }
    async fn audit_prune(&self, _: Duration, _: u32) -> StoreResult<u64> {
        Ok(0)
    }

    // What an engine without a planner never asks for.
    async fn schedule_put(&self, _: &NewSchedule) -> StoreResult<Put> {
        unreachable!("the engine never asks for this")
    }
    async fn schedules_configured(&self, _: &[NewSchedule]) -> StoreResult<()> {
        unreachable!("the engine never asks for this")
    }
    async fn schedule_get(&self, _: &str) -> StoreResult<Option<Schedule>> {
        unreachable!("the engine never asks for this")
    }
    async fn schedules_list(&self) -> StoreResult<Vec<Schedule>> {
        unreachable!("the engine never asks for this")
    }
    async fn schedule_delete(&self, _: &str) -> StoreResult<Deleted> {
        unreachable!("the engine never asks for this")
    }
    async fn schedule_pause(&self, _: &str) -> StoreResult<bool> {
        unreachable!("the engine never asks for this")
    }
    async fn schedule_resume(&self, _: &str, _: Option<NextSlot>) -> StoreResult<bool> {
        unreachable!("the engine never asks for this")
    }
    async fn schedule_slots(&self, _: &str, _: u32) -> StoreResult<Vec<SlotRow>> {
        unreachable!("the engine never asks for this")
    }
    async fn schedules_due(&self, _: Option<DateTime<Utc>>, _: u32) -> StoreResult<DueSchedules> {
        unreachable!("the engine never asks for this")
    }
    async fn schedule_fire(&self, _: ScheduleFire) -> StoreResult<ScheduleFired> {
        unreachable!("the engine never asks for this")
    }
    async fn trigger_put(&self, _: &NewTrigger) -> StoreResult<TriggerPut> {
        unreachable!("the engine never asks for this")
    }
    async fn triggers_configured(&self, _: &[NewTrigger]) -> StoreResult<Option<Vec<String>>> {
        unreachable!("the engine never asks for this")
    }
    async fn trigger_get(&self, _: &str) -> StoreResult<Option<Trigger>> {
        unreachable!("the engine never asks for this")
    }
    async fn triggers_list(&self) -> StoreResult<Vec<Trigger>> {
        unreachable!("the engine never asks for this")
    }
    async fn trigger_delete(&self, _: &str) -> StoreResult<Deleted> {
        unreachable!("the engine never asks for this")
    }
    async fn trigger_fires(&self, _: TriggerId, _: u32) -> StoreResult<Vec<TriggerFire>> {
        unreachable!("the engine never asks for this")
    }
    async fn trigger_waits(&self, _: TriggerId, _: u32) -> StoreResult<Vec<TriggerWait>> {
        unreachable!("the engine never asks for this")
    }
    async fn triggers_match(&self, _: u32) -> StoreResult<u64> {
        unreachable!("the engine never asks for this")
    }
    async fn trigger_fires_due(&self, _: u32) -> StoreResult<Vec<DueFire>> {
        unreachable!("the engine never asks for this")
    }
    async fn trigger_fire(&self, _: i64, _: FirePlan) -> StoreResult<Option<TriggerFire>> {
        unreachable!("the engine never asks for this")
    }
    async fn job_submit(&self, _: NewJob) -> StoreResult<Submitted> {
        unreachable!("the engine never asks for this")
    }
    async fn jobs_submit(&self, _: Vec<NewJob>) -> StoreResult<Vec<Submitted>> {
        unreachable!("the engine never asks for this")
    }
    async fn job_get_visible(&self, _: &JobId, _: &Visible) -> StoreResult<Option<Job>> {
        unreachable!("the engine never asks for this")
    }
    async fn jobs_list(&self, _: &JobFilter) -> StoreResult<Page<Job, i64>> {
        unreachable!("the engine never asks for this")
    }
    async fn chunks_list(
        &self,
        _: &JobId,
        _: Option<ChunkStatus>,
        _: Option<&str>,
        _: u32,
    ) -> StoreResult<Page<ChunkRow, String>> {
        unreachable!("the engine never asks for this")
    }
    async fn files_list(&self, _: &JobId, _: Option<&str>, _: u32) -> StoreResult<Page<ManifestRow, String>> {
        unreachable!("the engine never asks for this")
    }
    async fn file_get(&self, _: &JobId, _: ChunkId) -> StoreResult<Option<ManifestRow>> {
        unreachable!("the engine never asks for this")
    }
    async fn files_recorded(
        &self,
        _: &str,
        _: &str,
        _: &str,
        _: &[(String, NaiveDate)],
    ) -> StoreResult<Vec<(FileIdentity, FileRecord)>> {
        unreachable!("the engine never asks for this")
    }
    async fn steps_list(&self, _: &JobId) -> StoreResult<Vec<StepRow>> {
        unreachable!("the engine never asks for this")
    }
    async fn history_list(
        &self,
        _: &JobId,
        _: Option<&str>,
        _: Option<HistoryCursor>,
        _: u32,
    ) -> StoreResult<Page<Transition, HistoryCursor>> {
        unreachable!("the engine never asks for this")
    }
    async fn dead_letters_list(
        &self,
        _: &DeadLetterFilter,
        _: Option<DeadLetterCursor>,
        _: u32,
    ) -> StoreResult<Page<DeadLetter, DeadLetterCursor>> {
        unreachable!("the engine never asks for this")
    }
    async fn dead_letters_count(&self, _: &DeadLetterFilter) -> StoreResult<u64> {
        unreachable!("the engine never asks for this")
    }
    async fn dead_letters_redrive(
        &self,
        _: &DeadLetterFilter,
        _: u32,
        _: Option<&Redriver>,
    ) -> StoreResult<u64> {
        unreachable!("the engine never asks for this")
    }
    async fn job_cancel(&self, _: &JobId) -> StoreResult<Cancelled> {
        unreachable!("the engine never asks for this")
    }
    async fn jobs_get(&self, _: &[JobId]) -> StoreResult<Vec<Job>> {
        unreachable!("the engine never asks for this")
    }

    async fn job_prioritise(&self, _: &JobId, _: u8) -> StoreResult<Prioritised> {
        unreachable!("the engine never asks for this")
    }

    async fn job_redrive(&self, _: &JobId) -> StoreResult<Redriven> {
        unreachable!("the engine never asks for this")
    }
    async fn queues_list(&self) -> StoreResult<Vec<QueueRow>> {
        unreachable!("the engine never asks for this")
    }
    async fn queue_pause(&self, _: &str, _: bool) -> StoreResult<bool> {
        unreachable!("the engine never asks for this")
    }
    async fn workers_list(&self, _: Duration) -> StoreResult<Vec<WorkerRow>> {
        unreachable!("the engine never asks for this")
    }
    async fn file_begin(&self, _: &FileBegin) -> StoreResult<FileBegun> {
        unreachable!("the engine never asks for this")
    }
    async fn base_paths(&self) -> StoreResult<Vec<BasePathOwner>> {
        unreachable!("the engine never asks for this")
    }
    async fn file_upload(&self, _: Lease, _: &FileIdentity, _: &Upload) -> StoreResult<bool> {
        unreachable!("the engine never asks for this")
    }
    async fn file_leftover_removed(&self, _: &Leftover) -> StoreResult<()> {
        unreachable!("the engine never asks for this")
    }
    async fn file_leftover_replaced(&self, _: &Leftover, _: i64) -> StoreResult<()> {
        unreachable!("the engine never asks for this")
    }
}
