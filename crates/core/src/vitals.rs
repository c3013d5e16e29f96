//! Whether a process still has all its parts. Some parts must live as long as the process does. If one of them ends
//! early, by a panic or by returning, the process would look alive and do half of its work. The whole process then ends
//! as well, so that its supervisor restarts it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures::channel::oneshot;
use futures::future::{FutureExt as _, Shared};

/// Why a process can no longer do its work and should be restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// This part ended although the process was not stopping.
    Ended(&'static str),
    /// This many jobs hold threads and do not give them back. Only a new process has free threads again.
    Wedged(usize),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(part) => write!(f, "{part} of this process ended, and nobody had told it to")?,
            Self::Wedged(jobs) => {
                write!(
                    f,
                    "{jobs} jobs block their threads and do not stop when told to (the log names them)"
                )?;
            }
        }
        f.write_str("; this process ends, and its supervisor should start it again")
    }
}

/// The state of the parts of a process; clones share it.
#[derive(Clone)]
pub struct Vitals(Arc<State>);

struct State {
    /// The first failure. Later failures may be consequences of it.
    first: OnceLock<Broken>,
    tell: Mutex<Option<oneshot::Sender<Broken>>>,
    told: Shared<oneshot::Receiver<Broken>>,
    stopping: AtomicBool,
}

impl Default for Vitals {
    fn default() -> Self {
        let (tell, told) = oneshot::channel();
        let (tell, told) = (Mutex::new(Some(tell)), told.shared());
        Self(Arc::new(State { first: OnceLock::new(), tell, told, stopping: AtomicBool::new(false) }))
    }
}

impl Vitals {
    /// Registers a part that begins now. The caller keeps the returned [`Part`] until the part ends.
    pub fn part(&self, name: &'static str) -> Part {
        Part { name, vitals: self.clone() }
    }

    /// The process stops: from now on parts may end.
    pub fn stopping(&self) {
        self.0.stopping.store(true, Ordering::Release);
    }

    /// Reports a failure. Only the first call counts, and no call counts after the process began to stop.
    pub fn report(&self, broken: Broken) {
        let State { first, tell, stopping, .. } = &*self.0;
        if !stopping.load(Ordering::Acquire)
            && first.set(broken).is_ok()
            && let Some(tell) = tell.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            // Cannot fail: the other end lives in `self`.
            let _ = tell.send(broken);
        }
    }

    /// What is broken, if anything is.
    pub fn look(&self) -> Option<Broken> {
        self.0.first.get().copied()
    }

    /// Waits until something is broken.
    pub async fn broken(&self) -> Broken {
        match self.0.told.clone().await {
            Ok(broken) => broken,
            // The sender is dropped only after it has sent.
            Err(oneshot::Canceled) => std::future::pending().await,
        }
    }
}

/// A part that runs. Dropped, also by a panic, it has ended.
pub struct Part {
    name: &'static str,
    vitals: Vitals,
}

impl Part {
    /// Runs the part's work to its end.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> T {
        let ended = work.await;
        drop(self);
        ended
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.vitals.report(Broken::Ended(self.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_that_ends_is_told_to_all_who_ask() {
        let vitals = Vitals::default();
        let (first, second) = (vitals.part("the first"), vitals.part("the second"));
        let mut early = Box::pin(vitals.broken());
        assert_eq!(((&mut early).now_or_never(), vitals.look()), (None, None));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _first = first;
            panic!("as a test wants it");
        }));
        assert!(panicked.is_err());
        drop(second);
        let ended = Some(Broken::Ended("the first"));
        assert_eq!(
            (early.now_or_never(), vitals.broken().now_or_never(), vitals.look()),
            (ended, ended, ended)
        );
    }

    #[test]
    fn who_stops_may_end() {
        let vitals = Vitals::default();
        let part = vitals.part("it");
        vitals.stopping();
        drop(part);
        assert_eq!(vitals.look(), None);
    }
}
