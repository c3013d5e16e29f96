//! What schedules and triggers say, read from JSON: the API's bodies and the configuration's sections are
//! judged by the same code, and every problem is told at once with its place.

mod members;
mod run_as;
mod schedule;
#[cfg(test)]
mod tests;
mod trigger;

use std::collections::BTreeSet;
use std::time::Duration;

use outhaul::{PlanProblem, Planner};
use outhaul_core::json::{self, Json};

pub use schedule::read_schedule;
pub use trigger::read_trigger;

pub(crate) use schedule::next_slot;
#[cfg(test)]
pub(crate) use {schedule::MEMBERS as SCHEDULE_MEMBERS, trigger::MEMBERS as TRIGGER_MEMBERS};

/// The longest name of a schedule or a trigger.
const MAX_NAME: usize = 64;

/// What definitions are judged by.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// Makes jobs of their templates.
    pub planner: &'a dyn Planner,
    /// How close together the times of a schedule may be.
    pub min_interval: Duration,
    /// The terms that jobs may answer to here.
    pub terms: &'a BTreeSet<String>,
}

/// Why a text is no name for a schedule or a trigger.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_sound = (1..=MAX_NAME).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    is_sound.then_some(()).ok_or_else(|| {
        format!(
            "a name has 1 to {MAX_NAME} letters, digits, `-`, `_` and `.`, and begins with a letter or a digit"
        )
    })
}

/// Why a job's template cannot be kept: what is stored must be read back as it was.
fn check_json(job: &Json) -> Result<(), Vec<PlanProblem>> {
    match json::problem(job.as_str()) {
        None => Ok(()),
        Some(message) => Err(vec![PlanProblem { pointer: String::new(), message }]),
    }
}
