//! The delivery port: how a worker learns that a chunk may be ready. Always a hint; the store is the
//! truth, and whatever a hint or a message says is proved by the claim.

use std::fmt;

use async_trait::async_trait;
use futures::future::BoxFuture;

use crate::announcement::ChunkName;
use crate::id::QueueId;

/// Why a message is parked whose job or chunk is not in the store.
pub const NAMES_NOTHING: &str =
    "there is no such job or chunk here (does another installation use this queue?)";

/// A way of telling workers that there is something to claim.
#[async_trait]
pub trait Delivery: Send + Sync {
    /// Says that chunks became QUEUED. Cheap, never blocks, may be forgotten.
    fn announce(&self);

    /// Starts to listen now, and gives what to wait for: it ends at the first announcement made after
    /// this call, also one made before the wait began. So a worker arms, looks at the store, then waits.
    /// With a broker it ends when messages are there to be taken.
    fn arm(&self) -> BoxFuture<'_, ()>;

    /// Waits until something may be ready.
    async fn ready(&self) {
        self.arm().await;
    }

    /// With a broker: up to `limit` of the messages that it handed to this process; the worker claims what
    /// they name and nothing else. `None`: messages name nothing here, the worker looks at its queues.
    fn take(&self, limit: usize) -> Option<Vec<Message>> {
        let _ = limit;
        None
    }

    /// Says that so many chunks were claimed, so that more may be announced. Cheap, never blocks.
    fn claimed(&self, count: usize) {
        let _ = count;
    }

    /// Tells which queues this process knows, with their names, once they exist; with a broker their chunks
    /// are announced from now on. Later calls take the place of earlier ones.
    fn queues_known(&self, queues: &[(QueueId, String)]) {
        let _ = queues;
    }

    /// Says whether messages are wanted. While they are not, the broker hands them to others: also those that
    /// this process holds, as soon as one comes that nobody here would take. Cheap, never blocks.
    fn consume(&self, wanted: bool) {
        let _ = wanted;
    }

    /// Puts a message aside for a person, with the reason, and goes on without it.
    fn park(&self, message: Message, reason: &str) {
        let _ = (message, reason);
    }
}

/// One message of a broker: a chunk that was QUEUED when it was sent.
#[derive(Debug)]
pub struct Message {
    /// The chunk.
    pub name: ChunkName,
    /// The name of its queue, as far as the message tells; a hint that saves a look.
    pub queue: Option<String>,
    /// What acknowledges the message.
    pub receipt: Receipt,
}

/// Acknowledges its message when it is dropped, so that none is held longer than what it stands for: a
/// running chunk keeps it until its outcome is recorded. A process that dies acknowledges nothing, and
/// the broker hands the message to another.
pub struct Receipt {
    acknowledge: Option<Box<dyn FnOnce() + Send + Sync>>,
    original: Vec<u8>,
}

impl Receipt {
    /// A receipt that runs this once, when it is dropped.
    pub fn new(acknowledge: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { acknowledge: Some(Box::new(acknowledge)), original: Vec::new() }
    }

    /// The same, with the message as it came, for a person to see should it be parked.
    pub fn with_original(mut self, original: Vec<u8>) -> Self {
        self.original = original;
        self
    }

    /// The message as it came; empty if that was not kept.
    pub fn original(&self) -> &[u8] {
        &self.original
    }

    /// Lets go of the message without acknowledging it: the broker hands it out again when the connection
    /// it came by has ended.
    pub fn abandon(mut self) {
        self.acknowledge = None;
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(acknowledge) = self.acknowledge.take() {
            acknowledge();
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receipt")
    }
}
