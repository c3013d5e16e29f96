//! The connections of one purpose. A server that vanishes without a word (power loss, failover) would
//! leave calls waiting for minutes or for ever; a verb that takes too long gives its pool up for a new one.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use outhaul_core::store::{StoreError, StoreResult};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::connect::PostgresOptions;

/// A pool that can be replaced. Clones share it.
#[derive(Clone)]
pub(super) struct Connections {
    pool: Arc<RwLock<PgPool>>,
    connect: Arc<PgConnectOptions>,
    options: Arc<PostgresOptions>,
}

impl Connections {
    pub(super) fn new(connect: PgConnectOptions, options: &PostgresOptions) -> Self {
        let pool = Arc::new(RwLock::new(lazy(&connect, options)));
        Self { pool, connect: Arc::new(connect), options: Arc::new(options.clone()) }
    }

    /// The pool of the moment.
    pub(super) fn pool(&self) -> PgPool {
        self.pool.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs a verb; one that gets no answer in time leaves its connection, and the pool, behind.
    pub(super) async fn bounded<T>(&self, verb: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        let patience = self.options.patience;
        if let Ok(done) = tokio::time::timeout(patience, verb).await {
            return done;
        }
        // Dropped, not closed: closing would wait for the dead connections.
        *self.pool.write().unwrap_or_else(PoisonError::into_inner) = lazy(&self.connect, &self.options);
        Err(StoreError::Unavailable(format!("no answer within {} s", patience.as_secs()).into()))
    }
}

fn lazy(connect: &PgConnectOptions, options: &PostgresOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(options.max_connections)
        .min_connections(0)
        .acquire_timeout(Duration::from_secs(10))
        .idle_timeout(Duration::from_secs(300))
        .test_before_acquire(options.test_before_use)
        .connect_lazy_with(connect.clone())
}
