//! How many requests one caller may make. Only callers who asked of late are remembered, and no more than
//! a fixed number of them: somebody who is forgotten starts afresh, which is what a full bucket means.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The callers that are remembered at once.
const MAX_CALLERS: usize = 10_000;

/// A token bucket per caller, kept as the moment at which it will be full again.
#[derive(Debug)]
pub struct Rate {
    /// What one request costs.
    each: Duration,
    /// What may be owed at once: the burst.
    most: Duration,
    max_callers: usize,
    full_at: Mutex<HashMap<String, Instant>>,
}

impl Rate {
    /// So many requests per second on average, and so many at once; neither may be nothing, and one
    /// stands in for it.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let each = Duration::from_secs(1) / per_second.max(1);
        let full_at = Mutex::default();
        Self { each, most: each * burst.max(1), max_callers: MAX_CALLERS, full_at }
    }

    /// Counts one request; the error is how long to wait before the next is taken.
    pub fn take(&self, caller: &str, now: Instant) -> Result<(), Duration> {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let owed = full_at.get(caller).map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let then = owed + self.each;
        if then > self.most {
            return Err(then - self.most);
        }
        if !full_at.contains_key(caller) && full_at.len() >= self.max_callers {
            make_room(&mut full_at, self.max_callers, now);
        }
        full_at.insert(caller.to_owned(), now + then);
        Ok(())
    }
}

/// Forgets all whose bucket is full; where that is nobody, the one who is nearest to it.
fn make_room(full_at: &mut HashMap<String, Instant>, max: usize, now: Instant) {
    full_at.retain(|_, at| *at > now);
    if full_at.len() >= max
        && let Some(nearest) = full_at.iter().min_by_key(|(_, at)| **at).map(|(caller, _)| caller.clone())
    {
        full_at.remove(&nearest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_then_a_steady_rate_and_the_wait_is_told() {
        let (rate, start) = (Rate::new(10, 3), Instant::now());
        for _ in 0..3 {
            assert_eq!(rate.take("ann", start), Ok(()));
        }
        assert_eq!(rate.take("ann", start), Err(millis(100)));
        assert_eq!(rate.take("ann", start + millis(99)), Err(millis(1)), "refusals cost nothing");
        assert_eq!(rate.take("ann", start + millis(100)), Ok(()));
        assert_eq!(rate.take("ann", start + millis(100)), Err(millis(100)));
        // Long silence fills the bucket, and no further.
        let later = start + Duration::from_secs(3600);
        assert_eq!((0..9).filter(|_| rate.take("ann", later).is_ok()).count(), 3);
    }

    #[test]
    fn callers_do_not_share() {
        let (rate, now) = (Rate::new(1, 1), Instant::now());
        assert_eq!(rate.take("ann", now), Ok(()));
        assert_eq!(rate.take("bob", now), Ok(()));
        assert_eq!(rate.take("ann", now), Err(Duration::from_secs(1)));
        assert_eq!(rate.take("bob", now), Err(Duration::from_secs(1)));
    }

    #[test]
    fn nothing_per_second_is_one_per_second() {
        let (rate, now) = (Rate::new(0, 0), Instant::now());
        assert_eq!(rate.take("ann", now), Ok(()));
        assert_eq!(rate.take("ann", now), Err(Duration::from_secs(1)));
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_does_no_harm() {
        let (rate, start) = (Rate::new(1, 1), Instant::now() + Duration::from_secs(60));
        assert_eq!(rate.take("ann", start), Ok(()));
        assert_eq!(rate.take("ann", start - millis(500)), Err(millis(1500)));
    }

    #[test]
    fn only_so_many_callers_are_remembered() {
        let rate = Rate { max_callers: 3, ..Rate::new(1, 2) };
        let now = Instant::now();
        let remembered = || rate.full_at.lock().unwrap().len();
        for caller in ["a", "b", "c"] {
            assert_eq!(rate.take(caller, now), Ok(()));
        }
        assert_eq!(rate.take("a", now), Ok(()));
        // Nobody's bucket is full: one of those who used least is forgotten, never the one at the limit.
        assert_eq!(rate.take("d", now), Ok(()));
        assert_eq!(remembered(), 3);
        assert!(rate.take("a", now).is_err());
        // Everybody's is full again: all are forgotten.
        let later = now + Duration::from_secs(10);
        assert_eq!(rate.take("e", later), Ok(()));
        assert_eq!(remembered(), 1);
    }
}
