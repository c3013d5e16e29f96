//! A broker in memory: at most `prefetch` messages of a connection unacknowledged, and everything that is
//! not acknowledged handed out again when a connection ends. It fails when told to.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;

use super::Told;
use crate::broker::{Broker, BrokerError, Consumer, Destination, Incoming, Outgoing, Publisher, Tag};

#[derive(Default)]
pub(super) struct State {
    /// Nobody is let in, and connections are of no more use.
    pub(super) down: bool,
    /// Nobody may consume; so many tried.
    pub(super) publish_only: bool,
    pub(super) turned_away: usize,
    /// Connections that consume and are older than this were cut; those that publish hold.
    cut: usize,
    pub(super) connections: usize,
    next_tag: usize,
    pub(super) work: VecDeque<Incoming>,
    /// By connection.
    pub(super) unacknowledged: Vec<(usize, Incoming)>,
    pub(super) acknowledged: Vec<String>,
    pub(super) parked: Vec<Outgoing>,
    pub(super) published: Vec<Outgoing>,
    /// Messages whose bodies have this in them are refused.
    pub(super) refuse: Option<&'static str>,
    /// It lets everybody in, and takes no message.
    pub(super) blocks: bool,
    /// So many of the next batch arrive, then the connection breaks.
    pub(super) break_after: Option<usize>,
    /// The answer for the last message of the next batch is lost.
    pub(super) lose_an_answer: bool,
}

pub(super) struct MemoryBroker(pub(super) Arc<Told<State>>);

struct Connection {
    broker: Arc<Told<State>>,
    number: usize,
    prefetch: usize,
}

impl MemoryBroker {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Arc::new(Told::new(State::default()))))
    }

    /// Somebody else's message.
    pub(super) fn send(&self, body: &[u8]) {
        self.0.change(|state| state.push(None, body.to_vec()));
    }

    /// Cuts every connection that consumes.
    pub(super) fn cut(&self) {
        self.0.change(|state| {
            state.cut = state.connections;
            let back: Vec<_> = state.unacknowledged.drain(..).map(|(_, message)| message).collect();
            back.into_iter().rev().for_each(|message| state.work.push_front(message));
        });
    }

    fn connect(&self, prefetch: usize) -> Result<Box<Connection>, BrokerError> {
        self.0.change(|state| {
            if state.down {
                return Err(BrokerError("connection refused".to_owned()));
            }
            state.connections += 1;
            Ok(Box::new(Connection { broker: self.0.clone(), number: state.connections, prefetch }))
        })
    }
}

impl State {
    fn push(&mut self, queue: Option<String>, body: Vec<u8>) {
        self.next_tag += 1;
        let tag = Tag(self.next_tag.to_string());
        let length = body.len();
        self.work.push_back(Incoming { tag, queue, body, length });
    }

    fn reachable(&self) -> Result<(), BrokerError> {
        if self.down { Err(BrokerError("connection reset".to_owned())) } else { Ok(()) }
    }

    fn usable(&self, number: usize) -> Result<(), BrokerError> {
        self.reachable()?;
        if number <= self.cut {
            return Err(BrokerError("connection reset".to_owned()));
        }
        Ok(())
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    fn describe(&self) -> String {
        "memory".to_owned()
    }

    async fn publisher(&self) -> Result<Box<dyn Publisher>, BrokerError> {
        Ok(self.connect(0)?)
    }

    async fn consumer(&self, prefetch: u16) -> Result<Box<dyn Consumer>, BrokerError> {
        self.0.change(|state| {
            state.turned_away += usize::from(state.publish_only);
            if state.publish_only { Err(BrokerError("access refused".to_owned())) } else { Ok(()) }
        })?;
        Ok(self.connect(prefetch.into())?)
    }
}

#[async_trait]
impl Publisher for Connection {
    async fn publish(&mut self, messages: &[Outgoing]) -> Result<Vec<Result<(), String>>, BrokerError> {
        self.broker.change(|state| {
            state.reachable()?;
            if state.blocks {
                return Err(BrokerError("it is out of memory".to_owned()));
            }
            let arrive = state.break_after.take();
            let mut answers = Vec::new();
            for message in &messages[..arrive.unwrap_or(messages.len())] {
                if state.refuse.is_some_and(|word| message.body.contains(word)) {
                    answers.push(Err("no queue took it".to_owned()));
                    continue;
                }
                answers.push(Ok(()));
                state.published.push(message.clone());
                match message.to {
                    Destination::Work => state.push(message.queue.clone(), message.body.clone().into_bytes()),
                    Destination::Parking => state.parked.push(message.clone()),
                }
            }
            if arrive.is_some() {
                return Err(BrokerError("broken pipe".to_owned()));
            }
            if std::mem::take(&mut state.lose_an_answer) {
                answers.pop();
            }
            Ok(answers)
        })
    }

    async fn probe(&mut self) -> Result<Option<u32>, BrokerError> {
        self.broker.read(|state| state.reachable().map(|()| Some(state.work.len() as u32)))
    }

    async fn close(self: Box<Self>) {}
}

#[async_trait]
impl Consumer for Connection {
    async fn next(&mut self) -> Result<Incoming, BrokerError> {
        let (number, prefetch) = (self.number, self.prefetch);
        let mut changes = self.broker.0.subscribe();
        loop {
            let next = self.broker.read(|state| {
                state.usable(number)?;
                let held = state.unacknowledged.iter().filter(|(by, _)| *by == number).count();
                Ok(held < prefetch && !state.work.is_empty())
            })?;
            if next {
                return self.broker.change(|state| {
                    let message = state.work.pop_front().ok_or(BrokerError("taken".to_owned()))?;
                    state.unacknowledged.push((number, message.clone()));
                    Ok(message)
                });
            }
            changes.changed().await.map_err(|error| BrokerError(error.to_string()))?;
        }
    }

    async fn acknowledge(&mut self, tags: &[Tag]) -> Result<(), BrokerError> {
        let number = self.number;
        self.broker.change(|state| {
            state.usable(number)?;
            for tag in tags {
                let place = state.unacknowledged.iter().position(|(by, m)| *by == number && m.tag == *tag);
                let place = place.ok_or(BrokerError(format!("{} is not outstanding", tag.0)))?;
                let (_, message) = state.unacknowledged.remove(place);
                state.acknowledged.push(String::from_utf8_lossy(&message.body).into_owned());
            }
            Ok(())
        })
    }

    async fn close(self: Box<Self>) {}
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.broker.change(|state| {
            let (back, others): (Vec<_>, Vec<_>) =
                state.unacknowledged.drain(..).partition(|(by, _)| *by == self.number);
            state.unacknowledged = others;
            back.into_iter().rev().for_each(|(_, message)| state.work.push_front(message));
        });
    }
}
