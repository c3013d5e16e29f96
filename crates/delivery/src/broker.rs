//! What the relay and the feed need of a broker: publish with confirms, consume with acknowledgements.
//! A connection that fails is dropped and made anew by its user; nothing here reconnects by itself.

use async_trait::async_trait;

/// A broker that may be connected to, as often as needed. One connection publishes, another consumes.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Where it is, for logs: never with credentials.
    fn describe(&self) -> String;

    /// Opens a connection for publishing, and makes sure that both queues exist and are durable.
    async fn publisher(&self) -> Result<Box<dyn Publisher>, BrokerError>;

    /// Opens a connection that consumes the work queue, with at most `prefetch` messages unacknowledged.
    async fn consumer(&self, prefetch: u16) -> Result<Box<dyn Consumer>, BrokerError>;
}

/// An open connection that publishes.
#[async_trait]
pub trait Publisher: Send {
    /// Publishes all of them persistently, many in flight at once, and waits for the broker's word on each:
    /// `Ok` once it has it safely, `Err` with the reason if it refused that one (also: no queue took it).
    /// An outer error: the connection is of no more use, and nothing is known of any message.
    async fn publish(&mut self, messages: &[Outgoing]) -> Result<Vec<Result<(), String>>, BrokerError>;

    /// Proves that the broker still answers; called now and then. Says how many messages of the work queue
    /// wait for a consumer, where a broker can be asked that.
    async fn probe(&mut self) -> Result<Option<u32>, BrokerError>;

    /// Says goodbye, for a few seconds at most.
    async fn close(self: Box<Self>);
}

/// An open connection that consumes the work queue.
#[async_trait]
pub trait Consumer: Send {
    /// The next message. May be dropped while it waits, and nothing is lost. An error: the connection is of
    /// no more use. A broker that says nothing, not even a heartbeat, for two heartbeats is such an error.
    async fn next(&mut self) -> Result<Incoming, BrokerError>;

    /// Acknowledges messages by their tags.
    async fn acknowledge(&mut self, tags: &[Tag]) -> Result<(), BrokerError>;

    /// Says goodbye, for a few seconds at most; what is not acknowledged goes to others.
    async fn close(self: Box<Self>);
}

/// How a broker names a message within one connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub String);

/// Which of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Chunks that are ready.
    Work,
    /// What a person has to look at.
    Parking,
}

/// A message to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Where to.
    pub to: Destination,
    /// The same every time that it is sent (`outhaul-message-id`).
    pub message_id: String,
    /// The name of the chunk's queue (`outhaul-queue`).
    pub queue: Option<String>,
    /// JSON text.
    pub body: String,
}

/// A message of the work queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// What acknowledges it.
    pub tag: Tag,
    /// The `outhaul-queue` header, if there is one and it is text.
    pub queue: Option<String>,
    /// Whatever somebody put there; of a very large one only the beginning.
    pub body: Vec<u8>,
    /// How many bytes it has in the queue.
    pub length: usize,
}

/// Why a broker cannot be used, for people; never with credentials.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BrokerError(pub String);
