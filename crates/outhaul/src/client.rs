//! Submitting jobs from Rust, with or without an engine in the same process. A job is durable once one of
//! these calls answered `Ok`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use outhaul_core::clock;
use outhaul_core::delivery::Delivery;
use outhaul_core::id::JobId;
use outhaul_core::job::{JobStatus, NewJob, OnParentFailure};
use outhaul_core::json::{self, Json};
use outhaul_core::queue::QueueSpec;
use outhaul_core::secret::Secret;
use outhaul_core::store::{Redriven, Store, StoreError, StoreResult, StoreSettings, Submitted};
use outhaul_store::postgres::PostgresStore;
use outhaul_store::{OpenOptions, open};
use sqlx::PgConnection;
use tokio::runtime::Handle;
use tracing::debug;

use crate::job::{Job, unique_key};
use crate::submission::{Submission, SubmitOptions, queue_of};

/// The shortest time between two hints to other processes.
const BETWEEN_HINTS: Duration = Duration::from_millis(50);
/// The most jobs that one may wait for; the HTTP API's limit.
const MAX_PARENTS: usize = 100;
/// The longest idempotency key.
const MAX_KEY: usize = 255;

/// The most labels, and the longest name and text of one; the same as in the HTTP API.
const MAX_LABELS: usize = 32;
const MAX_LABEL_NAME: usize = 64;
const MAX_LABEL_TEXT: usize = 256;

/// Why a job was not stored.
#[derive(Debug, thiserror::Error)]
pub enum EnqueueError {
    /// The database did not take it. After [`StoreError::Unavailable`] it may be stored all the same: with
    /// an idempotency key it is safe to submit it again.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A job that it depends on is not there, or is not the owner's.
    #[error("the owner has no job {0:?} to depend on")]
    NoSuchParents(Vec<JobId>),
    /// The owner has too many open chunks already; so many.
    #[error("the owner has {0} open chunks, and no room for more")]
    OverQuota(u64),
    /// The idempotency key names another request already.
    #[error("the idempotency key was used for a different request")]
    KeyConflict,
    /// An option is outside of what is allowed.
    #[error("{0}")]
    Invalid(&'static str),
    /// The job cannot be written as JSON.
    #[error("the job cannot be written as JSON")]
    Payload(#[source] serde_json::Error),
    /// [`Client::enqueue_in`] on another database than PostgreSQL.
    #[error("enqueue_in needs PostgreSQL as the engine's database")]
    NotPostgres,
}

/// A job that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// What clients call it.
    pub job_id: JobId,
    /// `false`: it was there already, by its idempotency key or because only one such job may wait.
    pub new: bool,
}

/// What may be said of a job beside its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct EnqueueOptions {
    /// The caller's name for this request, 1–255 printable ASCII characters: submitting it again finds the
    /// same job, and gives it another chance if it has failed. Not kept where the job was not stored because
    /// only one such job may wait.
    pub idempotency_key: Option<String>,
    /// 0–9, higher first; 5 if not said.
    pub priority: u8,
    /// Not before this moment.
    pub run_at: Option<DateTime<Utc>>,
    /// Free text for your own use.
    pub labels: BTreeMap<String, String>,
    /// Who asks; keys are unique per owner.
    pub owner: String,
    /// The jobs that must end before this one may start.
    pub depends_on: Vec<JobId>,
    /// What happens when one of them comes to a bad end.
    pub on_parent_failure: OnParentFailure,
}

impl Default for EnqueueOptions {
    fn default() -> Self {
        let options = SubmitOptions::default();
        Self {
            idempotency_key: options.idempotency_key,
            priority: options.priority,
            run_at: options.run_at,
            labels: options.labels,
            owner: options.owner,
            depends_on: options.depends_on,
            on_parent_failure: options.on_parent_failure,
        }
    }
}

/// Submits jobs to one database. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    delivery: Option<Arc<dyn Delivery>>,
    /// Where database calls run; the present runtime if not said.
    runtime: Option<Handle>,
    known: Arc<Known>,
}

/// What clones share.
#[derive(Default)]
struct Known {
    /// Whether there is something that workers were not told of yet.
    untold: AtomicBool,
    /// Whether somebody is telling them.
    telling: AtomicBool,
}

