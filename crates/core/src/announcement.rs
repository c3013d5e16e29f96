//! Announcements: which QUEUED chunks a broker was told of. The chunk itself is the outbox row; an
//! announcement only remembers that its message is on the way, so that a window of them is kept.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};

use crate::id::{ChunkId, JobId, QueueId};
use crate::worker::ClaimedChunk;

/// How long a relay may take from marking a batch to its confirm; a relay that dies in between delays
/// its batch by so much.
pub const ANNOUNCEMENT_HELD: Duration = Duration::from_secs(10);

/// How long a broker has to hand out what it may have lost, before it is announced again.
pub const ANNOUNCEMENT_DOUBTED: Duration = Duration::from_secs(10);

/// The longest that the wait of a chunk which could not be claimed grows to: so long it may be known to a
/// process alone that died meanwhile.
pub const ANNOUNCEMENT_DEFERRED: Duration = Duration::from_secs(8);

/// The longest expiry or wait that stores keep, before any doubling: so that no sum of times overflows.
pub const ANNOUNCEMENT_LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// What a message says of a chunk: the names clients know, and nothing that a store would trust.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChunkName {
    /// Its job, as the message spells it.
    pub job_id: String,
    /// What clients call the chunk.
    pub chunk_key: String,
}

/// A chunk that is to be announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The chunk.
    pub chunk: ChunkId,
    /// Its fence when it was announced: a claim since then ends the announcement.
    pub fence: i64,
    /// Until when it was marked for the relay that took it; tells this mark from that of a later relay.
    pub mark: DateTime<Utc>,
    /// Its queue.
    pub queue: QueueId,
    /// Its job.
    pub job_id: JobId,
    /// What clients call it.
    pub chunk_key: String,
    /// The key of an export.
    pub key: Option<String>,
    /// The date of an export.
    pub effective_date: Option<NaiveDate>,
}

/// What a claim of named chunks came to; the places are those of the names in the call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedClaims {
    /// Chunks that the worker now owns.
    pub claimed: Vec<(usize, ClaimedChunk)>,
    /// The others, and why.
    pub left: Vec<(usize, NotClaimed)>,
}

/// Why a named chunk was not claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotClaimed {
    /// There is no such chunk.
    Unknown,
    /// It is finished, owned by another, or must not start: the message has nothing more to say.
    Over,
    /// It is QUEUED, and cannot be claimed by this worker at this moment.
    NotNow {
        /// The chunk.
        chunk: ChunkId,
        /// Its queue.
        queue: QueueId,
        /// What keeps it.
        because: NotNow,
    },
}

/// What keeps a QUEUED chunk from being claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNow {
    /// Its queue is paused; the relay announces it when that is over.
    Paused,
    /// The worker asked for no more of its queue: it holds no free budget slot. Its announcement is deferred by
    /// [`ANNOUNCEMENT_DEFERRED`] with this, so that it may wait with the worker and its message end.
    NoSlot,
    /// The worker did not ask for its queue.
    UnknownQueue,
    /// Another transaction had its row or its announcement locked.
    Busy,
}

/// How far the relays are behind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeliveryLag {
    /// Chunks that are announced and not claimed yet.
    pub announced: u64,
    /// Messages in the outbox.
    pub outbox: u64,
    /// How long the oldest of them has been waiting.
    pub outbox_oldest: Duration,
}
