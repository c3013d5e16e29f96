//! What a running chunk may know and do. Everything it writes goes through its lease.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use outhaul_core::delivery::Delivery;
use outhaul_core::file::{FileBegin, FileBegun, FileIdentity, FilePlace, Upload};
use outhaul_core::progress::Total;
use outhaul_core::reuse::Reuse;
use outhaul_core::step::{StepRecord, result_problem};
use outhaul_core::store::{Store, StoreError, StoreResult};
use outhaul_core::worker::{ClaimedChunk, Slot};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::handler::{Cause, Failed};
use crate::job::runtime::JobRuntime;
use crate::lease::LocalLease;

/// How long to wait for a database that is away, at first and at most.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Why a chunk must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its job was cancelled.
    Cancelled,
    /// Its lease is lost or can no longer be proved.
    LeaseLost,
    /// The process shuts down.
    Shutdown,
    /// It took longer than it may.
    TimedOut,
    /// It made no progress for longer than it may.
    Stalled,
}

/// The side of a running chunk that its handler sees. Cheap to clone.
#[derive(Clone)]
pub struct ChunkContext {
    chunk: Arc<ClaimedChunk>,
    slot: Option<Slot>,
    slot_name: Option<String>,
    store: Arc<dyn Store>,
    stop: watch::Receiver<Option<Stop>>,
    pulse: Arc<Pulse>,
    /// The engine's own runtime: a handler that blocks its threads must not hold database calls up.
    engine: Handle,
    /// The threads of custom jobs; none in tests.
    jobs: Option<Arc<JobRuntime>>,
    /// How the engine wakes workers for jobs that this job submits; none without an engine.
    delivery: Option<Arc<dyn Delivery>>,
    /// In tests: `ctx.sleep` is over at once.
    sleepless: bool,
}

/// Signs of life of a running chunk, read by the lease keeper and the progress reports.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// How long this process may believe in the lease.
    pub(crate) lease: LocalLease,
    /// Set when the handler starts, which may be a while after the claim.
    born: OnceLock<Instant>,
    last_micros: AtomicI64,
    /// Waits under way that are not the source's; the stall clock stands still meanwhile.
    waiting: AtomicU32,
    rows: AtomicI64,
    bytes: AtomicI64,
    /// How many rows there are in all, as far as the handler knows.
    total: Mutex<Option<Total>>,
    publishing: AtomicBool,
    /// The step that runs, so that a timeout or a panic can name it.
    step: Mutex<Option<String>>,
}

impl Pulse {
    pub(crate) fn new(lease: LocalLease) -> Self {
        Self {
            lease,
            born: OnceLock::new(),
            last_micros: AtomicI64::new(0),
            waiting: AtomicU32::new(0),
            rows: AtomicI64::new(0),
            bytes: AtomicI64::new(0),
            total: Mutex::default(),
            publishing: AtomicBool::new(false),
            step: Mutex::default(),
        }
    }

    /// The handler starts now.
    pub(crate) fn start(&self) {
        self.born.get_or_init(Instant::now);
    }

