//! Outhaul in the comparison of job queues: the engine as a library, with its default settings.

use std::sync::Arc;
use std::time::Duration;

use bench_measure::{Queue, env, handler_started, measure, url};
use outhaul::core::secret::Secret;
use outhaul::core::store::StoreSettings;
use outhaul::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use outhaul::sqlx::{self, PgPool};
use outhaul::{Client, Context, Engine, EngineSettings, Job, JobError, Registry, Stores, WorkerSettings};
use outhaul_delivery::DatabaseDelivery;
use outhaul_store::{OpenOptions, open};
use serde::{Deserialize, Serialize};

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Serialize, Deserialize)]
struct Noop {
    seq: i64,
}

impl Job for Noop {
    const TYPE: &'static str = "NOOP";
    type Output = ();

    async fn run(&self, _: &Context) -> Result<(), JobError> {
        handler_started(self.seq);
        Ok(())
    }
}

struct Outhaul {
    pool: PgPool,
    stores: Stores,
    delivery: Arc<DatabaseDelivery>,
    client: Client,
}

impl Outhaul {
    async fn open() -> Self {
        // Whichever schema the store is in.
        let options: PgConnectOptions = url().parse().expect("DATABASE_URL is a URL");
        let options = options.options([("search_path", "outhaul,public")]);
        let pool = PgPoolOptions::new().max_connections(4).connect_with(options).await;
        let settings = StoreSettings {
            lease: Duration::from_secs(60),
            fairness_step: Duration::from_millis(100),
            idempotency_window: DAY,
            parking: false,
        };
        let options = OpenOptions { listen: true, migrate: true, ..OpenOptions::default() };
        let opened = open(&Secret::new(url()), settings, options).await.expect("the store opens");
        let stores = Stores { api: opened.api, engine: opened.engine, keeper: opened.keeper };
        let delivery = DatabaseDelivery::start(stores.engine.clone());
        let client = Client::new(stores.api.clone()).announcing(delivery.clone());
        Self { pool: pool.expect("the database answers"), stores, delivery, client }
    }
}

impl Queue for Outhaul {
    const NAME: &'static str = "outhaul";
    const DONE: &'static str = "select count(*) from outhaul.job where status = 'COMPLETED'";

    async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.expect("the database answers")
    }

    async fn enqueue(&self, from: usize, to: usize) {
        let jobs = (from..to).map(|job| Noop { seq: job as i64 });
        self.client.enqueue_many(jobs).await.expect("the jobs are accepted");
    }

    async fn enqueue_one(&self, job: usize) {
        self.client.enqueue(Noop { seq: job as i64 }).await.expect("the job is accepted");
    }

    async fn work(&self) {
        let settings = EngineSettings {
            worker_role: true,
            scheduler_role: true,
            host: "bench".into(),
            roles: "worker,scheduler".into(),
            worker: WorkerSettings {
                concurrency: env("CONCURRENCY", 50) as u32,
                ..WorkerSettings::default()
            },
            retain_jobs: 30 * DAY,
            retain_audit: 365 * DAY,
        };
        let registry = Registry::new().job::<Noop>();
        let engine = Engine::start(self.stores.clone(), self.delivery.clone(), registry, settings).await;
        let _running = engine.expect("the engine starts");
        std::future::pending().await
    }
}

#[tokio::main]
async fn main() {
    measure(Outhaul::open().await).await;
}
