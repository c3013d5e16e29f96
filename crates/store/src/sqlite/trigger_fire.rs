//! Firing triggers: judging completed jobs, and submitting what became due. Jobs are judged one after
//! another in the order in which they completed, and there is one writer: no set is seen twice.

use std::collections::BTreeMap;

use outhaul_core::id::JobId;
use outhaul_core::identity::ANONYMOUS;
use outhaul_core::store::StoreResult;
use outhaul_core::trigger::{DueFire, FirePlan, FireState, Trigger, TriggerFire};
use sqlx::types::Json;

use super::SqliteStore;
use super::convert::{json, micros};
use super::submit::{self, Made};
use super::transaction::Write;
use super::trigger::{self, FireRow, TriggerRow};
use crate::error::from_sqlx;
use crate::firing::{EQUAL_RUNS, KEY_NAMES};

/// A job that completed; the rest is missing if it is gone.
#[derive(sqlx::FromRow)]
struct Due {
    id: i64,
    term: String,
    job_id: Option<String>,
    labels: Option<Json<BTreeMap<String, String>>>,
    owner: Option<String>,
    completed_at: i64,
}

/// A job that completed, as one trigger sees it.
struct Arrival<'a> {
    term: &'a str,
    value: &'a str,
    job_id: &'a str,
    owner: &'a str,
    completed_at: i64,
}

pub(super) async fn match_all(store: &SqliteStore, limit: u32) -> StoreResult<u64> {
    // Asked often, and mostly for nothing: that costs no turn of the writer.
    let any: bool = sqlx::query_scalar(include_str!("sql/triggers_match_any.sql"))
        .fetch_one(store.reader())
        .await
        .map_err(from_sqlx)?;
    if !any {
        return Ok(0);
    }
    store.write(move |write| Box::pin(match_in(write, limit))).await
}

/// Judges jobs that completed; returns how many.
async fn match_in(write: &mut Write, limit: u32) -> StoreResult<u64> {
    let due: Vec<Due> = sqlx::query_as(include_str!("sql/triggers_match.sql"))
        .bind(limit)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    if due.is_empty() {
        return Ok(0);
    }
    let triggers = trigger::rules(write.connection()).await?;
    for due in &due {
        let (Some(job_id), Some(owner), Some(Json(labels))) = (&due.job_id, &due.owner, &due.labels) else {
            continue;
        };
        let completed_at = due.completed_at;
        let asks = |rule: &&(i64, Trigger)| rule.0 <= completed_at && rule.1.spec.after.contains(&due.term);
        for (_, trigger) in triggers.iter().filter(asks) {
            let value =
                trigger.spec.match_label.as_ref().map_or(Some(""), |l| labels.get(l).map(String::as_str));
            let Some(value) = value else { continue };
            judge(write, trigger, &Arrival { term: &due.term, value, job_id, owner, completed_at }).await?;
        }
    }
    sqlx::query(include_str!("sql/triggers_match_judged.sql"))
        .bind(json(due.iter().map(|due| due.id).collect::<Vec<_>>()))
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(due.len() as u64)
}

/// Records that a job has come, and the firing if it was the last of its set.
async fn judge(write: &mut Write, trigger: &Trigger, arrival: &Arrival<'_>) -> StoreResult<()> {
    let after = &trigger.spec.after;
    if after.len() > 1 {
        sqlx::query(include_str!("sql/triggers_match_arrival.sql"))
            .bind(trigger.id.0)
            .bind(arrival.value)
            .bind(arrival.term)
            .bind(arrival.job_id)
            .bind(arrival.completed_at)
            .bind(arrival.owner)
            .execute(write.connection())
            .await
            .map_err(from_sqlx)?;
    }
    let mut parents = Vec::with_capacity(after.len());
    for term in after {
        let parent = if term == arrival.term {
            Some(arrival.job_id.to_owned())
        } else {
            newest(write, trigger, arrival, term).await?
        };
        let Some(parent) = parent else { return Ok(()) };
        parents.push(parent);
    }
    let now = write.now;
    sqlx::query(include_str!("sql/triggers_match_fire.sql"))
        .bind(trigger.id.0)
        .bind(arrival.value)
        .bind(json(&parents))
        .bind(now)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(())
}

