//! Triggers: what they say, what they wait for and what they fired.

use std::time::Duration;

use outhaul_core::id::JobId;
use outhaul_core::schedule::{Deleted, Origin, Put};
use outhaul_core::store::StoreResult;
use outhaul_core::trigger::{
    FireState, NewTrigger, Trigger, TriggerFire, TriggerId, TriggerPut, TriggerSpec, TriggerWait, cycle,
};
use sqlx::types::Json;
use sqlx::{Executor, Sqlite};

use super::SqliteStore;
use super::convert::{json as json_list, micros, now, time};
use super::schedule::{delete_in, origin};
use super::transaction::Write;
use crate::error::{corrupt, from_sqlx, json};
use crate::firing::CHANGED;

#[derive(sqlx::FromRow)]
pub(super) struct TriggerRow {
    id: i64,
    name: String,
    after_terms: Json<Vec<String>>,
    match_label: Option<String>,
    within_micros: Option<i64>,
    job: String,
    produces: String,
    origin: String,
    owner: String,
    since: i64,
    created_at: i64,
    updated_at: i64,
}

impl TriggerRow {
    pub(super) fn into_trigger(self) -> StoreResult<Trigger> {
        Ok(Trigger {
            id: TriggerId(self.id),
            name: self.name,
            spec: TriggerSpec {
                after: self.after_terms.0,
                match_label: self.match_label,
                within: self.within_micros.map(|within| Duration::from_micros(within.unsigned_abs())),
                job: json("trigger_rule.job", &self.job)?,
                produces: self.produces,
            },
            origin: origin("trigger_rule.origin", &self.origin)?,
            owner: self.owner,
            created_at: time(self.created_at),
            updated_at: time(self.updated_at),
        })
    }
}

#[derive(sqlx::FromRow)]
pub(super) struct FireRow {
    pub(super) id: i64,
    pub(super) trigger_id: i64,
    value: String,
    parents: Json<Vec<JobId>>,
    state: String,
    job_id: Option<String>,
    detail: Option<String>,
    at: i64,
}

impl FireRow {
    pub(super) fn into_fire(self) -> StoreResult<TriggerFire> {
        let state = FireState::parse(&self.state);
        Ok(TriggerFire {
            id: self.id,
            value: self.value,
            parents: self.parents.0,
            state: state.ok_or_else(|| corrupt("trigger_fire.state", &self.state))?,
            job_id: self.job_id.map(JobId::from_store),
            detail: self.detail,
            at: time(self.at),
        })
    }
}

pub(super) async fn put(store: &SqliteStore, trigger: &NewTrigger) -> StoreResult<TriggerPut> {
    let trigger = trigger.clone();
    store
        .write(move |write| {
            Box::pin(async move {
                let there = named(write.connection(), None).await?;
                if !read_only(&there, &trigger)
                    && let Some(names) = cycle_with(&there, std::slice::from_ref(&trigger), |_| true)
                {
                    return Ok(TriggerPut::Cycle(names));
                }
                put_in(write, &there, &trigger).await.map(TriggerPut::Put)
            })
        })
        .await
}

pub(super) async fn configured(
    store: &SqliteStore,
    triggers: &[NewTrigger],
) -> StoreResult<Option<Vec<String>>> {
    let triggers = triggers.to_vec();
    store
        .write(move |write| {
            Box::pin(async move {
                let there = named(write.connection(), None).await?;
                if let Some(names) = cycle_with(&there, &triggers, |left| left.origin == Origin::Api) {
                    return Ok(Some(names));
                }
                for trigger in &triggers {
                    put_in(write, &there, trigger).await?;
                }
                let names: Vec<&str> = triggers.iter().map(|trigger| trigger.name.as_str()).collect();
                sqlx::query(include_str!("sql/triggers_configured.sql"))
                    .bind(json_list(&names))
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(None)
            })
        })
        .await
}

/// Whether the new ones and those that stay, of which a new one takes no place, go round in a cycle.
fn cycle_with(
    there: &[Trigger],
    new: &[NewTrigger],
    stays: impl Fn(&Trigger) -> bool,
) -> Option<Vec<String>> {
    let is_new = |name: &str| new.iter().any(|trigger| trigger.name == name);
    let left = there.iter().filter(|trigger| stays(trigger) && !is_new(&trigger.name));
    let left = left.map(|trigger| (trigger.name.as_str(), &trigger.spec));
    cycle(left.chain(new.iter().map(|trigger| (trigger.name.as_str(), &trigger.spec))))
}

/// Whether one of that name stands in the configuration, and the new one does not.
fn read_only(there: &[Trigger], new: &NewTrigger) -> bool {
    new.origin == Origin::Api
        && there.iter().any(|there| there.name == new.name && there.origin == Origin::Config)
}

