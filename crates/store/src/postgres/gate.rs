//! Whether the database can be reached. After a failed attempt to connect, callers fail at once until the next attempt
//! is due: a process must not dial a server that is down or just starting once per request.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outhaul_core::retry::Backoff;

/// The first wait after a failed attempt; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The longest wait between two attempts.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The memory of failed attempts to connect, for the connections of one purpose.
pub(super) struct Gate {
    backoff: Backoff,
    shut: Mutex<Option<Shut>>,
    /// Held while a connection is made or waited for: one attempt at a time.
    pub(super) turn: tokio::sync::Mutex<()>,
}

/// The last attempt failed.
struct Shut {
    failures: u32,
    /// When the next attempt is due.
    until: Instant,
    cause: String,
}

/// What a caller that needs a new connection may do.
pub(super) enum Entry {
    /// The last attempt succeeded: wait for a turn and connect.
    Open,
    /// The last attempt failed, and the next one is due: connect, unless another caller does.
    Due,
    /// The last attempt failed for this cause, and the next one is not due: fail.
    Shut(String),
}

impl Gate {
    /// A gate that opens for an attempt after `longest` at the latest.
    pub(super) fn new(longest: Duration) -> Self {
        let backoff = Backoff::Exponential { base: FIRST_WAIT, max: longest.min(LONGEST_WAIT), jitter: true };
        Self { backoff, shut: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    pub(super) fn entry(&self) -> Entry {
        match &*self.shut() {
            None => Entry::Open,
            Some(shut) if shut.until <= Instant::now() => Entry::Due,
            Some(shut) => Entry::Shut(shut.cause.clone()),
        }
    }

    /// A connection was made.
    pub(super) fn reached(&self) {
        if let Some(shut) = self.shut().take() {
            tracing::info!(failures = shut.failures, "store.reached: the database can be reached again");
        }
    }

    /// No connection could be made.
    pub(super) fn failed(&self, cause: &sqlx::Error) {
        let mut shut = self.shut();
        let failures = shut.as_ref().map_or(0, |shut| shut.failures).saturating_add(1);
        if failures == 1 {
            tracing::warn!(%cause, "store.unreachable: the database cannot be reached: {cause}");
        }
        let until = Instant::now() + self.backoff.wait(failures, rand::random());
        *shut = Some(Shut { failures, until, cause: cause.to_string() });
    }

    fn shut(&self) -> MutexGuard<'_, Option<Shut>> {
        self.shut.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> sqlx::Error {
        sqlx::Error::Io(std::io::ErrorKind::ConnectionRefused.into())
    }

    #[test]
    fn a_failure_shuts_the_gate_until_the_next_attempt_is_due() {
        let gate = Gate::new(Duration::from_secs(3600));
        assert!(matches!(gate.entry(), Entry::Open));
        for _ in 0..10 {
            gate.failed(&refused());
        }
        assert!(matches!(gate.entry(), Entry::Shut(cause) if cause.contains("refused")));
        let bound = Instant::now() + LONGEST_WAIT;
        assert!(gate.shut().as_ref().is_some_and(|shut| shut.until <= bound), "waits are bounded");
        gate.reached();
        assert!(matches!(gate.entry(), Entry::Open));
    }

    #[test]
    fn an_attempt_becomes_due_and_one_more_failure_shuts_the_gate_again() {
        let gate = Gate::new(Duration::ZERO);
        gate.failed(&refused());
        assert!(matches!(gate.entry(), Entry::Due));
    }
}
