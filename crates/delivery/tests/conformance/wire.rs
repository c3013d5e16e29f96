//! The two queues of a broker as another client sees them: it sends what it likes, and takes what is there.

use std::sync::Arc;

use outhaul_delivery::broker::{Broker, Destination, Outgoing};
use outhaul_delivery::{ActiveMq, BrokerKind, BrokerSettings, RabbitMq};
use outhaul_testkit::servers::unique_prefix;

/// A broker by its settings.
pub(crate) fn broker(settings: BrokerSettings) -> Arc<dyn Broker> {
    match settings.kind {
        BrokerKind::ActiveMq => Arc::new(ActiveMq::new(settings).expect("no certificates to read")),
        BrokerKind::RabbitMq => Arc::new(RabbitMq::new(settings).expect("no certificates to read")),
    }
}

/// Publishes one message that must be taken.
pub(crate) async fn send(settings: &BrokerSettings, body: &str) {
    let mut publisher = broker(settings.clone()).publisher().await.expect("connect");
    let message =
        Outgoing { to: Destination::Work, message_id: unique_prefix(), queue: None, body: body.to_owned() };
    let answers = publisher.publish(&[message]).await.expect("publish");
    assert_eq!(answers, [Ok(())]);
    publisher.close().await;
}

/// Takes all that waits on the queue of these settings: what comes before a message of its own.
pub(crate) async fn drain(settings: &BrokerSettings) -> Vec<String> {
    let last = unique_prefix();
    send(settings, &last).await;
    let mut consumer = broker(settings.clone()).consumer(100).await.expect("connect");
    let mut taken = Vec::new();
    loop {
        let message = consumer.next().await.expect("the last message comes");
        consumer.acknowledge(std::slice::from_ref(&message.tag)).await.expect("acknowledge");
        let body = String::from_utf8(message.body).expect("only text is sent here");
        if body == last {
            consumer.close().await;
            return taken;
        }
        taken.push(body);
    }
}
