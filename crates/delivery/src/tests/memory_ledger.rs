//! A ledger in memory that remembers what it was asked, and is away when told to be.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::announcement::{Announcement, DeliveryLag};
use outhaul_core::id::{ChunkId, JobId, QueueId};
use outhaul_core::outbox::{NewOutboxMessage, OutboxMessage};
use outhaul_core::store::{StoreError, StoreResult};

use super::Told;
use crate::ledger::Ledger;

#[derive(Default)]
pub(super) struct State {
    pub(super) away: bool,
    /// Messages whose bodies have this in them are refused.
    pub(super) refuse: Option<&'static str>,
    /// The next confirm fails.
    pub(super) lose_a_confirm: bool,
    /// What is to be announced.
    pub(super) queued: Vec<Announcement>,
    /// What was handed to a relay.
    pub(super) taken: Vec<Announcement>,
    pub(super) takes: usize,
    pub(super) confirmed: Vec<i64>,
    /// Chunks and waits, in the order in which they were deferred.
    pub(super) deferred: Vec<(i64, Duration)>,
    pub(super) doubts: usize,
    pub(super) outbox: Vec<OutboxMessage>,
    pub(super) puts: usize,
}

pub(super) struct MemoryLedger(pub(super) Told<State>);

impl MemoryLedger {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Told::new(State::default())))
    }

    /// The waits of what was deferred are over.
    pub(super) async fn waits_are_over(&self) {
        self.0.until("something is deferred", |state| !state.deferred.is_empty()).await;
        self.0.change(|state| {
            let over = |taken: &Announcement| state.deferred.iter().any(|(chunk, _)| *chunk == taken.chunk.0);
            let (again, rest) = std::mem::take(&mut state.taken).into_iter().partition(over);
            (state.queued, state.taken) = (again, rest);
        });
    }

    /// Chunks `first..=last` are QUEUED.
    pub(super) fn queue(&self, first: i64, last: i64) {
        let chunk = |n: i64| Announcement {
            chunk: ChunkId(n),
            fence: 0,
            mark: outhaul_core::clock::now(),
            queue: QueueId(1),
            job_id: JobId::from_store("J20260102_0000000000123".to_owned()),
            chunk_key: format!("c{n}"),
            key: None,
            effective_date: None,
        };
        self.0.change(|state| state.queued.extend((first..=last).map(chunk)));
    }

    fn act<T>(&self, act: impl FnOnce(&mut State) -> T) -> StoreResult<T> {
        if self.0.read(|state| state.away) {
            return Err(StoreError::Unavailable("away".into()));
        }
        Ok(self.0.change(act))
    }
}

#[async_trait]
impl Ledger for MemoryLedger {
    async fn announcements_take(
        &self,
        queues: &[QueueId],
        _: u32,
        limit: u32,
    ) -> StoreResult<Vec<Announcement>> {
        self.act(|state| {
            state.takes += 1;
            let (known, unknown): (Vec<_>, Vec<_>) =
                state.queued.drain(..).partition(|chunk| queues.contains(&chunk.queue));
            let cut = known.len().min(limit as usize);
            let (taken, left) = known.split_at(cut);
            state.queued = [left, &unknown].concat();
            state.taken.extend_from_slice(taken);
            taken.to_vec()
        })
    }

    async fn announcements_confirm(&self, of: &[Announcement], _: Duration) -> StoreResult<()> {
        self.act(|state| {
            if std::mem::take(&mut state.lose_a_confirm) {
                return Err(StoreError::Unavailable("lost".into()));
            }
            state.confirmed.extend(of.iter().map(|announcement| announcement.chunk.0));
            Ok(())
        })?
    }

    async fn announcements_defer(&self, chunks: &[ChunkId], wait: Duration) -> StoreResult<()> {
        self.act(|state| {
            state.deferred.extend(chunks.iter().map(|chunk| (chunk.0, wait)));
        })
    }

    async fn announcements_doubt(&self) -> StoreResult<()> {
        self.act(|state| state.doubts += 1)
    }

    async fn outbox_put(&self, messages: &[NewOutboxMessage]) -> StoreResult<()> {
        self.act(|state| {
            for message in messages {
                if state.refuse.is_some_and(|word| message.body.contains(word)) {
                    return Err(StoreError::Refused("no".into()));
                }
                state.puts += 1;
                let (message_id, body) = (message.message_id.clone(), message.body.clone());
                if state.outbox.iter().all(|known| known.message_id != message_id) {
                    state.outbox.push(OutboxMessage { id: state.puts as i64, message_id, body });
                }
            }
            Ok(())
        })?
    }

    async fn outbox_take(&self, limit: u32) -> StoreResult<Vec<OutboxMessage>> {
        self.act(|state| state.outbox.iter().take(limit as usize).cloned().collect())
    }

    async fn outbox_delete(&self, ids: &[i64]) -> StoreResult<()> {
        self.act(|state| state.outbox.retain(|message| !ids.contains(&message.id)))
    }

    async fn delivery_lag(&self) -> StoreResult<DeliveryLag> {
        self.act(|state| DeliveryLag {
            announced: state.taken.len() as u64,
            outbox: state.outbox.len() as u64,
            ..DeliveryLag::default()
        })
    }
}
