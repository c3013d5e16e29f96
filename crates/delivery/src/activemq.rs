//! ActiveMQ over STOMP 1.2. A batch is one transaction: the broker writes it to disk once, and keeps all
//! of it or nothing.
//!
//! Queues are addressed as `/queue/<name>`, and ActiveMQ Classic (Amazon MQ is one) makes them at first use.
//! Artemis takes that for a plain name unless its acceptor has `anycastPrefix=/queue/`, and has a byte
//! window instead of `activemq.prefetchSize`: what it sends too much waits in the socket.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tracing::{debug, warn};

use crate::broker::{Broker, BrokerError, Consumer, Destination, Incoming, Outgoing, Publisher, Tag};
use crate::settings::BrokerSettings;
use crate::stomp::{Connection, Frame, Login, encode};
use crate::tls;

#[cfg(test)]
mod tests;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const GOODBYE_WITHIN: Duration = Duration::from_secs(3);
/// The broker holds an uncommitted transaction in memory.
const TRANSACTION_MESSAGES: usize = 1000;
const TRANSACTION_BYTES: usize = 4 * 1024 * 1024;
/// Answers that are read ahead of a publisher; a consumer has as many besides its messages.
const ROOM: usize = 64;
/// ActiveMQ looks at so many messages of a queue for every new consumer, acknowledgement or message, and a
/// single subscription that may hold more would have to wait for the next of these.
const PAGE: u16 = 200;
/// So many of what may be the tag of one message are tried.
const MAX_TAGS: usize = 100;

/// An ActiveMQ broker.
pub struct ActiveMq {
    settings: BrokerSettings,
    tls: Option<TlsConnector>,
}

impl ActiveMq {
    /// Reads the certificates, and connects to nothing yet.
    pub fn new(settings: BrokerSettings) -> Result<Self, BrokerError> {
        let tls = settings.tls.as_ref().map(tls::connector).transpose()?;
        Ok(Self { settings, tls })
    }

    async fn open(&self, room: usize) -> Result<Connection, BrokerError> {
        let settings = &self.settings;
        let open = async {
            let socket = tls::connect(&settings.host, settings.port, self.tls.as_ref()).await?;
            let login = Login {
                virtual_host: &settings.virtual_host,
                user: &settings.user,
                password: settings.password.expose(),
                heartbeat: settings.heartbeat,
            };
            Connection::open(socket, &login, room).await
        };
        timeout(CONNECT_WITHIN, open).await.unwrap_or_else(|_| {
            let seconds = CONNECT_WITHIN.as_secs();
            Err(BrokerError(format!("{} does not answer within {seconds} s", settings.describe())))
        })
    }
}

#[async_trait]
impl Broker for ActiveMq {
    fn describe(&self) -> String {
        self.settings.describe()
    }

    async fn publisher(&self) -> Result<Box<dyn Publisher>, BrokerError> {
        Ok(Box::new(StompPublisher {
            connection: self.open(ROOM).await?,
            work: address(&self.settings.work_queue),
            parking: address(&self.settings.parking_queue),
        }))
    }

    async fn consumer(&self, prefetch: u16) -> Result<Box<dyn Consumer>, BrokerError> {
        // With none at all ActiveMQ would wait to be asked for each message.
        let prefetch = prefetch.max(1);
        let mut connection = self.open(usize::from(prefetch) + ROOM).await?;
        let receipt = connection.name();
        let mut bytes = BytesMut::new();
        let subscriptions = prefetch.div_ceil(PAGE);
        for id in 0..subscriptions {
            let share = PAGE.min(prefetch - id * PAGE);
            let subscribe = Frame::new("SUBSCRIBE")
                .with("id", id.to_string())
                .with("destination", address(&self.settings.work_queue))
                .with("ack", "client-individual")
                .with("activemq.prefetchSize", share.to_string())
                .with("receipt", &receipt);
            encode(&subscribe, &mut bytes)?;
        }
        connection.send(bytes)?;
        // Messages may overtake the receipt; and what comes after one may be a part of it.
        let mut early = VecDeque::new();
        loop {
            let frame = answer(&mut connection).await?;
            let ours = frame.header("receipt-id") == Some(&receipt);
            match frame.command.as_str() {
                "ERROR" if ours || early.is_empty() => return Err(refused(&frame)),
                "MESSAGE" => early.push_back(frame),
                _ if ours => break,
                _ => {}
            }
        }
        let patience = usize::from(prefetch) + MAX_TAGS;
        Ok(Box::new(StompConsumer { connection, early, subscriptions, patience }))
    }
}

