//! Claims whose answers may have been lost: the store then shows chunks as running here of which this process
//! never heard. They are recognised by being unknown twice in a row, and given back uncounted.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outhaul_core::id::Lease;

/// The calls that claim, of which there is one at a time.
#[derive(Default)]
pub(crate) struct Claims(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    /// When the call began that is under way, or whose chunks are not yet known here.
    open: Option<Instant>,
    /// When a call last ended without an answer.
    lost: Option<Instant>,
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins.
    pub(crate) fn began(&self, at: Instant) {
        self.lock().open = Some(at);
    }

    /// What the call claimed is known here.
    pub(crate) fn answered(&self) {
        self.lock().open = None;
    }

    /// The call ended in an error, and may have claimed something all the same, or may still do so.
    pub(crate) fn failed(&self) {
        *self.lock() = Calls { open: None, lost: Some(Instant::now()) };
    }

    /// Whether a call failed so recently that what it claimed has not run out.
    fn in_doubt(&self, lease: Duration) -> bool {
        self.lock().lost.is_some_and(|lost| lost.elapsed() < lease)
    }

    /// Whether a call is under way that had begun at this time.
    fn open_at(&self, time: Instant) -> bool {
        self.lock().open.is_some_and(|began| began <= time)
    }
}

/// What a look found that nobody here knew.
#[derive(Default)]
pub(crate) struct Unknown {
    looked: Option<Instant>,
    leases: Vec<Lease>,
}

impl Unknown {
    /// Whether there is a reason to look.
    pub(crate) fn is_wanted(&self, claims: &Claims, lease: Duration) -> bool {
        !self.leases.is_empty() || claims.in_doubt(lease)
    }

    /// Takes in a look at `looked`, and returns what was unknown the last time too. A chunk that was unknown
    /// because the call that claimed it was under way is known by the next look, or that call still is.
    pub(crate) fn again(&mut self, looked: Instant, unknown: Vec<Lease>, claims: &Claims) -> Vec<Lease> {
        let before = std::mem::replace(self, Self { looked: Some(looked), leases: unknown });
        if before.looked.is_none_or(|first| claims.open_at(first)) {
            return Vec::new();
        }
        self.leases.iter().copied().filter(|lease| before.leases.contains(lease)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outhaul_core::id::ChunkId;

    #[test]
    fn only_what_is_unknown_twice_and_cannot_be_on_its_way_is_given_back() {
        let lease = |chunk| Lease { chunk: ChunkId(chunk), fence: 1 };
        let (start, lease_time) = (Instant::now(), Duration::from_secs(60));
        let at = |second| start + Duration::from_secs(second);
        let (claims, mut unknown) = (Claims::default(), Unknown::default());
        assert!(!unknown.is_wanted(&claims, lease_time), "nobody looks without a reason");
        claims.began(at(0));
        claims.failed();
        assert!(unknown.is_wanted(&claims, lease_time));
        assert_eq!(unknown.again(at(1), vec![lease(1)], &claims), []);
        assert_eq!(unknown.again(at(2), vec![lease(1), lease(2)], &claims), [lease(1)]);
        // A call that began before the last look, and is not answered: 2 may be on its way.
        claims.began(at(1));
        assert_eq!(unknown.again(at(3), vec![lease(2)], &claims), []);
        claims.began(at(4));
        assert_eq!(unknown.again(at(5), vec![lease(2)], &claims), [lease(2)], "a later call brings others");
        claims.answered();
        assert_eq!(unknown.again(at(6), vec![], &claims), []);
    }
}