impl Known {
    /// Sends hints for as long as there is something new to tell, the first at once.
    async fn tell(&self, store: Arc<dyn Store>) {
        loop {
            while self.untold.swap(false, Ordering::AcqRel) {
                if let Err(error) = store.wake_others().await {
                    debug!(%error, "workers could not be told: they find the job by polling");
                }
                tokio::time::sleep(BETWEEN_HINTS).await;
            }
            self.telling.store(false, Ordering::Release);
            // Something may have come between the look and the word that nobody looks any more.
            if !self.untold.load(Ordering::Acquire) || self.telling.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}

impl Client {
    /// On a store that is open.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, delivery: None, runtime: None, known: Arc::default() }
    }

    /// On a database by its URL (`postgres://…` or `sqlite:<path>`), for a process that only submits. The
    /// schema must be there: `outhaul migrate` or a server makes it. An idempotency key finds its job for as
    /// long as that is kept: only servers, which know `idempotency.window`, let keys go.
    pub async fn connect(url: &str) -> Result<Self, EnqueueError> {
        let settings = StoreSettings {
            lease: Duration::from_secs(60),
            fairness_step: Duration::from_millis(100),
            idempotency_window: Duration::from_secs(100 * 365 * 86_400),
            parking: false,
        };
        let options = OpenOptions { listen: false, migrate: false, ..OpenOptions::default() };
        Ok(Self::new(open(&Secret::new(url), settings, options).await?.api))
    }

    /// Tells the workers of this process at once, through the delivery they listen to.
    #[must_use]
    pub fn announcing(self, delivery: Arc<dyn Delivery>) -> Self {
        Self { delivery: Some(delivery), ..self }
    }

    /// With database calls on this runtime, whatever the caller's is.
    pub(crate) fn on(store: Arc<dyn Store>, runtime: Handle) -> Self {
        Self { runtime: Some(runtime), ..Self::new(store) }
    }

    /// Submits a job.
    pub async fn enqueue<J: Job>(&self, job: J) -> Result<Enqueued, EnqueueError> {
        self.enqueue_with(job, EnqueueOptions::default()).await
    }

    /// Submits a job with options. One that its idempotency key finds FAILED gets another chance.
    pub async fn enqueue_with<J: Job>(
        &self,
        job: J,
        options: EnqueueOptions,
    ) -> Result<Enqueued, EnqueueError> {
        let job = new_job(&job, options)?;
        let submitted = self.with_queue::<J, _, _>(|store| {
            let job = job.clone();
            async move { store.job_submit(job).await }
        });
        let submitted = submitted.await?;
        let store = self.store.clone();
        let submitted = self.call(async move {
            if let Submitted::Existing(job) = &submitted
                && job.status == JobStatus::Failed
                && let Redriven::Yes(_) = store.job_redrive(&job.job_id).await?
            {
                return Ok((submitted, true));
            }
            let created = matches!(submitted, Submitted::Created(_));
            Ok((submitted, created))
        });
        let (submitted, runnable) = submitted.await?;
        if runnable {
            self.hint();
        }
        enqueued(submitted)
    }

    /// Submits many jobs in one transaction: all of them or none. The answers stand in their order.
    pub async fn enqueue_many<J: Job>(
        &self,
        jobs: impl IntoIterator<Item = J>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let jobs = jobs.into_iter().map(|job| new_job(&job, EnqueueOptions::default()));
        let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let submitted = self.with_queue::<J, _, _>(|store| {
            let jobs = jobs.clone();
            async move { store.jobs_submit(jobs).await }
        });
        let submitted = submitted.await?;
        self.hint();
        submitted.into_iter().map(enqueued).collect()
    }

    /// Submits a job inside a transaction of the caller's own, on the engine's PostgreSQL: it is there if
    /// and only if that commits. Workers find it by polling, at most a second later. A FAILED job that its
    /// idempotency key finds is left as it is: only [`Client::enqueue_with`] gives it another chance.
    pub async fn enqueue_in<J: Job>(
        &self,
        transaction: &mut PgConnection,
        job: J,
        options: EnqueueOptions,
    ) -> Result<Enqueued, EnqueueError> {
        let store = self.store.as_any().downcast_ref::<PostgresStore>().ok_or(EnqueueError::NotPostgres)?;
        let job = new_job(&job, options)?;
        let submitted = match store.job_submit_in(transaction, job.clone()).await {
            // Found out before the transaction was touched.
            Err(StoreError::UnknownQueue(_)) => {
                self.make_queue::<J>().await?;
                store.job_submit_in(transaction, job).await?
            }
            answer => answer?,
        };
        enqueued(submitted)
    }

    /// Submits; where the queue is not there yet, makes it first.
    async fn with_queue<J, T, F>(&self, submit: impl Fn(Arc<dyn Store>) -> F) -> StoreResult<T>
    where
        J: Job,
        T: Send + 'static,
        F: Future<Output = StoreResult<T>> + Send + 'static,
    {
        match self.call(submit(self.store.clone())).await {
            Err(StoreError::UnknownQueue(_)) => {
                self.make_queue::<J>().await?;
                self.call(submit(self.store.clone())).await
            }
            answer => answer,
        }
    }

    /// Only ever for a queue that is missing: the budget of one that is there is its workers' to say.
    async fn make_queue<J: Job>(&self) -> StoreResult<()> {
        let queue = QueueSpec { name: queue_of(J::TYPE), max_concurrent: J::options().budget() };
        let store = self.store.clone();
        self.call(async move { store.queues_sync(&[queue]).await.map(drop) }).await
    }

    /// Runs a store call to its end, also if the caller gives up: one that is cut off half-way can leave a
    /// transaction open in the pool.
    async fn call<T: Send + 'static>(
        &self,
        call: impl Future<Output = StoreResult<T>> + Send + 'static,
    ) -> StoreResult<T> {
        let call = match &self.runtime {
            Some(runtime) => runtime.spawn(call),
            None => tokio::spawn(call),
        };
        call.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.into())))
    }

    /// Tells workers that there is something to claim. A hint: polling finds it too.
    fn hint(&self) {
        if let Some(delivery) = &self.delivery {
            return delivery.announce();
        }
        self.known.untold.store(true, Ordering::Release);
        if self.known.telling.swap(true, Ordering::AcqRel) {
            return;
        }
        let (store, known) = (self.store.clone(), self.known.clone());
        let hint = async move { known.tell(store).await };
        match &self.runtime {
            Some(runtime) => drop(runtime.spawn(hint)),
            None => drop(tokio::spawn(hint)),
        }
    }
}

