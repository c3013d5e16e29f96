//! `ctx.transaction`: a job's own SQL and the record of its step commit together, or neither does.

use outhaul_core::step::result_problem;
use outhaul_core::store::StoreError;
use outhaul_store::postgres::{PostgresStore, Transacted, TransactionError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::PgConnection;

use super::context::{Context, recorded, to_json};
use super::error::JobError;

impl Context {
    /// Runs SQL of your own on the engine's PostgreSQL, in one transaction with the record of the step: what
    /// it changes is applied once, however often the job is tried. An `Err` rolls all of it back.
    ///
    /// The closure gets a connection inside the transaction. Keep it short, call nobody else in it, and
    /// neither commit nor roll back yourself.
    ///
    /// ```no_run
    /// # use outhaul::sqlx;
    /// # async fn example(ctx: &outhaul::Context, amount: i64, from: i64) -> Result<(), outhaul::JobError> {
    /// ctx.transaction("debit", async |tx| {
    ///     sqlx::query("update account set balance = balance - $1 where id = $2")
    ///         .bind(amount)
    ///         .bind(from)
    ///         .execute(tx)
    ///         .await?;
    ///     Ok(())
    /// })
    /// .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// On SQLite the job fails at once: nothing but the engine writes to that file.
    pub async fn transaction<T, F>(&self, name: &str, act: F) -> Result<T, JobError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(&mut PgConnection) -> Result<T, JobError>,
    {
        if let Some(result) = self.begin(name).await? {
            return recorded(name, &result);
        }
        let store = self.chunk().store().as_any().downcast_ref::<PostgresStore>().cloned();
        let Some(store) = store else {
            let text = "ctx.transaction needs PostgreSQL as the engine's database; use ctx.step here";
            return Err(JobError::fatal(text).in_step(name));
        };
        self.within(name, async {
            let lease = self.chunk().chunk().lease;
            let act = async |tx: &mut PgConnection| with_text(act(tx).await?);
            match store.step_transaction(lease, name, act).await {
                Ok(Transacted::Done(value)) => Ok(value),
                Ok(Transacted::Recorded(result)) => recorded(name, &result),
                Ok(Transacted::LeaseLost) => Err(JobError::stopped()),
                Err(TransactionError::Act(error)) => Err(error),
                Err(TransactionError::Store(error)) => self.after_doubt(name, error).await,
            }
        })
        .await
    }

    /// The database broke off, perhaps after it had committed: only the record knows.
    async fn after_doubt<T: DeserializeOwned>(&self, name: &str, error: StoreError) -> Result<T, JobError> {
        if matches!(error, StoreError::Unavailable(_)) {
            let steps = self.chunk().steps_now().await.map_err(JobError::from_failed)?;
            if let Some(step) = steps.iter().find(|step| step.name == name) {
                return recorded(name, &step.result);
            }
        }
        Err(error.into())
    }
}

fn with_text<T: Serialize>(value: T) -> Result<(T, String), JobError> {
    let text = to_json(&value)?;
    match result_problem(&text) {
        Some(problem) => Err(JobError::retryable(problem)),
        None => Ok((value, text)),
    }
}