fn address(queue: &str) -> String {
    format!("/queue/{queue}")
}

fn refused(error: &Frame) -> BrokerError {
    BrokerError(format!("the broker reports an error: {}", error.reason()))
}

async fn answer(connection: &mut Connection) -> Result<Frame, BrokerError> {
    timeout(ANSWER_WITHIN, connection.receive()).await.unwrap_or_else(|_| {
        let seconds = ANSWER_WITHIN.as_secs();
        Err(BrokerError(format!(
            "the broker has not answered for {seconds} s (is it out of memory or disk?)"
        )))
    })
}

/// With what the broker said last, and did not say of which message.
fn after(error: BrokerError, said: Option<&str>) -> BrokerError {
    match said {
        Some(said) => BrokerError(format!("{error}; before that it reported an error: {said}")),
        None => error,
    }
}

async fn say_goodbye(connection: Connection, last: BytesMut) {
    match timeout(GOODBYE_WITHIN, connection.say_goodbye(last)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "the broker's connection ended before its goodbye"),
        Err(_) => debug!("the broker did not answer a goodbye"),
    }
}

struct StompPublisher {
    connection: Connection,
    work: String,
    parking: String,
}

#[async_trait]
impl Publisher for StompPublisher {
    async fn publish(&mut self, messages: &[Outgoing]) -> Result<Vec<Result<(), String>>, BrokerError> {
        let mut words = Vec::with_capacity(messages.len());
        for batch in batches(messages) {
            // One message alone is as safe without a transaction, and faster.
            if batch.len() > 1 && self.publish_at_once(batch).await? {
                words.extend(batch.iter().map(|_| Ok(())));
            } else {
                words.extend(self.publish_each(batch).await?);
            }
        }
        Ok(words)
    }

    async fn probe(&mut self) -> Result<Option<u32>, BrokerError> {
        let (transaction, receipt) = (self.connection.name(), self.connection.name());
        let mut bytes = BytesMut::new();
        encode(&Frame::new("BEGIN").with("transaction", &transaction), &mut bytes)?;
        encode(&Frame::new("ABORT").with("transaction", &transaction).with("receipt", &receipt), &mut bytes)?;
        self.connection.send(bytes)?;
        let frame = self.answer_to(&receipt).await?;
        if frame.command == "RECEIPT" { Ok(None) } else { Err(refused(&frame)) }
    }

    async fn close(self: Box<Self>) {
        say_goodbye(self.connection, BytesMut::new()).await;
    }
}

impl StompPublisher {
    /// In one transaction. `false`: it was refused, and the broker has none of them.
    async fn publish_at_once(&mut self, batch: &[Outgoing]) -> Result<bool, BrokerError> {
        let (transaction, receipt) = (self.connection.name(), self.connection.name());
        let mut bytes = BytesMut::new();
        encode(&Frame::new("BEGIN").with("transaction", &transaction), &mut bytes)?;
        for message in batch {
            // Without receipts of their own: one that fails makes the broker refuse the COMMIT.
            if encode(&self.frame(message).with("transaction", &transaction), &mut bytes).is_err() {
                return Ok(false);
            }
        }
        encode(
            &Frame::new("COMMIT").with("transaction", &transaction).with("receipt", &receipt),
            &mut bytes,
        )?;
        self.connection.send(bytes)?;
        let frame = self.answer_to(&receipt).await?;
        let committed = frame.command == "RECEIPT";
        if !committed {
            warn!(reason = %frame.reason(), "the broker refused a batch: its messages are sent one by one");
        }
        Ok(committed)
    }

    /// Each with a receipt, all in flight at once: slower, but the broker's word is on each.
    async fn publish_each(&mut self, batch: &[Outgoing]) -> Result<Vec<Result<(), String>>, BrokerError> {
        let mut words = vec![Ok(()); batch.len()];
        let mut awaited = HashMap::new();
        let mut bytes = BytesMut::new();
        for (place, message) in batch.iter().enumerate() {
            let receipt = self.connection.name();
            match encode(&self.frame(message).with("receipt", &receipt), &mut bytes) {
                Ok(()) => drop(awaited.insert(receipt, place)),
                Err(error) => words[place] = Err(error.to_string()),
            }
        }
        self.connection.send(bytes)?;
        let mut said = None;
        while !awaited.is_empty() {
            let frame = answer(&mut self.connection).await.map_err(|error| after(error, said.as_deref()))?;
            let receipt = frame.header("receipt-id");
            match (receipt.map(|receipt| awaited.remove(receipt)), frame.command.as_str()) {
                (Some(Some(place)), "ERROR") => words[place] = Err(frame.reason()),
                (None, "ERROR") => said = Some(frame.reason()),
                _ => {}
            }
        }
        Ok(words)
    }

