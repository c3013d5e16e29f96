//! Redrive: dead and held chunks are QUEUED again, and their job goes on, in one guarded transaction.

use outhaul_core::audit::AuditAct;
use outhaul_core::id::JobId;
use outhaul_core::store::{Redriven, Redriver, StoreError, StoreResult};
use sqlx::PgConnection;

use super::PostgresStore;
use super::pool::begin;
use super::row::interval;
use super::schema::Schema;
use crate::error::from_sqlx;

/// The index that lets one unfinished job of a kind be there at most.
const UNIQUE: &str = "job_unique";

/// Which dead chunks of a job are meant; what was held because of them always goes with them.
pub(super) enum Which {
    /// All of them.
    All,
    /// These, if they are still dead under these fences.
    Dead { chunks: Vec<i64>, fences: Vec<i64> },
}

/// What a redrive moved.
#[derive(Clone, Copy, Default)]
pub(super) struct Moved {
    /// Chunks, dead and held.
    pub(super) all: i64,
    /// Of those, the dead ones.
    pub(super) dead: u64,
}

impl PostgresStore {
    pub(super) async fn redrive_job(&self, job_id: &JobId) -> StoreResult<Redriven> {
        let key: Option<i64> = sqlx::query_scalar(self.sql(include_str!("sql/job_key.sql")))
            .bind(job_id.as_str())
            .fetch_optional(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let Some(key) = key else { return Ok(Redriven::Unknown) };
        match redrive(self, key, Which::All, None).await? {
            Some(Moved { all: 0, .. }) => Ok(Redriven::Nothing),
            Some(moved) => Ok(Redriven::Yes(moved.all)),
            None => Ok(Redriven::Duplicate),
        }
    }
}

/// Redrives one job, and records by whom; `None`: an equal job that may be there only once has taken its place.
pub(super) async fn redrive(
    store: &PostgresStore,
    job: i64,
    which: Which,
    by: Option<Redriver>,
) -> StoreResult<Option<Moved>> {
    let schema = store.schema;
    let (pool, step) = (store.pool(), interval(store.settings.fairness_step));
    let (chunks, fences) = match which {
        Which::All => (None, None),
        Which::Dead { chunks, fences } => (Some(chunks), Some(fences)),
    };
    // Spawned: a client that hangs up must not leave a transaction half-way.
    let work = tokio::spawn(async move {
        let mut connection = pool.acquire().await.map_err(from_sqlx)?;
        let mut tx = begin(&mut connection).await.map_err(from_sqlx)?;
        let look = |sql| sqlx::query_as(sql).bind(job).bind(step).bind(chunks.clone()).bind(fences.clone());
        let (all, dead): (i64, i64) = look(schema.sql(include_str!("sql/job_redrive_chunks.sql")))
            .fetch_one(&mut *tx)
            .await
            .map_err(from_sqlx)?;
        // Of chosen dead ones none may be left: others were quicker, and what is held is theirs too.
        let guarded = match all == 0 || (chunks.is_some() && dead == 0) {
            true => Guard::Shut,
            false => guard(schema, &mut tx, job, dead).await?,
        };
        if !matches!(guarded, Guard::Open) {
            // Before the answer: a claim that follows must not pass locked chunks by.
            tx.rollback().await.map_err(from_sqlx)?;
            return Ok(matches!(guarded, Guard::Shut).then(Moved::default));
        }
        let (late, late_dead): (i64, i64) = look(schema.sql(include_str!("sql/job_redrive_again.sql")))
            .fetch_one(&mut *tx)
            .await
            .map_err(from_sqlx)?;
        if late_dead > 0 {
            sqlx::query(schema.sql(include_str!("sql/job_redrive_late.sql")))
                .bind(job)
                .bind(i32::try_from(late_dead).unwrap_or(i32::MAX))
                .execute(&mut *tx)
                .await
                .map_err(from_sqlx)?;
        }
        if let Some(Redriver { actor, detail }) = by {
            sqlx::query(schema.sql(include_str!("sql/dead_letters_redrive_audit.sql")))
                .bind(job)
                .bind(actor)
                .bind(AuditAct::Redrive.as_str())
                .bind(detail)
                .execute(&mut *tx)
                .await
                .map_err(from_sqlx)?;
        }
        tx.commit().await.map_err(from_sqlx)?;
        Ok(Some(Moved { all: all + late, dead: (dead + late_dead).unsigned_abs() }))
    });
    work.await.map_err(|error| StoreError::Refused(error.into()))?
}

enum Guard {
    /// The job goes on.
    Open,
    /// It is neither FAILED nor going on.
    Shut,
    /// An equal one is unfinished.
    Duplicate,
}

async fn guard(schema: Schema, connection: &mut PgConnection, job: i64, dead: i64) -> StoreResult<Guard> {
    let guarded = sqlx::query(schema.sql(include_str!("sql/job_redrive.sql")))
        .bind(job)
        .bind(i32::try_from(dead).unwrap_or(i32::MAX))
        .execute(connection)
        .await;
    match guarded {
        Ok(done) if done.rows_affected() > 0 => Ok(Guard::Open),
        Ok(_) => Ok(Guard::Shut),
        Err(sqlx::Error::Database(error)) if error.constraint() == Some(UNIQUE) => Ok(Guard::Duplicate),
        Err(error) => Err(from_sqlx(error)),
    }
}
