//! What others tell the relay of their process, so that it looks again before its next poll.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// What others tell the relay.
#[derive(Debug, Default)]
pub(crate) struct Nudges {
    /// Chunks were claimed: the window has room.
    pub(crate) claims: Claims,
    /// Something is in the outbox.
    pub(crate) outbox: Arc<Notify>,
    /// The broker may have lost what it was told.
    pub(crate) doubt: AtomicBool,
}

/// Claims since the relay last looked. It looks at its whole window each time, so they are gathered.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    count: AtomicUsize,
    more: Notify,
}

impl Claims {
    /// So many chunks were claimed.
    pub(crate) fn add(&self, count: usize) {
        self.count.fetch_add(count, Ordering::AcqRel);
        self.more.notify_one();
    }

    /// The relay looks now: what was claimed until here is seen by that look.
    pub(crate) fn seen(&self) {
        self.count.store(0, Ordering::Release);
    }

    /// Waits until `enough` were claimed, or until one was and `patience` has passed since.
    pub(crate) async fn gathered(&self, enough: usize, patience: Duration) {
        self.at_least(1).await;
        // Whichever it was, there is room.
        let _ = tokio::time::timeout(patience, self.at_least(enough)).await;
    }

    async fn at_least(&self, count: usize) {
        while self.count.load(Ordering::Acquire) < count {
            self.more.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn claims_are_gathered_until_they_are_enough_or_have_waited() {
        let claims = Claims::default();
        let mut gathered = pin!(claims.gathered(3, HOUR));
        assert!(poll!(gathered.as_mut()).is_pending(), "nothing was claimed");
        claims.add(2);
        assert!(poll!(gathered.as_mut()).is_pending(), "two are not three");
        claims.add(1);
        assert!(poll!(gathered.as_mut()).is_ready(), "three are");

        claims.seen();
        let mut gathered = pin!(claims.gathered(3, Duration::ZERO));
        assert!(poll!(gathered.as_mut()).is_pending(), "they were seen, and the permit is not a claim");
        claims.add(1);
        gathered.await;
    }
}
