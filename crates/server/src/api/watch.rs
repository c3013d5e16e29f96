//! Looks at all jobs that clients of this process watch, in one call four times a second, and tells each
//! client what changed. A client that is slow skips states and never piles them up.

use std::collections::hash_map;
use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use outhaul::Registry;
use outhaul_core::clock;
use outhaul_core::id::JobId;
use outhaul_core::identity::ANONYMOUS;
use outhaul_core::job::Job;
use outhaul_core::store::{Store, StoreResult};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::job_view::rendered;
use super::problem::error_chain;
use super::steps::{Known, StepView};

/// The shortest time between two states of a job, and between two looks at the database.
const LOOK: Duration = Duration::from_millis(250);
/// The most jobs that are asked for in one call.
const BATCH: usize = 500;
/// The most clients that may watch jobs of one process.
const MOST: usize = 1000;
/// The most of them that are one caller's, where callers can be told apart.
const MOST_OF_ONE: usize = 50;

/// A job as it was at one look.
#[derive(Debug)]
pub(super) struct Seen {
    /// The number of this state: none has the number of another, and newer ones have larger numbers.
    pub version: i64,
    /// The job as `GET` shows it, on one line.
    pub json: String,
    /// The same for states that differ in nothing but a guess.
    tag: String,
    /// Whether nothing more can come: the status is a final one and the last chunk has settled.
    over: bool,
    /// The round in which it was read.
    round: u64,
}

impl Seen {
    fn new(job: Job, steps: Vec<StepView>, round: u64) -> Self {
        let (version, over) = (job.shown_version, job.status.is_final() && job.completed_at.is_some());
        let (json, tag) = rendered(job, steps, clock::now());
        let json = String::from_utf8(json).expect("JSON is UTF-8");
        Self { version, json, tag, over, round }
    }
}

/// Where states come from.
#[async_trait]
trait Source: Send + Sync {
    /// These jobs, as far as they are there.
    async fn jobs(&self, ids: &[JobId]) -> StoreResult<Vec<Job>>;
    /// What is known of a job's steps.
    async fn steps(&self, job: &Job) -> StoreResult<Known>;
}

struct Stored {
    store: Arc<dyn Store>,
    registry: Registry,
}

#[async_trait]
impl Source for Stored {
    async fn jobs(&self, ids: &[JobId]) -> StoreResult<Vec<Job>> {
        self.store.jobs_get(ids).await
    }

    async fn steps(&self, job: &Job) -> StoreResult<Known> {
        Known::of(&*self.store, &self.registry, job).await
    }
}

/// The jobs that clients of this process watch. Cheap to clone.
#[derive(Clone)]
pub struct Watch(Arc<Inner>);

struct Inner {
    source: Box<dyn Source>,
    stop: CancellationToken,
    room: Arc<Semaphore>,
    /// Places taken, by caller.
    taken: Mutex<HashMap<String, usize>>,
    /// Told when there is someone to look for.
    somebody: Notify,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    /// The last round that began.
    round: u64,
    jobs: HashMap<JobId, Entry>,
}

/// One job, however many watch it.
struct Entry {
    states: watch::Sender<Option<Arc<Seen>>>,
    /// The round that had begun when the last client came.
    since: u64,
    /// What is known of its steps, and at which version of the job.
    known: Option<(i64, Known)>,
}

impl Watch {
    /// Nothing is watched yet. Streams end when `stop` is asked for.
    pub fn new(store: Arc<dyn Store>, registry: Registry, stop: CancellationToken) -> Self {
        Self::of(Box::new(Stored { store, registry }), MOST, stop)
    }

    fn of(source: Box<dyn Source>, most: usize, stop: CancellationToken) -> Self {
        let room = Arc::new(Semaphore::new(most));
        let (taken, somebody, watched) = (Mutex::default(), Notify::new(), Mutex::default());
        Self(Arc::new(Inner { source, stop, room, taken, somebody, watched }))
    }

    /// A place for one more client, while there is one for this caller.
    pub(super) fn place(&self, subject: &str) -> Result<Place, Full> {
        let permit = Arc::clone(&self.0.room).try_acquire_owned().map_err(|_| Full::All)?;
        if subject != ANONYMOUS {
            let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let of_one = taken.entry(subject.to_owned()).or_default();
            if *of_one >= MOST_OF_ONE {
                return Err(Full::Callers);
            }
            *of_one += 1;
        }
        metrics::gauge!("outhaul_event_streams").increment(1.0);
        Ok(Place { watch: self.clone(), subject: subject.to_owned(), _permit: permit })
    }

    /// Follows a job from the state that was just read.
    pub(super) fn follow(&self, place: Place, job: Job, steps: Vec<StepView>) -> Watcher {
        let job_id = job.job_id.clone();
        let mut first = Seen::new(job, steps, 0);
        let mut watched = self.0.lock();
        first.round = watched.round;
        let states = if first.over {
            watch::Sender::new(None).subscribe()
        } else {
            let round = watched.round;
            let entry = watched.jobs.entry(job_id).or_insert_with(|| Entry {
                states: watch::Sender::new(None),
                since: round,
                known: None,
            });
            entry.since = round;
            entry.states.subscribe()
        };
        drop(watched);
        self.0.somebody.notify_one();
        let stop = self.0.stop.clone();
        let round = first.round;
        let tag = first.tag.clone();
        Watcher {
            first: Some(Arc::new(first)),
            states,
            round,
            tag,
            over: false,
            due: Instant::now(),
            stop,
            _place: place,
        }
    }

