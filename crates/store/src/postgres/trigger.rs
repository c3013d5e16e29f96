//! Triggers: what they say, what they wait for and what they fired.

use std::time::Duration;

use chrono::{DateTime, Utc};
use outhaul_core::id::JobId;
use outhaul_core::schedule::Deleted;
use outhaul_core::store::{StoreError, StoreResult};
use outhaul_core::trigger::{
    FireState, NewTrigger, Trigger, TriggerFire, TriggerId, TriggerPut, TriggerSpec, TriggerWait, cycle,
};
use sqlx::{Executor, PgConnection};

use super::PostgresStore;
use super::pool::begin;
use super::schedule::{deleted, micros, origin, put_answer};
use super::schema::Schema;
use crate::error::{corrupt, from_sqlx, json};
use crate::firing::CHANGED;

#[derive(sqlx::FromRow)]
pub(super) struct TriggerRow {
    id: i64,
    name: String,
    after_terms: Vec<String>,
    match_label: Option<String>,
    within_micros: Option<i64>,
    job: String,
    produces: String,
    origin: String,
    owner: String,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl TriggerRow {
    pub(super) fn into_trigger(self) -> StoreResult<Trigger> {
        Ok(Trigger {
            id: TriggerId(self.id),
            name: self.name,
            spec: TriggerSpec {
                after: self.after_terms,
                match_label: self.match_label,
                within: self.within_micros.map(|micros| Duration::from_micros(micros.unsigned_abs())),
                job: json("trigger_rule.job", &self.job)?,
                produces: self.produces,
            },
            origin: origin("trigger_rule.origin", &self.origin)?,
            owner: self.owner,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}

#[derive(sqlx::FromRow)]
pub(super) struct FireRow {
    pub(super) id: i64,
    pub(super) value: String,
    pub(super) parents: Vec<String>,
    pub(super) state: String,
    pub(super) job_id: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) at: DateTime<Utc>,
}

impl FireRow {
    pub(super) fn into_fire(self) -> StoreResult<TriggerFire> {
        let state = FireState::parse(&self.state);
        Ok(TriggerFire {
            id: self.id,
            value: self.value,
            parents: self.parents.into_iter().map(JobId::from_store).collect(),
            state: state.ok_or_else(|| corrupt("trigger_fire.state", &self.state))?,
            job_id: self.job_id.map(JobId::from_store),
            detail: self.detail,
            at: self.at,
        })
    }
}

impl PostgresStore {
    pub(super) async fn put_trigger(&self, trigger: &NewTrigger) -> StoreResult<TriggerPut> {
        let schema = self.schema;
        let (pool, trigger) = (self.pool(), trigger.clone());
        let work = tokio::spawn(async move {
            let mut connection = pool.acquire().await.map_err(from_sqlx)?;
            let mut tx = begin(&mut connection).await.map_err(from_sqlx)?;
            lock(schema, &mut tx).await?;
            let created = put(schema, &mut tx, &trigger).await?;
            if let Some(round) = cycle_of(schema, &mut tx).await? {
                return Ok(TriggerPut::Cycle(round));
            }
            tx.commit().await.map_err(from_sqlx)?;
            Ok(TriggerPut::Put(put_answer(created)))
        });
        work.await.map_err(|error| StoreError::Refused(error.into()))?
    }

    pub(super) async fn configure_triggers(
        &self,
        triggers: &[NewTrigger],
    ) -> StoreResult<Option<Vec<String>>> {
        let schema = self.schema;
        let (pool, triggers) = (self.pool(), triggers.to_vec());
        let work = tokio::spawn(async move {
            let mut connection = pool.acquire().await.map_err(from_sqlx)?;
            let mut tx = begin(&mut connection).await.map_err(from_sqlx)?;
            lock(schema, &mut tx).await?;
            sqlx::query(schema.sql(include_str!("sql/triggers_configured_delete.sql")))
                .bind(triggers.iter().map(|trigger| trigger.name.as_str()).collect::<Vec<_>>())
                .execute(&mut *tx)
                .await
                .map_err(from_sqlx)?;
            for trigger in &triggers {
                put(schema, &mut tx, trigger).await?;
            }
            let round = cycle_of(schema, &mut tx).await?;
            if round.is_none() {
                tx.commit().await.map_err(from_sqlx)?;
            }
            Ok(round)
        });
        work.await.map_err(|error| StoreError::Refused(error.into()))?
    }

    pub(super) async fn get_trigger(&self, name: &str) -> StoreResult<Option<Trigger>> {
        let schema = self.schema;
        let mut connection = self.pool().acquire().await.map_err(from_sqlx)?;
        Ok(triggers_named(schema, &mut connection, Some(name)).await?.pop())
    }

    pub(super) async fn list_triggers(&self) -> StoreResult<Vec<Trigger>> {
        let schema = self.schema;
        let mut connection = self.pool().acquire().await.map_err(from_sqlx)?;
        triggers_named(schema, &mut connection, None).await
    }

    pub(super) async fn delete_trigger(&self, name: &str) -> StoreResult<Deleted> {
        let found: Option<String> = sqlx::query_scalar(self.sql(include_str!("sql/trigger_delete.sql")))
            .bind(name)
            .fetch_optional(&self.pool())
            .await
            .map_err(from_sqlx)?;
        deleted("trigger_rule.origin", found)
    }

    pub(super) async fn list_fires(&self, trigger: TriggerId, limit: u32) -> StoreResult<Vec<TriggerFire>> {
        let rows: Vec<FireRow> = sqlx::query_as(self.sql(include_str!("sql/trigger_fires.sql")))
            .bind(trigger.0)
            .bind(i64::from(limit))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        rows.into_iter().map(FireRow::into_fire).collect()
    }

    pub(super) async fn list_waits(&self, trigger: TriggerId, limit: u32) -> StoreResult<Vec<TriggerWait>> {
        type Columns = (String, String, Option<String>, Option<DateTime<Utc>>);
        let rows: Vec<Columns> = sqlx::query_as(self.sql(include_str!("sql/trigger_waits.sql")))
            .bind(trigger.0)
            .bind(i64::from(limit))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let mut waits: Vec<TriggerWait> = Vec::new();
        for (value, term, job_id, at) in rows {
            if waits.last().is_none_or(|wait| wait.value != value) {
                waits.push(TriggerWait { value, arrived: Vec::new(), missing: Vec::new() });
            }
            if let Some(wait) = waits.last_mut() {
                match job_id.zip(at) {
                    Some((job_id, at)) => wait.arrived.push((term, JobId::from_store(job_id), at)),
                    None => wait.missing.push(term),
                }
            }
        }
        Ok(waits)
    }
}

/// Makes sure that only we change what triggers say.
async fn lock(schema: Schema, connection: &mut PgConnection) -> StoreResult<()> {
    connection.execute(schema.sql(include_str!("sql/triggers_lock.sql"))).await.map_err(from_sqlx)?;
    Ok(())
}

async fn put(
    schema: Schema,
    connection: &mut PgConnection,
    trigger: &NewTrigger,
) -> StoreResult<Option<bool>> {
    let NewTrigger { name, spec, origin, owner } = trigger;
    sqlx::query(schema.sql(include_str!("sql/trigger_put_forget.sql")))
        .bind(name)
        .bind(&spec.after)
        .bind(&spec.match_label)
        .bind(origin.as_str())
        .bind(CHANGED)
        .execute(&mut *connection)
        .await
        .map_err(from_sqlx)?;
    sqlx::query_scalar(schema.sql(include_str!("sql/trigger_put.sql")))
        .bind(name)
        .bind(&spec.after)
        .bind(&spec.match_label)
        .bind(spec.within.map(micros))
        .bind(spec.job.as_str())
        .bind(&spec.produces)
        .bind(origin.as_str())
        .bind(owner)
        .fetch_optional(connection)
        .await
        .map_err(from_sqlx)
}

/// The names on the way round, if the triggers as they are in this transaction make a cycle.
async fn cycle_of(schema: Schema, connection: &mut PgConnection) -> StoreResult<Option<Vec<String>>> {
    let all = triggers_named(schema, connection, None).await?;
    Ok(cycle(all.iter().map(|trigger| (trigger.name.as_str(), &trigger.spec))))
}

async fn triggers_named(
    schema: Schema,
    connection: &mut PgConnection,
    name: Option<&str>,
) -> StoreResult<Vec<Trigger>> {
    let rows: Vec<TriggerRow> = sqlx::query_as(schema.sql(include_str!("sql/triggers_list.sql")))
        .bind(name)
        .fetch_all(connection)
        .await
        .map_err(from_sqlx)?;
    rows.into_iter().map(TriggerRow::into_trigger).collect()
}
