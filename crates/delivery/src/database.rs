//! The `database` delivery: in-process notification, plus the store's own hints between processes.
//! Hints are counted, not queued, so any number of them while a worker looks away wake it once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::future::BoxFuture;
use outhaul_core::delivery::Delivery;
use outhaul_core::retry::Backoff;
use outhaul_core::store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

/// The shortest time between two hints to other processes: a busy submitter sends 20 a second, not 2,000.
const BETWEEN_HINTS: Duration = Duration::from_millis(50);
const RECONNECT: Backoff =
    Backoff::Exponential { base: Duration::from_millis(500), max: Duration::from_secs(30), jitter: true };
/// How long a stop waits for a statement under way.
const STOPPING: Duration = Duration::from_secs(1);

/// Hints within the process at once, between processes through the store. Its tasks end when it is dropped.
pub struct DatabaseDelivery {
    /// Counts announcements of this process.
    announced: watch::Sender<u64>,
    /// Counts everything that may have queued a chunk, here or elsewhere.
    hints: Arc<watch::Sender<u64>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl DatabaseDelivery {
    /// Starts listening and forwarding. Needs a running tokio runtime.
    pub fn start(store: Arc<dyn Store>) -> Arc<Self> {
        let delivery = Self::new();
        let (announced, hints) = (delivery.announced.subscribe(), delivery.hints.clone());
        let stop = &delivery.stop;
        delivery.tasks.spawn(tell_others(store.clone(), announced, stop.clone()));
        delivery.tasks.spawn(hear_others(store, hints, stop.clone()));
        delivery.tasks.close();
        Arc::new(delivery)
    }

    fn new() -> Self {
        let hints = Arc::new(watch::Sender::new(0));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        Self { announced: watch::Sender::new(0), hints, stop, tasks }
    }

    /// Ends its tasks, and returns when they hold the store no more, after a second at most.
    pub async fn stop(&self) {
        self.stop.cancel();
        // A statement that takes longer is not cut off half-way; it ends by itself.
        let _ = tokio::time::timeout(STOPPING, self.tasks.wait()).await;
    }

    /// One that hears and tells nobody else, for tests without a store.
    #[cfg(test)]
    pub(crate) fn alone() -> Arc<Self> {
        Arc::new(Self::new())
    }
}

#[async_trait]
impl Delivery for DatabaseDelivery {
    fn announce(&self) {
        self.hints.send_modify(|count| *count += 1);
        self.announced.send_modify(|count| *count += 1);
    }

    fn arm(&self) -> BoxFuture<'_, ()> {
        // Subscribing marks the present count as seen; that is the moment of arming.
        let mut hints = self.hints.subscribe();
        Box::pin(async move {
            // Cannot fail: the sender lives as long as `self`.
            let _ = hints.changed().await;
        })
    }
}

impl Drop for DatabaseDelivery {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Forwards announcements to other processes: the first at once, those within the pause after it as one.
async fn tell_others(store: Arc<dyn Store>, mut announced: watch::Receiver<u64>, stop: CancellationToken) {
    let mut failing = false;
    // Cannot fail otherwise: the sender lives until after the stop.
    while let Some(Ok(())) = stop.run_until_cancelled(announced.changed()).await {
        match store.wake_others().await {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                failing = true;
                warn!(%error, "other processes cannot be woken: they find work by polling");
            }
            Err(_) => {}
        }
        stop.run_until_cancelled(tokio::time::sleep(BETWEEN_HINTS)).await;
    }
}

/// Passes on hints of other processes, and connects again when the stream ends.
async fn hear_others(store: Arc<dyn Store>, hints: Arc<watch::Sender<u64>>, stop: CancellationToken) {
    let mut failures = 0u32;
    while !stop.is_cancelled() {
        match store.wakeups().await {
            Ok(None) => return,
            Ok(Some(mut stream)) => {
                if std::mem::take(&mut failures) > 0 {
                    info!("listening for wake-ups again");
                }
                // What was announced while nobody listened is found by one look now.
                hints.send_modify(|count| *count += 1);
                while let Some(hint) = stop.run_until_cancelled(stream.next()).await {
                    match hint {
                        Some(()) => hints.send_modify(|count| *count += 1),
                        None => {
                            warn!("the stream of wake-ups ended: polling until it is back");
                            break;
                        }
                    }
                }
            }
            Err(error) if failures == 0 => {
                warn!(%error, "cannot listen for wake-ups: polling until it works");
            }
            Err(_) => {}
        }
        failures = failures.saturating_add(1);
        stop.run_until_cancelled(tokio::time::sleep(RECONNECT.wait(failures, rand::random()))).await;
    }
}
