//! RabbitMQ over AMQP 0.9.1. Queues that exist are used as they are, whatever arguments a team gave
//! them; messages go through the default exchange, straight to their queue.

mod consumer;
mod filter;
mod link;
mod properties;
mod publisher;
mod socket;

use std::sync::Arc;

use async_trait::async_trait;
use lapin::BasicProperties;
use lapin::types::AMQPValue;
use tokio_rustls::rustls::ClientConfig;

use self::link::Link;
use crate::broker::{Broker, BrokerError, Consumer, Publisher};
use crate::settings::BrokerSettings;
use crate::tls;

/// The header that names a chunk's queue.
const QUEUE_HEADER: &str = "outhaul-queue";
/// The header that names a message, however long; `message_id` has it too if it is short enough for AMQP.
const MESSAGE_ID_HEADER: &str = "outhaul-message-id";
/// The header in which the filter tells how long a body was that it cut. Never sent.
const LENGTH_HEADER: &str = "outhaul-length";

/// A RabbitMQ broker, or a cluster behind one address.
pub struct RabbitMq {
    settings: BrokerSettings,
    tls: Option<Arc<ClientConfig>>,
}

impl RabbitMq {
    /// Reads the certificates, and connects to nothing yet.
    pub fn new(settings: BrokerSettings) -> Result<Self, BrokerError> {
        let tls = settings.tls.as_ref().map(tls::connector).transpose()?;
        Ok(Self { settings, tls: tls.map(|connector| connector.config().clone()) })
    }

    async fn link(&self) -> Result<Link, BrokerError> {
        Link::open(&self.settings, self.tls.as_ref()).await
    }
}

#[async_trait]
impl Broker for RabbitMq {
    fn describe(&self) -> String {
        self.settings.describe()
    }

    async fn publisher(&self) -> Result<Box<dyn Publisher>, BrokerError> {
        Ok(Box::new(publisher::RabbitPublisher::open(self.link().await?, &self.settings).await?))
    }

    async fn consumer(&self, prefetch: u16) -> Result<Box<dyn Consumer>, BrokerError> {
        let link = self.link().await?;
        Ok(Box::new(consumer::RabbitConsumer::open(link, &self.settings, prefetch).await?))
    }
}

/// A header's value, if it is text.
fn header(properties: &BasicProperties, name: &str) -> Option<String> {
    match properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::LongString(text) => str::from_utf8(text.as_bytes()).ok().map(str::to_owned),
        _ => None,
    }
}
