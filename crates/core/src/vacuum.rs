//! What keeps a database from clearing away rows that nobody needs any more.

use std::time::Duration;

/// How far the clearing is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VacuumLag {
    /// How long the oldest open transaction of the database has been open: what died since then stays.
    pub oldest_transaction: Duration,
    /// Dead rows among the chunks, as the database estimates them.
    pub dead_chunks: u64,
}
