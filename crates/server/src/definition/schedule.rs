//! What a schedule says. Its job is tried out for the next slot, so that what could not run is refused
//! when it is written and not when it is due.

use chrono::{DateTime, Utc};
use outhaul::PlanProblem;
use outhaul::schedule::{Times, due, words};
use outhaul_core::json::{Json, Object};
use outhaul_core::schedule::{CatchUp, NextSlot, Overlap, ScheduleSpec};
use outhaul_core::{clock, duration};
use serde_json::{Map, Value};

use super::members::{Members, span, text};
use super::run_as::Need;
use super::{Judge, check_json, run_as};
use crate::api::json::check_text;
use crate::auth::AuthSettings;

/// What a definition may say.
pub(crate) const MEMBERS: [&str; 7] =
    ["cron", "timezone", "job", "overlap", "catchUp", "catchUpLimit", "jitter"];
/// How the configuration spells some of them, which is taken everywhere.
const SPELLED: [(&str, &str); 2] = [("catch_up", "catchUp"), ("catch_up_limit", "catchUpLimit")];
/// What only answers have.
const SHOWN: [&str; 7] = ["name", "origin", "paused", "nextTimes", "slots", "createdAt", "updatedAt"];

const DEFAULT_TIMEZONE: &str = "UTC";
const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;
/// The most chunks that may be caught up with at once: they are planned in memory and stored together.
const MAX_CAUGHT_UP: usize = 100_000;
/// The longest cron expression, in characters.
const MAX_CRON: usize = 255;
/// Stands in for times that are wrong, so that the job is judged all the same.
const ANY_CRON: &str = "0 0 * * *";

/// Reads what a schedule says and whose its jobs are, or everything that is wrong with it.
pub fn read_schedule(
    definition: &Object,
    judge: &Judge<'_>,
    auth: &AuthSettings,
) -> Result<(ScheduleSpec, String), Vec<PlanProblem>> {
    run_as::with_owner(definition, auth, Need::Yes, |rest, owner| read(rest, judge, owner))
}

fn read(definition: &Object, judge: &Judge<'_>, owner: &str) -> Result<ScheduleSpec, Vec<PlanProblem>> {
    let (members, twice) = in_one_spelling(&definition.members);
    let mut members = Members::new(&members, &MEMBERS, &SHOWN);
    for (spelled, name) in twice {
        members.wrong(&format!("/{spelled}"), format!("is there twice: it is another spelling of `{name}`"));
    }
    let cron = members.need("cron", |value| line(value, MAX_CRON));
    let timezone = members.read("timezone", text);
    let overlap = members.read("overlap", |value| {
        Overlap::parse(text(value)?).ok_or_else(|| "must be `skip`, `queue` or `allow`".to_owned())
    });
    let catch_up = members.read("catchUp", |value| {
        CatchUp::parse(text(value)?).ok_or_else(|| "must be `none`, `last` or `all`".to_owned())
    });
    let catch_up_limit = members.read("catchUpLimit", limit);
    let jitter = members.read("jitter", span).unwrap_or_default();
    let job = members.job(definition);

    let timezone = timezone.unwrap_or(DEFAULT_TIMEZONE);
    let times = match Times::parse(cron.unwrap_or(ANY_CRON), timezone) {
        Ok(times) => Some(times),
        Err(wrong) => {
            for (place, problem) in [("/cron", wrong.cron), ("/timezone", wrong.timezone)] {
                if let Some(problem) = problem {
                    members.wrong(place, problem);
                }
            }
            None
        }
    };
    if let Some(times) = times.as_ref().filter(|_| cron.is_some()) {
        let distance = times.shortest_distance();
        if distance < judge.min_interval {
            let message = format!(
                "comes every {}, and may come at most every {} (`limits.min_schedule_interval`)",
                duration::short(distance),
                duration::short(judge.min_interval)
            );
            members.wrong("/cron", message);
        }
        if jitter >= distance {
            let message = format!(
                "must be shorter than the shortest time between two slots, {}",
                duration::short(distance)
            );
            members.wrong("/jitter", message);
        }
    }
    let catch_up = catch_up.unwrap_or_default();
    let catch_up_limit = catch_up_limit.unwrap_or(DEFAULT_LIMIT);
    let overlap = overlap.unwrap_or_default();
    if let Some(job) = job {
        match try_out(job, times, judge, owner) {
            Ok(chunks) if catch_up == CatchUp::All && catch_up_limit as usize * chunks > MAX_CAUGHT_UP => {
                let message = format!(
                    "so many jobs of {chunks} chunks would be more than {MAX_CAUGHT_UP} chunks at once: at most {}",
                    (MAX_CAUGHT_UP / chunks).max(1)
                );
                members.wrong("/catchUpLimit", message);
            }
            Ok(_) => {}
            Err(wrong) => members.wrong_below("/job", wrong),
        }
        if overlap != Overlap::Allow
            && job.object(&["payload", "items"]).is_some_and(|job| job.has("dependsOn"))
        {
            let message = "cannot stand beside `overlap` other than `allow`: the job already waits for that of the slot before";
            members.wrong("/job/dependsOn", message);
        }
    }
    let spec = cron.zip(job).map(|(cron, job)| ScheduleSpec {
        cron: cron.to_owned(),
        timezone: timezone.to_owned(),
        job: job.clone(),
        overlap,
        catch_up,
        catch_up_limit,
        jitter,
    });
    members.finish(spec)
}

/// What a schedule waits for after a moment.
pub(crate) fn next_slot(name: &str, spec: &ScheduleSpec, now: DateTime<Utc>) -> Option<NextSlot> {
    let times = Times::parse(&spec.cron, &spec.timezone).ok()?;
    due::next_slot(&times, name, spec.jitter, now)
}

/// The members by their names in the API, and those that are there in both spellings.
fn in_one_spelling(members: &Map<String, Value>) -> (Map<String, Value>, Vec<(&'static str, &'static str)>) {
    let (mut named, mut twice) = (members.clone(), Vec::new());
    for (spelled, name) in SPELLED {
        if let Some(value) = named.remove(spelled) {
            match named.contains_key(name) {
                true => twice.push((spelled, name)),
                false => drop(named.insert(name.to_owned(), value)),
            }
        }
    }
    (named, twice)
}

fn line(value: &Value, max_chars: usize) -> Result<&str, String> {
    let line = text(value)?;
    check_text(line, max_chars).map(|()| line)
}

fn limit(value: &Value) -> Result<u32, String> {
    // JSON does not tell 5 from 5.0.
    let whole = value.as_f64().filter(|n| n.fract() == 0.0 && (1.0..=f64::from(MAX_LIMIT)).contains(n));
    whole.map(|n| n as u32).ok_or_else(|| format!("must be a whole number from 1 to {MAX_LIMIT}"))
}

/// How many chunks the job of the next slot would have, or what is wrong with it.
fn try_out(
    job: &Json,
    times: Option<Times>,
    judge: &Judge<'_>,
    owner: &str,
) -> Result<usize, Vec<PlanProblem>> {
    let Some(times) = times.or_else(|| Times::parse(ANY_CRON, DEFAULT_TIMEZONE).ok()) else {
        return Err(Vec::new());
    };
    let now = clock::now();
    let slot = times.next_after(now).unwrap_or(now);
    let planned = check_json(job)
        .and_then(|()| words::render(job, slot, times.zone()))
        .and_then(|job| judge.planner.try_out(&job, owner));
    planned.map(|job| job.chunks.len())
}
