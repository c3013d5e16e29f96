//! Publishing with confirms: a whole batch in flight, then the broker's word on each message.

use std::collections::HashSet;

use async_trait::async_trait;
use futures::future::try_join_all;
use lapin::message::BasicReturnMessage;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable, MAX_SHORT_STRING_LENGTH, ShortString};
use lapin::{BasicProperties, Channel, Confirmation};

use super::link::Link;
use super::{MESSAGE_ID_HEADER, QUEUE_HEADER};
use crate::broker::{BrokerError, Destination, Outgoing, Publisher};
use crate::settings::BrokerSettings;

/// AMQP's number for a message that survives a restart of the broker.
const PERSISTENT: u8 = 2;
/// Messages that are written to the socket together, and together within the time limit of an answer.
const IN_ONE_GO: usize = 100;

/// An open connection that publishes.
pub(super) struct RabbitPublisher {
    link: Link,
    channel: Channel,
    work: Queue,
    parking: Queue,
}

struct Queue {
    name: String,
    /// Whether it was there when last heard of.
    known: bool,
}

impl Queue {
    async fn ensure(&mut self, link: &Link) -> Result<(), BrokerError> {
        if !self.known {
            link.ensure_queue(&self.name).await?;
            self.known = true;
        }
        Ok(())
    }
}

impl RabbitPublisher {
    pub(super) async fn open(link: Link, settings: &BrokerSettings) -> Result<Self, BrokerError> {
        let mut work = Queue { name: settings.work_queue.clone(), known: false };
        let mut parking = Queue { name: settings.parking_queue.clone(), known: false };
        work.ensure(&link).await?;
        parking.ensure(&link).await?;
        let channel = link.channel().await?;
        link.ask("publisher confirms", channel.confirm_select(ConfirmSelectOptions::default())).await?;
        Ok(Self { link, channel, work, parking })
    }

    fn queue(&self, destination: Destination) -> &Queue {
        match destination {
            Destination::Work => &self.work,
            Destination::Parking => &self.parking,
        }
    }

    fn queue_mut(&mut self, destination: Destination) -> &mut Queue {
        match destination {
            Destination::Work => &mut self.work,
            Destination::Parking => &mut self.parking,
        }
    }
}

#[async_trait]
impl Publisher for RabbitPublisher {
    async fn publish(&mut self, messages: &[Outgoing]) -> Result<Vec<Result<(), String>>, BrokerError> {
        if messages.iter().any(|message| message.to == Destination::Work) {
            self.work.ensure(&self.link).await?;
        }
        if messages.iter().any(|message| message.to == Destination::Parking) {
            self.parking.ensure(&self.link).await?;
        }

        // `mandatory`: a message that no queue takes comes back instead of vanishing.
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let mut confirms = Vec::with_capacity(messages.len());
        for some in messages.chunks(IN_ONE_GO) {
            let sent = some.iter().map(|message| {
                let queue = self.queue(message.to).name.as_str().into();
                let body = message.body.as_bytes();
                self.channel.basic_publish(ShortString::default(), queue, options, body, properties(message))
            });
            confirms.extend(self.link.ask("publishing", try_join_all(sent)).await?);
        }

        let mut answers = Vec::with_capacity(messages.len());
        let mut returned = HashSet::new();
        for confirm in confirms {
            let (answer, unroutable) = match self.link.ask("a confirm", confirm).await? {
                Confirmation::Ack(unroutable) => (Ok(()), unroutable),
                Confirmation::Nack(unroutable) => {
                    (Err("the broker did not take it (it may be full)".to_owned()), unroutable)
                }
                Confirmation::NotRequested => (Err("the broker confirms nothing".to_owned()), None),
            };
            answers.push(answer);
            if let Some(message) = unroutable {
                returned.insert(name(&message).ok_or_else(|| {
                    BrokerError(format!("{} returned a message that is not ours", self.link.address()))
                })?);
            }
        }

        // The library gives a returned message to the confirm that comes next, which need not be its own.
        if !returned.is_empty() {
            for (message, answer) in messages.iter().zip(&mut answers) {
                let queue = self.queue_mut(message.to);
                if returned.contains(&(queue.name.clone(), message.message_id.clone())) {
                    queue.known = false;
                    *answer = Err("no queue took it".to_owned());
                }
            }
        }
        Ok(answers)
    }

    async fn probe(&mut self) -> Result<Option<u32>, BrokerError> {
        let waiting = self.link.queue_length(&self.work.name).await?;
        self.work.known &= waiting.is_some();
        Ok(waiting.or(Some(0)))
    }

    async fn close(self: Box<Self>) {
        self.link.close().await;
    }
}

fn properties(message: &Outgoing) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert(MESSAGE_ID_HEADER.into(), text(&message.message_id));
    if let Some(queue) = &message.queue {
        headers.insert(QUEUE_HEADER.into(), text(queue));
    }
    let properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_content_type("application/json".into())
        .with_app_id("outhaul".into())
        .with_headers(headers);
    // A longer one would be an error that ends the connection; the header has it all the same.
    if message.message_id.len() <= MAX_SHORT_STRING_LENGTH {
        properties.with_message_id(message.message_id.as_str().into())
    } else {
        properties
    }
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

/// Which of our messages came back: its queue and its id.
fn name(message: &BasicReturnMessage) -> Option<(String, String)> {
    let id = super::header(&message.delivery.properties, MESSAGE_ID_HEADER)?;
    Some((message.delivery.routing_key.to_string(), id))
}
