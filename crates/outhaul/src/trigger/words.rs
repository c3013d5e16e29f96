//! The words in a trigger's job: `{{label.NAME}}` of its parents and `{{parents.N.jobId}}`.

use std::collections::BTreeMap;

use chrono::DateTime;
use outhaul_core::id::JobId;
use outhaul_core::json::Json;

use serde_json::Value;

use crate::planner::PlanProblem;
use crate::template;

/// What labels are taken to be when a template is judged before there are parents.
pub const SAMPLES: [&str; 3] = ["20250215", "2025-02-15", "sample"];
/// Members of a body that say what kind of job it is, which must be known beforehand.
const FIXED: [&str; 2] = ["jobType", "dataset"];

/// A job that completed, as far as words can speak of it.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    /// Its id.
    pub job_id: &'a JobId,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

/// The job of a firing, with its parents in the order of `after`; or everything that is wrong with its
/// words, with pointers into `job`.
pub fn render(job: &Json, parents: &[Parent<'_>]) -> Result<Json, Vec<PlanProblem>> {
    let ids: Vec<&JobId> = parents.iter().map(|parent| parent.job_id).collect();
    let label = |name: &str| {
        let found = parents.iter().find_map(|parent| parent.labels.get(name)).cloned();
        found.ok_or_else(|| "is a label that none of the parents has".to_owned())
    };
    rendered(job, &ids, &label)
}

/// The job as it would be for parents of which every label has the same sample value, one for each of
/// [`SAMPLES`]; or everything that is wrong with its words.
pub fn samples(job: &Json, parents: usize) -> Result<Vec<Json>, Vec<PlanProblem>> {
    let ids: Vec<JobId> = (0..parents as u64).map(|i| JobId::new(DateTime::UNIX_EPOCH, i)).collect();
    let ids: Vec<&JobId> = ids.iter().collect();
    SAMPLES.iter().map(|sample| rendered(job, &ids, &|_| Ok((*sample).to_owned()))).collect()
}

fn rendered(
    job: &Json,
    parents: &[&JobId],
    label: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Json, Vec<PlanProblem>> {
    let body = job.object(&["payload", "items"]).unwrap_or_default();
    let is_template =
        |name: &&&str| body.members.get(**name).and_then(Value::as_str).is_some_and(template::has_word);
    let fixed = FIXED.iter().filter(is_template);
    let fixed: Vec<PlanProblem> = fixed
        .map(|name| PlanProblem {
            pointer: format!("/{name}"),
            message: "must not have words in it: what a trigger runs is known beforehand".to_owned(),
        })
        .collect();
    match template::render(job, &mut |word| meaning(word, parents, label)) {
        Ok(rendered) if fixed.is_empty() => Ok(rendered),
        Ok(_) => Err(fixed),
        Err(problems) => {
            let elsewhere = problems
                .into_iter()
                .filter(|problem| fixed.iter().all(|known| known.pointer != problem.pointer));
            Err(elsewhere.chain(fixed.iter().cloned()).collect())
        }
    }
}

fn meaning(
    word: &str,
    parents: &[&JobId],
    label: &dyn Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    if let Some(name) = word.strip_prefix("label.").filter(|name| !name.is_empty()) {
        return label(name);
    }
    let number = word.strip_prefix("parents.").and_then(|rest| rest.strip_suffix(".jobId"));
    let Some(number) = number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit())) else {
        return Err("is unknown here: write `{{label.NAME}}` or `{{parents.0.jobId}}`".to_owned());
    };
    let parent = number.parse().ok().and_then(|number: usize| parents.get(number));
    parent.map(|id| id.to_string()).ok_or_else(|| match parents.len() {
        1 => "is unknown: there is one parent, number 0".to_owned(),
        count => format!("is unknown: the parents are numbered 0 to {}", count.saturating_sub(1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_come_from_the_first_parent_that_has_them() {
        let (one, two) = (labels(&[("date", "20250215")]), labels(&[("date", "never"), ("run id", "7")]));
        let ids = [JobId::new(DateTime::UNIX_EPOCH, 1), JobId::new(DateTime::UNIX_EPOCH, 2)];
        let parents = [Parent { job_id: &ids[0], labels: &one }, Parent { job_id: &ids[1], labels: &two }];
        let job = json!({"jobType": "PAYROLL", "payload": {
            "text": "{{label.date}}/{{label.run id}}",
            "from": ["{{parents.0.jobId}}", "{{ parents.1.jobId }}"]}});
        let rendered: Value = render(&job.into(), &parents).unwrap().read().unwrap();
        assert_eq!(rendered["payload"]["text"], "20250215/7");
        assert_eq!(rendered["payload"]["from"], json!(ids));
    }

    #[test]
    fn what_is_not_there_is_told_with_its_place() {
        let (none, id) = (labels(&[]), JobId::new(DateTime::UNIX_EPOCH, 1));
        let job = json!({"payload": ["{{label.date}}", "{{parents.1.jobId}}", "{{slot}}", "{{label.}}",
            "{{parents.x.jobId}}", "{{parents.99999999999999999999.jobId}}", 
            "{{parents.-1.jobId}}", "{{parents..jobId}}"]});
        let problems = render(&job.into(), &[Parent { job_id: &id, labels: &none }]).unwrap_err();
        let says = [
            "`{{label.date}}` is a label that none of the parents has",
            "`{{parents.1.jobId}}` is unknown: there is one parent, number 0",
            "`{{slot}}` is unknown here: write `{{label.NAME}}`",
            "`{{label.}}` is unknown here",
            "`{{parents.x.jobId}}` is unknown here",
            "is unknown: there is one parent",
            "is unknown here",
            "is unknown",
        ];
        assert_eq!(problems.len(), says.len());
        for (i, (problem, says)) in problems.iter().zip(says).enumerate() {
            assert_eq!(problem.pointer, format!("/payload/{i}"));
            assert!(problem.message.contains(says), "{}", problem.message);
        }
    }

    #[test]
    fn what_a_trigger_runs_has_no_words() {
        let job = json!({"jobType": "{{label.type}}", "dataset": "{{", "payload": "{{x}}"});
        let problems = samples(&job.into(), 1).unwrap_err();
        let mut pointers: Vec<_> = problems.iter().map(|problem| problem.pointer.as_str()).collect();
        pointers.sort_unstable();
        assert_eq!(pointers, ["/dataset", "/jobType", "/payload"], "each once");
        assert!(problems.iter().any(|problem| problem.message.contains("must not have words")));
        assert!(samples(&json!({"jobType": "{{label.type}}"}).into(), 1).is_err());
        assert!(samples(&json!({"payload": {"dataset": "{{label.type}}"}}).into(), 1).is_ok());
    }

    #[test]
    fn samples_are_well_formed() {
        let job = Json::from(json!({"a": "{{label.x}}", "b": "{{parents.1.jobId}}"}));
        let samples = samples(&job, 2).unwrap();
        assert_eq!(samples.len(), SAMPLES.len());
        for (sample, value) in samples.iter().zip(SAMPLES) {
            let sample: Value = sample.read().unwrap();
            assert_eq!(sample["a"], value);
            assert!(JobId::parse(sample["b"].as_str().unwrap()).is_some());
        }
        assert!(super::samples(&job, 1).is_err(), "there is no second parent");
    }
}