    /// Passes over answers to what nobody waits for any more, and errors about single messages of a
    /// transaction: ActiveMQ keeps the connection after an ERROR, and a broker that does not closes it.
    async fn answer_to(&mut self, receipt: &str) -> Result<Frame, BrokerError> {
        let mut said = None;
        loop {
            let frame = answer(&mut self.connection).await.map_err(|error| after(error, said.as_deref()))?;
            if frame.header("receipt-id") == Some(receipt) {
                return Ok(frame);
            }
            if frame.command == "ERROR" {
                warn!(reason = %frame.reason(), "the broker reports an error");
                said = Some(frame.reason());
            }
        }
    }

    /// Without a content-length, so that readers in any language get a text message.
    fn frame(&self, message: &Outgoing) -> Frame {
        let to = match message.to {
            Destination::Work => &self.work,
            Destination::Parking => &self.parking,
        };
        let frame = Frame::new("SEND")
            .with("destination", to)
            .with("persistent", "true")
            .with("content-type", "application/json")
            .with("outhaul-message-id", &message.message_id)
            .body(message.body.clone());
        match &message.queue {
            Some(queue) => frame.with("outhaul-queue", queue),
            None => frame,
        }
    }
}

/// Cuts where a transaction would become too large for the broker.
fn batches(messages: &[Outgoing]) -> impl Iterator<Item = &[Outgoing]> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fit = rest.iter().take(TRANSACTION_MESSAGES).take_while(|message| {
            bytes += message.body.len();
            bytes <= TRANSACTION_BYTES
        });
        let (batch, more) = rest.split_at(fit.count().max(1).min(rest.len()));
        rest = more;
        (!batch.is_empty()).then_some(batch)
    })
}

struct StompConsumer {
    connection: Connection,
    early: VecDeque<Frame>,
    subscriptions: u16,
    /// How many more errors are passed over. Each may mean a message that stays unacknowledged, and takes a
    /// place of the prefetch until the connection is made anew.
    patience: usize,
}

#[async_trait]
impl Consumer for StompConsumer {
    async fn next(&mut self) -> Result<Incoming, BrokerError> {
        loop {
            let frame = match self.early.pop_front() {
                Some(frame) => frame,
                None => self.connection.receive().await?,
            };
            match frame.command.as_str() {
                "MESSAGE" => match incoming(frame) {
                    Some(message) => return Ok(message),
                    None => warn!("the broker sent a message without an `ack` header: it is passed over"),
                },
                // Of an acknowledgement, most likely, for what was no message, but a part of one that was not
                // sound. ActiveMQ keeps the connection after an ERROR, and a broker that does not closes it.
                "ERROR" => match self.patience.checked_sub(1) {
                    Some(patience) => {
                        self.patience = patience;
                        warn!(reason = %frame.reason(), "the broker reports an error: {}", frame.reason());
                    }
                    None => return Err(refused(&frame)),
                },
                _ => {}
            }
        }
    }

    async fn acknowledge(&mut self, tags: &[Tag]) -> Result<(), BrokerError> {
        let mut bytes = BytesMut::new();
        for id in tags.iter().flat_map(|Tag(ids)| ids.split('\n')) {
            encode(&Frame::new("ACK").with("id", id), &mut bytes)?;
        }
        self.connection.send(bytes)
    }

    async fn close(self: Box<Self>) {
        let mut last = BytesMut::new();
        let mut unsubscribe =
            |id: u16| encode(&Frame::new("UNSUBSCRIBE").with("id", id.to_string()), &mut last);
        if (0..self.subscriptions).try_for_each(&mut unsubscribe).is_ok() {
            say_goodbye(self.connection, last).await;
        }
    }
}

fn incoming(frame: Frame) -> Option<Incoming> {
    // One, unless somebody put line ends into the name of a property: then any may be the true one, and the
    // broker does not mind to be asked for the others.
    let tags: Vec<_> = frame.tags().filter(|tag| !tag.contains('\0')).take(MAX_TAGS).collect();
    (!tags.is_empty()).then(|| Incoming {
        tag: Tag(tags.join("\n")),
        queue: frame.header("outhaul-queue").map(str::to_owned),
        body: frame.body.to_vec(),
        length: frame.length,
    })
}
