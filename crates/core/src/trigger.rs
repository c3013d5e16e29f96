//! A trigger: a rule that submits a job when others have completed. What it waits for are *terms*:
//! `dataset:<name>` for exports, `job:<TYPE>` for custom jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::job::{EXPORT, NewJob};
use crate::json::Json;
use crate::schedule::{Origin, Put};

/// Internal key of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TriggerId(pub i64);

/// The term that a job answers to. An export answers to its dataset, whatever the key and date.
pub fn term(job_type: &str, dataset: Option<&str>) -> String {
    match dataset {
        Some(dataset) if job_type == EXPORT => format!("dataset:{dataset}"),
        _ => format!("job:{job_type}"),
    }
}

/// What a trigger says. `Debug` shows no payload.
#[derive(Clone, PartialEq)]
pub struct TriggerSpec {
    /// The terms, each once; a job of every one must have completed.
    pub after: Vec<String>,
    /// The label whose value must be the same on all of them; `None`: one term, any job.
    pub match_label: Option<String>,
    /// How far apart they may have completed; `None`: any time.
    pub within: Option<Duration>,
    /// A `POST /jobs` body in which words may stand.
    pub job: Json,
    /// The term that its own job answers to.
    pub produces: String,
}

impl fmt::Debug for TriggerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TriggerSpec")
            .field("after", &self.after)
            .field("match_label", &self.match_label)
            .field("within", &self.within)
            .field("produces", &self.produces)
            .finish_non_exhaustive()
    }
}

/// A trigger to be stored under its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTrigger {
    /// Its name.
    pub name: String,
    /// What it says.
    pub spec: TriggerSpec,
    /// Where it comes from.
    pub origin: Origin,
    /// Whose jobs it submits, where its parents do not share an owner.
    pub owner: String,
}

/// A trigger as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    /// Internal key.
    pub id: TriggerId,
    /// Its name.
    pub name: String,
    /// What it says.
    pub spec: TriggerSpec,
    /// Where it comes from.
    pub origin: Origin,
    /// Whose jobs it submits, where its parents do not share an owner.
    pub owner: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When what it says last changed.
    pub updated_at: DateTime<Utc>,
}

/// How storing a trigger ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriggerPut {
    /// As for schedules.
    Put(Put),
    /// It would, in the end, trigger itself; these are the names on the way round. Nothing was stored.
    Cycle(Vec<String>),
}

/// A value for which some of a trigger's terms have completed, and some not.
#[derive(Clone, Debug, PartialEq)]
pub struct TriggerWait {
    /// The value of the label.
    pub value: String,
    /// The newest job of each term that has completed: term, job, when.
    pub arrived: Vec<(String, JobId, DateTime<Utc>)>,
    /// The terms that are waited for.
    pub missing: Vec<String>,
}

/// Where a firing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FireState {
    /// All parents have completed; the job is about to be submitted.
    Due,
    /// The job was submitted.
    Fired,
    /// No job could be made.
    Refused,
}

impl FireState {
    /// The word in SQL and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Fired => "fired",
            Self::Refused => "refused",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Due, Self::Fired, Self::Refused].into_iter().find(|word| word.as_str() == text)
    }
}

/// One firing: unique by trigger, value and parents.
#[derive(Clone, Debug, PartialEq)]
pub struct TriggerFire {
    /// Internal key.
    pub id: i64,
    /// The value of the label; empty where the trigger matches none.
    pub value: String,
    /// The jobs that completed, in the order of the terms.
    pub parents: Vec<JobId>,
    /// Where it stands.
    pub state: FireState,
    /// The job that was submitted.
    pub job_id: Option<JobId>,
    /// Why none could be made, in a sentence.
    pub detail: Option<String>,
    /// When that was recorded, by the database's clock.
    pub at: DateTime<Utc>,
}

/// A firing whose job is to be made.
#[derive(Clone, Debug)]
pub struct DueFire {
    /// The trigger.
    pub trigger: Trigger,
    /// The firing.
    pub fire: TriggerFire,
}

