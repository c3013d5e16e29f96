//! Consuming the work queue, each message acknowledged by itself. The library watches the broker's
//! heartbeats: two that are missing end the connection, and with it the stream of messages.

use async_trait::async_trait;
use futures::StreamExt;
use lapin::Channel;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;

use super::link::Link;
use super::{LENGTH_HEADER, QUEUE_HEADER};
use crate::broker::{BrokerError, Consumer, Incoming, Tag};
use crate::settings::BrokerSettings;

/// An open connection that consumes the work queue.
pub(super) struct RabbitConsumer {
    link: Link,
    channel: Channel,
    messages: lapin::Consumer,
    /// Why it ended. The library's stream would say it once and then be silent for ever.
    ended: Option<String>,
}

impl RabbitConsumer {
    pub(super) async fn open(
        link: Link,
        settings: &BrokerSettings,
        prefetch: u16,
    ) -> Result<Self, BrokerError> {
        let queue = settings.work_queue.as_str();
        link.ensure_queue(queue).await?;
        let channel = link.channel().await?;
        // To AMQP zero means "as many as there are".
        let qos = channel.basic_qos(prefetch.max(1), BasicQosOptions::default());
        link.ask("the prefetch count", qos).await?;
        let tag = format!("outhaul-{:016x}", rand::random::<u64>());
        let consume = channel.basic_consume(
            queue.into(),
            tag.into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let messages = link.ask(&format!("consuming the queue {queue}"), consume).await?;
        Ok(Self { link, channel, messages, ended: None })
    }

    async fn acknowledge_one(&self, tag: &Tag) -> Result<(), BrokerError> {
        let number = tag.0.parse().map_err(|_| {
            BrokerError(format!("{}: a message's tag is not of this connection", self.link.address()))
        })?;
        self.link.ask("an acknowledgement", self.channel.basic_ack(number, BasicAckOptions::default())).await
    }
}

#[async_trait]
impl Consumer for RabbitConsumer {
    async fn next(&mut self) -> Result<Incoming, BrokerError> {
        if let Some(reason) = &self.ended {
            return Err(BrokerError(reason.clone()));
        }
        // The only await: a message leaves the stream in the same poll that returns it.
        let error = match self.messages.next().await {
            Some(Ok(delivery)) => return Ok(incoming(delivery)),
            Some(Err(error)) => self.link.failed("consuming", &error),
            None => BrokerError(format!(
                "{}: the broker ended the consumer (was the queue deleted, or moved to another node?)",
                self.link.address()
            )),
        };
        self.ended = Some(error.0.clone());
        Err(error)
    }

    async fn acknowledge(&mut self, tags: &[Tag]) -> Result<(), BrokerError> {
        for tag in tags {
            self.acknowledge_one(tag).await?;
        }
        Ok(())
    }

    async fn close(self: Box<Self>) {
        self.link.close().await;
    }
}

fn incoming(delivery: Delivery) -> Incoming {
    let Delivery { delivery_tag, properties, data: body, .. } = delivery;
    let length = super::header(&properties, LENGTH_HEADER).and_then(|length| length.parse().ok());
    let length = length.unwrap_or(body.len());
    let queue = super::header(&properties, QUEUE_HEADER);
    Incoming { tag: Tag(delivery_tag.to_string()), queue, body, length }
}
