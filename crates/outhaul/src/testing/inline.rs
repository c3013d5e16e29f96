//! Runs one job where it stands.

use outhaul_core::queue::QueueSpec;
use outhaul_core::worker::{NewWorker, Want};

use super::{TempStore, context};
use crate::client::Client;
use crate::job::{Context, Job, JobError, attempt};
use crate::registry::Registry;
use crate::submission::queue_of;

/// Runs a job once and returns what `run` returned. Its payload goes through a store and back as it would in
/// earnest, its steps are recorded, `ctx.sleep` is over at once, and a panic is the test's own.
///
/// ```
/// # use outhaul::{Context, Job, JobError, testing};
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Double { number: i64 }
///
/// impl Job for Double {
///     const TYPE: &'static str = "DOUBLE";
///     type Output = i64;
///     async fn run(&self, ctx: &Context) -> Result<i64, JobError> {
///         ctx.step("multiply", || async { Ok(self.number * 2) }).await
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// assert_eq!(testing::run_inline(Double { number: 21 }).await.unwrap(), 42);
/// # }
/// ```
pub async fn run_inline<J: Job>(job: J) -> Result<J::Output, JobError> {
    run_inline_with(job, &Registry::new()).await
}

/// The same with what a registry keeps for [`Context::state`]. The job need not be registered in it.
pub async fn run_inline_with<J: Job>(job: J, registry: &Registry) -> Result<J::Output, JobError> {
    let temporary = TempStore::open().await?;
    let store = temporary.store();
    Client::new(store.clone()).enqueue(job).await?;
    let known = NewWorker { host: "test".to_owned(), roles: "worker".to_owned(), concurrency: 1 };
    let worker = store.worker_register(&known).await?;
    let queue = QueueSpec { name: queue_of(J::TYPE), max_concurrent: J::options().budget() };
    let queues = store.queues_sync(&[queue]).await?;
    let wants: Vec<Want> = queues.values().map(|&queue| Want { queue, limit: 1 }).collect();
    let claimed = store.chunks_claim(worker, &wants, 1).await?.pop();
    let claimed = claimed.ok_or_else(|| JobError::fatal("the job could not be claimed"))?;
    let (chunk, _stopper) = context(claimed, store);
    let context = Context::new(chunk.without_sleep(), registry.shared().values());
    attempt::<J>(&context).await
}
