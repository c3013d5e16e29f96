//! The relay and the feed against a broker and a ledger in memory, for what real ones cannot be made to
//! do on demand: fail half-way, refuse one message, lose an answer.

mod feed;
mod memory_broker;
mod memory_ledger;
mod parker;
mod relay;

use std::sync::Arc;
use std::time::Duration;

use outhaul_core::delivery::Delivery as _;
use outhaul_core::id::QueueId;
use tokio::sync::watch;

use crate::brokered::BrokerDelivery;
use crate::database::DatabaseDelivery;
use crate::relay::RelaySettings;

use memory_broker::MemoryBroker;
use memory_ledger::MemoryLedger;

const SETTINGS: RelaySettings =
    RelaySettings { window: 100, expiry: Duration::from_secs(120), poll_interval: Duration::from_millis(50) };

/// A delivery between a broker and a ledger that do as they are told.
struct Bench {
    broker: Arc<MemoryBroker>,
    ledger: Arc<MemoryLedger>,
    delivery: Arc<BrokerDelivery>,
}

impl Bench {
    fn start(prefetch: Option<u16>) -> Self {
        Self::start_on(MemoryBroker::new(), MemoryLedger::new(), prefetch)
    }

    fn start_on(broker: Arc<MemoryBroker>, ledger: Arc<MemoryLedger>, prefetch: Option<u16>) -> Self {
        Self::start_as(broker, ledger, SETTINGS, prefetch)
    }

    fn start_as(
        broker: Arc<MemoryBroker>,
        ledger: Arc<MemoryLedger>,
        settings: RelaySettings,
        prefetch: Option<u16>,
    ) -> Self {
        let hints = DatabaseDelivery::alone();
        let delivery = BrokerDelivery::start_with(
            ledger.clone(),
            hints,
            broker.clone(),
            settings,
            prefetch,
            Default::default(),
        );
        delivery.queues_known(&[(QueueId(1), "source:warehouse".to_owned())]);
        Self { broker, ledger, delivery }
    }
}

/// State that tests wait for changes of.
struct Told<T>(watch::Sender<T>);

impl<T> Told<T> {
    fn new(state: T) -> Self {
        Self(watch::Sender::new(state))
    }

    fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut answer = None;
        self.0.send_modify(|state| answer = Some(change(state)));
        answer.expect("the change was made")
    }

    fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.0.borrow())
    }

    /// Waits until the state is so.
    async fn until(&self, what: &str, is: impl FnMut(&T) -> bool) {
        let mut changes = self.0.subscribe();
        let waited = tokio::time::timeout(Duration::from_secs(100), changes.wait_for(is)).await;
        assert!(waited.is_ok(), "this never came: {what}");
    }
}