fn new_job<J: Job>(job: &J, options: EnqueueOptions) -> Result<NewJob, EnqueueError> {
    let printable = |key: &String| {
        key.len() <= MAX_KEY && !key.is_empty() && key.bytes().all(|b| (b' '..=b'~').contains(&b))
    };
    if options.idempotency_key.as_ref().is_some_and(|key| !printable(key)) {
        return Err(EnqueueError::Invalid("an idempotency key has 1 to 255 printable ASCII characters"));
    }
    if options.priority > 9 {
        return Err(EnqueueError::Invalid("a priority is a number from 0 to 9"));
    }
    if options.depends_on.len() > MAX_PARENTS {
        return Err(EnqueueError::Invalid("a job depends on at most 100 others"));
    }
    let plain = |text: &String, most| text.chars().count() <= most && !text.contains(char::is_control);
    let label = |(name, text): (&String, &String)| {
        !name.is_empty() && plain(name, MAX_LABEL_NAME) && plain(text, MAX_LABEL_TEXT)
    };
    if options.labels.len() > MAX_LABELS || !options.labels.iter().all(label) {
        return Err(EnqueueError::Invalid(
            "a job has at most 32 labels, with names of 1 to 64 and texts of at most 256 characters, none of them control characters",
        ));
    }
    let EnqueueOptions { idempotency_key, priority, run_at, labels, owner, depends_on, on_parent_failure } =
        options;
    let payload = serde_json::to_string(job).map_err(EnqueueError::Payload)?;
    let checked = Json::parse(&payload).ok().filter(|_| json::problem(&payload).is_none());
    let Some(payload) = checked else {
        return Err(EnqueueError::Invalid(
            "a payload is nested at most 120 levels deep, has no member twice, and none that begins with `$serde_json::private::`",
        ));
    };
    let submission = Submission {
        job_type: J::TYPE.to_owned(),
        payload,
        options: SubmitOptions {
            idempotency_key,
            priority,
            run_at,
            labels,
            owner,
            depends_on,
            on_parent_failure,
            ..SubmitOptions::default()
        },
        unique_key: unique_key(job),
    };
    Ok(submission.into_new_job(clock::now(), rand::random()))
}

fn enqueued(submitted: Submitted) -> Result<Enqueued, EnqueueError> {
    match submitted {
        Submitted::Created(job) => Ok(Enqueued { job_id: job.job_id, new: true }),
        Submitted::Existing(job) | Submitted::Duplicate(job) => {
            Ok(Enqueued { job_id: job.job_id, new: false })
        }
        Submitted::KeyConflict => Err(EnqueueError::KeyConflict),
        Submitted::NoSuchParents(missing) => Err(EnqueueError::NoSuchParents(missing)),
        Submitted::OverQuota(open) => Err(EnqueueError::OverQuota(open)),
    }
}
