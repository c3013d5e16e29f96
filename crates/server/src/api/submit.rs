//! `POST /jobs`. The request is judged whole before anything is stored; a repeated request with the
//! same key gets the same answer, and one for a FAILED job has its chunks run again.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use outhaul_core::clock;
use outhaul_core::id::JobId;
use outhaul_core::job::{EXPORT, Idempotency, Job, JobStatus, NewJob};
use outhaul_core::store::{Redriven, Submitted};
use outhaul_export::ExportPlan;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::job_view::JobView;
use super::options::{MEMBERS, Options};
use super::problem::described::BadRequest;
use super::problem::{ENOUGH_ERRORS, FieldError, Problem, ProblemBody};
use super::query::Query;
use super::submit_view::{JobRequest, PlanView};
use super::{AppState, custom_request, etag, export_request, jobs, json as body};

/// Until callers can be told apart.
pub(super) const OWNER: &str = "anonymous";
/// What later versions will read; named so that the refusal can say more than "unknown".
const NOT_YET: [(&str, &str); 2] = [
    ("report", "reports are not available yet"),
    ("params", "belongs to a report, and reports are not available yet"),
];

/// Submits a job. A job type may allow only one unfinished job with the same payload; the answer to a
/// second one is then the first.
#[utoipa::path(
    post, path = "/jobs", tag = "jobs", operation_id = "submitJob",
    params(
        ("dryRun" = Option<bool>, Query, description = "Only say what would be done; store nothing"),
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, pattern = r"^[!-~]([ -~]*[!-~])?$",
            description = "The client's name for this request; the same as `idempotencyKey`"),
        ("traceparent" = Option<String>, Header,
            description = "W3C trace context; kept with a custom job for the calls it makes, and ignored where it is malformed"),
    ),
    request_body = JobRequest,
    responses(
        (status = 200, description = "`dryRun`: what would be done", body = PlanView),
        (status = 202, description = "The job; the same one for a repeated request with the same key, and the unfinished \
            one where the job type allows one at a time", body = JobView, headers(
            ("Location" = String, description = "The job"), ("Retry-After" = u32, description = "Seconds until a look is worth it"),
        )),
        BadRequest,
        (status = 408, description = "The body did not arrive in time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is larger than `limits.max_body_bytes`", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not sent as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The key was used for another request", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn submit(
    State(state): State<AppState>,
    mut query: Query,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let dry_run = query.take_flag("dryRun");
    let mut errors = query.into_errors();
    let sent = body::read(&headers, sent, state.limits.max_body_bytes, state.limits.request_timeout).await?;
    let Value::Object(mut members) = sent else {
        errors.push(FieldError::new("", format!("must be an object, not {}", body::kind(&sent))));
        return Err(Problem::invalid(errors));
    };
    refuse_unknown(&members, &mut errors);
    check_shape(&members, &mut errors);
    let options = Options::read(&members, &headers, state.idempotency_required, &mut errors);
    let is_export = members.contains_key("items");
    let plan = if is_export { export_request::plan(&state.exports, &members, &mut errors) } else { None };
    let custom = custom_request::read(&state.registry, &mut members, &mut errors);
    if dry_run && errors.is_empty() {
        check_parents(&state, &options.depends_on, &mut errors).await?;
    }
    let job = match (plan, custom) {
        _ if !errors.is_empty() => return Err(Problem::invalid(errors)),
        (Some(plan), _) if dry_run => {
            return Ok(Json(export_request::foresee(&state, &plan).await?).into_response());
        }
        (_, Some(custom)) if dry_run => return Ok(Json(custom.foresee()).into_response()),
        (Some(plan), _) => export_job(&state, options, plan),
        (None, Some(custom)) => custom.into_new_job(options, &headers, OWNER),
        // Neither, and nothing wrong: `check_shape` does not let that happen.
        (None, None) => return Err(Problem::internal()),
    };
    let job = store(&state, job).await?;
    jobs::accepted(&state, job).await
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
fn check_shape(members: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let has = |name: &str| members.contains_key(name);
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

fn export_job(state: &AppState, options: Options, plan: ExportPlan) -> NewJob {
    let request = json!({ "jobType": EXPORT, "export": plan.canonical(), "options": options.canonical() });
    let idempotency = options
        .idempotency_key
        .map(|key| Idempotency { key, request_hash: etag::hex(&Sha256::digest(request.to_string())) });
    NewJob {
        job_id: JobId::new(clock::now(), rand::random()),
        job_type: EXPORT.to_owned(),
        dataset: Some(plan.dataset.name.clone()),
        owner: OWNER.to_owned(),
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
        base_path: Some(state.storage.display_url(plan.base_path())),
        chunks: plan.chunks,
    }
}

async fn store(state: &AppState, job: NewJob) -> Result<Job, Problem> {
    match state.store.job_submit(job).await? {
        Submitted::Created(job) => {
            tracing::info!(job = %job.job_id, job_type = job.job_type, chunks = job.counts.total, "api.job_submitted");
            state.delivery.announce();
            Ok(job)
        }
        Submitted::Existing(job) if job.status == JobStatus::Failed => redrive(state, job).await,
        Submitted::Existing(job) | Submitted::Duplicate(job) => Ok(job),
        Submitted::NoSuchParents(missing) => Err(Problem::invalid(no_such_parents(&missing))),
        Submitted::KeyConflict => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "this idempotency key was used for a different request",
        )),
    }
}

/// What storing the job would find wrong with its parents, without storing it.
async fn check_parents(
    state: &AppState,
    parents: &[JobId],
    errors: &mut Vec<FieldError>,
) -> Result<(), Problem> {
    if parents.is_empty() {
        return Ok(());
    }
    let found = state.store.jobs_get(parents).await?;
    let is_there = |parent: &&JobId| found.iter().any(|job| job.job_id == **parent && job.owner == OWNER);
    let missing: Vec<JobId> = parents.iter().filter(|parent| !is_there(parent)).cloned().collect();
    errors.extend(no_such_parents(&missing));
    Ok(())
}

fn no_such_parents(missing: &[JobId]) -> Vec<FieldError> {
    missing.iter().map(|job| FieldError::new("/dependsOn", format!("there is no job {job}"))).collect()
}

/// The store's update is guarded: of many that come at once, one redrives, and all get the job as it
/// is afterwards.
async fn redrive(state: &AppState, job: Job) -> Result<Job, Problem> {
    if let Redriven::Yes(chunks) = state.store.job_redrive(&job.job_id).await? {
        tracing::info!(job = %job.job_id, chunks, "api.job_redriven");
        state.delivery.announce();
    }
    Ok(state.store.job_get(&job.job_id).await?.unwrap_or(job))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(value: Value) -> Vec<(String, String)> {
        let mut errors = Vec::new();
        let members = value.as_object().unwrap();
        refuse_unknown(members, &mut errors);
        check_shape(members, &mut errors);
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
