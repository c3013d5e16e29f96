//! The other side of every test: a plain client that makes, deletes and looks into queues.

use std::time::Duration;

use lapin::message::BasicGetMessage;
use lapin::options::{
    BasicAckOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
    QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use outhaul_core::secret::Secret;
use outhaul_delivery::broker::{BrokerError, Destination, Incoming, Outgoing};
use outhaul_delivery::{BrokerKind, BrokerSettings, RabbitMq, TlsSettings};
use outhaul_testkit::servers::{rabbitmq_url, unique_prefix};
use tokio::time::timeout;

/// Longer than anything here takes; a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Two queues that no other test uses, and a connection of the test's own.
pub(crate) struct Admin {
    pub(crate) work: String,
    pub(crate) parking: String,
    url: String,
    connection: Connection,
}

impl Admin {
    /// On the shared broker.
    pub(crate) async fn new() -> Self {
        Self::at(&rabbitmq_url()).await
    }

    pub(crate) async fn at(url: &str) -> Self {
        let prefix = unique_prefix();
        // To this library `/` alone is the virtual host without a name.
        let own = format!("{}/%2f", url.trim_end_matches('/'));
        let connection = Connection::connect(&own, ConnectionProperties::default()).await.unwrap();
        Self {
            work: format!("{prefix}.work"),
            parking: format!("{prefix}.parking"),
            url: url.to_owned(),
            connection,
        }
    }

    /// The broker under test.
    pub(crate) fn broker(&self) -> RabbitMq {
        RabbitMq::new(self.settings()).unwrap()
    }

    pub(crate) fn settings(&self) -> BrokerSettings {
        let url = Secret::new(self.url.as_str());
        let tls = TlsSettings::default();
        BrokerSettings::read(BrokerKind::RabbitMq, &url, tls)
            .unwrap()
            .with_queues(&self.work, &self.parking)
            .unwrap()
    }

    pub(crate) async fn channel(&self) -> Channel {
        self.connection.create_channel().await.unwrap()
    }

    pub(crate) async fn declare(&self, queue: &str, arguments: FieldTable) {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel().await.queue_declare(queue.into(), options, arguments).await.unwrap();
    }

    pub(crate) async fn declare_transient(&self, queue: &str) {
        let declared = self
            .channel()
            .await
            .queue_declare(queue.into(), QueueDeclareOptions::default(), FieldTable::default())
            .await;
        declared.unwrap();
    }

    pub(crate) async fn delete(&self, queue: &str) {
        self.channel().await.queue_delete(queue.into(), QueueDeleteOptions::default()).await.unwrap();
    }

    /// How many messages wait, and how many consumers there are; nothing if there is no such queue.
    pub(crate) async fn look(&self, queue: &str) -> Option<(u32, u32)> {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let declared = self.channel().await.queue_declare(queue.into(), options, FieldTable::default()).await;
        declared.ok().map(|queue| (queue.message_count(), queue.consumer_count()))
    }

    /// Waits until a queue has so many messages that nobody holds.
    pub(crate) async fn wait_for_messages(&self, queue: &str, count: u32) {
        let waiting = async {
            while self.look(queue).await.is_none_or(|(messages, _)| messages != count) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{queue} never had {count} messages"));
    }

    /// Takes a message out of a queue.
    pub(crate) async fn take(&self, queue: &str) -> Option<BasicGetMessage> {
        let channel = self.channel().await;
        let message = channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap()?;
        message.ack(BasicAckOptions::default()).await.unwrap();
        Some(message)
    }

    /// Publishes whatever a stranger may publish.
    pub(crate) async fn publish(&self, queue: &str, body: &[u8], properties: BasicProperties) {
        let channel = self.channel().await;
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sent = channel.basic_publish("".into(), queue.into(), options, body, properties).await.unwrap();
        assert!(sent.await.unwrap().take_message().is_none(), "{queue} exists");
    }
}

pub(crate) fn work(id: &str) -> Outgoing {
    Outgoing {
        to: Destination::Work,
        message_id: id.to_owned(),
        queue: Some("source:warehouse".to_owned()),
        body: format!("{{\"jobId\":\"{id}\"}}"),
    }
}

pub(crate) fn parked(id: &str) -> Outgoing {
    Outgoing { to: Destination::Parking, queue: None, ..work(id) }
}

pub(crate) fn body(message: &Incoming) -> &str {
    str::from_utf8(&message.body).unwrap()
}

/// Waits for what must come.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it never happened")
}

/// Waits for an error that must come, and gives its text.
pub(crate) async fn soon_error<T: std::fmt::Debug>(
    future: impl Future<Output = Result<T, BrokerError>>,
) -> String {
    soon(future).await.expect_err("an error").to_string()
}
