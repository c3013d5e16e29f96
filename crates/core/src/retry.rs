//! When a failed chunk runs again, and when it is given up. Backoff is always capped.

use std::time::Duration;

/// Upper bound of every wait: later times could be beyond the last date that a database can store.
pub const LONGEST_WAIT: Duration = Duration::from_secs(365 * 86_400);

/// How long to wait before attempt n + 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Backoff {
    /// base, 2 × base, 4 × base … up to max; with jitter, a random time between half of that and all of it.
    Exponential {
        /// The first wait.
        base: Duration,
        /// The longest wait.
        max: Duration,
        /// Whether waits are spread out, so that failures of one moment do not return as one.
        jitter: bool,
    },
    /// base, 2 × base, 3 × base … up to max.
    Linear {
        /// The first wait.
        base: Duration,
        /// The longest wait.
        max: Duration,
    },
    /// Always the same wait.
    Fixed {
        /// The wait.
        base: Duration,
    },
}

/// How often and how fast a chunk is tried again.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// The attempt after which a failure is final; at least 1.
    pub max_attempts: u32,
    /// The wait between attempts.
    pub backoff: Backoff,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let backoff = Backoff::Exponential {
            base: Duration::from_secs(1),
            max: Duration::from_secs(300),
            jitter: true,
        };
        Self { max_attempts: 5, backoff }
    }
}

/// What becomes of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Try again after this wait.
    Retry(Duration),
    /// Give up.
    Dead,
}

impl RetryPolicy {
    /// Judges the failure of attempt `attempt` (1 is the first). `random` in 0..=1 is the jitter.
    pub fn judge(&self, attempt: u32, fatal: bool, random: f64) -> Verdict {
        if fatal || attempt >= self.max_attempts {
            return Verdict::Dead;
        }
        Verdict::Retry(self.backoff.wait(attempt, random))
    }
}

impl Backoff {
    /// The wait after attempt `attempt`, at most [`LONGEST_WAIT`].
    pub fn wait(&self, attempt: u32, random: f64) -> Duration {
        let attempt = attempt.max(1);
        let wait = match *self {
            Self::Fixed { base } => base,
            Self::Linear { base, max } => base.saturating_mul(attempt).min(max),
            Self::Exponential { base, max, jitter } => {
                let factor = 2u32.checked_pow(attempt - 1).unwrap_or(u32::MAX);
                let wait = base.saturating_mul(factor).min(max);
                if jitter { wait.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0) } else { wait }
            }
        };
        wait.min(LONGEST_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn waits(backoff: Backoff) -> Vec<u64> {
        (1..=6).map(|attempt| backoff.wait(attempt, 1.0).as_secs()).collect()
    }

    #[test]
    fn no_wait_is_longer_than_a_database_can_add() {
        let base = Duration::from_secs(999_999_999 * 86_400);
        assert_eq!(Backoff::Fixed { base }.wait(1, 1.0), LONGEST_WAIT);
        assert_eq!(Backoff::Linear { base, max: Duration::MAX }.wait(9, 1.0), LONGEST_WAIT);
    }

    #[test]
    fn waits_grow_as_named_and_are_capped() {
        assert_eq!(waits(Backoff::Exponential { base: S, max: 10 * S, jitter: false }), [1, 2, 4, 8, 10, 10]);
        assert_eq!(waits(Backoff::Linear { base: S, max: 4 * S }), [1, 2, 3, 4, 4, 4]);
        assert_eq!(waits(Backoff::Fixed { base: 3 * S }), [3; 6]);
        assert_eq!(Backoff::Exponential { base: S, max: 300 * S, jitter: true }.wait(u32::MAX, 1.0), 300 * S);
    }

    #[test]
    fn jitter_stays_between_half_and_whole() {
        let backoff = Backoff::Exponential { base: 8 * S, max: 300 * S, jitter: true };
        assert_eq!(backoff.wait(1, 0.0), 4 * S);
        assert_eq!(backoff.wait(1, 1.0), 8 * S);
    }

    #[test]
    fn dies_at_exactly_max_attempts_or_at_once_when_fatal() {
        let policy = RetryPolicy { max_attempts: 3, backoff: Backoff::Fixed { base: S } };
        assert_eq!(policy.judge(1, false, 0.0), Verdict::Retry(S));
        assert_eq!(policy.judge(2, false, 0.0), Verdict::Retry(S));
        assert_eq!(policy.judge(3, false, 0.0), Verdict::Dead);
        assert_eq!(policy.judge(1, true, 0.0), Verdict::Dead);
    }
}