/// What is to become of a firing.
#[derive(Clone, Debug)]
pub enum FirePlan {
    /// Submit this.
    Run(Box<NewJob>),
    /// Record why no job could be made.
    Refused(String),
}

/// The names of triggers that would trigger themselves, in the order in which they fire; `None`: none would.
pub fn cycle<'a>(triggers: impl IntoIterator<Item = (&'a str, &'a TriggerSpec)>) -> Option<Vec<String>> {
    let triggers: BTreeMap<&str, &TriggerSpec> = triggers.into_iter().collect();
    let mut harmless = BTreeSet::new();
    triggers.keys().find_map(|name| walk(&triggers, name, &mut Vec::new(), &mut harmless))
}

/// Follows what a trigger produces; `path` is how we got here, `harmless` is known to lead nowhere.
fn walk<'a>(
    triggers: &BTreeMap<&'a str, &'a TriggerSpec>,
    name: &'a str,
    path: &mut Vec<&'a str>,
    harmless: &mut BTreeSet<&'a str>,
) -> Option<Vec<String>> {
    if harmless.contains(name) {
        return None;
    }
    if let Some(start) = path.iter().position(|seen| *seen == name) {
        return Some(path[start..].iter().map(|name| (*name).to_owned()).collect());
    }
    path.push(name);
    let produced = triggers.get(name).map(|spec| &spec.produces);
    let next = triggers.iter().filter(|(_, spec)| produced.is_some_and(|term| spec.after.contains(term)));
    for (next, _) in next {
        if let Some(found) = walk(triggers, next, path, harmless) {
            return Some(found);
        }
    }
    path.pop();
    harmless.insert(name);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(after: &[&str], produces: &str) -> TriggerSpec {
        TriggerSpec {
            after: after.iter().map(|term| (*term).to_owned()).collect(),
            match_label: None,
            within: None,
            job: Json::null(),
            produces: produces.to_owned(),
        }
    }

    fn found(rules: &[(&str, &[&str], &str)]) -> Option<Vec<String>> {
        let specs: Vec<_> = rules.iter().map(|(name, after, to)| (*name, spec(after, to))).collect();
        cycle(specs.iter().map(|(name, spec)| (*name, spec)))
    }

    #[test]
    fn a_diamond_is_no_cycle_and_a_way_back_is() {
        let diamond: [(&str, &[&str], &str); 3] =
            [("left", &["a"], "b"), ("right", &["a"], "c"), ("bottom", &["b", "c"], "d")];
        assert_eq!(found(&diamond), None);
        let mut closed = diamond.to_vec();
        closed.push(("back", &["x", "d"], "a"));
        let round = found(&closed).unwrap();
        assert!(round.contains(&"back".to_owned()) && round.contains(&"bottom".to_owned()), "{round:?}");
        assert_eq!(found(&[("self", &["a"], "a")]), Some(vec!["self".to_owned()]));
    }

    #[test]
    fn only_those_on_the_way_round_are_named() {
        let rules: [(&str, &[&str], &str); 3] =
            [("in", &["x"], "a"), ("one", &["a"], "b"), ("two", &["b"], "a")];
        assert_eq!(found(&rules), Some(vec!["one".to_owned(), "two".to_owned()]));
    }

    #[test]
    fn long_chains_and_wide_ladders_are_judged_at_once() {
        // Two rules from every level to the next: 2^40 ways, were they walked one by one.
        let mut specs = Vec::new();
        for i in 0..40 {
            for side in ["l", "r"] {
                specs.push((format!("t{i}{side}"), spec(&[&format!("v{i}")], &format!("v{}", i + 1))));
            }
        }
        assert_eq!(cycle(specs.iter().map(|(name, spec)| (name.as_str(), spec))), None);
    }

    #[test]
    fn exports_answer_to_their_dataset_and_others_to_their_type() {
        assert_eq!(term(EXPORT, Some("positions")), "dataset:positions");
        assert_eq!(term("PAYROLL", None), "job:PAYROLL");
    }
}
