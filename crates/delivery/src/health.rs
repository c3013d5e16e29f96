//! How the delivery is, for `/readyz` and for the metrics: who is connected, what went wrong last, and how
//! far the relays are behind.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outhaul_core::announcement::DeliveryLag;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::broker::BrokerError;
use crate::ledger::Ledger;

/// How often the store is asked how far the relays are behind.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

/// How a broker's delivery is right now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeliveryHealth {
    /// Whether this process can publish.
    pub relay_connected: bool,
    /// Whether it is handed messages; `None`: it wants none, ever or now.
    pub feed_connected: Option<bool>,
    /// Why one of them is not connected, for people.
    pub last_error: Option<String>,
    /// How far the relays of all processes are behind, as of a few seconds ago.
    pub lag: DeliveryLag,
}

/// Who has a connection of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Relay,
    Feed,
}

impl Part {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Feed => "feed",
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Side {
    connected: bool,
    /// It needs no connection now.
    resting: bool,
    error: Option<String>,
}

/// What the parts report, and who asks reads.
#[derive(Debug)]
pub(crate) struct Health {
    relay: Mutex<Side>,
    feed: Option<Mutex<Side>>,
    lag: Mutex<DeliveryLag>,
}

impl Health {
    pub(crate) fn new(consumes: bool) -> Self {
        let feed = consumes.then(Mutex::default);
        Self { relay: Mutex::default(), feed, lag: Mutex::default() }
    }

    pub(crate) fn connected(&self, part: Part) {
        self.set(part, Side { connected: true, ..Side::default() });
    }

    pub(crate) fn failed(&self, part: Part, error: &BrokerError) {
        self.set(part, Side { error: Some(error.to_string()), ..Side::default() });
    }

    /// The part closed its connection by itself.
    pub(crate) fn closed(&self, part: Part) {
        self.set(part, Side::default());
    }

    /// The part needs no connection for now.
    pub(crate) fn resting(&self, part: Part) {
        self.set(part, Side { resting: true, ..Side::default() });
    }

    fn set(&self, part: Part, now: Side) {
        let connected = if now.connected { 1.0 } else { 0.0 };
        metrics::gauge!("outhaul_delivery_connected", "part" => part.as_str()).set(connected);
        match (part, &self.feed) {
            (Part::Relay, _) => *held(&self.relay) = now,
            (Part::Feed, Some(feed)) => *held(feed) = now,
            (Part::Feed, None) => {}
        }
    }

    pub(crate) fn read(&self) -> DeliveryHealth {
        let relay = held(&self.relay).clone();
        let feed = self.feed.as_ref().map(|feed| held(feed).clone());
        DeliveryHealth {
            relay_connected: relay.connected,
            feed_connected: feed.as_ref().filter(|feed| !feed.resting).map(|feed| feed.connected),
            last_error: relay.error.or(feed.and_then(|feed| feed.error)),
            lag: *held(&self.lag),
        }
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks every few seconds how far the relays are behind, also while the broker is away.
pub(crate) async fn watch_lag(store: Arc<dyn Ledger>, health: Arc<Health>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match store.delivery_lag().await {
            Ok(lag) => {
                metrics::gauge!("outhaul_announced").set(lag.announced as f64);
                metrics::gauge!("outhaul_outbox_depth").set(lag.outbox as f64);
                metrics::gauge!("outhaul_outbox_oldest_seconds").set(lag.outbox_oldest.as_secs_f64());
                *held(&health.lag) = lag;
            }
            // The relay and `/readyz` say that the store is away.
            Err(error) => debug!(%error, "cannot tell how far the relays are behind"),
        }
        tokio::select! {
            () = tokio::time::sleep(BETWEEN_LOOKS) => {}
            () = stop.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_who_is_connected_and_what_went_wrong() {
        let health = Health::new(true);
        health.failed(Part::Feed, &BrokerError("refused".to_owned()));
        health.connected(Part::Relay);
        let read = health.read();
        assert_eq!((read.relay_connected, read.feed_connected), (true, Some(false)));
        assert_eq!(read.last_error.as_deref(), Some("refused"));

        health.connected(Part::Feed);
        assert_eq!(health.read().last_error, None, "what is over is not told");
        health.resting(Part::Feed);
        assert_eq!(health.read().feed_connected, None, "who wants none misses none");
        health.closed(Part::Relay);
        assert!(!health.read().relay_connected);
        assert_eq!(Health::new(false).read().feed_connected, None);
    }
}