async fn put_in(write: &mut Write, there: &[Trigger], trigger: &NewTrigger) -> StoreResult<Put> {
    if read_only(there, trigger) {
        return Ok(Put::ReadOnly);
    }
    let NewTrigger { name, spec, origin, owner } = trigger;
    let there = there.iter().find(|there| there.name == *name);
    let now = write.now;
    sqlx::query(match there {
        None => include_str!("sql/trigger_put.sql"),
        Some(_) => include_str!("sql/trigger_put_change.sql"),
    })
    .bind(name)
    .bind(json_list(&spec.after))
    .bind(&spec.match_label)
    .bind(spec.within.map(micros))
    .bind(spec.job.as_str())
    .bind(&spec.produces)
    .bind(origin.as_str())
    .bind(owner)
    .bind(now)
    .execute(write.connection())
    .await
    .map_err(from_sqlx)?;
    let Some(there) = there else { return Ok(Put::Created) };
    sqlx::query(include_str!("sql/trigger_put_forget.sql"))
        .bind(there.id.0)
        .bind(json_list(&spec.after))
        .bind(there.spec.match_label != spec.match_label)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    if (&there.spec.after, &there.spec.match_label) != (&spec.after, &spec.match_label) {
        let refuse = sqlx::query(include_str!("sql/trigger_put_refuse.sql"));
        let refuse = refuse.bind(there.id.0).bind(CHANGED).bind(now);
        refuse.execute(write.connection()).await.map_err(from_sqlx)?;
    }
    Ok(Put::Replaced)
}

/// One trigger, or all of them, as `connection` sees them.
pub(super) async fn named(
    connection: impl Executor<'_, Database = Sqlite>,
    name: Option<&str>,
) -> StoreResult<Vec<Trigger>> {
    let rows: Vec<TriggerRow> = sqlx::query_as(include_str!("sql/triggers_list.sql"))
        .bind(name)
        .fetch_all(connection)
        .await
        .map_err(from_sqlx)?;
    rows.into_iter().map(TriggerRow::into_trigger).collect()
}

/// All triggers without what they submit, each with since when it asks for what it asks for.
pub(super) async fn rules(
    connection: impl Executor<'_, Database = Sqlite>,
) -> StoreResult<Vec<(i64, Trigger)>> {
    let rows: Vec<TriggerRow> = sqlx::query_as(include_str!("sql/triggers_list.sql"))
        .bind(None::<&str>)
        .fetch_all(connection)
        .await
        .map_err(from_sqlx)?;
    rows.into_iter().map(|row| Ok((row.since, row.into_trigger()?))).collect()
}

pub(super) async fn get(store: &SqliteStore, name: &str) -> StoreResult<Option<Trigger>> {
    Ok(named(store.reader(), Some(name)).await?.pop())
}

pub(super) async fn list(store: &SqliteStore) -> StoreResult<Vec<Trigger>> {
    named(store.reader(), None).await
}

pub(super) async fn delete(store: &SqliteStore, name: &str) -> StoreResult<Deleted> {
    let name = name.to_owned();
    let (delete, look) =
        (include_str!("sql/trigger_delete.sql"), include_str!("sql/trigger_delete_origin.sql"));
    store.write(move |write| Box::pin(async move { delete_in(write, &name, delete, look).await })).await
}

pub(super) async fn fires(
    store: &SqliteStore,
    trigger: TriggerId,
    limit: u32,
) -> StoreResult<Vec<TriggerFire>> {
    let rows: Vec<FireRow> = sqlx::query_as(include_str!("sql/trigger_fires.sql"))
        .bind(trigger.0)
        .bind(limit)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    rows.into_iter().map(FireRow::into_fire).collect()
}

pub(super) async fn waits(
    store: &SqliteStore,
    trigger: TriggerId,
    limit: u32,
) -> StoreResult<Vec<TriggerWait>> {
    type Arrived = (String, String, String, i64, Json<Vec<String>>);
    let rows: Vec<Arrived> = sqlx::query_as(include_str!("sql/trigger_waits.sql"))
        .bind(trigger.0)
        .bind(now())
        .bind(limit)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    let mut waits: Vec<TriggerWait> = Vec::new();
    for (value, term, job_id, completed_at, Json(after)) in rows {
        if waits.last().is_none_or(|wait| wait.value != value) {
            waits.push(TriggerWait { value, arrived: Vec::new(), missing: after });
        }
        if let Some(wait) = waits.last_mut() {
            wait.missing.retain(|missing| *missing != term);
            wait.arrived.push((term, JobId::from_store(job_id), time(completed_at)));
        }
    }
    Ok(waits)
}
