//! The body of a submission, judged whole: the one place where it becomes a job, whether a client sent it
//! or a schedule or a trigger made it. Nothing is stored here.

use axum::http::HeaderMap;
use outhaul::{PlanProblem, Registry};
use outhaul_core::clock;
use outhaul_core::id::JobId;
use outhaul_core::identity::Identity;
use outhaul_core::job::{EXPORT, Idempotency, NewJob};
use outhaul_core::json::{Json, Object};
use outhaul_export::storage::Storage;
use outhaul_export::{ExportPlan, Exports, MissingClaims};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::custom_request::CustomJob;
use super::json as body;
use super::options::{MEMBERS, Options};
use super::problem::{ENOUGH_ERRORS, FieldError, Problem};
use super::submit_view::PlanView;
use super::{AppState, custom_request, etag, export_request};

/// What later versions will read; named so that the refusal can say more than "unknown".
const NOT_YET: [(&str, &str); 2] = [
    ("report", "reports are not available yet"),
    ("params", "belongs to a report, and reports are not available yet"),
];

/// The members of a submission that are kept as text: the others are small.
pub(super) const APART: [&str; 2] = ["items", "payload"];

/// A submission in which nothing is wrong. No `Debug`: payloads are never shown.
pub(super) struct Judged {
    options: Options,
    work: Work,
}

/// Who a job is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    /// Whose it is.
    pub(crate) owner: &'a str,
    /// What was kept of them, where callers can be told apart.
    pub(crate) identity: Option<&'a Identity>,
    /// The most chunks that they may have open.
    pub(crate) quota: Option<u64>,
}

impl<'a> Asker<'a> {
    /// Somebody of whom nothing is known but a name.
    pub(crate) fn unknown(owner: &'a str) -> Self {
        Self { owner, identity: None, quota: None }
    }

    /// The job, as theirs.
    fn own(&self, job: NewJob) -> NewJob {
        NewJob { identity: self.identity.cloned(), quota: self.quota, ..job }
    }
}

/// What is to be done.
enum Work {
    Export(ExportPlan),
    Custom(CustomJob),
}

/// Judges a body and its headers for whoever `identity` says; what is wrong is added to `errors`, and without
/// a problem there is an answer. Claims that are missing are told only where nothing else is wrong.
pub(super) fn judge(
    exports: &Exports,
    registry: &Registry,
    body: &Object,
    headers: &HeaderMap,
    key_required: bool,
    identity: Option<&Identity>,
    errors: &mut Vec<FieldError>,
) -> Result<Option<Judged>, MissingClaims> {
    refuse_unknown(&body.members, errors);
    check_shape(body, errors);
    let options = Options::read(&body.members, headers, key_required, errors);
    let plan = if body.has("items") { export_request::plan(exports, identity, body, errors)? } else { None };
    let custom = custom_request::read(registry, body, errors);
    let work = match (plan, custom) {
        (Some(plan), _) => Work::Export(plan),
        (None, Some(custom)) => Work::Custom(custom),
        (None, None) => return Ok(None),
    };
    Ok(Some(Judged { options, work }))
}

/// The job that a body without headers asks for, or everything that is wrong with it.
pub(crate) fn plan(
    exports: &Exports,
    registry: &Registry,
    storage: &Storage,
    body: &Json,
    asker: &Asker<'_>,
) -> Result<NewJob, Vec<PlanProblem>> {
    let Some(object) = body.object(&APART) else {
        let message = format!("must be an object, not {}", body.kind());
        return Err(vec![PlanProblem { pointer: String::new(), message }]);
    };
    let mut errors = Vec::new();
    // A key may stand in the body; nobody is there who could be asked for one.
    let headers = HeaderMap::new();
    let judged = judge(exports, registry, &object, &headers, false, asker.identity, &mut errors);
    match judged {
        Ok(Some(judged)) if errors.is_empty() => Ok(judged.into_new_job(storage, None, asker)),
        Err(missing) if errors.is_empty() => {
            Err(vec![PlanProblem { pointer: "/dataset".to_owned(), message: missing.to_string() }])
        }
        _ => {
            errors.truncate(ENOUGH_ERRORS);
            let problem = |error: FieldError| PlanProblem { pointer: error.pointer, message: error.message };
            Err(errors.into_iter().map(problem).collect())
        }
    }
}

impl Judged {
    /// The jobs that it waits for.
    pub(super) fn parents(&self) -> &[JobId] {
        &self.options.depends_on
    }

    /// How many chunks it makes.
    pub(super) fn chunks(&self) -> usize {
        match &self.work {
            Work::Export(plan) => plan.chunks.len(),
            Work::Custom(_) => 1,
        }
    }

    /// Answers `dryRun`.
    pub(super) async fn foresee(&self, state: &AppState) -> Result<PlanView, Problem> {
        match &self.work {
            Work::Export(plan) => export_request::foresee(state, plan).await,
            Work::Custom(custom) => Ok(custom.foresee()),
        }
    }

    /// The job to store.
    pub(super) fn into_new_job(
        self,
        storage: &Storage,
        traceparent: Option<String>,
        asker: &Asker<'_>,
    ) -> NewJob {
        asker.own(match self.work {
            Work::Export(plan) => export_job(storage, self.options, plan, asker.owner),
            Work::Custom(custom) => custom.into_new_job(self.options, traceparent, asker.owner),
        })
    }
}

