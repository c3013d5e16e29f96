//! What keeps a database from vacuuming its dead rows.

use std::time::Duration;

/// How far vacuum is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VacuumLag {
    /// How long the oldest open transaction of the database has been open. Rows that died since then stay.
    pub oldest_transaction: Duration,
    /// Dead rows among the chunks, as the database estimates them.
    pub dead_chunks: u64,
}
