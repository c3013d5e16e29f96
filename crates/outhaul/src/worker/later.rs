//! Messages that have to come again: their chunks are QUEUED, and cannot run here now. The announcement is cleared
//! or deferred first and the message acknowledged after, so that a process that dies in between loses neither.

use std::collections::BTreeMap;
use std::time::Duration;

use outhaul_core::delivery::Message;
use outhaul_core::id::ChunkId;
use outhaul_core::store::{Store, StoreResult};

/// When a chunk that nothing here can wait for is announced again.
pub(super) const SOON: Duration = Duration::from_millis(250);

/// Chunks to be announced again, by when.
#[derive(Default)]
pub(super) struct Later {
    chunks: BTreeMap<Duration, Vec<ChunkId>>,
    messages: Vec<Message>,
}

impl Later {
    /// The chunk is to be announced again after `wait`, at once if that is zero, in the place of its message.
    pub(super) fn add(&mut self, chunk: ChunkId, wait: Duration, message: Option<Message>) {
        self.chunks.entry(wait).or_default().push(chunk);
        self.messages.extend(message);
    }

    /// Says so to the store, in one call per wait, and acknowledges the messages. While the store cannot be
    /// reached they are kept, to be told of the next time.
    pub(super) async fn tell(&mut self, store: &dyn Store) -> StoreResult<()> {
        while let Some((wait, chunks)) = self.chunks.pop_first() {
            let told = if wait.is_zero() {
                store.announcements_clear(&chunks).await
            } else {
                store.announcements_defer(&chunks, wait).await
            };
            if let Err(error) = told {
                self.chunks.insert(wait, chunks);
                return Err(error);
            }
        }
        self.messages.clear();
        Ok(())
    }

    /// The messages, which were not acknowledged.
    pub(super) fn into_messages(self) -> Vec<Message> {
        self.messages
    }

    /// Leaves the messages to the broker, which hands them to others.
    pub(super) fn abandon(&mut self) {
        self.messages.drain(..).for_each(|message| message.receipt.abandon());
    }
}