    /// How long ago the chunk started.
    pub(crate) fn age(&self) -> Duration {
        self.born.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// It is alive now.
    fn beat(&self) {
        let age = i64::try_from(self.age().as_micros()).unwrap_or(i64::MAX);
        self.last_micros.store(age, Ordering::Relaxed);
    }

    /// Stops the stall clock until the guard is dropped.
    fn waiting(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(self)
    }

    /// How long it has made no progress that it could have made.
    pub(crate) fn silent_for(&self) -> Duration {
        if self.waiting.load(Ordering::Acquire) > 0 {
            return Duration::ZERO;
        }
        let last = Duration::from_micros(self.last_micros.load(Ordering::Relaxed).unsigned_abs());
        self.age().saturating_sub(last)
    }

    /// Whether publishing has begun, after which a cancellation comes too late.
    pub(crate) fn is_publishing(&self) -> bool {
        self.publishing.load(Ordering::Acquire)
    }

    /// The step that runs, or ran when the handler was cut off.
    pub(crate) fn step(&self) -> Option<String> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Rows and bytes so far.
    pub(crate) fn moved(&self) -> (i64, i64) {
        (self.rows.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// How many rows there are in all, if that is known.
    pub(crate) fn total(&self) -> Option<Total> {
        *self.total.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handler waits for something that `stall_timeout` is not about; see [`ChunkContext::waiting`].
#[derive(Debug)]
#[must_use = "the stall clock goes on when it is dropped"]
pub struct Waiting<'a>(&'a Pulse);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // In this order: whoever sees no wait any more sees the new start of the clock as well.
        self.0.beat();
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ChunkContext {
    pub(crate) fn new(
        chunk: ClaimedChunk,
        slot: Option<Slot>,
        slot_name: Option<String>,
        store: Arc<dyn Store>,
        stop: watch::Receiver<Option<Stop>>,
        pulse: Arc<Pulse>,
    ) -> Self {
        let (chunk, engine) = (Arc::new(chunk), Handle::current());
        Self {
            chunk,
            slot,
            slot_name,
            store,
            stop,
            pulse,
            engine,
            jobs: None,
            delivery: None,
            sleepless: false,
        }
    }

    /// Gives custom jobs threads of their own.
    pub(crate) fn with_jobs(self, jobs: Option<Arc<JobRuntime>>) -> Self {
        Self { jobs, ..self }
    }

    /// Jobs that this job submits wake workers through the engine's own delivery.
    pub(crate) fn with_delivery(self, delivery: Arc<dyn Delivery>) -> Self {
        Self { delivery: Some(delivery), ..self }
    }

    pub(crate) fn delivery(&self) -> Option<&Arc<dyn Delivery>> {
        self.delivery.as_ref()
    }

    /// For tests: nothing sleeps.
    pub(crate) fn without_sleep(self) -> Self {
        Self { sleepless: true, ..self }
    }

    pub(crate) fn jobs(&self) -> Option<&Arc<JobRuntime>> {
        self.jobs.as_ref()
    }

    pub(crate) fn is_sleepless(&self) -> bool {
        self.sleepless
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn engine(&self) -> &Handle {
        &self.engine
    }

    /// The database's time now: that of the claim plus what has passed here. Machines' clocks differ.
    pub(crate) fn database_time(&self) -> DateTime<Utc> {
        let passed = TimeDelta::from_std(self.pulse.lease.age()).unwrap_or(TimeDelta::MAX);
        self.chunk.claimed_at.checked_add_signed(passed).unwrap_or(self.chunk.claimed_at)
    }

    /// Says that a step runs now: if the attempt times out or panics meanwhile, its failure names it.
    pub fn enter_step(&self, name: &str) {
        *self.pulse.step.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.to_owned());
        self.pulse.beat();
    }

    /// Says that the step ended, well or badly.
    pub fn leave_step(&self, name: &str) {
        let mut step = self.pulse.step.lock().unwrap_or_else(PoisonError::into_inner);
        step.take_if(|running| running == name);
    }

    /// The chunk that runs.
    pub fn chunk(&self) -> &ClaimedChunk {
        &self.chunk
    }

    /// The budget slot it runs under, on queues that have a budget.
    pub fn slot(&self) -> Option<Slot> {
        self.slot
    }

    /// A name for its session on the source, the same for whoever holds the slot next:
    /// `outhaul:<installation>:<queue>:<slot>`.
    pub fn slot_name(&self) -> Option<&str> {
        self.slot_name.as_deref()
    }

    /// Whether and why to stop, without waiting.
    pub fn should_stop(&self) -> Option<Stop> {
        let told = *self.stop.borrow();
        // After a pause of the whole process the keeper may not have looked yet; the clock has.
        if self.pulse.lease.is_over() { Some(Stop::LeaseLost) } else { told }
    }

    /// Waits until the chunk must stop.
    pub async fn stopped(&self) -> Stop {
        let mut stop = self.stop.clone();
        match stop.wait_for(Option::is_some).await {
            Ok(reason) => reason.unwrap_or(Stop::Shutdown),
            // The engine is gone, and so is the lease.
            Err(_) => Stop::LeaseLost,
        }
    }

    /// Says how many rows [`ChunkContext::progress`] will have reported at the end, as soon as that is known
    /// or is known better. Without it clients see rows and bytes move, and the chunk's part of `progress`
    /// only when it is done.
    pub fn expect(&self, total: Total) {
        *self.pulse.total.lock().unwrap_or_else(PoisonError::into_inner) = Some(total);
    }

    /// Reports what was done so far, as often as is handy: it is written down once a second at most. Also
    /// the sign of life that `stall_timeout` watches for.
    pub fn progress(&self, rows: i64, bytes: i64) {
        self.pulse.rows.store(rows, Ordering::Relaxed);
        self.pulse.bytes.store(bytes, Ordering::Relaxed);
        self.pulse.beat();
    }

    /// Stops the clock of `stall_timeout` while the handler waits for something else than its source:
    /// memory, storage, others. It starts from zero when the guard is dropped; `timeout` goes on.
    pub fn waiting(&self) -> Waiting<'_> {
        self.pulse.waiting()
    }

    /// The steps that earlier attempts recorded. Costs nothing at a chunk's first claim, before which
    /// there can be none.
    pub async fn recorded_steps(&self) -> Result<Vec<StepRecord>, Failed> {
        if self.chunk.lease.fence <= 1 {
            return Ok(Vec::new());
        }
        self.steps_now().await
    }

    /// The steps that are recorded now, also by this attempt.
    pub(crate) async fn steps_now(&self) -> Result<Vec<StepRecord>, Failed> {
        let lease = self.chunk.lease;
        let recorded = self.ask(|store| async move { store.steps_recorded(lease).await }).await?;
        recorded.ok_or(Failed::Stopped)
    }

    /// Records a step's result (JSON text) as a recovery point. From an `Ok` on, no attempt runs it again.
    pub async fn record_step(&self, name: &str, result: &str) -> Result<(), Failed> {
        if let Some(problem) = result_problem(result) {
            return Err(Failed::Retryable(Cause { step: Some(name.to_owned()), ..Cause::from(problem) }));
        }
        let lease = self.chunk.lease;
        let record: Arc<(String, String)> = Arc::new((name.to_owned(), result.to_owned()));
        let ask = |store: Arc<dyn Store>| {
            let record = record.clone();
            async move { store.step_record(lease, &record.0, &record.1).await }
        };
        if self.ask(ask).await? { Ok(()) } else { Err(Failed::Stopped) }
    }

    /// Finds a file to reuse, or becomes the one writer of the identity.
    pub async fn begin_file(
        &self,
        identity: FileIdentity,
        place: FilePlace,
        definition: String,
        reuse: Reuse,
    ) -> Result<FileBegun, Failed> {
        let begin = Arc::new(FileBegin { lease: self.chunk.lease, identity, place, definition, reuse });
        let ask = |store: Arc<dyn Store>| {
            let begin = begin.clone();
            async move { store.file_begin(&begin).await }
        };
        match self.ask(ask).await? {
            FileBegun::LeaseLost => Err(Failed::Stopped),
            begun => Ok(begun),
        }
    }

    /// Records a multipart upload before its first part is sent. Asks once: until it is recorded nobody
    /// else knows of the upload, so a database that is away must not keep it open; the caller aborts it.
    pub async fn record_upload(&self, identity: &FileIdentity, upload: &Upload) -> Result<(), Failed> {
        let (store, lease) = (self.store.clone(), self.chunk.lease);
        let (identity, upload) = (identity.clone(), upload.clone());
        match self.unbroken(async move { store.file_upload(lease, &identity, &upload).await }).await? {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failed::Stopped),
            Err(error) => Err(refused(&error)),
        }
    }

    /// Proves the lease right before publishing. From an `Ok` on, a cancellation comes too late.
    pub async fn may_publish(&self) -> Result<(), Failed> {
        // Set first: a cancellation noticed from here on waits for the store's answer.
        self.pulse.publishing.store(true, Ordering::Release);
        let lease = self.chunk.lease;
        let answer = self.ask(|store| async move { store.chunk_may_publish(lease).await }).await;
        let refusal = match answer {
            Ok(true) if self.should_stop() != Some(Stop::LeaseLost) => return Ok(()),
            Ok(_) => Failed::Stopped,
            Err(failed) => failed,
        };
        self.pulse.publishing.store(false, Ordering::Release);
        Err(refusal)
    }

    /// Asks the store until it answers: a database that is away for a while costs no attempt, as long as
    /// the lease lives.
    async fn ask<T, F>(&self, call: impl Fn(Arc<dyn Store>) -> F) -> Result<T, Failed>
    where
        T: Send + 'static,
        F: Future<Output = StoreResult<T>> + Send + 'static,
    {
        let _waiting = self.waiting();
        let mut wait = FIRST_WAIT;
        loop {
            match self.unbroken(call(self.store.clone())).await? {
                Ok(answer) => return Ok(answer),
                Err(StoreError::Unavailable(_)) => {}
                Err(error) => return Err(refused(&error)),
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(LONGEST_WAIT),
                _ = self.stopped() => return Err(Failed::Stopped),
            }
        }
    }

    /// Runs a store call to its end even if the handler is dropped meanwhile: a call that is cut off
    /// half-way can leave a transaction open in the pool.
    pub(crate) async fn unbroken<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Failed> {
        let call = self.engine.spawn(call);
        call.await.map_err(|_| Failed::Retryable("a database call broke off".into()))
    }
}

/// The failure of a call to the engine's database. Only operators see the database's own message.
fn refused(error: &StoreError) -> Failed {
    let text = match error {
        StoreError::Unavailable(_) => "the engine's database is not available",
        _ => "the engine's database refused a call",
    };
    Failed::Retryable(Cause::with_detail(text, error.to_string()).of(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stall_clock_stands_still_while_waiting_and_then_starts_again() {
        let pulse = Pulse::new(LocalLease::new(Instant::now(), Duration::from_secs(3600)));
        pulse.start();
        let until = |age: Duration| while pulse.age() <= age {};
        until(Duration::from_millis(1));
        assert!(pulse.silent_for() >= Duration::from_millis(1), "silent since the start");

        let (outer, inner) = (pulse.waiting(), pulse.waiting());
        until(Duration::from_millis(2));
        assert_eq!(pulse.silent_for(), Duration::ZERO);
        drop(inner);
        until(Duration::from_millis(3));
        assert_eq!(pulse.silent_for(), Duration::ZERO, "the outer one still waits");
        let before = pulse.age();
        drop(outer);
        let silent = pulse.silent_for();
        // The clock counts whole microseconds.
        assert!(silent <= pulse.age() - before + Duration::from_micros(1), "{silent:?}");
        let now = pulse.age();
        until(now + Duration::from_millis(1));
        assert!(pulse.silent_for() >= Duration::from_millis(1), "it runs again");
        assert!(pulse.age() >= Duration::from_millis(4), "the chunk's own age was never stopped");
    }
}
