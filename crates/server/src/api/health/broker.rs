//! What a process can say of its broker: whether it is connected, and how much waits to be sent.

use outhaul_core::announcement::DeliveryLag;
use outhaul_core::store::Store;
use outhaul_delivery::DeliveryHealth;
use serde::Serialize;
use utoipa::ToSchema;

use super::super::problem::error_chain;
use super::recent::Recent;

/// Asks a process's own connections how they are.
type Ask = Box<dyn Fn() -> DeliveryHealth + Send + Sync>;

/// The broker as this process knows it.
pub struct BrokerHealth {
    kind: &'static str,
    address: String,
    /// The connections of this process; `None`: it has none, others hand out what it takes in.
    own: Option<Ask>,
    /// Whether the process is of no use without them.
    needed: bool,
    lag: Recent<DeliveryLag>,
}

/// How work goes through the broker.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeliveryView {
    /// `activemq` or `rabbitmq`.
    kind: &'static str,
    /// Whether this process is connected to tell of chunks; absent where it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    relay_connected: Option<bool>,
    /// Whether this process is connected to be handed chunks; absent where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    feed_connected: Option<bool>,
    /// Chunks that the broker was told of and nobody has claimed yet, of all processes.
    announced: Option<u64>,
    /// Messages that wait to be sent, of all processes.
    outbox: Option<u64>,
    /// How long the oldest of them has waited, in seconds.
    outbox_oldest_seconds: Option<u64>,
}

impl BrokerHealth {
    /// A broker of this kind at this address (without credentials), to which this process does not connect.
    pub fn of_others(kind: &'static str, address: String) -> Self {
        Self { kind, address, own: None, needed: false, lag: Recent::default() }
    }

    /// One to which this process connects; `needed`: without that it is of no use.
    #[must_use]
    pub fn connected(self, needed: bool, ask: impl Fn() -> DeliveryHealth + Send + Sync + 'static) -> Self {
        Self { own: Some(Box::new(ask)), needed, ..self }
    }

    /// What to show, and why the process is not ready, if it is not.
    pub(super) async fn look(&self, store: &dyn Store) -> (DeliveryView, Option<String>) {
        let own = self.own.as_ref().map(|ask| ask());
        let lag = match &own {
            Some(own) => Some(own.lag),
            None => self.lag(store).await,
        };
        let view = DeliveryView {
            kind: self.kind,
            relay_connected: own.as_ref().map(|own| own.relay_connected),
            feed_connected: own.as_ref().and_then(|own| own.feed_connected),
            announced: lag.map(|lag| lag.announced),
            outbox: lag.map(|lag| lag.outbox),
            outbox_oldest_seconds: lag.map(|lag| lag.outbox_oldest.as_secs()),
        };
        (view, own.filter(|_| self.needed).and_then(|own| self.problem(&own)))
    }

    fn problem(&self, own: &DeliveryHealth) -> Option<String> {
        let who = match (own.relay_connected, own.feed_connected) {
            (true, None | Some(true)) => return None,
            (false, None | Some(true)) => "the relay is",
            (true, Some(false)) => "the feed is",
            (false, Some(false)) => "the relay and the feed are",
        };
        let (kind, address) = (self.kind, &self.address);
        let why = own.last_error.as_deref().unwrap_or("not yet");
        let DeliveryLag { announced, outbox, outbox_oldest } = own.lag;
        let oldest = outbox_oldest.as_secs();
        Some(format!(
            "{who} not connected to {kind} at {address}: {why} ({announced} chunks announced, {outbox} \
             messages to send, the oldest for {oldest} s)"
        ))
    }

    /// Sets the gauges that a process with connections of its own keeps by itself.
    pub(super) async fn count(&self, store: &dyn Store) {
        if self.own.is_none()
            && let Some(lag) = self.lag(store).await
        {
            metrics::gauge!("outhaul_announced").set(lag.announced as f64);
            metrics::gauge!("outhaul_outbox_depth").set(lag.outbox as f64);
            metrics::gauge!("outhaul_outbox_oldest_seconds").set(lag.outbox_oldest.as_secs_f64());
        }
    }

    /// `None`: the database does not say, which its own check tells of.
    async fn lag(&self, store: &dyn Store) -> Option<DeliveryLag> {
        let lag = self.lag.get(async || store.delivery_lag().await).await;
        lag.inspect_err(|error| tracing::warn!(error = error_chain(error), "api.delivery_not_counted")).ok()
    }
}
