//! Firing schedules: slots, their jobs and the next slot in one transaction. Whoever finds the schedule
//! waiting for another slot than the one it made jobs for has lost, and stores nothing.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use outhaul_core::id::JobId;
use outhaul_core::schedule::{
    DueSchedules, Overlap, ScheduleFire, ScheduleFired, ScheduleId, SlotOutcome, SlotPlan, SlotRow,
};
use outhaul_core::store::{StoreError, StoreResult, Submitted};
use sqlx::PgConnection;

use super::PostgresStore;
use super::pool::begin;
use super::schedule::{ScheduleRow, SlotColumns};
use super::schema::Schema;
use super::submit::Batch;
use crate::error::from_sqlx;
use crate::firing::{EQUAL_RUNS, KEY_CONFLICT, KEY_NAMES, earlier_runs, no_such_parents, over_quota};

/// A slot that is ready to be recorded.
struct Ready {
    slot: DateTime<Utc>,
    plan: ReadyPlan,
}

enum ReadyPlan {
    Submit(Batch),
    Leave(SlotOutcome, String),
}

impl PostgresStore {
    pub(super) async fn due_schedules(
        &self,
        at: Option<DateTime<Utc>>,
        limit: u32,
    ) -> StoreResult<DueSchedules> {
        let pool = self.pool();
        let now = match at {
            Some(at) => at,
            None => {
                sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&pool).await.map_err(from_sqlx)?
            }
        };
        let rows: Vec<ScheduleRow> = sqlx::query_as(self.sql(include_str!("sql/schedules_due.sql")))
            .bind(now)
            .bind(i64::from(limit))
            .fetch_all(&pool)
            .await
            .map_err(from_sqlx)?;
        let schedules = rows.into_iter().map(ScheduleRow::into_schedule).collect::<StoreResult<_>>()?;
        Ok(DueSchedules { now, schedules })
    }

    pub(super) async fn fire_schedule(&self, fire: ScheduleFire) -> StoreResult<ScheduleFired> {
        let schema = self.schema;
        // Outside the transaction: it may ask the database for queues, on another connection.
        let mut ready = Vec::with_capacity(fire.slots.len());
        for (slot, plan) in fire.slots {
            ready.push(Ready { slot, plan: self.ready(plan).await? });
        }
        let (pool, id, version) = (self.pool(), fire.id, fire.version);
        let (advance, overlap) = (fire.advance, fire.overlap);
        let work = tokio::spawn(async move {
            let mut connection = pool.acquire().await.map_err(from_sqlx)?;
            let mut tx = begin(&mut connection).await.map_err(from_sqlx)?;
            let from = advance.map(|advance| advance.from);
            if !lock(schema, &mut tx, id, version, from).await? {
                return Ok(ScheduleFired::Lost);
            }
            let slots = record_all(schema, &mut tx, id, overlap, ready).await?;
            if let Some(advance) = advance {
                sqlx::query(schema.sql(include_str!("sql/schedule_fire_advance.sql")))
                    .bind(id.0)
                    .bind(advance.to.map(|next| next.slot))
                    .bind(advance.to.map(|next| next.fire_at))
                    .execute(&mut *tx)
                    .await
                    .map_err(from_sqlx)?;
            }
            tx.commit().await.map_err(from_sqlx)?;
            Ok(ScheduleFired::Yes(slots))
        });
        work.await.map_err(|error| StoreError::Refused(error.into()))?
    }

    async fn ready(&self, plan: SlotPlan) -> StoreResult<ReadyPlan> {
        Ok(match plan {
            SlotPlan::Missed(detail) => ReadyPlan::Leave(SlotOutcome::Missed, detail),
            SlotPlan::Refused(detail) => ReadyPlan::Leave(SlotOutcome::Refused, detail),
            SlotPlan::Run(job) => match self.batch(vec![*job]).await {
                Ok(batch) => ReadyPlan::Submit(batch),
                Err(error @ StoreError::UnknownQueue(_)) => {
                    ReadyPlan::Leave(SlotOutcome::Refused, error.to_string())
                }
                Err(error) => return Err(error),
            },
        })
    }
}

async fn lock(
    schema: Schema,
    connection: &mut PgConnection,
    id: ScheduleId,
    version: i64,
    from: Option<DateTime<Utc>>,
) -> StoreResult<bool> {
    let held: Option<i64> = match from {
        Some(from) => sqlx::query_scalar(schema.sql(include_str!("sql/schedule_fire_lock.sql")))
            .bind(id.0)
            .bind(version)
            .bind(from),
        None => sqlx::query_scalar(schema.sql(include_str!("sql/schedule_fire_by_hand_lock.sql")))
            .bind(id.0)
            .bind(version),
    }
    .fetch_optional(connection)
    .await
    .map_err(from_sqlx)?;
    Ok(held.is_some())
}

