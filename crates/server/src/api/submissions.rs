//! How many submissions are stored at once. Each holds one of the API's connections meanwhile, and those of one
//! caller wait for each other in the database, where their quota is counted: without a limit the large jobs of one
//! caller would hold all connections, and nobody could so much as look at a job.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use outhaul_core::identity::ANONYMOUS;
use outhaul_core::store::Store;
use outhaul_store::postgres::PostgresStore;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::problem::Problem;

/// What stands in for the connections where there are none: SQLite writes on one of its own.
const EMBEDDED: u32 = 10;

/// The turns to submit. Cheap to clone.
#[derive(Clone)]
pub(super) struct Submissions(Arc<Inner>);

struct Inner {
    all: Arc<Semaphore>,
    of_one: usize,
    /// How long a turn is waited for.
    patience: Duration,
    /// The callers who have a turn or wait for one.
    lines: Mutex<HashMap<String, Line>>,
}

struct Line {
    turns: Arc<Semaphore>,
    people: usize,
}

/// Leave to store one job; over when dropped.
pub(super) struct Turn {
    _place: Option<Place>,
    _own: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

/// One submission in its caller's line.
struct Place {
    inner: Arc<Inner>,
    subject: String,
}

impl Submissions {
    /// For the API's own connections. A turn is waited for half of what a request may take, so that the other half
    /// is left to store the job.
    pub(super) fn new(store: &dyn Store, request_timeout: Duration) -> Self {
        let postgres = store.as_any().downcast_ref::<PostgresStore>();
        let connections = postgres.map_or(EMBEDDED, PostgresStore::most_connections);
        Self::of(connections as usize, request_timeout / 2)
    }

    /// Half of the connections are left to everything else, and a quarter is the most that one caller takes.
    fn of(connections: usize, patience: Duration) -> Self {
        let all = (connections / 2).max(1);
        let of_one = (all / 2).max(1);
        let all = Arc::new(Semaphore::new(all));
        Self(Arc::new(Inner { all, of_one, patience, lines: Mutex::default() }))
    }

    /// A turn, in the order in which it was asked for. Callers who cannot be told apart share all of them.
    pub(super) async fn turn(&self, subject: &str) -> Result<Turn, Problem> {
        let until = Instant::now() + self.0.patience;
        let line = (subject != ANONYMOUS).then(|| self.line(subject));
        let (place, own) = match line {
            None => (None, None),
            Some((place, turns)) => {
                let own = next(turns, until).await.ok_or_else(too_many_of_yours)?;
                (Some(place), Some(own))
            }
        };
        let all = next(self.0.all.clone(), until).await.ok_or_else(too_many)?;
        Ok(Turn { _place: place, _own: own, _all: all })
    }

    fn line(&self, subject: &str) -> (Place, Arc<Semaphore>) {
        let mut lines = self.0.lines();
        let new = || Line { turns: Arc::new(Semaphore::new(self.0.of_one)), people: 0 };
        let line = lines.entry(subject.to_owned()).or_insert_with(new);
        line.people += 1;
        (Place { inner: self.0.clone(), subject: subject.to_owned() }, line.turns.clone())
    }
}

impl Inner {
    fn lines(&self) -> MutexGuard<'_, HashMap<String, Line>> {
        // What is behind it is whole at every moment.
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
async fn next(turns: Arc<Semaphore>, until: Instant) -> Option<OwnedSemaphorePermit> {
    timeout_at(until, turns.acquire_owned()).await.ok()?.ok()
}

fn too_many_of_yours() -> Problem {
    let detail = "too many of your submissions are being stored now; none of this one is: send it again";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
        .with_header(RETRY_AFTER, HeaderValue::from_static("5"))
}

fn too_many() -> Problem {
    Problem::unavailable("too many submissions are being stored now; none of this one is: send it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    async fn refused(submissions: &Submissions, subject: &str) -> u16 {
        submissions.turn(subject).await.err().expect("there is a turn").status().as_u16()
    }

    #[tokio::test]
    async fn one_caller_has_some_turns_and_all_callers_fewer_than_there_are_connections() {
        let submissions = Submissions::of(10, Duration::ZERO);
        let turn = async |subject| submissions.turn(subject).await.unwrap();
        let anns = (turn("ann").await, turn("ann").await);
        assert_eq!(refused(&submissions, "ann").await, 429);
        let bobs = (turn("bob").await, turn("bob").await);
        let carol = turn("carol").await;
        assert_eq!(refused(&submissions, "carol").await, 503, "the fault of nobody in particular");
        assert_eq!(refused(&submissions, ANONYMOUS).await, 503);
        drop(anns);
        let last = (turn("carol").await, turn(ANONYMOUS).await);
        drop((bobs, carol, last));
        assert!(submissions.0.lines().is_empty(), "nobody is remembered");
    }

    #[tokio::test]
    async fn those_who_cannot_be_told_apart_share_all_turns_and_there_is_always_one() {
        let submissions = Submissions::of(10, Duration::ZERO);
        let mut turns = Vec::new();
        while let Ok(turn) = submissions.turn(ANONYMOUS).await {
            turns.push(turn);
        }
        assert_eq!(turns.len(), 5);
        for connections in [0, 1, 2, 3] {
            let submissions = Submissions::of(connections, Duration::ZERO);
            let _turn = submissions.turn("ann").await.unwrap();
            assert_eq!(refused(&submissions, "ann").await, 429, "{connections}");
            assert_eq!(refused(&submissions, "bob").await, 503, "{connections}");
        }
    }

    #[tokio::test]
    async fn turns_are_taken_in_the_order_in_which_they_were_asked_for() {
        let submissions = Submissions::of(4, LONG);
        let first = submissions.turn("ann").await.unwrap();
        let (mut second, mut third) = (Box::pin(submissions.turn("ann")), Box::pin(submissions.turn("ann")));
        assert!(futures::poll!(second.as_mut()).is_pending());
        assert!(futures::poll!(third.as_mut()).is_pending());
        let bob = submissions.turn("bob").await.unwrap();
        drop(first);
        assert!(futures::poll!(third.as_mut()).is_pending(), "the second is next");
        drop(second.await.unwrap());
        drop((third.await.unwrap(), bob));
        // Whoever stops waiting leaves nothing behind.
        let held = submissions.turn("ann").await.unwrap();
        let mut waiting = Box::pin(submissions.turn("ann"));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop((waiting, held));
        assert!(submissions.0.lines().is_empty());
    }
}
