//! Write transactions: one at a time, on the one writing connection, from `BEGIN IMMEDIATE` to COMMIT.
//!
//! They run in a task of their own: a caller that goes away cannot leave a transaction half-done.

use std::time::Duration;

use futures::future::BoxFuture;
use outhaul_core::store::{StoreError, StoreResult, StoreSettings};
use sqlx::{Sqlite, SqliteConnection, Transaction};

use super::SqliteStore;
use super::convert::{micros, now};
use crate::error::from_sqlx;

/// An open write transaction, at one moment.
pub(super) struct Write {
    transaction: Transaction<'static, Sqlite>,
    /// When it began, after waiting for its turn.
    pub(super) now: i64,
    pub(super) settings: StoreSettings,
}

impl Write {
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }

    /// `now` and so much more.
    pub(super) fn after(&self, wait: Duration) -> i64 {
        self.now.saturating_add(micros(wait))
    }

    /// `now` and so much less.
    pub(super) fn before(&self, age: Duration) -> i64 {
        self.now.saturating_sub(micros(age))
    }

    /// When a lease given or renewed now runs out.
    pub(super) fn lease_until(&self) -> i64 {
        self.after(self.settings.lease)
    }

    /// How far apart the chunks of one job queue up. Bounded, so that no position overflows.
    pub(super) fn fairness_step(&self) -> i64 {
        micros(self.settings.fairness_step.min(Duration::from_secs(3_600)))
    }
}

impl SqliteStore {
    /// Runs `act` in a transaction that is committed if it answers `Ok` and rolled back otherwise.
    pub(super) async fn write<T, F>(&self, act: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'w> FnOnce(&'w mut Write) -> BoxFuture<'w, StoreResult<T>> + Send + 'static,
    {
        let inner = self.inner.clone();
        let task = tokio::spawn(async move {
            let transaction = inner.writer.begin_with("BEGIN IMMEDIATE").await.map_err(from_sqlx)?;
            let mut write = Write { transaction, now: now(), settings: inner.settings };
            match act(&mut write).await {
                Ok(answer) => write.transaction.commit().await.map_err(from_sqlx).map(|()| answer),
                Err(error) => {
                    // The first error is the one to report; a failed rollback is repeated by the pool.
                    if let Err(rollback) = write.transaction.rollback().await {
                        tracing::warn!(error = %rollback, "a SQLite transaction could not be rolled back");
                    }
                    Err(error)
                }
            }
        });
        match task.await {
            Ok(answer) => answer,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(stopped) => Err(StoreError::Unavailable(Box::new(stopped))),
            },
        }
    }
}

/// Proves that the database takes writes.
pub(super) async fn ready(store: &SqliteStore) -> StoreResult<()> {
    store
        .write(|write| {
            Box::pin(async move {
                let now = write.now;
                sqlx::query(include_str!("sql/ready.sql"))
                    .bind(now.to_string())
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(())
            })
        })
        .await
}
