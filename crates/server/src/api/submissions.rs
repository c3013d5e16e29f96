//! How many submissions are stored at once. Each holds one of the API's connections meanwhile, and those of one
//! caller wait for each other in the database, where their quota is counted: without a limit the large jobs of one
//! caller would hold all connections, and nobody could so much as look at a job.

use std::time::Duration;

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use outhaul_core::store::Store;
use outhaul_store::postgres::PostgresStore;
use tokio::time::Instant;

use super::problem::Problem;
use super::shares::{NoShare, Share, Shares};

/// What stands in for the connections where there are none: SQLite writes on one of its own.
const EMBEDDED: u32 = 10;

/// The turns to submit. Cheap to clone.
#[derive(Clone)]
pub(super) struct Submissions {
    turns: Shares,
    /// How long a turn is waited for.
    patience: Duration,
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
        Self { turns: Shares::new(all, of_one), patience }
    }

    /// A turn, in the order in which it was asked for. Callers who cannot be told apart share all of them.
    pub(super) async fn turn(&self, subject: &str) -> Result<Share, Problem> {
        let until = Instant::now() + self.patience;
        self.turns.take(subject, 1, until).await.map_err(|none| match none {
            NoShare::OfYours => too_many_of_yours(),
            NoShare::OfAll => too_many(),
        })
    }
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
    use outhaul_core::identity::ANONYMOUS;

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
        assert!(submissions.turns.is_idle(), "nobody is remembered");
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
        assert!(submissions.turns.is_idle());
    }
}
