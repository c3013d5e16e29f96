//! Messages that the broker handed to this process and no worker has taken yet, and the way back for
//! acknowledgements. Both belong to one connection: with it they end, and the broker hands them out anew.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use outhaul_core::announcement::ChunkName;
use outhaul_core::delivery::{Message, Receipt};
use tokio::sync::{mpsc, watch};

use crate::broker::{Incoming, Tag};

/// Which of the connections that this process made; tags of another mean nothing.
pub(crate) type Connection = u64;

/// A message that is done with.
#[derive(Debug, PartialEq)]
pub(crate) struct Ack {
    pub(crate) connection: Connection,
    pub(crate) tag: Tag,
}

/// Where the feed puts messages and workers take them.
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    /// Counts arrivals: any number of them while a worker looks away wake it once.
    arrived: watch::Sender<u64>,
    acks: mpsc::UnboundedSender<Ack>,
}

struct Waiting {
    connection: Connection,
    messages: VecDeque<(ChunkName, Incoming)>,
}

impl Inbox {
    /// An empty one, and where its receipts are heard of.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Ack>) {
        let (acks, heard) = mpsc::unbounded_channel();
        let waiting = Mutex::new(Waiting { connection: 0, messages: VecDeque::new() });
        (Self { waiting, arrived: watch::Sender::new(0), acks }, heard)
    }

    /// Begins with a new connection, or with none: what nobody took is forgotten.
    pub(crate) fn renew(&self) -> Connection {
        let mut waiting = self.waiting();
        waiting.messages.clear();
        waiting.connection += 1;
        waiting.connection
    }

    /// Puts a message of the present connection.
    pub(crate) fn put(&self, name: ChunkName, message: Incoming) {
        self.waiting().messages.push_back((name, message));
        self.arrived.send_modify(|count| *count += 1);
    }

    /// Whether there is none to take.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting().messages.is_empty()
    }

    /// Hands out messages in the order in which they came.
    pub(crate) fn take(&self, limit: usize) -> Vec<Message> {
        let mut waiting = self.waiting();
        let (connection, count) = (waiting.connection, limit.min(waiting.messages.len()));
        let taken = waiting.messages.drain(..count);
        taken
            .map(|(name, Incoming { tag, queue, body, .. })| {
                let receipt = self.receipt(connection, tag).with_original(body);
                Message { name, queue, receipt }
            })
            .collect()
    }

    /// What acknowledges a message of this connection; of one that ended since, it does nothing.
    pub(crate) fn receipt(&self, connection: Connection, tag: Tag) -> Receipt {
        let acks = self.acks.clone();
        Receipt::new(move || {
            // Nobody hears: the feed has ended, and its connection with it.
            let _ = acks.send(Ack { connection, tag });
        })
    }

    /// Ends at the first arrival from now on.
    pub(crate) fn arm(&self) -> BoxFuture<'_, ()> {
        let mut arrived = self.arrived.subscribe();
        Box::pin(async move {
            // Cannot fail: the sender lives as long as `self`.
            let _ = arrived.changed().await;
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn put(inbox: &Inbox, tag: &str) {
        let name = ChunkName { job_id: "J".to_owned(), chunk_key: tag.to_owned() };
        let (tag, body) = (Tag(tag.to_owned()), b"body".to_vec());
        inbox.put(name, Incoming { tag, queue: None, body, length: 4 });
    }

    #[test]
    fn messages_are_taken_in_order_and_acknowledged_when_dropped() {
        let (inbox, mut acks) = Inbox::new();
        let connection = inbox.renew();
        ["a", "b", "c"].iter().for_each(|tag| put(&inbox, tag));
        let mut taken = inbox.take(2);
        assert_eq!(taken.iter().map(|m| m.name.chunk_key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(taken[0].receipt.original(), b"body");
        assert!(acks.try_recv().is_err(), "nothing is acknowledged while it is held");
        taken.remove(0).receipt.abandon();
        drop(taken);
        assert_eq!(acks.try_recv(), Ok(Ack { connection, tag: Tag("b".to_owned()) }));
        assert!(acks.try_recv().is_err(), "an abandoned message is not acknowledged");
        assert_eq!(inbox.take(9).len(), 1);
    }

    #[test]
    fn what_nobody_took_ends_with_its_connection_unacknowledged() {
        let (inbox, mut acks) = Inbox::new();
        inbox.renew();
        put(&inbox, "a");
        let second = inbox.renew();
        assert!(inbox.take(9).is_empty());
        assert!(acks.try_recv().is_err());
        put(&inbox, "b");
        drop(inbox.take(9));
        assert_eq!(acks.try_recv().unwrap().connection, second);
    }

    #[test]
    fn an_arrival_between_arming_and_waiting_is_not_missed() {
        let (inbox, _acks) = Inbox::new();
        put(&inbox, "a");
        let armed = inbox.arm();
        put(&inbox, "b");
        assert!(armed.now_or_never().is_some());
        assert!(inbox.arm().now_or_never().is_none(), "an arrival before arming is found by the look");
    }
}
