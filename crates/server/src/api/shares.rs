//! A limited amount of something, with one limit for all callers and a lower one for each caller: a request takes a
//! share and gives it back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outhaul_core::identity::ANONYMOUS;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// What is shared out. Cheap to clone.
#[derive(Clone)]
pub(super) struct Shares(Arc<Inner>);

struct Inner {
    all: Arc<Semaphore>,
    of_one: usize,
    /// The callers who have a share or wait for one.
    lines: Mutex<HashMap<String, Line>>,
}

struct Line {
    own: Arc<Semaphore>,
    people: usize,
}

/// A share; given back when dropped.
pub(super) struct Share {
    _place: Option<Place>,
    _own: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

/// Why there was no share in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoShare {
    /// The caller has too much already.
    OfYours,
    /// All callers together do.
    OfAll,
}

/// One request in its caller's line.
struct Place {
    inner: Arc<Inner>,
    subject: String,
}

impl Shares {
    /// So much for all, and at most so much for one.
    pub(super) fn new(all: usize, of_one: usize) -> Self {
        Self(Arc::new(Inner { all: Arc::new(Semaphore::new(all)), of_one, lines: Mutex::default() }))
    }

    /// A share of so much, in the order in which it was asked for. Callers who cannot be told apart share the
    /// whole. Who waits holds nothing of what is shared by all.
    pub(super) async fn take(&self, subject: &str, amount: u32, until: Instant) -> Result<Share, NoShare> {
        let line = (subject != ANONYMOUS).then(|| self.line(subject));
        let (place, own) = match line {
            None => (None, None),
            Some((place, own)) => {
                let own = next(own, amount, until).await.ok_or(NoShare::OfYours)?;
                (Some(place), Some(own))
            }
        };
        let all = next(self.0.all.clone(), amount, until).await.ok_or(NoShare::OfAll)?;
        Ok(Share { _place: place, _own: own, _all: all })
    }

    fn line(&self, subject: &str) -> (Place, Arc<Semaphore>) {
        let mut lines = self.0.lines();
        let new = || Line { own: Arc::new(Semaphore::new(self.0.of_one)), people: 0 };
        let line = lines.entry(subject.to_owned()).or_insert_with(new);
        line.people += 1;
        (Place { inner: self.0.clone(), subject: subject.to_owned() }, line.own.clone())
    }

    /// Whether nobody is remembered.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.0.lines().is_empty()
    }
}

impl Inner {
    fn lines(&self) -> MutexGuard<'_, HashMap<String, Line>> {
        // A panic cannot leave the map half-changed.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.inner.lines();
        if let Some(line) = lines.get_mut(&self.subject) {
            line.people -= 1;
            if line.people == 0 {
                lines.remove(&self.subject);
            }
        }
    }
}

/// `None`: there was none in time.
async fn next(from: Arc<Semaphore>, amount: u32, until: Instant) -> Option<OwnedSemaphorePermit> {
    timeout_at(until, from.acquire_many_owned(amount)).await.ok()?.ok()
}
