//! Claims whose answers may have been lost: the store then has chunks as RUNNING here that this process does not know.
//! A chunk that is unknown in two checks in a row is given back without counting the attempt.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outhaul_core::id::Lease;

/// The calls that claim, of which there is one at a time.
#[derive(Default)]
pub(crate) struct Claims(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    /// When the present call began; set until its chunks are known here.
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

    /// The call was answered, and its chunks are known here.
    pub(crate) fn answered(&self) {
        self.lock().open = None;
    }

    /// The call ended in an error. It may still have claimed chunks, or may yet claim some.
    pub(crate) fn failed(&self) {
        *self.lock() = Calls { open: None, lost: Some(Instant::now()) };
    }

    /// Whether a call failed so recently that the leases of its chunks may still be valid.
    fn in_doubt(&self, lease: Duration) -> bool {
        self.lock().lost.is_some_and(|lost| lost.elapsed() < lease)
    }

    /// Whether the present call had begun at this time.
    fn open_at(&self, time: Instant) -> bool {
        self.lock().open.is_some_and(|began| began <= time)
    }
}

/// The unknown chunks of the last check.
#[derive(Default)]
pub(crate) struct Unknown {
    looked: Option<Instant>,
    leases: Vec<Lease>,
}

impl Unknown {
    /// Whether there is a reason to check.
    pub(crate) fn is_wanted(&self, claims: &Claims, lease: Duration) -> bool {
        !self.leases.is_empty() || claims.in_doubt(lease)
    }

    /// Takes the result of a check at `looked`, and returns the chunks that were unknown in the check before, too. A
    /// chunk may be unknown because the call that claims it is not answered yet. By the next check the chunk is known,
    /// or that call is still open, and then nothing is returned.
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
        // A call that began before the last check is not answered yet: chunk 2 may be in its answer.
        claims.began(at(1));
        assert_eq!(unknown.again(at(3), vec![lease(2)], &claims), []);
        claims.began(at(4));
        assert_eq!(unknown.again(at(5), vec![lease(2)], &claims), [lease(2)], "a later call brings others");
        claims.answered();
        assert_eq!(unknown.again(at(6), vec![], &claims), []);
    }
}
