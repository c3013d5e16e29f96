//! A lease as its owner may believe in it, by the process's own monotonic clock. That clock keeps
//! running while the process is stopped, so a lease that ran out meanwhile is over at the first look.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// When this process must stop acting on a lease that it could not renew.
#[derive(Debug)]
pub(crate) struct LocalLease {
    base: Instant,
    span: Duration,
    /// Microseconds from `base` to the end.
    end: AtomicU64,
}

impl LocalLease {
    /// A lease of `span`, asked for at `asked`: the database cannot have granted it earlier than that.
    pub(crate) fn new(asked: Instant, span: Duration) -> Self {
        // A sixth of the lease is kept for stopping what runs.
        let usable = span - span / 6;
        Self { base: asked, span: usable, end: AtomicU64::new(micros(usable)) }
    }

    /// Notes a renewal that was asked for at `asked`.
    pub(crate) fn renewed(&self, asked: Instant) {
        let end = asked.saturating_duration_since(self.base).saturating_add(self.span);
        self.end.fetch_max(micros(end), Ordering::AcqRel);
    }

    /// When the lease was asked for.
    pub(crate) fn asked(&self) -> Instant {
        self.base
    }

    /// How long ago it was asked for.
    pub(crate) fn age(&self) -> Duration {
        self.base.elapsed()
    }

    /// Whether the safe part of the lease is over.
    pub(crate) fn is_over(&self) -> bool {
        micros(self.base.elapsed()) >= self.end.load(Ordering::Acquire)
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_before_the_store_would_and_renewals_only_extend() {
        let span = Duration::from_secs(60);
        let Some(past) = Instant::now().checked_sub(Duration::from_secs(51)) else { return };
        let lease = LocalLease::new(past, span);
        assert!(lease.is_over(), "50 of 60 seconds are usable");
        lease.renewed(past + Duration::from_secs(30));
        assert!(!lease.is_over());
        lease.renewed(past);
        assert!(!lease.is_over(), "an older renewal takes nothing away");
    }
}
