//! What a custom job may know and do while it runs. Its steps are recovery points: what is recorded is
//! taken from the record by every later attempt.

use std::any::{TypeId, type_name};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use outhaul_core::id::JobId;
use outhaul_core::progress::Total;
use outhaul_core::step::name_problem;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;
use tracing::debug;

use super::LONGEST;
use super::error::JobError;
use super::state::Values;
use crate::client::Client;
use crate::context::ChunkContext;

/// The side of a running job that its `run` sees.
pub struct Context {
    chunk: ChunkContext,
    values: Arc<Values>,
    /// What earlier attempts recorded, read once, when first asked for.
    recorded: OnceCell<HashMap<String, String>>,
    /// The steps of this attempt so far.
    entered: Mutex<HashSet<String>>,
    sleeps: AtomicU32,
    /// Whether the job looks for the word to stop itself.
    watching: Arc<AtomicBool>,
}

impl Context {
    pub(crate) fn new(chunk: ChunkContext, values: Arc<Values>) -> Self {
        Self {
            chunk,
            values,
            recorded: OnceCell::new(),
            entered: Mutex::default(),
            sleeps: AtomicU32::new(0),
            watching: Arc::default(),
        }
    }

    pub(super) fn chunk(&self) -> &ChunkContext {
        &self.chunk
    }

    pub(super) fn watching(&self) -> Arc<AtomicBool> {
        self.watching.clone()
    }

    /// What clients call the job.
    pub fn job_id(&self) -> &JobId {
        &self.chunk.chunk().job_id
    }

    /// Which attempt this is, from 1. Going on after a sleep or a shutdown counts no new one.
    pub fn attempt(&self) -> u32 {
        self.chunk.chunk().attempt
    }

    /// Runs a step and records its result, as JSON of at most 1 MiB. An attempt that finds it recorded
    /// returns the recorded result and does not run it.
    ///
    /// The work itself happens at least once: a crash between it and its record repeats it. Give calls to
    /// others an [`Context::idempotency_key`], or use [`Context::transaction`].
    ///
    /// The name (letters, digits, `_`, `-`, at most 64) is what recognises the step: it must be the same in
    /// every attempt, and stand for one step only.
    pub async fn step<T, F, Fut>(&self, name: &str, act: F) -> Result<T, JobError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, JobError>>,
    {
        if let Some(result) = self.begin(name).await? {
            return recorded(name, &result);
        }
        let value = self.within(name, act()).await?;
        let text = to_json(&value).map_err(|error| error.in_step(name))?;
        self.chunk.record_step(name, &text).await.map_err(JobError::from_failed)?;
        Ok(value)
    }

    /// Runs what a step does, so that whatever goes wrong in it names it.
    pub(super) async fn within<T>(
        &self,
        name: &str,
        act: impl Future<Output = Result<T, JobError>>,
    ) -> Result<T, JobError> {
        self.chunk.enter_step(name);
        let ended = act.await;
        // Not reached by a panic or an abort: then the step stays named.
        self.chunk.leave_step(name);
        ended.map_err(|error| error.in_step(name))
    }

    /// Checks the name, and looks whether the step was recorded before.
    pub(super) async fn begin(&self, name: &str) -> Result<Option<String>, JobError> {
        if let Some(problem) = name_problem(name) {
            return Err(JobError::fatal(format!("the name of the step `{name}` {problem}")));
        }
        let first = self.entered.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        if !first {
            let text = format!("the step `{name}` is there twice: every step needs a name of its own");
            return Err(JobError::fatal(text));
        }
        if let Some(result) = self.records().await?.get(name) {
            debug!(job_id = %self.job_id(), step = name, "step {name} was recorded before");
            return Ok(Some(result.clone()));
        }
        self.go_on()?;
        Ok(None)
    }

    /// Nothing new is begun once the attempt must stop.
    fn go_on(&self) -> Result<(), JobError> {
        if self.chunk.should_stop().is_some() { Err(JobError::stopped()) } else { Ok(()) }
    }

