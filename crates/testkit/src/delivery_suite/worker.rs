//! A worker as small as it can be: claims what messages name, or looks at its queues where they name
//! nothing, and finishes what it claimed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outhaul_core::announcement::{ChunkName, NotClaimed};
use outhaul_core::delivery::{Delivery, Message, NAMES_NOTHING, Receipt};
use outhaul_core::id::{ChunkId, QueueId, WorkerId};
use outhaul_core::store::Store;
use outhaul_core::worker::{ClaimedChunk, Finish, Want};
use tokio::task::JoinHandle;

use super::bench::{Bench, in_time, plain, register};
use super::{Process, Wanted};

/// A chunk that it owns, with its message.
pub(super) struct Held {
    pub(super) chunk: ClaimedChunk,
    pub(super) receipt: Option<Receipt>,
}

/// A worker in a process of its own.
pub(super) struct Worker {
    pub(super) process: Process,
    store: Arc<dyn Store>,
    id: WorkerId,
    queues: Vec<QueueId>,
    claimed: Mutex<Vec<ChunkId>>,
}

impl Worker {
    pub(super) async fn start(bench: &Bench, store: &Arc<dyn Store>, wanted: Wanted) -> Self {
        let id = register(&**store).await;
        let queues = bench.queues.iter().map(|(id, _)| *id).collect();
        let (process, claimed) = (bench.start_on(store, wanted), Mutex::default());
        Self { process, store: store.clone(), id, queues, claimed }
    }

    pub(super) fn delivery(&self) -> &Arc<dyn Delivery> {
        &self.process.delivery
    }

    /// One look.
    pub(super) async fn look(&self, limit: usize) -> Vec<Held> {
        let wants: Vec<Want> = self.queues.iter().map(|&queue| Want { queue, limit: limit as u32 }).collect();
        let held = match self.delivery().take(limit) {
            Some(messages) => self.claim_named(messages, &wants).await,
            None => {
                let claimed = self.store.chunks_claim(self.id, &wants, limit as u32).await;
                let claimed = claimed.expect("chunks_claim").into_iter();
                claimed.map(|chunk| Held { chunk, receipt: None }).collect()
            }
        };
        if !held.is_empty() {
            self.delivery().claimed(held.len());
        }
        let claimed = held.iter().map(|held| held.chunk.lease.chunk);
        self.claimed.lock().expect("no holder panics").extend(claimed);
        held
    }

    /// All that it ever claimed.
    pub(super) fn claimed(&self) -> Vec<ChunkId> {
        self.claimed.lock().expect("no holder panics").clone()
    }

    async fn claim_named(&self, messages: Vec<Message>, wants: &[Want]) -> Vec<Held> {
        if messages.is_empty() {
            return Vec::new();
        }
        let names: Vec<ChunkName> = messages.iter().map(|message| message.name.clone()).collect();
        let total = names.len() as u32;
        let claims = self.store.chunks_claim_named(self.id, &names, wants, total).await;
        let claims = claims.expect("chunks_claim_named");
        let mut messages: Vec<Option<Message>> = messages.into_iter().map(Some).collect();
        for (place, why) in claims.left {
            match (why, messages[place].take()) {
                (NotClaimed::Unknown, Some(message)) => {
                    self.delivery().park(message, NAMES_NOTHING);
                }
                (NotClaimed::NotNow { chunk, .. }, _) => {
                    let deferred = self.store.announcements_defer(&[chunk], Duration::from_secs(1)).await;
                    deferred.expect("announcements_defer");
                }
                _ => {}
            }
        }
        let claimed = claims.claimed.into_iter();
        claimed
            .map(|(place, chunk)| Held { chunk, receipt: messages[place].take().map(|m| m.receipt) })
            .collect()
    }

    /// Waits for a hint until there is something to claim; never polls.
    pub(super) async fn claim(&self, limit: usize) -> Vec<Held> {
        in_time("a chunk to claim", async {
            loop {
                let armed = self.delivery().arm();
                let held = self.look(limit).await;
                if !held.is_empty() {
                    return held;
                }
                armed.await;
            }
        })
        .await
    }

    /// Records that these are done, then lets go of their messages.
    pub(super) async fn finish(&self, held: Vec<Held>) -> Vec<ChunkId> {
        let finishes: Vec<Finish> = held.iter().map(|held| plain(&held.chunk)).collect();
        let done = self.store.chunks_finish(&finishes).await.expect("chunks_finish");
        assert_eq!(done.len(), held.len(), "nobody else owned them");
        held.into_iter().for_each(|held| drop(held.receipt));
        done.into_iter().map(|lease| lease.chunk).collect()
    }

    /// Claims and finishes, as a worker does all day, until it is aborted.
    pub(super) fn run(self: &Arc<Self>) -> JoinHandle<()> {
        let worker = self.clone();
        tokio::spawn(async move {
            loop {
                let armed = worker.delivery().arm();
                let held = worker.look(8).await;
                if held.is_empty() {
                    // Hints may be lost; that is what a poll interval is for.
                    let _ = tokio::time::timeout(Duration::from_secs(1), armed).await;
                } else {
                    worker.finish(held).await;
                }
            }
        })
    }
}
