//! Turns: a chunk's place in its queue, taken when it first becomes QUEUED.
//!
//! A job's n-th chunk stands n steps further back, so that a job of one chunk does not wait behind
//! one of 100,000 and two large jobs share the workers, while every chunk's place is fixed for good.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// `now + position × step`. The stores compute the same in SQL; the suite compares.
pub fn turn(now: DateTime<Utc>, position: u32, step: Duration) -> DateTime<Utc> {
    let micros = i64::try_from(step.as_micros()).unwrap_or(i64::MAX).saturating_mul(i64::from(position));
    now.checked_add_signed(chrono::TimeDelta::microseconds(micros)).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_positions_stand_further_back() {
        let now = DateTime::UNIX_EPOCH;
        let step = Duration::from_millis(100);
        assert_eq!(turn(now, 0, step), now);
        assert_eq!((turn(now, 10, step) - now).num_milliseconds(), 1000);
        assert_eq!(turn(now, 100_000, Duration::ZERO), now);
        assert!(turn(now, u32::MAX, Duration::from_secs(u64::MAX)) > now);
    }
}
