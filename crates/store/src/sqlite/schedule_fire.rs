//! Firing schedules: slots, their jobs and the next slot in one transaction. Whoever finds the schedule
//! waiting for another slot than the one it made jobs for has lost, and stores nothing.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use outhaul_core::id::JobId;
use outhaul_core::job::{NewJob, OnParentFailure};
use outhaul_core::schedule::{
    DueSchedules, Overlap, ScheduleFire, ScheduleFired, ScheduleId, SlotOutcome, SlotPlan, SlotRow,
};
use outhaul_core::store::StoreResult;

use super::SqliteStore;
use super::convert::{json, now, time};
use super::schedule::ScheduleRow;
use super::submit::{self, Made};
use super::transaction::Write;
use crate::error::from_sqlx;
use crate::firing::{EQUAL_RUNS, KEY_NAMES, earlier_runs};

pub(super) async fn due(
    store: &SqliteStore,
    at: Option<DateTime<Utc>>,
    limit: u32,
) -> StoreResult<DueSchedules> {
    let now = at.unwrap_or_else(|| time(now()));
    let rows: Vec<ScheduleRow> = sqlx::query_as(include_str!("sql/schedules_due.sql"))
        .bind(now.timestamp_micros())
        .bind(limit)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    let schedules = rows.into_iter().map(ScheduleRow::into_schedule).collect::<StoreResult<_>>()?;
    Ok(DueSchedules { now, schedules })
}

pub(super) async fn fire(store: &SqliteStore, fire: ScheduleFire) -> StoreResult<ScheduleFired> {
    store.write(move |write| Box::pin(fire_in(write, fire))).await
}

async fn fire_in(write: &mut Write, fire: ScheduleFire) -> StoreResult<ScheduleFired> {
    if !moved_on(write, &fire).await? {
        return Ok(ScheduleFired::Lost);
    }
    let mut recorded = recorded(write, &fire).await?;
    let mut chain = Chain::of(write, fire.id, fire.overlap).await?;
    let mut rows = Vec::with_capacity(fire.slots.len());
    for (slot, plan) in fire.slots {
        if !recorded.insert(slot.timestamp_micros()) {
            continue;
        }
        let (outcome, job_id, detail) = match plan {
            SlotPlan::Missed(detail) => (SlotOutcome::Missed, None, Some(detail)),
            SlotPlan::Refused(detail) => (SlotOutcome::Refused, None, Some(detail)),
            SlotPlan::Run(job) => chain.run(write, *job).await?,
        };
        rows.push(record(write, fire.id, slot, outcome, job_id, detail).await?);
    }
    Ok(ScheduleFired::Yes(rows))
}

/// Makes the schedule wait for its next slot; `false`: it is not as it was when the jobs were made.
async fn moved_on(write: &mut Write, fire: &ScheduleFire) -> StoreResult<bool> {
    let Some(advance) = fire.advance else {
        return sqlx::query_scalar(include_str!("sql/schedule_fire_by_hand.sql"))
            .bind(fire.id.0)
            .bind(fire.version)
            .fetch_one(write.connection())
            .await
            .map_err(from_sqlx);
    };
    let moved = sqlx::query(include_str!("sql/schedule_fire.sql"))
        .bind(fire.id.0)
        .bind(fire.version)
        .bind(advance.from.timestamp_micros())
        .bind(advance.to.map(|next| next.slot.timestamp_micros()))
        .bind(advance.to.map(|next| next.fire_at.timestamp_micros()))
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(moved.rows_affected() > 0)
}

async fn recorded(write: &mut Write, fire: &ScheduleFire) -> StoreResult<BTreeSet<i64>> {
    let slots: Vec<i64> = fire.slots.iter().map(|(slot, _)| slot.timestamp_micros()).collect();
    let rows: Vec<i64> = sqlx::query_scalar(include_str!("sql/schedule_fire_recorded.sql"))
        .bind(fire.id.0)
        .bind(json(&slots))
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(rows.into_iter().collect())
}

/// The jobs of a schedule that may not run beside each other.
struct Chain {
    overlap: Overlap,
    /// An unfinished job of an earlier firing.
    earlier: Option<JobId>,
    /// What the next job waits for.
    before: Option<JobId>,
}

type Became = (SlotOutcome, Option<JobId>, Option<String>);

impl Chain {
    async fn of(write: &mut Write, id: ScheduleId, overlap: Overlap) -> StoreResult<Self> {
        if overlap == Overlap::Allow {
            return Ok(Self { overlap, earlier: None, before: None });
        }
        let found: Option<String> = sqlx::query_scalar(include_str!("sql/schedule_fire_unfinished.sql"))
            .bind(id.0)
            .fetch_optional(write.connection())
            .await
            .map_err(from_sqlx)?;
        let earlier = found.map(JobId::from_store);
        Ok(Self { overlap, before: earlier.clone(), earlier })
    }

    async fn run(&mut self, write: &mut Write, mut job: NewJob) -> StoreResult<Became> {
        if let Some(running) = self.earlier.as_ref().filter(|_| self.overlap == Overlap::Skip) {
            return Ok((SlotOutcome::Skipped, Some(running.clone()), Some(earlier_runs(running))));
        }
        if let Some(before) = self.before.as_ref().filter(|before| !job.parents.contains(before)) {
            job.parents.push(before.clone());
            job.on_parent_failure = OnParentFailure::Run;
        }
        Ok(match submit::make(write, &job, self.before.as_ref()).await? {
            Made::Job(made) => {
                if self.overlap != Overlap::Allow {
                    self.before = Some(made.clone());
                }
                (SlotOutcome::Fired, Some(made), None)
            }
            Made::Named(named) => (SlotOutcome::Skipped, Some(named), Some(KEY_NAMES.to_owned())),
            Made::Equal(equal) => (SlotOutcome::Skipped, Some(equal), Some(EQUAL_RUNS.to_owned())),
            Made::Refused(why) => (SlotOutcome::Refused, None, Some(why)),
        })
    }
}

async fn record(
    write: &mut Write,
    id: ScheduleId,
    slot: DateTime<Utc>,
    outcome: SlotOutcome,
    job_id: Option<JobId>,
    detail: Option<String>,
) -> StoreResult<SlotRow> {
    let now = write.now;
    sqlx::query(include_str!("sql/schedule_fire_slot.sql"))
        .bind(id.0)
        .bind(slot.timestamp_micros())
        .bind(outcome.as_str())
        .bind(job_id.as_ref().map(JobId::as_str))
        .bind(&detail)
        .bind(now)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(SlotRow { slot: time(slot.timestamp_micros()), outcome, job_id, detail, at: time(now) })
}
