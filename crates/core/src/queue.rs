//! Queues: where chunks wait, with their budgets and pauses.

use chrono::{DateTime, Utc};

use crate::id::QueueId;

/// A queue that this process knows from its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// `source:<name>` or `job:<TYPE>`.
    pub name: String,
    /// How many chunks of it may run at once across all workers; `None`: as many as workers have slots.
    pub max_concurrent: Option<u32>,
}

/// A queue as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueRow {
    /// Internal key.
    pub id: QueueId,
    /// `source:<name>` or `job:<TYPE>`.
    pub name: String,
    /// The budget, if it has one.
    pub max_concurrent: Option<u32>,
    /// Whether an operator paused it.
    pub paused: bool,
    /// Chunks that are QUEUED.
    pub depth: i64,
    /// When the longest waiting QUEUED chunk took its turn.
    pub oldest: Option<DateTime<Utc>>,
    /// Chunks that are RUNNING.
    pub running: i64,
}