    /// Looks until told to stop, while somebody watches. A database that is away is ridden out.
    pub(crate) async fn run(self) {
        let inner = &self.0;
        let mut failing = false;
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let rounds = async {
            loop {
                look.tick().await;
                // One panic must not silence every stream for ever.
                let failure = match AssertUnwindSafe(inner.round()).catch_unwind().await {
                    Ok(Ok(true)) => {
                        if std::mem::take(&mut failing) {
                            tracing::info!("api.watch_recovered");
                        }
                        continue;
                    }
                    Ok(Ok(false)) => {
                        inner.somebody.notified().await;
                        continue;
                    }
                    Ok(Err(error)) => error_chain(&error),
                    Err(_) => "it panicked".to_owned(),
                };
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(
                        error = failure,
                        "api.watch_failing; watched jobs stand still until it works again"
                    );
                }
            }
        };
        inner.stop.run_until_cancelled(rounds).await;
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        // What is behind it is whole at every moment.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at every watched job once; whether there was any.
    async fn round(&self) -> StoreResult<bool> {
        let (round, ids) = self.begin();
        for batch in ids.chunks(BATCH) {
            let mut missing: HashSet<&JobId> = batch.iter().collect();
            for job in self.source.jobs(batch).await? {
                missing.remove(&job.job_id);
                let steps = self.steps(&job).await?;
                self.publish(job.job_id.clone(), Seen::new(job, steps, round));
            }
            let mut watched = self.lock();
            for id in missing {
                watched.forget(id, round);
            }
        }
        Ok(!ids.is_empty())
    }

    fn begin(&self) -> (u64, Vec<JobId>) {
        let mut watched = self.lock();
        watched.jobs.retain(|_, entry| entry.states.receiver_count() > 0);
        watched.round += 1;
        (watched.round, watched.jobs.keys().cloned().collect())
    }

    /// The job's steps; asked for only when the job's version has changed.
    async fn steps(&self, job: &Job) -> StoreResult<Vec<StepView>> {
        if let Some(Entry { known: Some((version, known)), .. }) = self.lock().jobs.get(&job.job_id)
            && *version == job.version
        {
            return Ok(known.shown(job));
        }
        let known = self.source.steps(job).await?;
        let steps = known.shown(job);
        if let Some(entry) = self.lock().jobs.get_mut(&job.job_id) {
            entry.known = Some((job.version, known));
        }
        Ok(steps)
    }

    fn publish(&self, job_id: JobId, seen: Seen) {
        let mut watched = self.lock();
        let Some(entry) = watched.jobs.get(&job_id) else { return };
        let (round, over) = (seen.round, seen.over);
        // Whoever came since the last news may have read something in between: it is told once more,
        // and knows what it has.
        let is_news = entry
            .states
            .borrow()
            .as_ref()
            .is_none_or(|last| last.tag != seen.tag || last.round <= entry.since);
        if is_news {
            entry.states.send_replace(Some(Arc::new(seen)));
        }
        if over {
            watched.forget(&job_id, round);
        }
    }
}

impl Watched {
    /// Ends a job's streams, unless somebody came after the round had begun: it knows better.
    fn forget(&mut self, job_id: &JobId, round: u64) {
        if self.jobs.get(job_id).is_some_and(|entry| entry.since < round) {
            self.jobs.remove(job_id);
        }
    }
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Of those that all share.
    All,
    /// Of those that one caller may have.
    Callers,
}

/// One client's place among those that may watch.
pub(super) struct Place {
    watch: Watch,
    subject: String,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.watch.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let hash_map::Entry::Occupied(mut of_one) = taken.entry(self.subject.clone()) {
            *of_one.get_mut() -= 1;
            if *of_one.get() == 0 {
                of_one.remove();
            }
        }
        metrics::gauge!("outhaul_event_streams").decrement(1.0);
    }
}

/// One client's view of one job.
pub(super) struct Watcher {
    first: Option<Arc<Seen>>,
    states: watch::Receiver<Option<Arc<Seen>>>,
    /// What this round read may be older than what the client has.
    round: u64,
    /// What the client has.
    tag: String,
    over: bool,
    /// When the next state may be sent.
    due: Instant,
    stop: CancellationToken,
    _place: Place,
}

impl Watcher {
    /// The next state; `None` once the job has ended, is there no more, or the process stops.
    pub(super) async fn next(&mut self) -> Option<Arc<Seen>> {
        let stop = self.stop.clone();
        stop.run_until_cancelled(self.changed()).await?
    }

    async fn changed(&mut self) -> Option<Arc<Seen>> {
        if self.over {
            return None;
        }
        if Instant::now() < self.due {
            tokio::time::sleep_until(self.due).await;
        }
        let seen = match self.first.take() {
            Some(first) => first,
            None => self.news().await?,
        };
        self.due = Instant::now() + LOOK;
        self.tag.clone_from(&seen.tag);
        self.over = seen.over;
        Some(seen)
    }

    async fn news(&mut self) -> Option<Arc<Seen>> {
        loop {
            self.states.changed().await.ok()?;
            let seen = self.states.borrow_and_update().clone()?;
            if seen.round > self.round && seen.tag != self.tag {
                return Some(seen);
            }
        }
    }
}

#[cfg(test)]
mod tests;
