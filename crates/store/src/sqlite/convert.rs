//! Between Rust and SQLite: times as microseconds, batches as one JSON parameter.

use std::time::Duration;

use chrono::{DateTime, Utc};
use outhaul_core::id::{ChunkId, Lease};
use serde::Serialize;

/// The present moment. SQLite has no clock but that of the machine it runs on, which is ours; read
/// here it is the same throughout a transaction, and to the microsecond.
pub(super) fn now() -> i64 {
    outhaul_core::clock::now().timestamp_micros()
}

/// A duration as SQLite stores it.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A stored time.
pub(super) fn time(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or(if micros < 0 {
        DateTime::<Utc>::MIN_UTC
    } else {
        DateTime::<Utc>::MAX_UTC
    })
}

/// A batch as the one parameter that `json_each` reads.
pub(super) fn json(value: impl Serialize) -> String {
    serde_json::to_string(&value).expect("rows of text and numbers are always JSON")
}

/// Leases as `[[chunk, fence], …]`.
pub(super) fn leases(leases: &[Lease]) -> String {
    json(leases.iter().map(|lease| (lease.chunk.0, lease.fence)).collect::<Vec<_>>())
}

/// A lease from its two columns.
pub(super) fn lease((chunk, fence): (i64, i64)) -> Lease {
    Lease { chunk: ChunkId(chunk), fence }
}
