//! Schedules and triggers of the configuration: judged against datasets and job types before anything is
//! claimed, and made the stored ones by processes with the scheduler role.

use outhaul::PlanProblem;
use outhaul_core::clock;
use outhaul_core::schedule::{NewSchedule, Origin};
use outhaul_core::store::Store;
use outhaul_core::trigger::{NewTrigger, cycle};

use super::StartError;
use crate::config::definitions::place;
use crate::config::{Config, Problems};
use crate::definition::{Judge, next_slot, read_schedule, read_trigger};
use crate::planning::RequestPlanner;

/// What is to be stored.
#[derive(Debug)]
pub(crate) struct Configured {
    schedules: Vec<NewSchedule>,
    triggers: Vec<NewTrigger>,
}

/// Judges all of it, and says everything that is wrong.
pub(crate) fn judge(config: &Config, planner: &RequestPlanner) -> Result<Configured, Problems> {
    let (min_interval, terms) = (config.limits.min_schedule_interval, planner.terms());
    let judge = Judge { planner, min_interval, terms: &terms };
    let (mut problems, now) = (Problems::default(), clock::now());
    let (mut schedules, mut triggers) = (Vec::new(), Vec::new());
    for (name, definition) in &config.schedules {
        match read_schedule(&definition.body(), &judge, &config.auth) {
            Ok((spec, owner)) => {
                let next = next_slot(name, &spec, now);
                schedules.push(NewSchedule { name: name.clone(), spec, origin: Origin::Config, owner, next });
            }
            Err(found) => add(&mut problems, "schedules", name, found),
        }
    }
    for (name, definition) in &config.triggers {
        match read_trigger(&definition.body(), &judge, &config.auth) {
            Ok((spec, owner)) => {
                triggers.push(NewTrigger { name: name.clone(), spec, origin: Origin::Config, owner });
            }
            Err(found) => add(&mut problems, "triggers", name, found),
        }
    }
    if let Some(names) = cycle(triggers.iter().map(|trigger| (trigger.name.as_str(), &trigger.spec))) {
        problems.add("triggers", round(&names));
    }
    if problems.is_empty() { Ok(Configured { schedules, triggers }) } else { Err(problems) }
}

fn add(problems: &mut Problems, section: &str, name: &str, found: Vec<PlanProblem>) {
    for problem in found {
        problems.add(place(section, name, &problem.pointer), problem.message);
    }
}

/// What is wrong with triggers that lead back to themselves, and what to do.
pub(super) fn round(names: &[String]) -> String {
    let way: Vec<&str> = names.iter().chain(names.first()).map(String::as_str).collect();
    format!(
        "would trigger each other without end: {}; take one of them out of the configuration, or delete it \
         if it came through the API",
        way.join(" → ")
    )
}

/// Makes the stored schedules and triggers of the configuration these and no others.
pub(super) async fn keep(configured: &Configured, store: &dyn Store) -> Result<(), StartError> {
    // Triggers first: they may be refused, and then nothing has changed.
    let refused = store.triggers_configured(&configured.triggers).await.map_err(StartError::Database)?;
    if let Some(names) = refused {
        return Err(StartError::TriggerCycle(names));
    }
    store.schedules_configured(&configured.schedules).await.map_err(StartError::Database)?;
    let (schedules, triggers) = (configured.schedules.len(), configured.triggers.len());
    if schedules + triggers > 0 {
        tracing::info!(schedules, triggers, "serve.configured {schedules} schedules and {triggers} triggers");
    }
    Ok(())
}
