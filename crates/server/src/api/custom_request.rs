//! The `jobType` shape of a submission: a registered job type and the payload that its handler gets.
//! The payload is kept as it is: only its handler knows what must be in it.

use outhaul::{Registry, Submission, SubmitOptions};
use outhaul_core::clock;
use outhaul_core::job::{EXPORT, NewJob};
use outhaul_core::json::{Json, Object};
use serde_json::Value;

use super::json::kind;
use super::options::Options;
use super::problem::FieldError;
use super::submit_view::PlanView;

/// The members of a submission that are read here.
pub(super) const MEMBERS: [&str; 2] = ["jobType", "payload"];
/// The most names that a refusal lists.
const MAX_NAMES: usize = 50;

/// A custom job that may be stored. No `Debug`: payloads are never shown.
pub(super) struct CustomJob {
    job_type: String,
    payload: Json,
    unique_key: Option<String>,
}

/// Reads the custom job that a body asks for; what is wrong is added to `errors`.
pub(super) fn read(registry: &Registry, body: &Object, errors: &mut Vec<FieldError>) -> Option<CustomJob> {
    let refused = match body.members.get("jobType")? {
        Value::String(name) if name == EXPORT => "exports are submitted with `items`".to_owned(),
        Value::String(name) => match registry.get(name) {
            Some(handler) => {
                let job_type = name.clone();
                let payload = body.text("payload").cloned().unwrap_or_else(Json::null);
                let unique_key = handler.unique_key(&payload);
                return Some(CustomJob { job_type, payload, unique_key });
            }
            None => format!("is not a known job type; known: {}", known(registry)),
        },
        other => format!("must be text, not {}", kind(other)),
    };
    errors.push(FieldError::new("/jobType", refused));
    None
}

/// The job types that may be asked for, for people.
fn known(registry: &Registry) -> String {
    let mut names: Vec<String> = registry.job_types().take(MAX_NAMES + 1).map(str::to_owned).collect();
    if names.len() > MAX_NAMES {
        names[MAX_NAMES] = "…".to_owned();
    }
    names.push(format!("{EXPORT}, which is submitted with `items`"));
    names.join(", ")
}

impl CustomJob {
    /// Answers `dryRun`: there are no files to look for.
    pub(super) fn foresee(&self) -> PlanView {
        let verdict = format!("1 {} job would be stored; it makes no files", self.job_type);
        PlanView { total: 1, reuse: 0, generate: 0, verdict }
    }

    /// The job to store.
    pub(super) fn into_new_job(self, options: Options, traceparent: Option<String>, owner: &str) -> NewJob {
        let Self { job_type, payload, unique_key } = self;
        let options = SubmitOptions {
            idempotency_key: options.idempotency_key,
            priority: options.priority,
            run_at: options.run_at,
            depends_on: options.depends_on,
            on_parent_failure: options.on_parent_failure,
            labels: options.labels,
            on_failure: options.on_failure,
            owner: owner.to_owned(),
            traceparent,
        };
        let submission = Submission { job_type, payload, options, unique_key };
        submission.into_new_job(clock::now(), rand::random())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::registry;
    use super::super::traceparent;
    use super::*;
    use axum::http::HeaderMap;
    use outhaul::Envelope;
    use serde_json::json;

    fn object(body: Value) -> Object {
        Json::from(body).object(&["payload"]).unwrap()
    }

    fn judged(body: Value) -> (Option<Value>, Vec<(String, String)>) {
        let mut errors = Vec::new();
        let job = read(&registry(), &object(body), &mut errors);
        let errors = errors.into_iter().map(|error| (error.pointer, error.message)).collect();
        (job.map(|job| job.payload.read().unwrap()), errors)
    }

    #[test]
    fn a_known_type_takes_any_payload() {
        for payload in [json!({"to": "x"}), json!([1]), json!("x"), json!(5), json!(false), json!(null)] {
            let body = json!({"jobType": "SEND_EMAIL", "payload": payload});
            assert_eq!(judged(body), (Some(payload), vec![]));
        }
        assert_eq!(judged(json!({"jobType": "SEND_EMAIL"})), (Some(Value::Null), vec![]));
    }

    #[test]
    fn an_unknown_type_is_told_the_known_ones_and_nothing_of_the_payload() {
        let (job, errors) = judged(json!({"jobType": "send_email", "payload": "hunter2"}));
        assert!(job.is_none());
        let known =
            "is not a known job type; known: ONCE, SEND_EMAIL, EXPORT, which is submitted with `items`";
        assert_eq!(errors, [("/jobType".to_owned(), known.to_owned())]);
        assert_eq!(judged(json!({"jobType": 5})).1[0].1, "must be text, not a number");
        assert!(judged(json!({"jobType": "EXPORT"})).1[0].1.contains("`items`"));
    }

    #[test]
    fn a_dry_run_promises_no_files() {
        let body = object(json!({"jobType": "SEND_EMAIL", "payload": {"secret": "hunter2"}}));
        let job = read(&registry(), &body, &mut Vec::new()).unwrap();
        let plan = job.foresee();
        assert_eq!((plan.total, plan.reuse, plan.generate), (1, 0, 0));
        assert!(plan.verdict.contains("SEND_EMAIL") && !plan.verdict.contains("hunter2"));
    }

    #[test]
    fn what_the_type_says_is_unique_goes_with_the_job() {
        for (job_type, unique) in [("SEND_EMAIL", None), ("ONCE", Some("{\"n\":1}"))] {
            let body = object(json!({"jobType": job_type, "payload": {"n": 1}, "priority": 9}));
            let options = Options::read(&body.members, &HeaderMap::new(), false, &mut Vec::new());
            let job = read(&registry(), &body, &mut Vec::new()).unwrap();
            let job = job.into_new_job(options, None, "ann");
            assert_eq!((job.unique_key.as_deref(), job.priority, job.owner.as_str()), (unique, 9, "ann"));
        }
    }

    #[test]
    fn the_trace_goes_with_the_job_and_nonsense_does_not() {
        const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for (sent, kept) in [(TRACE, Some(TRACE)), ("nonsense", None)] {
            let headers = [("traceparent".parse().unwrap(), sent.parse().unwrap())].into_iter().collect();
            let body = object(json!({"jobType": "SEND_EMAIL"}));
            let options = Options::read(&body.members, &headers, false, &mut Vec::new());
            let job = read(&registry(), &body, &mut Vec::new()).unwrap();
            let job = job.into_new_job(options, traceparent::read(&headers), "ann");
            assert_eq!(Envelope::from_params(&job.params).ok().unwrap().traceparent.as_deref(), kept);
        }
    }
}
