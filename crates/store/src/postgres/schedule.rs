//! Schedules: what they say, and whether they are paused.

use std::time::Duration;

use chrono::{DateTime, Utc};
use outhaul_core::id::JobId;
use outhaul_core::schedule::{
    CatchUp, Deleted, NewSchedule, NextSlot, Origin, Overlap, Put, Schedule, ScheduleId, ScheduleSpec,
    SlotOutcome, SlotRow,
};
use outhaul_core::store::{StoreError, StoreResult};
use sqlx::PgConnection;

use super::PostgresStore;
use super::pool::begin;
use super::schema::Schema;
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
    catch_up_limit: i32,
    jitter_micros: i64,
    origin: String,
    owner: String,
    paused: bool,
    next_slot: Option<DateTime<Utc>>,
    fire_at: Option<DateTime<Utc>>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
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
                catch_up_limit: self.catch_up_limit.unsigned_abs(),
                jitter: Duration::from_micros(self.jitter_micros.unsigned_abs()),
                cron: self.cron,
                timezone: self.timezone,
            },
            name: self.name,
            origin: origin("schedule.origin", &self.origin)?,
            owner: self.owner,
            paused: self.paused,
            next: next.map(|(slot, fire_at)| NextSlot { slot, fire_at }),
            version: self.version,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}

pub(super) fn origin(column: &str, word: &str) -> StoreResult<Origin> {
    Origin::parse(word).ok_or_else(|| corrupt(column, word))
}

#[derive(sqlx::FromRow)]
pub(super) struct SlotColumns {
    slot: DateTime<Utc>,
    outcome: String,
    job_id: Option<String>,
    detail: Option<String>,
    at: DateTime<Utc>,
}

impl SlotColumns {
    pub(super) fn into_slot(self) -> StoreResult<SlotRow> {
        let outcome = SlotOutcome::parse(&self.outcome);
        Ok(SlotRow {
            slot: self.slot,
            outcome: outcome.ok_or_else(|| corrupt("schedule_slot.outcome", &self.outcome))?,
            job_id: self.job_id.map(JobId::from_store),
            detail: self.detail,
            at: self.at,
        })
    }
}

impl PostgresStore {
    pub(super) async fn put_schedule(&self, schedule: &NewSchedule) -> StoreResult<Put> {
        let schema = self.schema;
        let mut connection = self.pool().acquire().await.map_err(from_sqlx)?;
        put(schema, &mut connection, schedule).await
    }

    pub(super) async fn configure_schedules(&self, schedules: &[NewSchedule]) -> StoreResult<()> {
        let schema = self.schema;
        let (pool, mut schedules) = (self.pool(), schedules.to_vec());
        // Processes that start together take the rows in one order.
        schedules.sort_by(|one, other| one.name.cmp(&other.name));
        let work = tokio::spawn(async move {
            let mut connection = pool.acquire().await.map_err(from_sqlx)?;
            let mut tx = begin(&mut connection).await.map_err(from_sqlx)?;
            for schedule in &schedules {
                put(schema, &mut tx, schedule).await?;
            }
            sqlx::query(schema.sql(include_str!("sql/schedules_configured_delete.sql")))
                .bind(schedules.iter().map(|schedule| schedule.name.as_str()).collect::<Vec<_>>())
                .execute(&mut *tx)
                .await
                .map_err(from_sqlx)?;
            tx.commit().await.map_err(from_sqlx)
        });
        work.await.map_err(|error| StoreError::Refused(error.into()))?
    }

    pub(super) async fn get_schedule(&self, name: &str) -> StoreResult<Option<Schedule>> {
        Ok(self.schedules_named(Some(name)).await?.pop())
    }

    pub(super) async fn list_schedules(&self) -> StoreResult<Vec<Schedule>> {
        self.schedules_named(None).await
    }

    async fn schedules_named(&self, name: Option<&str>) -> StoreResult<Vec<Schedule>> {
        let rows: Vec<ScheduleRow> = sqlx::query_as(self.sql(include_str!("sql/schedules_list.sql")))
            .bind(name)
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        rows.into_iter().map(ScheduleRow::into_schedule).collect()
    }

    pub(super) async fn delete_schedule(&self, name: &str) -> StoreResult<Deleted> {
        let found: Option<String> = sqlx::query_scalar(self.sql(include_str!("sql/schedule_delete.sql")))
            .bind(name)
            .fetch_optional(&self.pool())
            .await
            .map_err(from_sqlx)?;
        deleted("schedule.origin", found)
    }

    pub(super) async fn pause_schedule(&self, name: &str) -> StoreResult<bool> {
        let pause = sqlx::query(self.sql(include_str!("sql/schedule_pause.sql"))).bind(name);
        Ok(pause.execute(&self.pool()).await.map_err(from_sqlx)?.rows_affected() > 0)
    }

    pub(super) async fn resume_schedule(&self, name: &str, next: Option<NextSlot>) -> StoreResult<bool> {
        let resume = sqlx::query(self.sql(include_str!("sql/schedule_resume.sql")))
            .bind(name)
            .bind(next.map(|next| next.slot))
            .bind(next.map(|next| next.fire_at));
        Ok(resume.execute(&self.pool()).await.map_err(from_sqlx)?.rows_affected() > 0)
    }

    pub(super) async fn list_slots(&self, name: &str, limit: u32) -> StoreResult<Vec<SlotRow>> {
        let rows: Vec<SlotColumns> = sqlx::query_as(self.sql(include_str!("sql/schedule_slots.sql")))
            .bind(name)
            .bind(i64::from(limit))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        rows.into_iter().map(SlotColumns::into_slot).collect()
    }
}

async fn put(schema: Schema, connection: &mut PgConnection, schedule: &NewSchedule) -> StoreResult<Put> {
    let NewSchedule { name, spec, origin, owner, next } = schedule;
    let created: Option<bool> = sqlx::query_scalar(schema.sql(include_str!("sql/schedule_put.sql")))
        .bind(name)
        .bind(&spec.cron)
        .bind(&spec.timezone)
        .bind(spec.job.as_str())
        .bind(spec.overlap.as_str())
        .bind(spec.catch_up.as_str())
        .bind(i32::try_from(spec.catch_up_limit).unwrap_or(i32::MAX))
        .bind(micros(spec.jitter))
        .bind(origin.as_str())
        .bind(owner)
        .bind(next.map(|next| next.slot))
        .bind(next.map(|next| next.fire_at))
        .fetch_optional(connection)
        .await
        .map_err(from_sqlx)?;
    Ok(put_answer(created))
}

/// What the statement says of a put: a row that is new, a row that was there, or none.
pub(super) fn put_answer(created: Option<bool>) -> Put {
    match created {
        Some(true) => Put::Created,
        Some(false) => Put::Replaced,
        None => Put::ReadOnly,
    }
}

/// What the origin of the row that was found says of its deletion.
pub(super) fn deleted(column: &str, found: Option<String>) -> StoreResult<Deleted> {
    let Some(word) = found else { return Ok(Deleted::Unknown) };
    Ok(match origin(column, &word)? {
        Origin::Api => Deleted::Yes,
        Origin::Config => Deleted::ReadOnly,
    })
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
