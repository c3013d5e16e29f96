//! Steps: recovery points of custom jobs, and transactions that hold a caller's own changes together
//! with the record of a step, so that those changes are applied once however often the step is tried.

use outhaul_core::id::{JobId, Lease};
use outhaul_core::step::{StepRecord, StepRow};
use outhaul_core::store::{StoreError, StoreResult};
use sqlx::pool::PoolConnection;
use sqlx::{Connection, PgConnection, Postgres};

use super::PostgresStore;
use crate::error::from_sqlx;

/// What became of a step that is a transaction.
#[derive(Debug)]
pub enum Transacted<T> {
    /// It was committed with the step's record.
    Done(T),
    /// It had been committed before, and nothing was changed now; this was its result, as JSON text.
    Recorded(String),
    /// The lease is lost, and nothing was changed.
    LeaseLost,
}

/// Why a step that is a transaction did not commit, as far as is known.
#[derive(Debug, thiserror::Error)]
pub enum TransactionError<E> {
    /// The database failed. If it failed at COMMIT, the step may be recorded all the same: ask.
    #[error(transparent)]
    Store(StoreError),
    /// The caller's part failed; all of it is rolled back.
    #[error("the transaction was rolled back")]
    Act(E),
}

impl PostgresStore {
    pub(super) async fn recorded_steps(&self, lease: Lease) -> StoreResult<Option<Vec<StepRecord>>> {
        type Columns = (Option<String>, Option<String>, Option<chrono::DateTime<chrono::Utc>>);
        let rows: Vec<Columns> = sqlx::query_as(self.sql(include_str!("sql/steps_recorded.sql")))
            .bind(lease.chunk.0)
            .bind(lease.fence)
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        if rows.is_empty() {
            return Ok(None);
        }
        let record = |(name, result, completed_at): Columns| {
            Some(StepRecord { name: name?, result: result?, completed_at: completed_at? })
        };
        Ok(Some(rows.into_iter().filter_map(record).collect()))
    }

    pub(super) async fn record_step(&self, lease: Lease, name: &str, result: &str) -> StoreResult<bool> {
        sqlx::query_scalar(self.sql(include_str!("sql/step_record.sql")))
            .bind(lease.chunk.0)
            .bind(lease.fence)
            .bind(name)
            .bind(result)
            .fetch_one(&self.pool())
            .await
            .map_err(from_sqlx)
    }

    pub(super) async fn list_steps(&self, job_id: &JobId) -> StoreResult<Vec<StepRow>> {
        let rows: Vec<(String, chrono::DateTime<chrono::Utc>)> =
            sqlx::query_as(self.sql(include_str!("sql/steps_list.sql")))
                .bind(job_id.as_str())
                .fetch_all(&self.pool())
                .await
                .map_err(from_sqlx)?;
        Ok(rows.into_iter().map(|(name, completed_at)| StepRow { name, completed_at }).collect())
    }

    /// Runs `act` in a transaction of its own and commits it together with the record of the step: both
    /// or neither, and never a second time. `act` gives its value and the step's result as JSON text.
    ///
    /// Such transactions have connections of their own, without the engine's session settings.
    pub async fn step_transaction<T, E>(
        &self,
        lease: Lease,
        name: &str,
        act: impl AsyncFnOnce(&mut PgConnection) -> Result<(T, String), E>,
    ) -> Result<Transacted<T>, TransactionError<E>> {
        let store = |error| TransactionError::Store(from_sqlx(error));
        let mut held = Held(Some(self.transaction_connection().await.map_err(store)?));
        let connection = held.0.as_mut().expect("held until the end");
        let mut tx = connection.begin().await.map_err(store)?;
        let (value, result) = match act(&mut tx).await {
            Ok(done) => done,
            Err(failed) => {
                // The caller's error is the one to report; without a rollback the connection is closed.
                if tx.rollback().await.is_ok() {
                    held.give_back();
                }
                return Err(TransactionError::Act(failed));
            }
        };
        let recorded: bool = sqlx::query_scalar(self.sql(include_str!("sql/step_transact.sql")))
            .bind(lease.chunk.0)
            .bind(lease.fence)
            .bind(name)
            .bind(&result)
            .fetch_one(&mut *tx)
            .await
            .map_err(store)?;
        if recorded {
            tx.commit().await.map_err(store)?;
            held.give_back();
            return Ok(Transacted::Done(value));
        }
        tx.rollback().await.map_err(store)?;
        let earlier: Option<String> = sqlx::query_scalar(self.sql(include_str!("sql/step_result.sql")))
            .bind(lease.chunk.0)
            .bind(name)
            .fetch_optional(&mut **connection)
            .await
            .map_err(store)?;
        held.give_back();
        Ok(earlier.map_or(Transacted::LeaseLost, Transacted::Recorded))
    }
}

impl PostgresStore {
    /// Waits for a connection as long as the caller does; the caller's lease bounds the wait. Giving up earlier would
    /// cost an attempt although nothing was tried yet.
    async fn transaction_connection(&self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        loop {
            match self.transactions.acquire().await {
                Err(sqlx::Error::PoolTimedOut) => {}
                answer => return answer,
            }
        }
    }
}

/// A connection that goes back to its pool only when it is known to be clean: a transaction that was cut
/// off half-way takes its connection with it.
struct Held(Option<PoolConnection<Postgres>>);

impl Held {
    fn give_back(&mut self) {
        drop(self.0.take());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(mut connection) = self.0.take() {
            connection.close_on_drop();
        }
    }
}
