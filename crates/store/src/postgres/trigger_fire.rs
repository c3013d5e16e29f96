//! Firing triggers: completed jobs are judged under a lock of the rules they concern, and what became due is
//! submitted in a transaction of its own.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use outhaul_core::id::JobId;
use outhaul_core::store::{StoreError, StoreResult, Submitted};
use outhaul_core::trigger::{DueFire, FirePlan, FireState, TriggerFire};

use super::PostgresStore;
use super::pool::{Pool, begin};
use super::schedule_fire::refusal;
use super::schema::Schema;
use super::submit::Batch;
use super::trigger::{FireRow, TriggerRow};
use crate::error::from_sqlx;
use crate::firing::{EQUAL_RUNS, KEY_NAMES};

#[derive(sqlx::FromRow)]
struct DueRow {
    fire_id: i64,
    value: String,
    parents: Vec<String>,
    state: String,
    fired_job_id: Option<String>,
    detail: Option<String>,
    at: DateTime<Utc>,
    #[sqlx(flatten)]
    trigger: TriggerRow,
}

impl PostgresStore {
    pub(super) async fn match_triggers(&self, limit: u32) -> StoreResult<u64> {
        let schema = self.schema;
        let (pool, limit) = (self.pool(), i64::from(limit));
        let work = tokio::spawn(async move { match_some(schema, &pool, limit).await });
        work.await.map_err(|error| StoreError::Refused(error.into()))?
    }

    pub(super) async fn due_fires(&self, limit: u32) -> StoreResult<Vec<DueFire>> {
        let rows: Vec<DueRow> = sqlx::query_as(self.sql(include_str!("sql/trigger_fires_due.sql")))
            .bind(i64::from(limit))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let due = |row: DueRow| {
            let DueRow { fire_id: id, value, parents, state, fired_job_id: job_id, detail, at, trigger } =
                row;
            let fire = FireRow { id, value, parents, state, job_id, detail, at }.into_fire()?;
            Ok(DueFire { trigger: trigger.into_trigger()?, fire })
        };
        rows.into_iter().map(due).collect()
    }

    pub(super) async fn fire_trigger(&self, fire: i64, plan: FirePlan) -> StoreResult<Option<TriggerFire>> {
        let schema = self.schema;
        // Outside the transaction: it may ask the database for queues, on another connection.
        let ready = match plan {
            FirePlan::Refused(detail) => Err(detail),
            FirePlan::Run(job) => match self.batch(vec![*job]).await {
                Ok(batch) => Ok(batch),
                Err(error @ StoreError::UnknownQueue(_)) => Err(error.to_string()),
                Err(error) => return Err(error),
            },
        };
        let pool = self.pool();
        let work = tokio::spawn(async move { submit_one(schema, &pool, fire, ready).await });
        work.await.map_err(|error| StoreError::Refused(error.into()))?
    }
}

/// Judges one job after the other, so that a set is made of what had completed before it.
async fn match_some(schema: Schema, pool: &Pool, limit: i64) -> StoreResult<u64> {
    let mut connection = pool.acquire().await.map_err(from_sqlx)?;
    let mut tx = begin(&mut connection).await.map_err(from_sqlx)?;
    let due: Vec<(i64, String)> = sqlx::query_as(schema.sql(include_str!("sql/triggers_match_due.sql")))
        .bind(limit)
        .fetch_all(&mut *tx)
        .await
        .map_err(from_sqlx)?;
    if due.is_empty() {
        return Ok(0);
    }
    let terms: BTreeSet<&str> = due.iter().map(|(_, term)| term.as_str()).collect();
    let rules: Vec<i64> = sqlx::query_scalar(schema.sql(include_str!("sql/triggers_match_lock.sql")))
        .bind(terms.into_iter().collect::<Vec<_>>())
        .fetch_all(&mut *tx)
        .await
        .map_err(from_sqlx)?;
    for (id, term) in &due {
        sqlx::query(schema.sql(include_str!("sql/triggers_match.sql")))
            .bind(id)
            .bind(term)
            .bind(&rules)
            .execute(&mut *tx)
            .await
            .map_err(from_sqlx)?;
    }
    sqlx::query(schema.sql(include_str!("sql/triggers_match_done.sql")))
        .bind(due.iter().map(|(id, _)| *id).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await
        .map_err(from_sqlx)?;
    tx.commit().await.map_err(from_sqlx)?;
    Ok(due.len() as u64)
}

async fn submit_one(
    schema: Schema,
    pool: &Pool,
    fire: i64,
    ready: Result<Batch, String>,
) -> StoreResult<Option<TriggerFire>> {
    let mut connection = pool.acquire().await.map_err(from_sqlx)?;
    let mut tx = begin(&mut connection).await.map_err(from_sqlx)?;
    let held: Option<i64> = sqlx::query_scalar(schema.sql(include_str!("sql/trigger_fire_lock.sql")))
        .bind(fire)
        .fetch_optional(&mut *tx)
        .await
        .map_err(from_sqlx)?;
    if held.is_none() {
        return Ok(None);
    }
    let (state, job_id, detail) = match ready {
        Err(detail) => (FireState::Refused, None, Some(detail)),
        Ok(batch) => match batch.submit(&mut tx).await?.into_iter().next() {
            Some(Submitted::Created(job)) => (FireState::Fired, Some(job.job_id), None),
            Some(Submitted::Existing(job)) => {
                (FireState::Fired, Some(job.job_id), Some(KEY_NAMES.to_owned()))
            }
            Some(Submitted::Duplicate(job)) => {
                (FireState::Fired, Some(job.job_id), Some(EQUAL_RUNS.to_owned()))
            }
            other => (FireState::Refused, None, Some(refusal(other))),
        },
    };
    let row: Option<FireRow> = sqlx::query_as(schema.sql(include_str!("sql/trigger_fire.sql")))
        .bind(fire)
        .bind(state.as_str())
        .bind(job_id.as_ref().map(JobId::as_str))
        .bind(detail)
        .fetch_optional(&mut *tx)
        .await
        .map_err(from_sqlx)?;
    tx.commit().await.map_err(from_sqlx)?;
    row.map(FireRow::into_fire).transpose()
}
