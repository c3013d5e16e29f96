//! Schedules: what they say, and whether they are paused.

use std::time::Duration;

use outhaul_core::id::JobId;
use outhaul_core::schedule::{
    CatchUp, Deleted, NewSchedule, NextSlot, Origin, Overlap, Put, Schedule, ScheduleId, ScheduleSpec,
    SlotOutcome, SlotRow,
};
use outhaul_core::store::StoreResult;
use sqlx::{Executor, Sqlite};

use super::SqliteStore;
use super::convert::{json as json_list, micros, time};
use super::transaction::Write;
use crate::error::{corrupt, from_sqlx, json};

#[derive(sqlx::FromRow)]
pub(super) struct ScheduleRow {
    id: i64,
    name: String,
    cron: String,
    timezone: String,
    job: String,
    overlap: String,
    catch_up: String,
    catch_up_limit: u32,
    jitter_micros: i64,
    origin: String,
    owner: String,
    paused: bool,
    next_slot: Option<i64>,
    fire_at: Option<i64>,
    version: i64,
    created_at: i64,
    updated_at: i64,
}

impl ScheduleRow {
    pub(super) fn into_schedule(self) -> StoreResult<Schedule> {
        let overlap = Overlap::parse(&self.overlap);
        let catch_up = CatchUp::parse(&self.catch_up);
        let next = self.next_slot.zip(self.fire_at);
        Ok(Schedule {
            id: ScheduleId(self.id),
            spec: ScheduleSpec {
                job: json("schedule.job", &self.job)?,
                overlap: overlap.ok_or_else(|| corrupt("schedule.overlap", &self.overlap))?,
                catch_up: catch_up.ok_or_else(|| corrupt("schedule.catch_up", &self.catch_up))?,
                catch_up_limit: self.catch_up_limit,
                jitter: Duration::from_micros(self.jitter_micros.unsigned_abs()),
                cron: self.cron,
                timezone: self.timezone,
            },
            name: self.name,
            origin: origin("schedule.origin", &self.origin)?,
            owner: self.owner,
            paused: self.paused,
            next: next.map(|(slot, fire_at)| NextSlot { slot: time(slot), fire_at: time(fire_at) }),
            version: self.version,
            created_at: time(self.created_at),
            updated_at: time(self.updated_at),
        })
    }
}

pub(super) fn origin(column: &str, word: &str) -> StoreResult<Origin> {
    Origin::parse(word).ok_or_else(|| corrupt(column, word))
}

#[derive(sqlx::FromRow)]
struct SlotColumns {
    slot: i64,
    outcome: String,
    job_id: Option<String>,
    detail: Option<String>,
    at: i64,
}

impl SlotColumns {
    fn into_slot(self) -> StoreResult<SlotRow> {
        let outcome = SlotOutcome::parse(&self.outcome);
        Ok(SlotRow {
            slot: time(self.slot),
            outcome: outcome.ok_or_else(|| corrupt("schedule_slot.outcome", &self.outcome))?,
            job_id: self.job_id.map(JobId::from_store),
            detail: self.detail,
            at: time(self.at),
        })
    }
}

pub(super) async fn put(store: &SqliteStore, schedule: &NewSchedule) -> StoreResult<Put> {
    let schedule = schedule.clone();
    store.write(move |write| Box::pin(async move { put_in(write, &schedule).await })).await
}

pub(super) async fn configured(store: &SqliteStore, schedules: &[NewSchedule]) -> StoreResult<()> {
    let schedules = schedules.to_vec();
    store
        .write(move |write| {
            Box::pin(async move {
                for schedule in &schedules {
                    put_in(write, schedule).await?;
                }
                let names: Vec<&str> = schedules.iter().map(|schedule| schedule.name.as_str()).collect();
                sqlx::query(include_str!("sql/schedules_configured.sql"))
                    .bind(json_list(&names))
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(())
            })
        })
        .await
}

