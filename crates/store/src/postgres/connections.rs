//! The connections of one purpose, and how a verb uses them. A server that vanishes without a word (power
//! loss, failover) would leave calls waiting for minutes or for ever. So when a verb takes too long, its
//! pool is replaced by a new one. A verb that the server rolled back because of a conflict runs again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use outhaul_core::retry::Backoff;
use outhaul_core::store::{StoreError, StoreResult};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::connect::PostgresOptions;
use super::gate::Gate;
use super::pool::{ACQUIRE, Pool};
use crate::error::{Undone, undone};

/// How often a verb runs again before its caller gets the error.
const AGAIN: u32 = 10;

/// The waits between those runs. The jitter keeps two verbs that conflicted from conflicting again.
const WAIT: Backoff =
    Backoff::Exponential { base: Duration::from_millis(5), max: Duration::from_millis(200), jitter: true };

/// A pool that can be replaced. Clones share it.
#[derive(Clone)]
pub(super) struct Connections {
    pool: Arc<RwLock<Numbered>>,
    connect: Arc<PgConnectOptions>,
    options: Arc<PostgresOptions>,
}

/// The present pool, and how many pools there were before it.
struct Numbered {
    number: u64,
    pool: Pool,
}

impl Connections {
    pub(super) fn new(connect: PgConnectOptions, options: &PostgresOptions) -> Self {
        let gate = Arc::new(Gate::new(options.patience));
        let pool = Numbered { number: 0, pool: lazy(&connect, options, gate) };
        Self {
            pool: Arc::new(RwLock::new(pool)),
            connect: Arc::new(connect),
            options: Arc::new(options.clone()),
        }
    }

    /// The present pool.
    pub(super) fn pool(&self) -> Pool {
        self.pool.read().unwrap_or_else(PoisonError::into_inner).pool.clone()
    }

    /// Runs a verb. If there is no answer in time, the pool with its connections is replaced. If the server rolled the
    /// verb back as a whole, it runs again.
    pub(super) async fn bounded<T, F>(&self, verb: impl FnMut() -> F) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>>,
    {
        let (patience, used) = (self.options.patience, AtomicU64::new(0));
        if let Ok(done) = tokio::time::timeout(patience, self.again(verb, &used)).await {
            return done;
        }
        self.replace(used.into_inner());
        Err(StoreError::Unavailable(format!("no answer within {} s", patience.as_secs()).into()))
    }

    /// `used` is the number of the pool that the last run had.
    async fn again<T, F>(&self, mut verb: impl FnMut() -> F, used: &AtomicU64) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>>,
    {
        let mut runs = 0;
        loop {
            let number = self.number();
            used.store(number, Ordering::Relaxed);
            let error = match verb().await {
                Err(error) if runs < AGAIN => error,
                done => return done,
            };
            runs += 1;
            match undone(&error) {
                None => return Err(error),
                Some(Undone::Conflict) => tokio::time::sleep(WAIT.wait(runs, rand::random())).await,
                // All connections of this pool have prepared their statements before the change.
                Some(Undone::StalePlan) => self.replace(number),
            }
        }
    }

    fn number(&self) -> u64 {
        self.pool.read().unwrap_or_else(PoisonError::into_inner).number
    }

    /// Makes a new pool, unless another caller has already replaced the pool of this number.
    fn replace(&self, number: u64) {
        let mut now = self.pool.write().unwrap_or_else(PoisonError::into_inner);
        if now.number == number {
            // Dropped, not closed: closing would wait for dead connections.
            let pool = lazy(&self.connect, &self.options, now.pool.gate.clone());
            *now = Numbered { number: number + 1, pool };
        }
    }
}

fn lazy(connect: &PgConnectOptions, options: &PostgresOptions, gate: Arc<Gate>) -> Pool {
    let pool = PgPoolOptions::new()
        .max_connections(options.max_connections)
        .min_connections(0)
        .acquire_timeout(ACQUIRE)
        .idle_timeout(Duration::from_secs(300))
        // `Pool` tests connections itself: a failed test must lead to the gate, not straight to a new connection.
        .test_before_acquire(false)
        .connect_lazy_with(connect.clone());
    Pool { pool, gate, test_before_use: options.test_before_use }
}