    async fn records(&self) -> Result<&HashMap<String, String>, JobError> {
        let read = || async {
            let steps = self.chunk.recorded_steps().await.map_err(JobError::from_failed)?;
            Ok(steps.into_iter().map(|step| (step.name, step.result)).collect())
        };
        self.recorded.get_or_try_init(read).await
    }

    /// Sleeps, however long, without holding a worker: the attempt ends here (that is what `?` does), is
    /// not counted, and the next one goes on behind this line when the time has come.
    ///
    /// Sleeps are recognised by their order: the second `sleep` of one attempt is the second of the next.
    pub async fn sleep(&self, span: Duration) -> Result<(), JobError> {
        let name = format!("~sleep-{}", self.sleeps.fetch_add(1, Ordering::Relaxed) + 1);
        let now = self.chunk.database_time();
        let wake: DateTime<Utc> = match self.records().await?.get(&name) {
            Some(text) => recorded(&name, text)?,
            None => {
                self.go_on()?;
                let wake = now + span.min(LONGEST);
                self.chunk.record_step(&name, &to_json(&wake)?).await.map_err(JobError::from_failed)?;
                wake
            }
        };
        match (wake - now).to_std() {
            Ok(left) if !left.is_zero() && !self.chunk.is_sleepless() => Err(JobError::sleeping(left)),
            _ => Ok(()),
        }
    }

    /// A key for calls to others, the same in every attempt: `<jobId>/<name>`.
    pub fn idempotency_key(&self, name: &str) -> String {
        format!("{}/{name}", self.job_id())
    }

    /// Says how far the job is, in whatever it counts. Clients see `done / total` as the job's `progress`,
    /// about a second later; it never goes back and is 1 only when the job is done. A `total` of 0 stands
    /// for one that is not known.
    pub fn progress(&self, done: u64, total: u64) {
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        if total > 0 {
            self.chunk.expect(Total::Exact(count(total)));
        }
        self.chunk.progress(count(done), 0);
        debug!(job_id = %self.job_id(), done, total, "job {}: {done} of {total}", self.job_id());
    }

    /// Waits until the attempt must stop: its job was cancelled, its time is up, its process shuts down
    /// or lost it. Return what it gives, within five seconds:
    ///
    /// ```no_run
    /// # async fn example(ctx: &outhaul::Context) -> Result<(), outhaul::JobError> {
    /// # async fn work() {}
    /// tokio::select! {
    ///     stopped = ctx.cancelled() => return Err(stopped),
    ///     () = work() => {}
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// Jobs that never ask are stopped at their next `.await`.
    pub async fn cancelled(&self) -> JobError {
        self.watching.store(true, Ordering::Release);
        self.chunk.stopped().await;
        JobError::stopped()
    }

    /// Whether the attempt must stop, without waiting; for loops that seldom await.
    pub fn is_cancelled(&self) -> bool {
        self.watching.store(true, Ordering::Release);
        self.chunk.should_stop().is_some()
    }

    /// A value that was given to [`crate::Registry::state`]. Where it is missing the attempt fails, and is
    /// tried again: another process may have it.
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<&T, JobError> {
        let value = self.values.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref());
        value.ok_or_else(|| {
            let name = type_name::<T>();
            JobError::retryable(format!("there is no state of type {name}: add it with Registry::state"))
        })
    }

    /// Submits further jobs. In a [`Context::step`], or with an idempotency key, so that an attempt that is
    /// repeated does not submit them again.
    pub fn client(&self) -> Client {
        let client = Client::on(self.chunk.store().clone(), self.chunk.engine().clone());
        match self.chunk.delivery() {
            Some(delivery) => client.announcing(delivery.clone()),
            None => client,
        }
    }
}

/// Reads a recorded result. One that is no longer understood must not be taken for missing.
pub(super) fn recorded<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, JobError> {
    serde_json::from_str(text).map_err(|_| {
        let text = "its recorded result does not fit its type any more: give the step a new name";
        JobError::fatal(text).in_step(name)
    })
}

pub(super) fn to_json<T: Serialize>(value: &T) -> Result<String, JobError> {
    serde_json::to_string(value).map_err(|error| JobError::fatal(format!("its result is no JSON: {error}")))
}