async fn record_all(
    schema: Schema,
    connection: &mut PgConnection,
    id: ScheduleId,
    overlap: Overlap,
    ready: Vec<Ready>,
) -> StoreResult<Vec<SlotRow>> {
    let slots: Vec<DateTime<Utc>> = ready.iter().map(|ready| ready.slot).collect();
    let recorded: Vec<DateTime<Utc>> =
        sqlx::query_scalar(schema.sql(include_str!("sql/schedule_fire_recorded.sql")))
            .bind(id.0)
            .bind(slots)
            .fetch_all(&mut *connection)
            .await
            .map_err(from_sqlx)?;
    let recorded: BTreeSet<DateTime<Utc>> = recorded.into_iter().collect();
    let earlier = if overlap == Overlap::Allow { None } else { unfinished(schema, connection, id).await? };
    let mut before = earlier.clone();
    let mut rows = Vec::with_capacity(ready.len());
    for Ready { slot, plan } in ready {
        if recorded.contains(&slot) {
            continue;
        }
        let left_out = earlier.as_ref().filter(|_| overlap == Overlap::Skip);
        let (outcome, job_id, detail) = match (plan, left_out) {
            (ReadyPlan::Leave(outcome, detail), _) => (outcome, None, Some(detail)),
            (ReadyPlan::Submit(_), Some(running)) => {
                (SlotOutcome::Skipped, Some(running.clone()), Some(earlier_runs(running)))
            }
            (ReadyPlan::Submit(mut batch), None) => {
                if overlap != Overlap::Allow
                    && let Some(before) = &before
                {
                    batch.wait_for(before);
                }
                judged(batch.submit(connection).await?)
            }
        };
        if outcome == SlotOutcome::Fired {
            before.clone_from(&job_id);
        }
        rows.extend(record(schema, connection, id, slot, outcome, job_id, detail).await?);
    }
    Ok(rows)
}

/// What the answer to a submission makes of its slot.
fn judged(answers: Vec<Submitted>) -> (SlotOutcome, Option<JobId>, Option<String>) {
    match answers.into_iter().next() {
        Some(Submitted::Created(job)) => (SlotOutcome::Fired, Some(job.job_id), None),
        Some(Submitted::Existing(job)) => {
            (SlotOutcome::Skipped, Some(job.job_id), Some(KEY_NAMES.to_owned()))
        }
        Some(Submitted::Duplicate(job)) => {
            (SlotOutcome::Skipped, Some(job.job_id), Some(EQUAL_RUNS.to_owned()))
        }
        other => (SlotOutcome::Refused, None, Some(refusal(other))),
    }
}

/// Why a submission stored nothing, in a sentence.
pub(super) fn refusal(answer: Option<Submitted>) -> String {
    match answer {
        Some(Submitted::KeyConflict) => KEY_CONFLICT.to_owned(),
        Some(Submitted::NoSuchParents(missing)) => no_such_parents(&missing),
        Some(Submitted::OverQuota(open)) => over_quota(open),
        _ => "the job was not stored".to_owned(),
    }
}

async fn unfinished(
    schema: Schema,
    connection: &mut PgConnection,
    id: ScheduleId,
) -> StoreResult<Option<JobId>> {
    let found: Option<String> =
        sqlx::query_scalar(schema.sql(include_str!("sql/schedule_fire_unfinished.sql")))
            .bind(id.0)
            .fetch_optional(connection)
            .await
            .map_err(from_sqlx)?;
    Ok(found.map(JobId::from_store))
}

async fn record(
    schema: Schema,
    connection: &mut PgConnection,
    id: ScheduleId,
    slot: DateTime<Utc>,
    outcome: SlotOutcome,
    job_id: Option<JobId>,
    detail: Option<String>,
) -> StoreResult<Option<SlotRow>> {
    let row: Option<SlotColumns> = sqlx::query_as(schema.sql(include_str!("sql/schedule_fire_slot.sql")))
        .bind(id.0)
        .bind(slot)
        .bind(outcome.as_str())
        .bind(job_id.as_ref().map(JobId::as_str))
        .bind(detail)
        .fetch_optional(connection)
        .await
        .map_err(from_sqlx)?;
    row.map(SlotColumns::into_slot).transpose()
}
