//! awa, set as its own throughput benchmark sets it: no deadline per job, a poll of 50 ms.

use std::time::Duration;

use awa::{Client, InsertOpts, JobArgs, JobResult, QueueConfig, QueueStorage, QueueStorageConfig};
use bench_measure::{Queue, env, handler_started, measure, url};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

const QUEUE: &str = "bench";

#[derive(Serialize, Deserialize, JobArgs)]
struct Noop {
    seq: i64,
}

fn options() -> InsertOpts {
    InsertOpts { queue: QUEUE.into(), ..Default::default() }
}

struct Awa {
    pool: PgPool,
    store: QueueStorage,
}

impl Awa {
    fn client(&self) -> Client {
        let config = QueueConfig {
            max_workers: env("CONCURRENCY", 50) as u32,
            deadline_duration: Duration::ZERO,
            poll_interval: Duration::from_millis(50),
            ..Default::default()
        };
        Client::builder(self.pool.clone())
            .queue(QUEUE, config)
            .register::<Noop, _, _>(|job, _| async move {
                handler_started(job.seq);
                Ok(JobResult::Completed)
            })
            .build()
            .unwrap()
    }
}

impl Queue for Awa {
    const NAME: &'static str = "awa";
    // The terminal half of awa's exact count. All of it also looks at every claim and takes seconds at this
    // size, which would count as awa's time.
    const DONE: &'static str = "select (
        coalesce((select sum(live_terminal_count) from awa.queue_terminal_live_counts where queue = 'bench'), 0)
      + coalesce((select sum(terminal_delta) from awa.queue_terminal_count_deltas where queue = 'bench'), 0)
      + coalesce((select sum(completed_count) from awa.receipt_completion_batches where queue = 'bench'), 0)
      + coalesce((select sum(pruned_completed_count) from awa.queue_terminal_rollups where queue = 'bench'), 0)
      )::bigint";

    async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    async fn enqueue(&self, from: usize, to: usize) {
        let jobs: Vec<_> = (from..to)
            .map(|job| awa::model::insert::params_with(&Noop { seq: job as i64 }, options()).unwrap())
            .collect();
        self.store.enqueue_params_copy(&self.pool, &jobs).await.unwrap();
    }

    async fn enqueue_one(&self, job: usize) {
        awa::insert_with(&self.pool, &Noop { seq: job as i64 }, options()).await.unwrap();
    }

    async fn work(&self) {
        let client = self.client();
        client.start().await.unwrap();
        std::future::pending().await
    }
}

#[tokio::main]
async fn main() {
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(20).connect(&url()).await.unwrap();
    awa::migrations::run(&pool).await.unwrap();
    let awa = Awa { pool, store: QueueStorage::new(QueueStorageConfig::default()).unwrap() };
    // The first start on a fresh database switches it to queue storage, awa's default engine.
    let first = awa.client();
    first.start().await.unwrap();
    first.shutdown(Duration::from_secs(10)).await;
    measure(awa).await;
}
