//! apalis-postgres. Notifications wake its worker; the poll finds the jobs that were there before.

use std::time::Duration;

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use bench_measure::{Queue, env, handler_started, measure, url};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

const QUEUE: &str = "bench";

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Noop {
    seq: i64,
}

async fn noop(job: Noop) -> Result<(), BoxDynError> {
    handler_started(job.seq);
    Ok(())
}

struct Apalis {
    pool: PgPool,
}

impl Queue for Apalis {
    const NAME: &'static str = "apalis";
    const DONE: &'static str = "select count(*) from apalis.jobs where status = 'Done'";

    async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    async fn enqueue(&self, from: usize, to: usize) {
        let tasks: Vec<_> = (from..to)
            .map(|job| serde_json::to_vec(&Noop { seq: job as i64 }).unwrap())
            .map(|payload| TaskBuilder::new(payload).build())
            .collect();
        let mut transaction = self.pool.begin().await.unwrap();
        apalis_postgres::queries::push_tasks(&mut *transaction, QUEUE, tasks).await.unwrap();
        transaction.commit().await.unwrap();
    }

    async fn enqueue_one(&self, job: usize) {
        self.enqueue(job, job + 1).await;
    }

    async fn work(&self) {
        // Without locks on tasks: as the crate's own basic example.
        let config = Config::default().queue(QUEUE).batch_size(env("BATCH", 100)).lock_tasks(false);
        let backend = PostgresStorage::<Noop>::new(&self.pool)
            .with_config(config)
            .with_pubsub()
            .poll_with_interval(Duration::from_millis(50));
        let worker = WorkerBuilder::new("bench-worker")
            .backend(backend)
            .concurrency(env("CONCURRENCY", 50))
            .parallelize(tokio::spawn)
            .build(noop);
        worker.run().await.unwrap();
    }
}

#[tokio::main]
async fn main() {
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(20).connect(&url()).await.unwrap();
    PostgresStorage::setup(&pool).await.unwrap();
    measure(Apalis { pool }).await;
}
