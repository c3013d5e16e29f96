//! What a trigger says. Its job is tried out with samples of what the parents will bring; what the job
//! answers to must not depend on them, for cycles are judged by it.

use std::time::Duration;

use outhaul::PlanProblem;
use outhaul::trigger::words;
use outhaul_core::duration;
use outhaul_core::job::{EXPORT, NewJob};
use outhaul_core::json::{Json, Object};
use outhaul_core::trigger::{TriggerSpec, term};
use serde_json::{Map, Value};

use super::members::{Members, span, text};
use super::run_as::Need;
use super::{Judge, check_json, run_as};
use crate::api::json::{check_text, kind};
use crate::auth::AuthSettings;

/// What a definition may say.
pub(crate) const MEMBERS: [&str; 4] = ["after", "match", "within", "job"];
/// What only answers have.
const SHOWN: [&str; 6] = ["name", "origin", "createdAt", "updatedAt", "waiting", "fired"];

/// The most terms.
const MAX_TERMS: usize = 10;
/// The longest name of a label, in characters.
const MAX_LABEL: usize = 64;
/// The longest `within`: longer than anything is kept.
const MAX_WITHIN: Duration = Duration::from_secs(3650 * 86_400);
/// The most terms that a refusal lists.
const MAX_KNOWN: usize = 50;

/// Reads what a trigger says and whose its jobs are, or everything that is wrong with it.
pub fn read_trigger(
    definition: &Object,
    judge: &Judge<'_>,
    auth: &AuthSettings,
) -> Result<(TriggerSpec, String), Vec<PlanProblem>> {
    run_as::with_owner(definition, auth, Need::No, |rest, owner| read(rest, judge, owner))
}

fn read(definition: &Object, judge: &Judge<'_>, owner: &str) -> Result<TriggerSpec, Vec<PlanProblem>> {
    // An answer shows null where there is none, and may be sent back.
    let given: Map<String, Value> = definition
        .members
        .iter()
        .filter(|(name, value)| !(value.is_null() && ["match", "within"].contains(&name.as_str())))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut members = Members::new(&given, &MEMBERS, &SHOWN);
    let after = members.need("after", list).map(|terms| read_terms(terms, judge, &mut members));
    let match_label = members.read("match", |value| label(text(value)?));
    let within = members.read("within", read_within);
    let several = after.as_ref().is_some_and(|terms| terms.len() > 1);
    if several && members.get("match").is_none() {
        let message = "is required where `after` names several: the label whose value they must share";
        members.wrong("/match", message);
    }
    let job = members.job(definition);
    let parents = after.as_ref().map_or(1, Vec::len).max(1);
    let planned = job.and_then(|job| try_out(job, parents, judge, owner, &mut members));
    let spec = match (after, job, planned) {
        (Some(after), Some(job), Some(planned)) => Some(TriggerSpec {
            after,
            match_label,
            within,
            job: job.clone(),
            produces: term(&planned.job_type, planned.dataset.as_deref()),
        }),
        _ => None,
    };
    members.finish(spec)
}

fn list(value: &Value) -> Result<&Vec<Value>, String> {
    let terms = value.as_array().ok_or_else(|| format!("must be a list, not {}", kind(value)))?;
    match terms.len() {
        1..=MAX_TERMS => Ok(terms),
        other => Err(format!("must name 1 to {MAX_TERMS} kinds of jobs, not {other}")),
    }
}

fn read_terms(terms: &[Value], judge: &Judge<'_>, members: &mut Members<'_>) -> Vec<String> {
    let mut read: Vec<String> = Vec::new();
    for (place, value) in terms.iter().enumerate() {
        let term = text(value).and_then(|term| check_term(term, judge)).and_then(|()| {
            let term = text(value)?.to_owned();
            if read.contains(&term) { Err("is there twice".to_owned()) } else { Ok(term) }
        });
        match term {
            Ok(term) => read.push(term),
            Err(message) => members.wrong(&format!("/after/{place}"), message),
        }
    }
    read
}

fn check_term(asked: &str, judge: &Judge<'_>) -> Result<(), String> {
    if judge.terms.contains(asked) {
        return Ok(());
    }
    if asked == term(EXPORT, None) {
        return Err("exports are named by their dataset: `dataset:NAME`".to_owned());
    }
    let mut known: Vec<&str> = judge.terms.iter().take(MAX_KNOWN + 1).map(String::as_str).collect();
    if known.len() > MAX_KNOWN {
        known[MAX_KNOWN] = "…";
    }
    Err(format!("is not a known `dataset:NAME` or `job:TYPE`; known: {}", known.join(", ")))
}

fn label(name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err("must be the name of a label".to_owned());
    }
    check_text(name, MAX_LABEL).map(|()| name.to_owned())
}

fn read_within(value: &Value) -> Result<Duration, String> {
    let within = span(value)?;
    match within {
        Duration::ZERO => Err("must be longer than nothing, such as \"24h\"".to_owned()),
        _ if within > MAX_WITHIN => Err(format!("must be at most {}", duration::short(MAX_WITHIN))),
        _ => Ok(within),
    }
}

/// Makes the job with one sample after the other; the problems are those of the first.
fn try_out(
    job: &Json,
    parents: usize,
    judge: &Judge<'_>,
    owner: &str,
    members: &mut Members<'_>,
) -> Option<NewJob> {
    let mut first = None;
    match check_json(job).and_then(|()| words::samples(job, parents)) {
        Ok(samples) => {
            for sample in samples {
                match judge.planner.try_out(&sample, owner) {
                    Ok(planned) => return Some(planned),
                    Err(problems) => first = first.or(Some(problems)),
                }
            }
        }
        Err(problems) => first = Some(problems),
    }
    members.wrong_below("/job", first.unwrap_or_default());
    None
}
