//! Schedules and triggers of the file, as the bodies that a client would PUT. What they say is judged by
//! the same code as a client's; a problem's place becomes a path of the file here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use outhaul::{PlanProblem, Planner, Submission, SubmitOptions};
use outhaul_core::job::{EXPORT, NewJob};
use outhaul_core::json::{Json, Object};
use outhaul_core::trigger::term;
use outhaul_core::{clock, duration};
use serde_json::{Map, Number, Value};
use toml::Value as Toml;

use super::problem::Problems;
use super::raw;
use super::reader::Reader;
use crate::auth::AuthSettings;
use crate::definition::{Judge, check_name, read_schedule, read_trigger};

/// What `[schedules.NAME]` or `[triggers.NAME]` says. `Debug` shows nothing of the job, which may hold a
/// payload.
#[derive(Clone, PartialEq)]
pub struct Definition(Map<String, Value>);

impl Definition {
    /// The body, by the API's names of its members.
    pub fn body(&self) -> Object {
        Object::new(self.0.clone(), &["job"])
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().filter(|(name, _)| *name != "job")).finish_non_exhaustive()
    }
}

/// The file's words for members of a body that it spells differently.
const SPELLED: [(&str, &str); 3] =
    [("catchUp", "catch_up"), ("catchUpLimit", "catch_up_limit"), ("runAs", "run_as")];

/// Where the file says what `pointer` points at: `/job/items/0/key` of the schedule `nightly` is
/// `schedules.nightly.job.items.0.key`.
pub(crate) fn place(section: &str, name: &str, pointer: &str) -> String {
    let mut path = format!("{section}.{name}");
    for (depth, part) in pointer.split('/').skip(1).enumerate() {
        let part = part.replace("~1", "/").replace("~0", "~");
        let spelled = SPELLED.into_iter().find(|(member, _)| depth == 0 && *member == part);
        path = format!("{path}.{}", spelled.map_or(part.as_str(), |(_, spelled)| spelled));
    }
    path
}

pub(super) fn schedules(
    raw: BTreeMap<String, raw::Schedule>,
    min_interval: Duration,
    auth: &AuthSettings,
    reader: &mut Reader<'_>,
) -> BTreeMap<String, Definition> {
    let mut schedules = BTreeMap::new();
    for (name, raw) in raw {
        let schedule = Body::new("schedules", &name, reader)
            .text("cron", raw.cron)
            .text("timezone", raw.timezone)
            .text("overlap", raw.overlap)
            .text("catchUp", raw.catch_up)
            .text("jitter", raw.jitter.map(|jitter| duration::short(jitter.0)))
            .member("catchUpLimit", raw.catch_up_limit.map(Value::from))
            .text("runAs", raw.run_as)
            .job(raw.job);
        let judge = Judge { planner: &AnyJob, min_interval, terms: &BTreeSet::new() };
        let judged = read_schedule(&schedule.body(), &judge, auth).map(drop);
        report("schedules", &name, judged, reader.problems);
        schedules.insert(name, schedule);
    }
    schedules
}

pub(super) fn triggers(
    raw: BTreeMap<String, raw::Trigger>,
    auth: &AuthSettings,
    reader: &mut Reader<'_>,
) -> BTreeMap<String, Definition> {
    let mut triggers = BTreeMap::new();
    for (name, raw) in raw {
        // The environment has no lists; `dataset:a, job:B` it has.
        let after = raw.after.map(|after| after.split_commas());
        let trigger = Body::new("triggers", &name, reader)
            .member("after", after.clone().map(Value::from))
            .text("match", raw.match_label)
            .text("within", raw.within.map(|within| duration::short(within.0)))
            .text("runAs", raw.run_as)
            .job(raw.job);
        // Which datasets and job types there are is known only later.
        let mut terms: BTreeSet<String> = after.into_iter().flatten().collect();
        terms.remove(&term(EXPORT, None));
        let judge = Judge { planner: &AnyJob, min_interval: Duration::ZERO, terms: &terms };
        let judged = read_trigger(&trigger.body(), &judge, auth).map(drop);
        report("triggers", &name, judged, reader.problems);
        triggers.insert(name, trigger);
    }
    triggers
}

/// Takes any job, while it is not known which there are: a process judges the jobs when it starts.
struct AnyJob;

impl Planner for AnyJob {
    fn plan(&self, _: &Json, _: &str) -> Result<NewJob, Vec<PlanProblem>> {
        let (job_type, options) = ("ANY".to_owned(), SubmitOptions::default());
        let submission = Submission { job_type, payload: Json::null(), options, unique_key: None };
        Ok(submission.into_new_job(clock::now(), 0))
    }
}

/// Notes what is wrong, but nothing about a setting that could not be read at all.
fn report(section: &str, name: &str, judged: Result<(), Vec<PlanProblem>>, problems: &mut Problems) {
    if let Err(problem) = check_name(name) {
        problems.add(place(section, name, ""), problem);
    }
    for problem in judged.err().unwrap_or_default() {
        let path = place(section, name, &problem.pointer);
        if problems.iter().all(|known| known.path != path) {
            problems.add(path, problem.message);
        }
    }
}

/// A body that is being put together; what was not written is not in it.
struct Body<'a, 'r> {
    path: String,
    reader: &'a mut Reader<'r>,
    members: Map<String, Value>,
}

impl<'a, 'r> Body<'a, 'r> {
    fn new(section: &str, name: &str, reader: &'a mut Reader<'r>) -> Self {
        Self { path: format!("{section}.{name}"), reader, members: Map::new() }
    }

    fn member(mut self, name: &str, value: Option<Value>) -> Self {
        self.members.extend(value.map(|value| (name.to_owned(), value)));
        self
    }

    fn text(self, name: &str, text: Option<String>) -> Self {
        self.member(name, text.map(Value::String))
    }

    fn job(mut self, job: Option<Toml>) -> Definition {
        if let Some(job) = job {
            let path = format!("{}.job", self.path);
            let job = json(&path, job, self.reader.problems);
            self.members.insert("job".to_owned(), job);
        }
        Definition(self.members)
    }
}

/// The same value in JSON. Dates become text; a number that JSON does not have is a problem.
pub(crate) fn json(path: &str, value: Toml, problems: &mut Problems) -> Value {
    match value {
        Toml::String(text) => Value::String(text),
        Toml::Integer(number) => number.into(),
        Toml::Boolean(truth) => truth.into(),
        Toml::Datetime(date) => Value::String(date.to_string()),
        Toml::Float(number) => Number::from_f64(number).map_or_else(
            || {
                problems.add(path, "is not a number that JSON has; write it as text");
                Value::Null
            },
            Value::Number,
        ),
        Toml::Array(values) => {
            let values = values.into_iter().enumerate();
            values.map(|(index, value)| json(&format!("{path}.{index}"), value, problems)).collect()
        }
        Toml::Table(members) => {
            let member = |(name, value)| {
                let value = json(&format!("{path}.{name}"), value, problems);
                (name, value)
            };
            Value::Object(members.into_iter().map(member).collect())
        }
    }
}

#[cfg(test)]
mod tests;
