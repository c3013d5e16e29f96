//! The scheduler: fires what is due. Any number of processes look; the guarded transaction of the store
//! lets one of them win, and losing it is harmless.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use outhaul_core::clock;
use outhaul_core::delivery::Delivery;
use outhaul_core::schedule::{
    Advance, Overlap, Schedule, ScheduleFire, ScheduleFired, SlotOutcome, SlotPlan, SlotRow,
};
use outhaul_core::store::{Store, StoreError, StoreResult};
use tracing::{info, warn};

use super::cron::{Times, TimesError};
use super::{due, words};
use crate::duty::{BACKSTOP, Duty, Next};
use crate::planner::{Planner, refusal};

const BATCH: u32 = 100;
/// How often a firing by hand is tried while the schedule changes under it.
const TRIES: i64 = 5;

/// Submits the jobs of schedules.
#[derive(Clone)]
pub struct Scheduler {
    store: Arc<dyn Store>,
    planner: Arc<dyn Planner>,
    delivery: Arc<dyn Delivery>,
}

/// What one look at the schedules did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// The slots that were recorded, each with the name of its schedule.
    pub slots: Vec<(String, SlotRow)>,
    /// Whether there may be more to do at once.
    pub more: bool,
}

/// How a firing by hand ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ByHand {
    /// The slot that was recorded for it: fired, skipped or refused.
    Slot(SlotRow),
    /// There is no such schedule.
    Unknown,
    /// The schedule was changed again and again meanwhile; nothing was done.
    Changing,
}

impl Scheduler {
    /// One that makes jobs with the planner and tells of them through the delivery.
    pub fn new(store: Arc<dyn Store>, planner: Arc<dyn Planner>, delivery: Arc<dyn Delivery>) -> Self {
        Self { store, planner, delivery }
    }

    /// Fires what is due at a moment, or at the database's now. What goes wrong with one schedule does not
    /// keep the others from being fired; the first error is returned when all were tried.
    pub async fn round(&self, at: Option<DateTime<Utc>>) -> StoreResult<Round> {
        let due = self.store.schedules_due(at, BATCH).await?;
        let full = due.schedules.len() >= BATCH as usize;
        let (mut round, mut failed) = (Round::default(), None);
        for schedule in &due.schedules {
            match self.fire(schedule, due.now).await {
                Ok(slots) => round.slots.extend(slots.into_iter().map(|slot| (schedule.name.clone(), slot))),
                Err(error) => {
                    let away = matches!(error, StoreError::Unavailable(_));
                    let name = &schedule.name;
                    if !away {
                        warn!(schedule = name, %error, "schedule {name} cannot be fired: {error}");
                    }
                    failed.get_or_insert(error);
                    if away {
                        break;
                    }
                }
            }
        }
        self.announce(round.slots.iter().map(|(_, slot)| slot));
        round.more = full && !round.slots.is_empty();
        failed.map_or(Ok(round), Err)
    }

    /// Fires a schedule now, whatever it waits for and whether or not it is paused; its slots go on as if
    /// nothing had happened.
    pub async fn run(&self, name: &str) -> StoreResult<ByHand> {
        for attempt in 0..TRIES {
            let Some(schedule) = self.store.schedule_get(name).await? else { return Ok(ByHand::Unknown) };
            // A moment of its own: two firings by hand at the same moment are two.
            let slot = clock::now().trunc_subsecs(6) + TimeDelta::microseconds(attempt);
            let plan = self.plan(&schedule, &times(&schedule), slot);
            let (id, version) = (schedule.id, schedule.version);
            let slots = vec![(slot, plan)];
            let fire = ScheduleFire { id, version, advance: None, overlap: Overlap::Allow, slots };
            if let ScheduleFired::Yes(rows) = self.store.schedule_fire(fire).await?
                && let Some(row) = rows.into_iter().next()
            {
                record(name, &row);
                self.announce([&row]);
                return Ok(ByHand::Slot(row));
            }
        }
        Ok(ByHand::Changing)
    }

