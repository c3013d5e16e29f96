//! Deliveries by a broker, on queues of the case's own, or on a broker of its own that it may kill.

use std::sync::Arc;

use async_trait::async_trait;
use outhaul_core::secret::Secret;
use outhaul_core::store::Store;
use outhaul_delivery::{BrokerDelivery, BrokerKind, BrokerSettings, RelaySettings, TlsSettings};
use outhaul_testkit::delivery_suite::{Need, Process, UnderTest, Wanted, Wire};
use outhaul_testkit::servers::{self, PrivateBroker, unique_prefix};

use crate::wire::{broker, drain, send};

pub(crate) struct Brokered {
    settings: BrokerSettings,
    private: Option<Arc<PrivateBroker>>,
}

impl Brokered {
    pub(crate) async fn new(kind: BrokerKind, need: Need) -> Self {
        let server = match kind {
            BrokerKind::ActiveMq => servers::BrokerKind::ActiveMq,
            BrokerKind::RabbitMq => servers::BrokerKind::RabbitMq,
        };
        let private = match need {
            Need::Queues => None,
            Need::Broker => Some(blocking(move || Arc::new(PrivateBroker::start(server))).await),
        };
        let url = private.as_ref().map_or_else(|| server.shared_url(), |private| private.url().to_owned());
        let prefix = unique_prefix();
        let (work, parking) = (format!("{prefix}.work"), format!("{prefix}.parking"));
        let settings = BrokerSettings::read(kind, &Secret::new(url), TlsSettings::default())
            .expect("the URL of a test broker")
            .with_queues(&work, &parking)
            .expect("names of test queues");
        Self { settings, private }
    }

    /// The same with the queues exchanged: what sends to and takes from the work queue then does so with
    /// the parking queue.
    fn of_parking(&self) -> BrokerSettings {
        let BrokerSettings { work_queue, parking_queue, .. } = self.settings.clone();
        BrokerSettings { work_queue: parking_queue, parking_queue: work_queue, ..self.settings.clone() }
    }

    async fn on_private(&self, act: impl FnOnce(&PrivateBroker) + Send + 'static) {
        let private = self.private.clone().expect("the case has a broker of its own");
        blocking(move || act(&private)).await;
    }
}

async fn blocking<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(act).await.expect("the server obeys")
}

impl UnderTest for Brokered {
    fn start(&self, store: Arc<dyn Store>, wanted: Wanted) -> Process {
        let Wanted { window, expiry, poll_interval, prefetch } = wanted;
        let relay = RelaySettings { window, expiry, poll_interval };
        let delivery =
            BrokerDelivery::start(store, broker(self.settings.clone()), relay, prefetch, Default::default());
        let stopped = delivery.clone();
        Process { delivery, stopping: Box::new(|| Box::pin(async move { stopped.stop().await })) }
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

#[async_trait]
impl Wire for Brokered {
    async fn send(&self, body: &str) {
        send(&self.settings, body).await;
    }

    async fn drain_work(&self) -> Vec<String> {
        drain(&self.settings).await
    }

    async fn drain_parking(&self) -> Vec<String> {
        drain(&self.of_parking()).await
    }

    async fn kill(&self) {
        self.on_private(PrivateBroker::kill9).await;
    }

    async fn start(&self) {
        self.on_private(PrivateBroker::start_again).await;
    }

    async fn wipe(&self) {
        self.on_private(|broker| {
            broker.wipe();
            broker.start_again();
        })
        .await;
    }
}
