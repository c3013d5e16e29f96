//! The one place that reads the machine's clock. Rules take `now` as an argument, and leases are
//! decided by the database's clock; this is for edges (ids, "today", log lines) only.

use chrono::{DateTime, Utc};

/// The machine's idea of the present moment, for edges that have no database at hand.
#[expect(clippy::disallowed_methods, reason = "this is the edge that the rule points to")]
pub fn now() -> DateTime<Utc> {
    Utc::now()
}
