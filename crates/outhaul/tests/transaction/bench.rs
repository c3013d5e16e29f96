//! A database of the test's own with the engine's tables and one of ours, reached through the proxy.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outhaul::core::id::JobId;
use outhaul::core::job::Job as JobRow;
use outhaul::core::queue::QueueSpec;
use outhaul::core::retry::{Backoff, RetryPolicy};
use outhaul::core::secret::Secret;
use outhaul::core::store::{Store, StoreSettings};
use outhaul::core::worker::{ClaimedChunk, NewWorker, Want};
use outhaul::{
    Client, Context, Engine, EngineSettings, Instrumented, Job, JobError, JobOptions, Registry, Stores,
    WorkerSettings, sqlx,
};
use outhaul_delivery::DatabaseDelivery;
use outhaul_store::{OpenOptions, open};
use outhaul_testkit::test_db::TestDb;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::sync::{Semaphore, watch};

use crate::proxy;

const LEASE: Duration = Duration::from_secs(60);

/// What jobs did, shared with the test.
pub(crate) struct Seen {
    pub(crate) events: Mutex<Vec<String>>,
    pub(crate) changed: watch::Sender<u64>,
    pub(crate) gate: Semaphore,
}

impl Seen {
    pub(crate) fn note(&self, event: impl Into<String>) {
        self.events.lock().unwrap().push(event.into());
        self.changed.send_modify(|count| *count += 1);
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }

    pub(crate) async fn until_events(&self, count: usize) {
        let mut changed = self.changed.subscribe();
        let wait = changed.wait_for(|_| self.events().len() >= count);
        if tokio::time::timeout(Duration::from_secs(30), wait).await.is_err() {
            panic!("never happened: {count} events; {:?}", self.events());
        }
    }

    pub(crate) async fn until(&self, event: &str) {
        let mut changed = self.changed.subscribe();
        let wait = changed.wait_for(|_| self.events().iter().any(|seen| seen == event));
        if tokio::time::timeout(Duration::from_secs(30), wait).await.is_err() {
            panic!("never happened: {event}; {:?}", self.events());
        }
    }
}

/// Adds a row to `effect` in a transaction; `fault` says what goes wrong.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) account: i64,
    pub(crate) fault: String,
}

pub(crate) fn transfer(account: i64, fault: &str) -> Transfer {
    Transfer { account, fault: fault.to_owned() }
}

impl Job for Transfer {
    const TYPE: &'static str = "TRANSFER";
    type Output = i64;

    fn options() -> JobOptions {
        let backoff = Backoff::Fixed { base: Duration::from_millis(1) };
        JobOptions::default().retry(RetryPolicy { max_attempts: 3, backoff })
    }

    async fn run(&self, ctx: &Context) -> Result<i64, JobError> {
        let seen = ctx.state::<Arc<Seen>>()?.clone();
        let attempt = ctx.attempt();
        let debit = ctx.transaction("debit", async |tx| {
            seen.note(format!("debit in attempt {attempt}"));
            let insert = sqlx::query_scalar("insert into effect (account) values ($1) returning account");
            let account: i64 = insert.bind(self.account).fetch_one(&mut *tx).await?;
            let cut = match self.fault.as_str() {
                "before" if attempt == 1 => Some("select 'cut before commit'"),
                "after" if attempt == 1 => Some("select 'cut after commit'"),
                "fatal" => return Err(JobError::fatal("no money")),
                "gate" => {
                    seen.gate.acquire().await?.forget();
                    None
                }
                _ => None,
            };
            if let Some(marker) = cut {
                sqlx::query(marker).execute(tx).await?;
            }
            Ok(account * 2)
        });
        let doubled = debit.await?;
        if self.fault == "late" && attempt == 1 {
            return Err(JobError::retryable("after the debit"));
        }
        Ok(doubled)
    }
}

pub(crate) struct Bench {
    /// Straight to the server.
    pub(crate) pool: PgPool,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: Client,
    pub(crate) seen: Arc<Seen>,
    /// How many COMMITs the proxy lost.
    pub(crate) lost: Arc<AtomicUsize>,
    pub(crate) database: TestDb,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let database = TestDb::migrated().await;
        let settings = StoreSettings {
            lease: LEASE,
            fairness_step: Duration::from_millis(100),
            idempotency_window: Duration::from_secs(60),
            parking: false,
        };
        let (url, lost) = proxy::start(database.url()).await;
        let opened = open(&Secret::new(url), settings, OpenOptions::default()).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(Instrumented::new(opened.engine));
        let pool = PgPool::connect(database.url()).await.unwrap();
        sqlx::query("create table effect (account bigint not null)").execute(&pool).await.unwrap();
        let (events, changed, gate) = (Mutex::default(), watch::channel(0).0, Semaphore::new(0));
        let seen = Arc::new(Seen { events, changed, gate });
        Self { pool, client: Client::new(store.clone()), store, seen, lost, database }
    }

    pub(crate) fn registry(&self) -> Registry {
        Registry::new().job::<Transfer>().state(self.seen.clone())
    }

    pub(crate) async fn engine(&self) -> Engine {
        self.engine_with(self.settings()).await
    }

    pub(crate) fn settings(&self) -> EngineSettings {
        EngineSettings {
            worker_role: true,
            scheduler_role: false,
            host: "test".to_owned(),
            roles: "worker".to_owned(),
            worker: WorkerSettings {
                lease: LEASE,
                poll_interval: Duration::from_millis(20),
                ..WorkerSettings::default()
            },
            retain_jobs: Duration::MAX,
            retain_audit: Duration::MAX,
        }
    }

    pub(crate) async fn engine_with(&self, settings: EngineSettings) -> Engine {
        let store = self.store.clone();
        let stores = Stores { api: store.clone(), engine: store.clone(), keeper: store.clone() };
        Engine::start(stores, DatabaseDelivery::start(store), self.registry(), settings).await.unwrap()
    }

    /// Looks at the job until it runs.
    pub(crate) async fn running(&self, id: &JobId) {
        for _ in 0..3000 {
            if self.store.job_get(id).await.unwrap().unwrap().counts.running > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never ran: {:#?}", self.store.job_get(id).await);
    }

    /// Looks at the job until it has ended: the store has no signal for this.
    pub(crate) async fn ended(&self, id: &JobId) -> JobRow {
        for _ in 0..3000 {
            let job = self.store.job_get(id).await.unwrap().unwrap();
            if job.status.is_final() {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never ended: {:#?}", self.store.job_get(id).await);
    }

    /// Claims the one chunk that waits.
    pub(crate) async fn claim(&self) -> ClaimedChunk {
        let known = NewWorker { host: "test".to_owned(), roles: String::new(), concurrency: 1 };
        let worker = self.store.worker_register(&known).await.unwrap();
        let queue = QueueSpec { name: "job:TRANSFER".to_owned(), max_concurrent: None };
        let queue = *self.store.queues_sync(&[queue]).await.unwrap().values().next().unwrap();
        self.store.chunks_stage(10).await.unwrap();
        let claimed = self.store.chunks_claim(worker, &[Want { queue, limit: 1 }], 1).await.unwrap();
        claimed.into_iter().next().unwrap()
    }

    /// The accounts in `effect`, as often as they are there.
    pub(crate) async fn effects(&self) -> Vec<i64> {
        sqlx::query_scalar("select account from effect order by 1").fetch_all(&self.pool).await.unwrap()
    }
}