fn refuse_unknown(members: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let known = |name: &str| {
        MEMBERS.contains(&name)
            || export_request::MEMBERS.contains(&name)
            || custom_request::MEMBERS.contains(&name)
            || NOT_YET.iter().any(|(later, _)| *later == name)
    };
    for name in members.keys().filter(|name| !known(name)).take(ENOUGH_ERRORS) {
        errors.push(FieldError::new(body::child("", name), "there is no such field"));
    }
}

/// Exactly one of `items`, `report` and `jobType` says what is asked for, and nothing of another shape
/// stands beside it.
fn check_shape(body: &Object, errors: &mut Vec<FieldError>) {
    let has = |name: &str| body.has(name);
    let shapes: Vec<&str> = ["items", "report", "jobType"].into_iter().filter(|name| has(name)).collect();
    if shapes.len() != 1 {
        let given = if shapes.is_empty() { "none".to_owned() } else { shapes.join(" and ") };
        let message = format!("must have exactly one of `items`, `report` and `jobType`, not {given}");
        errors.push(FieldError::new("", message));
    }
    for (name, message) in NOT_YET {
        if has(name) {
            errors.push(FieldError::new(body::child("", name), message));
        }
    }
    if has("payload") && !has("jobType") {
        errors.push(FieldError::new("/payload", "belongs to a custom job, which names its `jobType`"));
    }
    if shapes == ["jobType"] {
        for name in ["dataset", "output"].into_iter().filter(|name| has(name)) {
            let message = "belongs to an export, which is submitted with `items` and no `jobType`";
            errors.push(FieldError::new(body::child("", name), message));
        }
    }
}

/// An export as it was understood. The order and the form of its members are part of stored hashes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    job_type: &'static str,
    export: Json,
    options: Value,
}

fn export_job(storage: &Storage, options: Options, plan: ExportPlan, owner: &str) -> NewJob {
    let request = Request { job_type: EXPORT, export: plan.canonical(), options: options.canonical() };
    let request = Json::of(&request).expect("it has names of text");
    let idempotency = options
        .idempotency_key
        .map(|key| Idempotency { key, request_hash: etag::hex(&Sha256::digest(request.as_str())) });
    NewJob {
        job_id: JobId::new(clock::now(), rand::random()),
        job_type: EXPORT.to_owned(),
        dataset: Some(plan.dataset.name.clone()),
        owner: owner.to_owned(),
        idempotency,
        unique_key: None,
        request,
        params: plan.params(),
        priority: options.priority,
        on_failure: options.on_failure,
        labels: options.labels,
        run_at: options.run_at,
        parents: options.depends_on,
        on_parent_failure: options.on_parent_failure,
        base_path: Some(storage.display_url(plan.base_path())),
        identity: None,
        scope: plan.scope().to_owned(),
        made_by: None,
        quota: None,
        chunks: plan.chunks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judged(value: Value) -> Vec<(String, String)> {
        let mut errors = Vec::new();
        let body = Json::from(value).object(&APART).unwrap();
        refuse_unknown(&body.members, &mut errors);
        check_shape(&body, &mut errors);
        errors.into_iter().map(|error| (error.pointer, error.message)).collect()
    }

    fn pointers(value: Value) -> Vec<String> {
        judged(value).into_iter().map(|(pointer, _)| pointer).collect()
    }

    #[test]
    fn exactly_one_shape_is_taken() {
        assert_eq!(judged(json!({"items": [], "dataset": "x", "output": {}})), []);
        assert_eq!(judged(json!({"jobType": "SEND_EMAIL", "payload": {}})), []);
        assert_eq!(judged(json!({"jobType": "SEND_EMAIL"})), []);
        assert_eq!(pointers(json!({})), [""]);
        assert_eq!(pointers(json!({"items": [], "jobType": "SEND_EMAIL", "payload": 1})), [""]);
        let errors = judged(json!({"items": [], "report": "x"}));
        assert_eq!(errors[0].0, "");
        assert_eq!(errors[1], ("/report".into(), "reports are not available yet".into()));
    }

    #[test]
    fn what_belongs_to_another_shape_is_pointed_at() {
        assert_eq!(pointers(json!({"items": [], "payload": {}})), ["/payload"]);
        assert_eq!(pointers(json!({"payload": null})), ["", "/payload"]);
        let mixed = json!({"jobType": "SEND_EMAIL", "output": {}, "dataset": "positions"});
        assert_eq!(pointers(mixed), ["/dataset", "/output"]);
        assert!(judged(json!({"payload": "hunter2"})).iter().all(|(_, text)| !text.contains("hunter2")));
    }

    #[test]
    fn what_is_not_there_yet_is_named() {
        let asked = json!({"report": "x", "params": {}});
        assert_eq!(pointers(asked), ["/report", "/params"]);
    }

    #[test]
    fn unknown_fields_are_refused_by_name() {
        let many: Map<String, Value> = (0..5000).map(|i| (i.to_string(), Value::Null)).collect();
        assert_eq!(judged(Value::Object(many)).len(), ENOUGH_ERRORS + 1, "and that nothing is asked for");
        assert_eq!(pointers(json!({"items": [], "Items": [], "a/b": 1})), ["/Items", "/a~1b"]);
    }
}