    async fn fire(&self, schedule: &Schedule, now: DateTime<Utc>) -> StoreResult<Vec<SlotRow>> {
        let Some(awaited) = schedule.next else { return Ok(Vec::new()) };
        let times = times(schedule);
        let (slots, to) = match &times {
            Ok(read) => {
                let due = due::judge(read, &schedule.name, &schedule.spec, awaited, now);
                let missed = due.missed.into_iter().map(|(slot, why)| (slot, SlotPlan::Missed(why)));
                let mut slots: Vec<_> = missed.collect();
                for slot in due.run {
                    slots.push((slot, self.plan(schedule, &times, slot)));
                    // Planning waits for nothing, and there may be much of it.
                    tokio::task::yield_now().await;
                }
                (slots, due.next)
            }
            // Nobody can say when it would be due; it waits until it is changed.
            Err(_) => (vec![(awaited.slot, self.plan(schedule, &times, awaited.slot))], None),
        };
        if slots.is_empty() {
            return Ok(Vec::new());
        }
        let fire = ScheduleFire {
            id: schedule.id,
            version: schedule.version,
            advance: Some(Advance { from: awaited.slot, to }),
            overlap: schedule.spec.overlap,
            slots,
        };
        match self.store.schedule_fire(fire).await? {
            ScheduleFired::Yes(rows) => {
                rows.iter().for_each(|row| record(&schedule.name, row));
                Ok(rows)
            }
            ScheduleFired::Lost => Ok(Vec::new()),
        }
    }

    fn plan(&self, schedule: &Schedule, times: &Result<Times, TimesError>, slot: DateTime<Utc>) -> SlotPlan {
        let zone = match times {
            Ok(times) => times.zone(),
            Err(error) => return SlotPlan::Refused(format!("the schedule cannot be read: {error}")),
        };
        let planned = words::render(&schedule.spec.job, slot, zone)
            .and_then(|body| self.planner.plan(&body, &schedule.owner));
        match planned {
            Ok(mut job) => {
                job.made_by = Some(format!("schedule {}", schedule.name));
                SlotPlan::Run(Box::new(job))
            }
            Err(problems) => SlotPlan::Refused(refusal(&problems)),
        }
    }

    fn announce<'a>(&self, rows: impl IntoIterator<Item = &'a SlotRow>) {
        if rows.into_iter().any(|row| row.outcome == SlotOutcome::Fired) {
            self.delivery.announce();
        }
    }
}

fn times(schedule: &Schedule) -> Result<Times, TimesError> {
    Times::parse(&schedule.spec.cron, &schedule.spec.timezone)
}

/// Counts a slot and tells of it, without its detail: what a planner says may quote the job.
fn record(name: &str, row: &SlotRow) {
    let (slot, outcome) = (row.slot, row.outcome.as_str());
    metrics::counter!("outhaul_schedule_slots_total", "outcome" => outcome).increment(1);
    let job_id = row.job_id.as_ref().map(tracing::field::display);
    match row.outcome {
        SlotOutcome::Fired => {
            info!(event = "schedule.fired", schedule = name, %slot, job_id, "schedule {name} fired")
        }
        SlotOutcome::Skipped => {
            info!(event = "schedule.skipped", schedule = name, %slot, job_id, "schedule {name} skipped");
        }
        SlotOutcome::Missed => {
            warn!(event = "schedule.missed", schedule = name, %slot, "schedule {name} missed slots");
        }
        SlotOutcome::Refused => {
            warn!(event = "schedule.refused", schedule = name, %slot,
                "schedule {name} could not make its job; its last slots say why");
        }
    }
}

#[async_trait]
impl Duty for Scheduler {
    const NAME: &'static str = "the scheduler";

    fn interval(&self) -> Duration {
        BACKSTOP
    }

    async fn run_once(&self) -> StoreResult<Next> {
        let round = self.round(None).await?;
        Ok(if round.more { Next::AtOnce } else { Next::Later })
    }
}

#[cfg(test)]
mod tests;
