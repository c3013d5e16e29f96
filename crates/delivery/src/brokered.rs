//! The delivery by a broker: a relay announces chunks, a feed hands messages to the worker, and hints
//! between processes go through the store as without a broker.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use outhaul_core::delivery::{Delivery, Message};
use outhaul_core::id::QueueId;
use outhaul_core::store::Store;
use outhaul_core::vitals::Vitals;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::broker::Broker;
use crate::database::DatabaseDelivery;
use crate::feed::Feed;
use crate::health::{DeliveryHealth, Health, watch_lag};
use crate::inbox::Inbox;
use crate::ledger::Ledger;
use crate::nudges::Nudges;
use crate::parker::Parker;
use crate::relay::{Relay, RelaySettings};

/// How long a stop waits for the broker to take acknowledgements and goodbyes.
const STOPPING: Duration = Duration::from_secs(3);

/// Chunks announced through a broker. A process that neither works nor schedules needs none of it: a
/// [`DatabaseDelivery`] tells the relays of others.
///
/// Call [`BrokerDelivery::stop`] after the worker has stopped; when it is only dropped, the connections
/// end and the broker hands out again what was not acknowledged.
pub struct BrokerDelivery {
    hints: Arc<DatabaseDelivery>,
    inbox: Option<Arc<Inbox>>,
    parker: Parker,
    queues: watch::Sender<Vec<(QueueId, String)>>,
    wanted: watch::Sender<bool>,
    nudges: Arc<Nudges>,
    health: Arc<Health>,
    stop: CancellationToken,
    tasks: TaskTracker,
    vitals: Vitals,
}

impl BrokerDelivery {
    /// Starts to connect, and returns at once: a broker that is away is waited for. With a `prefetch`
    /// messages are consumed, so many at a time; give it the number of chunks that the worker may run.
    /// Nothing is announced before [`Delivery::queues_known`]. Its parts are registered as parts that must
    /// live as long as the process. Needs a running tokio runtime.
    pub fn start(
        store: Arc<dyn Store>,
        broker: Arc<dyn Broker>,
        settings: RelaySettings,
        prefetch: Option<u16>,
        vitals: Vitals,
    ) -> Arc<Self> {
        let hints = DatabaseDelivery::start(store.clone());
        Self::start_with(Arc::new(store), hints, broker, settings, prefetch, vitals)
    }

    pub(crate) fn start_with(
        ledger: Arc<dyn Ledger>,
        hints: Arc<DatabaseDelivery>,
        broker: Arc<dyn Broker>,
        settings: RelaySettings,
        prefetch: Option<u16>,
        vitals: Vitals,
    ) -> Arc<Self> {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let health = Arc::new(Health::new(prefetch.is_some()));
        let nudges = Arc::new(Nudges::default());
        let (queues, known) = watch::channel(Vec::new());
        let wanted = watch::Sender::new(true);
        let (parker, parking) = Parker::new(ledger.clone(), nudges.outbox.clone(), stop.clone());
        tasks.spawn(vitals.part("the parker").run(parking));
        let lag = watch_lag(ledger.clone(), health.clone(), stop.clone());
        tasks.spawn(vitals.part("the watch of the relays' lag").run(lag));
        let inbox = prefetch.map(|prefetch| {
            let (inbox, acks) = Inbox::new();
            let inbox = Arc::new(inbox);
            let feed = Feed {
                broker: broker.clone(),
                prefetch: prefetch.max(1),
                inbox: inbox.clone(),
                acks,
                parker: parker.clone(),
                nudges: nudges.clone(),
                wanted: wanted.subscribe(),
                health: health.clone(),
                stop: stop.clone(),
            };
            tasks.spawn(vitals.part("the feed").run(feed.run()));
            inbox
        });
        let relay = Relay {
            ledger,
            broker,
            settings,
            queues: known,
            nudges: nudges.clone(),
            health: health.clone(),
            stop: stop.clone(),
        };
        tasks.spawn(vitals.part("the relay").run(relay.run(hints.clone())));
        tasks.close();
        Arc::new(Self { hints, inbox, parker, queues, wanted, nudges, health, stop, tasks, vitals })
    }

    /// How it is right now; cheap, for `/readyz`.
    pub fn health(&self) -> DeliveryHealth {
        self.health.read()
    }

    /// Acknowledges what is done with, closes both connections, and returns after a few seconds at most.
    /// Comes after the stop of the worker, whose chunks hold their messages. May be called more than once.
    pub async fn stop(&self) {
        self.vitals.stopping();
        self.stop.cancel();
        if tokio::time::timeout(STOPPING, self.tasks.wait()).await.is_err() {
            // Not aborted: a statement must not be cut off half-way.
            warn!("the delivery is still busy; messages that were not acknowledged are handed out again");
        }
        self.hints.stop().await;
    }
}

#[async_trait]
impl Delivery for BrokerDelivery {
    fn announce(&self) {
        self.hints.announce();
    }

    fn arm(&self) -> BoxFuture<'_, ()> {
        match &self.inbox {
            Some(inbox) => inbox.arm(),
            None => self.hints.arm(),
        }
    }

    fn take(&self, limit: usize) -> Option<Vec<Message>> {
        self.inbox.as_ref().map(|inbox| inbox.take(limit))
    }

    fn claimed(&self, count: usize) {
        self.nudges.claims.add(count);
    }

    fn queues_known(&self, queues: &[(QueueId, String)]) {
        self.queues.send_replace(queues.to_vec());
    }

    fn consume(&self, wanted: bool) {
        self.wanted.send_if_modified(|before| std::mem::replace(before, wanted) != wanted);
    }

    fn park(&self, message: Message, reason: &str) {
        let Message { name, receipt, .. } = message;
        if receipt.original().is_empty() {
            let body = json!({ "jobId": name.job_id, "chunkKey": name.chunk_key }).to_string();
            self.parker.park(body.as_bytes(), reason, receipt);
        } else {
            let body = receipt.original().to_vec();
            self.parker.park(&body, reason, receipt);
        }
    }
}

impl Drop for BrokerDelivery {
    fn drop(&mut self) {
        self.vitals.stopping();
        self.stop.cancel();
    }
}
