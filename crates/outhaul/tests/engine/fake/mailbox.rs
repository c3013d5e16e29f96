//! A delivery in memory that hands out messages as a broker does, and notes what becomes of them.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::future::BoxFuture;
use outhaul::core::announcement::ChunkName;
use outhaul::core::delivery::{Delivery, Message, Receipt};
use outhaul::core::id::QueueId;
use tokio::sync::watch;

use super::claims::name;

/// What the broker knows.
pub(crate) struct Post {
    /// Not handed to the process yet.
    pub(crate) queue: VecDeque<(ChunkName, Option<String>)>,
    /// With the process, and not taken.
    pub(crate) arrived: VecDeque<(ChunkName, Option<String>)>,
    arrivals: usize,
    /// Chunk keys of messages that were taken and not acknowledged.
    pub(crate) open: Vec<String>,
    /// Chunk keys of messages in the order of their acknowledgements.
    pub(crate) acknowledged: Vec<String>,
    pub(crate) parked: Vec<(String, String)>,
    pub(crate) takes: usize,
    /// How many were taken at once, at most.
    pub(crate) most: usize,
    /// How many chunks it was told were claimed.
    pub(crate) claims: usize,
    pub(crate) known: Vec<(QueueId, String)>,
    pub(crate) wanted: bool,
    /// Which connection it is; receipts of an earlier one do nothing.
    connection: usize,
    /// Chunk keys of messages that were taken when their connection ended: others have them.
    pub(crate) returned: Vec<String>,
}

impl Post {
    fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            arrived: VecDeque::new(),
            arrivals: 0,
            open: Vec::new(),
            acknowledged: Vec::new(),
            parked: Vec::new(),
            takes: 0,
            most: 0,
            claims: 0,
            known: Vec::new(),
            wanted: true,
            connection: 0,
            returned: Vec::new(),
        }
    }

    /// Hands the process as many as it may have; the first that it does not want ends the connection.
    fn hand_over(&mut self, prefetch: usize) {
        let room = prefetch > self.open.len() + self.arrived.len();
        if !self.wanted && (!self.arrived.is_empty() || (room && !self.queue.is_empty())) {
            self.connection += 1;
            self.returned.append(&mut self.open);
            self.arrived.drain(..).rev().for_each(|message| self.queue.push_front(message));
        }
        if !self.wanted {
            return;
        }
        let count = prefetch.saturating_sub(self.open.len() + self.arrived.len()).min(self.queue.len());
        self.arrived.extend(self.queue.drain(..count));
        self.arrivals += count;
    }
}

/// The delivery.
pub(crate) struct Mailbox {
    post: watch::Sender<Post>,
    /// The most that are unacknowledged.
    prefetch: usize,
    /// Whether it tells of messages for as long as there are any, or only of their arrival.
    restless: bool,
}

impl Mailbox {
    pub(crate) fn new(prefetch: usize) -> Arc<Self> {
        Arc::new(Self { post: watch::channel(Post::new()).0, prefetch, restless: false })
    }

    pub(crate) fn restless(prefetch: usize) -> Arc<Self> {
        Arc::new(Self { post: watch::channel(Post::new()).0, prefetch, restless: true })
    }

    /// Sends a message of the chunk that was added as the `id`th, in the first queue.
    pub(crate) fn send(&self, id: usize, key: &str) {
        self.send_of("job:TEST", id, key);
    }

    /// The same with a hint at another queue; an empty one is none.
    pub(crate) fn send_of(&self, queue: &str, id: usize, key: &str) {
        let queue = Some(queue.to_owned()).filter(|queue| !queue.is_empty());
        self.post.send_modify(|post| {
            post.queue.push_back((name(id, key), queue));
            post.hand_over(self.prefetch);
        });
    }

    pub(crate) fn post(&self) -> watch::Ref<'_, Post> {
        self.post.borrow()
    }

    /// Waits until messages are as they should be; a long silence is a failure.
    pub(crate) async fn until(&self, what: &str, test: impl Fn(&Post) -> bool) {
        let mut post = self.post.subscribe();
        let wait = post.wait_for(|post| test(post));
        if tokio::time::timeout(super::PATIENCE, wait).await.is_err() {
            let post = self.post();
            panic!("never happened: {what}; open {:?}, acknowledged {:?}", post.open, post.acknowledged);
        }
    }

    /// Waits until exactly these messages are acknowledged, in any order, and none is left.
    pub(crate) async fn until_acknowledged(&self, keys: &[&str]) {
        let all = |post: &Post| {
            let mut acknowledged = post.acknowledged.clone();
            acknowledged.sort();
            acknowledged == keys && post.open.is_empty() && post.arrived.is_empty() && post.queue.is_empty()
        };
        self.until("all messages are acknowledged", all).await;
    }
}

impl Delivery for Mailbox {
    fn announce(&self) {}

    fn arm(&self) -> BoxFuture<'_, ()> {
        let mut post = self.post.subscribe();
        let (restless, seen) = (self.restless, post.borrow().arrivals);
        Box::pin(async move {
            let news = |post: &Post| post.arrivals > seen || (restless && !post.arrived.is_empty());
            let _ = post.wait_for(news).await;
        })
    }

    fn take(&self, limit: usize) -> Option<Vec<Message>> {
        let mut taken = Vec::new();
        self.post.send_modify(|post| {
            post.takes += 1;
            let count = limit.min(post.arrived.len());
            post.most = post.most.max(count);
            taken.extend(post.arrived.drain(..count));
            post.open.extend(taken.iter().map(|(name, _)| name.chunk_key.clone()));
        });
        let connection = self.post().connection;
        let message = |(name, queue): (ChunkName, Option<String>)| {
            let (post, key, prefetch) = (self.post.clone(), name.chunk_key.clone(), self.prefetch);
            let receipt = Receipt::new(move || {
                post.send_modify(|post| {
                    if post.connection != connection {
                        return;
                    }
                    let place = post.open.iter().position(|open| *open == key).unwrap();
                    post.open.remove(place);
                    post.acknowledged.push(key);
                    post.hand_over(prefetch);
                });
            });
            Message { name, queue, receipt }
        };
        Some(taken.into_iter().map(message).collect())
    }

    fn claimed(&self, count: usize) {
        self.post.send_modify(|post| post.claims += count);
    }

    fn queues_known(&self, queues: &[(QueueId, String)]) {
        self.post.send_modify(|post| post.known = queues.to_vec());
    }

    fn consume(&self, wanted: bool) {
        self.post.send_modify(|post| {
            post.wanted = wanted;
            post.hand_over(self.prefetch);
        });
    }

    fn park(&self, message: Message, reason: &str) {
        let parked = (message.name.chunk_key.clone(), reason.to_owned());
        self.post.send_modify(|post| post.parked.push(parked));
    }
}
