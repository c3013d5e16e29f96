//! Whether it is worth asking how many rows a chunk will have. Asking costs round trips and a second
//! planning of the query; the progress of a chunk that ends within a second is never written.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A chunk that ends sooner than the first progress is written.
const QUICK: Duration = Duration::from_secs(1);
/// So many quick chunks in a row, and the next one is taken for quick too.
const ENOUGH: u32 = 3;

/// How quick the last chunks of one dataset were, in this process.
///
/// A dataset is asked about until it has shown itself quick, so that the first large export has its total
/// from its start, and 10,000 chunks of 100 rows pay for three questions: asking for each took half as
/// long again as reading the rows, or more. The price is that a large chunk among small ones goes without a
/// total; those after it have one.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    quick: AtomicU32,
}

impl Pace {
    /// Whether the next chunk should ask.
    pub(crate) fn asks(&self) -> bool {
        self.quick.load(Ordering::Relaxed) < ENOUGH
    }

    /// Notes how long a chunk took to read, without the asking.
    pub(crate) fn note(&self, took: Duration, succeeded: bool) {
        if took >= QUICK {
            self.quick.store(0, Ordering::Relaxed);
        } else if succeeded && self.asks() {
            // A quick failure says nothing about how long the rows would have taken.
            self.quick.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_datasets_that_were_quick_are_not_asked_about() {
        let (pace, quick, slow) = (Pace::default(), Duration::from_millis(999), Duration::from_secs(1));
        assert!(pace.asks(), "nothing is known at first");
        (0..10).for_each(|_| pace.note(quick, false));
        assert!(pace.asks(), "failures say nothing");
        (0..2).for_each(|_| pace.note(quick, true));
        assert!(pace.asks());
        pace.note(quick, true);
        assert!(!pace.asks());
        (0..10).for_each(|_| pace.note(quick, true));
        pace.note(slow, false);
        assert!(pace.asks(), "one slow chunk, however it ended, and all is open again");
    }
}
