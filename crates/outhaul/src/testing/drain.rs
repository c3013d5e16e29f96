//! Runs everything that waits in a store, one after the other.

use std::sync::Arc;
use std::time::Duration;

use outhaul_core::retry::Verdict;
use outhaul_core::store::{Store, StoreResult};
use outhaul_core::worker::{ClaimedChunk, Finish, NewWorker, Want};

use super::context;
use crate::handler::{Failed, Handler, Outcome};
use crate::recorder::recordable;
use crate::registry::Registry;
use crate::runner::first_line;

/// The most chunks that become eligible in one look.
const BATCH: u32 = 1000;

/// What a [`drain()`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Attempts that succeeded.
    pub done: u32,
    /// Attempts that failed and were followed by another.
    pub retried: u32,
    /// Attempts that failed for good.
    pub dead: u32,
}

/// Runs what waits in the store until nothing is left that may run now, and returns what became of it.
///
/// Nothing is waited for: a failed attempt is repeated at once, whatever its backoff, up to its
/// `max_attempts`; `ctx.sleep` is over at once. A job whose `run_at` is in the future stays, and so does one
/// that a real worker left waiting for its next attempt. Timeouts are not watched.
///
/// ```
/// # use outhaul::{Client, Context, Job, JobError, Registry, testing};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Greet { name: String }
/// # impl Job for Greet {
/// #     const TYPE: &'static str = "GREET";
/// #     type Output = String;
/// #     async fn run(&self, _: &Context) -> Result<String, JobError> { Ok(format!("Hello, {}", self.name)) }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let temporary = testing::TempStore::open().await?;
/// Client::new(temporary.store()).enqueue(Greet { name: "Ada".into() }).await?;
/// let drained = testing::drain(&temporary.store(), &Registry::new().job::<Greet>()).await?;
/// assert_eq!((drained.done, drained.dead), (1, 0));
/// # Ok(()) }
/// ```
pub async fn drain(store: &Arc<dyn Store>, registry: &Registry) -> StoreResult<Drained> {
    let queues = store.queues_sync(&registry.queues()).await?;
    let known = NewWorker { host: "test".to_owned(), roles: "worker".to_owned(), concurrency: 1 };
    let worker = store.worker_register(&known).await?;
    let wants: Vec<Want> = queues.values().map(|&queue| Want { queue, limit: 1 }).collect();
    let mut drained = Drained::default();
    loop {
        let staged = store.chunks_stage(BATCH).await?;
        // One at a time: no budget can be overrun.
        let claimed = store.chunks_claim(worker, &wants, 1).await?.pop();
        match claimed.and_then(|chunk| Some((registry.get(&chunk.job_type)?.clone(), chunk))) {
            Some((handler, chunk)) => run(store, handler, chunk, &mut drained).await?,
            None if staged.queued == 0 => break,
            None => {}
        }
    }
    store.worker_leave(worker).await?;
    Ok(drained)
}

async fn run(
    store: &Arc<dyn Store>,
    handler: Arc<dyn Handler>,
    chunk: ClaimedChunk,
    drained: &mut Drained,
) -> StoreResult<()> {
    let (lease, claimed_at, attempt) = (chunk.lease, chunk.claimed_at, chunk.attempt);
    let policy = handler.retry(chunk.dataset.as_deref());
    let (context, _stopper) = context(chunk, store.clone());
    let context = context.without_sleep();
    // A task of its own, so that a panic is an outcome like any other.
    let ended = tokio::spawn(async move { handler.run(&context).await }).await;
    let ended = ended.unwrap_or_else(|error| {
        let line = error.try_into_panic().map(|panic| first_line(panic.as_ref())).unwrap_or_default();
        Err(Failed::Retryable(format!("the handler panicked: {line}").into()))
    });
    let (cause, fatal) = match ended {
        Ok(Outcome::Done { file, reason, result }) => {
            store.chunks_finish(&[Finish { lease, claimed_at, file, reason, result }]).await?;
            drained.done += 1;
            return Ok(());
        }
        Ok(Outcome::Snooze(wait)) => {
            store.chunk_snooze(lease, wait).await?;
            return Ok(());
        }
        Err(Failed::Retryable(cause)) => (cause, false),
        Err(Failed::Fatal(cause)) => (cause, true),
        // Only the store can have said so: its job was cancelled, or the lease is gone.
        Err(Failed::Stopped) => {
            store.chunks_cancel(&[lease]).await?;
            return Ok(());
        }
    };
    let retry_in = match policy.judge(attempt, fatal, 0.0) {
        Verdict::Retry(_) => Some(Duration::ZERO),
        Verdict::Dead => None,
    };
    *(if retry_in.is_some() { &mut drained.retried } else { &mut drained.dead }) += 1;
    store.chunks_fail(&[recordable(lease, &cause, retry_in)]).await?;
    Ok(())
}
