//! Which delivery a process has, by its configuration and roles. Only processes that run or look after
//! chunks connect to a broker: an API records what is asked for, and needs the database alone.

use std::sync::Arc;

use outhaul_core::delivery::Delivery;
use outhaul_core::store::Store;
use outhaul_core::vitals::Vitals;
use outhaul_delivery::broker::{Broker, BrokerError};
use outhaul_delivery::{
    ActiveMq, BrokerDelivery, BrokerKind, BrokerSettings, DatabaseDelivery, RabbitMq, RelaySettings,
};

use super::StartError;
use crate::api::BrokerHealth;
use crate::config::Config;
use crate::roles::Roles;

/// The delivery of a process.
pub(super) enum Links {
    /// Hints through the database.
    Database(Arc<DatabaseDelivery>),
    /// Messages through a broker.
    Broker(Arc<BrokerDelivery>),
}

impl Links {
    /// Starts it. A broker that is away keeps nobody from starting: it is logged, and tried again.
    pub(super) fn start(
        config: &Config,
        roles: Roles,
        broker: Option<Arc<dyn Broker>>,
        store: Arc<dyn Store>,
        vitals: Vitals,
    ) -> Self {
        let (Some(configured), Some(broker)) = (&config.broker, broker) else {
            return Self::Database(DatabaseDelivery::start(store));
        };
        let relay = RelaySettings {
            window: configured.window,
            expiry: configured.expiry,
            poll_interval: config.worker.poll_interval,
        };
        // A message is held while its chunk runs, so that the broker keeps what no place is free for.
        let places = u16::try_from(config.worker.concurrency).unwrap_or(u16::MAX).max(1);
        let prefetch = roles.worker.then_some(places);
        Self::Broker(BrokerDelivery::start(store, broker, relay, prefetch, vitals))
    }

    /// What the engine and the API are given.
    pub(super) fn delivery(&self) -> Arc<dyn Delivery> {
        match self {
            Self::Database(delivery) => delivery.clone(),
            Self::Broker(delivery) => delivery.clone(),
        }
    }

    /// What is to be said of the broker, if there is one. Without its connections a process is not ready,
    /// unless it has the API: that must go on taking jobs, which run when the broker is back.
    pub(super) fn health(&self, config: &Config, roles: Roles) -> Option<BrokerHealth> {
        let configured = config.broker.as_ref()?;
        let health = BrokerHealth::of_others(configured.kind(), configured.settings.describe());
        Some(match self {
            Self::Database(_) => health,
            Self::Broker(delivery) => {
                let delivery = delivery.clone();
                health.connected(!roles.api, move || delivery.health())
            }
        })
    }

    /// Ends it, after the engine.
    pub(super) async fn stop(&self) {
        match self {
            Self::Database(delivery) => delivery.stop().await,
            Self::Broker(delivery) => delivery.stop().await,
        }
    }
}

/// The broker that a process with these roles connects to, if it does. Certificates that cannot be used are
/// an error now; whether somebody is there is not known yet.
pub(super) fn needed(config: &Config, roles: Roles) -> Result<Option<Arc<dyn Broker>>, StartError> {
    let configured = config.broker.as_ref().filter(|_| roles.worker || roles.scheduler);
    configured.map(|configured| broker(&configured.settings)).transpose().map_err(StartError::Broker)
}

/// A broker by its settings; connects to nothing yet.
pub(crate) fn broker(settings: &BrokerSettings) -> Result<Arc<dyn Broker>, BrokerError> {
    Ok(match settings.kind {
        BrokerKind::ActiveMq => Arc::new(ActiveMq::new(settings.clone())?),
        BrokerKind::RabbitMq => Arc::new(RabbitMq::new(settings.clone())?),
    })
}
