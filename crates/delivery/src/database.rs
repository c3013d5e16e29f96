//! The `database` delivery: in-process notification, plus the store's own hints between processes.
//! Hints are counted, not queued, so any number of them while a worker looks away wake it once.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::future::BoxFuture;
use outhaul_core::delivery::Delivery;
use outhaul_core::store::Store;
use tokio::sync::watch;
use tracing::{info, warn};

/// The shortest time between two hints to other processes: a busy submitter sends 20 a second, not 2,000.
const BETWEEN_HINTS: Duration = Duration::from_millis(50);
const FIRST_RECONNECT: Duration = Duration::from_millis(500);
const LAST_RECONNECT: Duration = Duration::from_secs(30);

/// Hints within the process at once, between processes through the store. Its tasks end when it is dropped.
pub struct DatabaseDelivery {
    /// Counts announcements of this process; its end tells the tasks to end.
    announced: watch::Sender<u64>,
    /// Counts everything that may have queued a chunk, here or elsewhere.
    hints: Arc<watch::Sender<u64>>,
}

impl DatabaseDelivery {
    /// Starts listening and forwarding. Needs a running tokio runtime.
    pub fn start(store: Arc<dyn Store>) -> Arc<Self> {
        let (announced, alive) = watch::channel(0);
        let hints = Arc::new(watch::channel(0).0);
        tokio::spawn(tell_others(store.clone(), alive.clone()));
        tokio::spawn(hear_others(store, hints.clone(), alive));
        Arc::new(Self { announced, hints })
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

/// Forwards announcements to other processes: the first at once, those within the pause after it as one.
async fn tell_others(store: Arc<dyn Store>, mut announced: watch::Receiver<u64>) {
    let mut failing = false;
    while announced.changed().await.is_ok() {
        match store.wake_others().await {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                failing = true;
                warn!(%error, "other processes cannot be woken: they find work by polling");
            }
            Err(_) => {}
        }
        tokio::time::sleep(BETWEEN_HINTS).await;
    }
}

/// Passes on hints of other processes, and connects again when the stream ends.
async fn hear_others(store: Arc<dyn Store>, hints: Arc<watch::Sender<u64>>, mut alive: watch::Receiver<u64>) {
    let mut wait = FIRST_RECONNECT;
    loop {
        match store.wakeups().await {
            Ok(None) => return,
            Ok(Some(mut stream)) => {
                if wait > FIRST_RECONNECT {
                    info!("listening for wake-ups again");
                }
                wait = FIRST_RECONNECT;
                // What was announced while nobody listened is found by one look now.
                hints.send_modify(|count| *count += 1);
                loop {
                    tokio::select! {
                        hint = stream.next() => match hint {
                            Some(()) => hints.send_modify(|count| *count += 1),
                            None => break,
                        },
                        () = ended(&mut alive) => return,
                    }
                }
                warn!("the stream of wake-ups ended: polling until it is back");
            }
            Err(error) if wait == FIRST_RECONNECT => {
                warn!(%error, "cannot listen for wake-ups: polling until it works");
            }
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(spread(wait)) => wait = (wait * 2).min(LAST_RECONNECT),
            () = ended(&mut alive) => return,
        }
    }
}

/// Waits until the delivery was dropped.
async fn ended(alive: &mut watch::Receiver<u64>) {
    while alive.changed().await.is_ok() {}
}

/// Between half of the wait and all of it, so that processes that lost one database do not return as one.
fn spread(wait: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
    wait.mul_f64(0.5 + random / 2.0)
}
