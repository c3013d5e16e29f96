//! River for Rust. A fetch happens at most once per cooldown, 100 ms by default, so the cooldown bounds the
//! throughput: it is 1 ms here.

use std::time::Duration;

use bench_measure::{Queue, env, handler_started, measure, url};
use riverqueue::migrate::PostgresMigrator;
use riverqueue::{BoxError, Client, Job, JobArgs, QueueConfig, WorkContext, WorkOutcome, Workers};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

#[derive(Clone, Debug, Deserialize, JobArgs, Serialize)]
#[river(kind = "noop")]
struct Noop {
    seq: i64,
}

async fn noop(_: WorkContext, job: Job<Noop>) -> Result<WorkOutcome, BoxError> {
    handler_started(job.args.seq);
    Ok(WorkOutcome::Complete)
}

struct River {
    pool: PgPool,
    client: Client,
}

impl Queue for River {
    const NAME: &'static str = "river";
    const DONE: &'static str = "select count(*) from river_job where state = 'completed'";

    async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    async fn enqueue(&self, from: usize, to: usize) {
        self.client.insert_many((from..to).map(|job| Noop { seq: job as i64 })).await.unwrap();
    }

    async fn enqueue_one(&self, job: usize) {
        self.client.insert(Noop { seq: job as i64 }).await.unwrap();
    }

    async fn work(&self) {
        let _running = self.client.start().unwrap();
        std::future::pending().await
    }
}

#[tokio::main]
async fn main() {
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(20).connect(&url()).await.unwrap();
    PostgresMigrator::new(pool.clone()).migrate_up().await.unwrap();
    let mut workers = Workers::new();
    workers.add_fn(noop).unwrap();
    let client = Client::builder(pool.clone())
        .workers(workers)
        .fetch_cooldown(Duration::from_millis(1))
        .queue("default", QueueConfig::new(env("CONCURRENCY", 50)))
        .build()
        .unwrap();
    measure(River { pool, client }).await;
}
