//! The duty of triggers: lets the store judge what completed, then makes and submits the jobs of the
//! firings that became due. Any number of processes do it; each firing is submitted by one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::delivery::Delivery;
use outhaul_core::identity::ANONYMOUS;
use outhaul_core::job::Job;
use outhaul_core::store::{Store, StoreError, StoreResult};
use outhaul_core::trigger::{DueFire, FirePlan, FireState, TriggerFire, term};
use tracing::{info, warn};

use super::words::{self, Parent};
use crate::duty::{BACKSTOP, Duty, Next};
use crate::planner::{Planner, refusal};

const BATCH: u32 = 100;

/// What one round did.
#[derive(Debug)]
pub struct Fired {
    /// The firings that are over.
    pub fires: Vec<TriggerFire>,
    /// Whether there may be more.
    pub more: bool,
}

/// Submits the jobs of triggers.
#[derive(Clone)]
pub struct Triggers {
    store: Arc<dyn Store>,
    planner: Arc<dyn Planner>,
    delivery: Arc<dyn Delivery>,
}

impl Triggers {
    /// One that makes jobs with the planner and tells of them through the delivery.
    pub fn new(store: Arc<dyn Store>, planner: Arc<dyn Planner>, delivery: Arc<dyn Delivery>) -> Self {
        Self { store, planner, delivery }
    }

    /// Judges what completed and submits what is due, a batch of each at most. What goes wrong with one
    /// firing, or with judging, does not keep the others from being submitted; the first error is returned
    /// when all were tried.
    pub async fn round(&self) -> StoreResult<Fired> {
        let (judged, mut failed) = match self.store.triggers_match(BATCH).await {
            Ok(judged) => (judged, None),
            Err(error) => (0, Some(error)),
        };
        let mut fires = Vec::new();
        for due in self.store.trigger_fires_due(BATCH).await? {
            match self.fire(&due).await {
                Ok(fire) => fires.extend(fire),
                Err(error) => {
                    let away = matches!(error, StoreError::Unavailable(_));
                    let name = &due.trigger.name;
                    if !away {
                        warn!(trigger = name, %error, "trigger {name} cannot be fired: {error}");
                    }
                    failed.get_or_insert(error);
                    if away {
                        break;
                    }
                }
            }
        }
        if fires.iter().any(|fire| fire.state == FireState::Fired) {
            self.delivery.announce();
        }
        let more = judged.max(fires.len() as u64) >= u64::from(BATCH);
        failed.map_or(Ok(Fired { fires, more }), Err)
    }

    async fn fire(&self, due: &DueFire) -> StoreResult<Option<TriggerFire>> {
        let known = self.store.jobs_get(&due.fire.parents).await?;
        let fire = self.store.trigger_fire(due.fire.id, self.plan(due, &known)).await?;
        if let Some(fire) = &fire {
            record(&due.trigger.name, fire);
        }
        Ok(fire)
    }

    fn plan(&self, due: &DueFire, known: &[Job]) -> FirePlan {
        let parents = due.fire.parents.iter().map(|id| known.iter().find(|job| job.job_id == *id));
        let Some(parents) = parents.collect::<Option<Vec<&Job>>>() else {
            return FirePlan::Refused("a job that it waited for has been deleted".to_owned());
        };
        // An identity of its own goes before one that its parents share.
        let own = Some(&due.trigger.owner).filter(|owner| *owner != ANONYMOUS);
        let shared = parents.first().map(|first| &first.owner);
        let shared = shared.filter(|owner| parents.iter().all(|job| job.owner == **owner));
        let Some(owner) = own.or(shared) else {
            return FirePlan::Refused(
                "its parents have different owners, and it has none of its own".to_owned(),
            );
        };
        // What was kept of them last is nearest to what they may see now.
        let newest = parents.iter().max_by_key(|job| (job.created_at, &job.job_id));
        let identity = newest.and_then(|job| job.identity.as_ref()).filter(|_| own.is_none());
        let parents: Vec<Parent<'_>> =
            parents.iter().map(|job| Parent { job_id: &job.job_id, labels: &job.labels }).collect();
        let planned = words::render(&due.trigger.spec.job, &parents).and_then(|body| match identity {
            Some(identity) => self.planner.plan_as(&body, identity),
            None => self.planner.plan(&body, owner),
        });
        let produces = &due.trigger.spec.produces;
        match planned {
            // What it runs was judged for cycles; a default dataset may have become another since.
            Ok(job) if term(&job.job_type, job.dataset.as_deref()) != *produces => {
                FirePlan::Refused(format!("its job is no longer a {produces}: store the trigger again"))
            }
            Ok(mut job) => {
                job.made_by = Some(format!("trigger {}", due.trigger.name));
                FirePlan::Run(Box::new(job))
            }
            Err(problems) => FirePlan::Refused(refusal(&problems)),
        }
    }
}

/// Counts a firing and tells of it, without its detail: what a planner says may quote the job.
fn record(name: &str, fire: &TriggerFire) {
    metrics::counter!("outhaul_trigger_fires_total", "state" => fire.state.as_str()).increment(1);
    let job_id = fire.job_id.as_ref().map(tracing::field::display);
    match fire.state {
        FireState::Fired | FireState::Due => {
            info!(event = "trigger.fired", trigger = name, job_id, "trigger {name} fired");
        }
        FireState::Refused => {
            warn!(
                event = "trigger.refused",
                trigger = name,
                "trigger {name} could not make its job; its last firings say why"
            );
        }
    }
}

#[async_trait]
impl Duty for Triggers {
    const NAME: &'static str = "the triggers";

    fn interval(&self) -> Duration {
        BACKSTOP
    }

    async fn run_once(&self) -> StoreResult<Next> {
        Ok(if self.round().await?.more { Next::AtOnce } else { Next::Later })
    }
}

#[cfg(test)]
mod tests;
