//! The history of a job: every transition of its chunks, in the order in which they happened.
//!
//! Being inserted, the first claim and SUCCESS are read off the chunk's own row, so that a chunk that
//! simply succeeds writes no history; every other transition appends a row and none is ever changed.

use chrono::{DateTime, Utc};

use crate::id::WorkerId;
use crate::state::ChunkState;

/// One transition of one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Which chunk.
    pub chunk_key: String,
    /// Where it was; `None`: it was inserted.
    pub from: Option<ChunkState>,
    /// Where it went.
    pub to: ChunkState,
    /// When, by the database's clock.
    pub at: DateTime<Utc>,
    /// The attempt it had reached then.
    pub attempt: u32,
    /// The worker that took, had or lost it, where that is known.
    pub worker: Option<WorkerId>,
    /// The step that failed.
    pub step: Option<String>,
    /// Why it failed, in a sentence.
    pub cause: Option<String>,
}

/// Where a page of history ended: ordered by time, then chunk, then the order of the transitions of one
/// chunk at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryCursor {
    /// Microseconds since 1970.
    pub at_micros: i64,
    /// The chunk.
    pub chunk: i64,
    /// Its place among the transitions of that chunk.
    pub sequence: i64,
}