/// The newest job of another term that belongs to this one.
async fn newest(
    write: &mut Write,
    trigger: &Trigger,
    arrival: &Arrival<'_>,
    term: &str,
) -> StoreResult<Option<String>> {
    let within = trigger.spec.within.map_or(i64::MAX, micros);
    sqlx::query_scalar(include_str!("sql/triggers_match_newest.sql"))
        .bind(trigger.id.0)
        .bind(arrival.value)
        .bind(term)
        .bind(arrival.completed_at.saturating_sub(within))
        .bind(arrival.completed_at.saturating_add(within))
        // Without an identity of its own it runs as the owner of all, so nobody else's job counts.
        .bind(Some(arrival.owner).filter(|_| trigger.owner == ANONYMOUS))
        .fetch_optional(write.connection())
        .await
        .map_err(from_sqlx)
}

pub(super) async fn due(store: &SqliteStore, limit: u32) -> StoreResult<Vec<DueFire>> {
    let fires: Vec<FireRow> = sqlx::query_as(include_str!("sql/trigger_fires_due.sql"))
        .bind(limit)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    if fires.is_empty() {
        return Ok(Vec::new());
    }
    let rules: Vec<TriggerRow> = sqlx::query_as(include_str!("sql/trigger_fires_due_rules.sql"))
        .bind(json(fires.iter().map(|fire| fire.trigger_id).collect::<Vec<_>>()))
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    let mut triggers = BTreeMap::new();
    for rule in rules {
        let trigger = rule.into_trigger()?;
        triggers.insert(trigger.id.0, trigger);
    }
    // A trigger that was deleted between the two looks took its firings along.
    fires
        .into_iter()
        .filter_map(|fire| Some((triggers.get(&fire.trigger_id)?.clone(), fire)))
        .map(|(trigger, fire)| Ok(DueFire { trigger, fire: fire.into_fire()? }))
        .collect()
}

pub(super) async fn fire(store: &SqliteStore, fire: i64, plan: FirePlan) -> StoreResult<Option<TriggerFire>> {
    store.write(move |write| Box::pin(fire_in(write, fire, plan))).await
}

async fn fire_in(write: &mut Write, fire: i64, plan: FirePlan) -> StoreResult<Option<TriggerFire>> {
    let is_due: bool = sqlx::query_scalar(include_str!("sql/trigger_fire_due.sql"))
        .bind(fire)
        .fetch_one(write.connection())
        .await
        .map_err(from_sqlx)?;
    if !is_due {
        return Ok(None);
    }
    let (state, job_id, detail) = match plan {
        FirePlan::Refused(why) => (FireState::Refused, None, Some(why)),
        FirePlan::Run(job) => match submit::make(write, &job, None).await? {
            Made::Job(made) => (FireState::Fired, Some(made), None),
            Made::Named(made) => (FireState::Fired, Some(made), Some(KEY_NAMES.to_owned())),
            Made::Equal(made) => (FireState::Fired, Some(made), Some(EQUAL_RUNS.to_owned())),
            Made::Refused(why) => (FireState::Refused, None, Some(why)),
        },
    };
    let now = write.now;
    let row: Option<FireRow> = sqlx::query_as(include_str!("sql/trigger_fire.sql"))
        .bind(fire)
        .bind(state.as_str())
        .bind(job_id.as_ref().map(JobId::as_str))
        .bind(detail)
        .bind(now)
        .fetch_optional(write.connection())
        .await
        .map_err(from_sqlx)?;
    row.map(FireRow::into_fire).transpose()
}