async fn put_in(write: &mut Write, schedule: &NewSchedule) -> StoreResult<Put> {
    let NewSchedule { name, spec, origin, owner, next } = schedule;
    let there = named(write.connection(), Some(name)).await?.pop();
    if let Some(there) = &there {
        if there.origin == Origin::Config && *origin == Origin::Api {
            return Ok(Put::ReadOnly);
        }
        let parked = there.next.is_none() && next.is_some();
        if says_the_same(there, schedule) && there.origin == *origin && !parked {
            return Ok(Put::Replaced);
        }
    }
    let now = write.now;
    let put = sqlx::query(match &there {
        None => include_str!("sql/schedule_put.sql"),
        Some(_) => include_str!("sql/schedule_put_change.sql"),
    })
    .bind(name)
    .bind(&spec.cron)
    .bind(&spec.timezone)
    .bind(spec.job.as_str())
    .bind(spec.overlap.as_str())
    .bind(spec.catch_up.as_str())
    .bind(spec.catch_up_limit)
    .bind(micros(spec.jitter))
    .bind(origin.as_str())
    .bind(owner)
    .bind(next.map(|next| next.slot.timestamp_micros()))
    .bind(next.map(|next| next.fire_at.timestamp_micros()))
    .bind(now);
    let (put, answer) = match &there {
        None => (put, Put::Created),
        Some(there) => (put.bind(!says_the_same(there, schedule)), Put::Replaced),
    };
    put.execute(write.connection()).await.map_err(from_sqlx)?;
    Ok(answer)
}

fn says_the_same(there: &Schedule, new: &NewSchedule) -> bool {
    // As exact as it is stored.
    let jitter = Duration::from_micros(micros(new.spec.jitter).unsigned_abs());
    there.owner == new.owner && there.spec == ScheduleSpec { jitter, ..new.spec.clone() }
}

/// One schedule, or all of them, as `connection` sees them.
async fn named(
    connection: impl Executor<'_, Database = Sqlite>,
    name: Option<&str>,
) -> StoreResult<Vec<Schedule>> {
    let rows: Vec<ScheduleRow> = sqlx::query_as(include_str!("sql/schedules_list.sql"))
        .bind(name)
        .fetch_all(connection)
        .await
        .map_err(from_sqlx)?;
    rows.into_iter().map(ScheduleRow::into_schedule).collect()
}

pub(super) async fn get(store: &SqliteStore, name: &str) -> StoreResult<Option<Schedule>> {
    Ok(named(store.reader(), Some(name)).await?.pop())
}

pub(super) async fn list(store: &SqliteStore) -> StoreResult<Vec<Schedule>> {
    named(store.reader(), None).await
}

pub(super) async fn delete(store: &SqliteStore, name: &str) -> StoreResult<Deleted> {
    let name = name.to_owned();
    let (delete, look) =
        (include_str!("sql/schedule_delete.sql"), include_str!("sql/schedule_delete_origin.sql"));
    store.write(move |write| Box::pin(async move { delete_in(write, &name, delete, look).await })).await
}

/// Deletes by name what the API may delete; `look` tells what else there is.
pub(super) async fn delete_in(
    write: &mut Write,
    name: &str,
    delete: &'static str,
    look: &'static str,
) -> StoreResult<Deleted> {
    let gone = sqlx::query(delete).bind(name).execute(write.connection()).await.map_err(from_sqlx)?;
    if gone.rows_affected() > 0 {
        return Ok(Deleted::Yes);
    }
    let left: Option<String> =
        sqlx::query_scalar(look).bind(name).fetch_optional(write.connection()).await.map_err(from_sqlx)?;
    Ok(if left.is_some() { Deleted::ReadOnly } else { Deleted::Unknown })
}

pub(super) async fn pause(store: &SqliteStore, name: &str) -> StoreResult<bool> {
    let name = name.to_owned();
    store
        .write(move |write| {
            Box::pin(async move {
                let pause = sqlx::query(include_str!("sql/schedule_pause.sql")).bind(name).bind(write.now);
                Ok(pause.execute(write.connection()).await.map_err(from_sqlx)?.rows_affected() > 0)
            })
        })
        .await
}

pub(super) async fn resume(store: &SqliteStore, name: &str, next: Option<NextSlot>) -> StoreResult<bool> {
    let name = name.to_owned();
    store
        .write(move |write| {
            Box::pin(async move {
                let resume = sqlx::query(include_str!("sql/schedule_resume.sql"))
                    .bind(name)
                    .bind(next.map(|next| next.slot.timestamp_micros()))
                    .bind(next.map(|next| next.fire_at.timestamp_micros()))
                    .bind(write.now);
                Ok(resume.execute(write.connection()).await.map_err(from_sqlx)?.rows_affected() > 0)
            })
        })
        .await
}

pub(super) async fn slots(store: &SqliteStore, name: &str, limit: u32) -> StoreResult<Vec<SlotRow>> {
    let rows: Vec<SlotColumns> = sqlx::query_as(include_str!("sql/schedule_slots.sql"))
        .bind(name)
        .bind(limit)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    rows.into_iter().map(SlotColumns::into_slot).collect()
}
