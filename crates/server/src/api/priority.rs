//! `POST /jobs/{jobId}/priority`: gives a job that has not ended another place among those that wait.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use outhaul_core::audit::AuditAct;
use outhaul_core::job::JobStatus;
use outhaul_core::store::Prioritised;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::bodies::Bodies;
use super::job_view::JobView;
use super::jobs::{accepted, find};
use super::json::kind;
use super::options::{DEFAULT_PRIORITY, read_priority};
use super::path::JobPath;
use super::problem::described::{BadRequest, Conflict, NotFound};
use super::problem::{FieldError, Problem, ProblemBody};
use super::query::NoQuery;
use super::redrive::refuse_unknown;
use super::{AppState, access};
use crate::auth::{Act, Caller};
use crate::config::Limits;

/// The highest priority there is.
const HIGHEST: u8 = 9;

/// What a body may say.
const MEMBERS: [&str; 1] = ["priority"];

/// The priority that a job shall have.
#[derive(Debug, ToSchema, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"priority": 9}))]
#[expect(dead_code, reason = "describes only")]
pub(super) struct PriorityRequest {
    /// 0 to 9, higher first; at most `limits.max_priority` for callers other than operators.
    #[schema(minimum = 0, maximum = 9)]
    priority: u8,
}

/// Changes a job's priority: its chunks that have not started take their new place, what runs goes on.
#[utoipa::path(
    post, path = "/jobs/{jobId}/priority", tag = "jobs", operation_id = "prioritiseJob",
    params(("jobId" = String, Path, description = "The job", example = "J20260102_0123456789ABC")),
    request_body = PriorityRequest,
    responses(
        (status = 202, description = "The job has this priority", body = JobView, headers(
            ("Location" = String, description = "The job"), ("Retry-After" = u32, description = "Seconds until a look is worth it"),
        )),
        BadRequest, NotFound, Conflict,
        (status = 408, description = "The body did not arrive in time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is larger than `limits.max_body_bytes`", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not sent as JSON", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn prioritise(
    State(state): State<AppState>,
    caller: Caller,
    JobPath(job_id): JobPath,
    _: NoQuery,
    Extension(bodies): Extension<Bodies>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let job = access::job(&state, &caller, Act::Change, &job_id).await?;
    let (sent, _room) = bodies.read(&caller, &headers, sent).await?.parse()?;
    let sent = sent.value();
    let priority = read(&sent).map_err(Problem::invalid)?;
    if let Some(too_high) = too_high(priority, most(&caller, state.limits)) {
        return Err(Problem::invalid(vec![too_high]));
    }
    let too_late = |status: JobStatus| {
        Problem::conflict(format!("the job is {}: its priority means nothing now", status.as_str()))
    };
    if job.status.is_final() {
        return Err(too_late(job.status));
    }
    let detail = Some(priority.to_string());
    let recorded = access::record(&state, &caller, AuditAct::Prioritise, Some(&job_id), detail).await?;
    match state.store.job_prioritise(&job_id, priority).await? {
        Prioritised::Yes => {
            tracing::info!(job = %job_id, priority, "api.job_prioritised");
            accepted(&state, find(&state, &job_id).await?).await
        }
        Prioritised::TooLate(status) => Err(recorded.refused(too_late(status)).await),
        Prioritised::Unknown => Err(recorded.refused(Problem::no_such_job()).await),
    }
}

/// The highest priority that a caller may give a job: operators every one, others what the configuration leaves
/// them.
fn most(caller: &Caller, limits: Limits) -> u8 {
    if access::allow(caller, Act::Operate).is_ok() { HIGHEST } else { limits.max_priority }
}

fn too_high(priority: u8, most: u8) -> Option<FieldError> {
    (priority > most).then(|| {
        FieldError::new("/priority", format!("must be at most {most}: higher ones are kept for operators"))
    })
}

/// Holds a submission's priority to what its caller may ask for. Where the usual priority is more than that, a
/// submission that asks for none gets the highest it may have.
pub(super) fn hold(
    caller: &Caller,
    limits: Limits,
    members: &mut Map<String, Value>,
    errors: &mut Vec<FieldError>,
) {
    let most = most(caller, limits);
    match members.get("priority").map(read_priority) {
        Some(Ok(priority)) => errors.extend(too_high(priority, most)),
        None if DEFAULT_PRIORITY > most => drop(members.insert("priority".to_owned(), most.into())),
        // What is no priority at all is told by whoever reads the options.
        Some(Err(_)) | None => {}
    }
}

/// Reads a body; the error lists every problem.
fn read(sent: &Value) -> Result<u8, Vec<FieldError>> {
    let mut errors = Vec::new();
    let Value::Object(members) = sent else {
        return Err(vec![FieldError::new("", format!("must be an object, not {}", kind(sent)))]);
    };
    refuse_unknown("", members, &MEMBERS, &mut errors);
    let priority = match members.get("priority") {
        Some(value) => read_priority(value),
        None => Err("is required: a whole number from 0 to 9".to_owned()),
    };
    match priority {
        Ok(priority) if errors.is_empty() => Ok(priority),
        Ok(_) => Err(errors),
        Err(message) => {
            errors.push(FieldError::new("/priority", message));
            Err(errors)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_priority_is_a_whole_number_from_0_to_9() {
        for (sent, priority) in [(json!(0), 0), (json!(9), 9), (json!(5.0), 5)] {
            assert_eq!(read(&json!({ "priority": sent })), Ok(priority));
        }
    }

    #[test]
    fn every_problem_is_pointed_at() {
        let pointers = |sent: Value| -> Vec<String> {
            read(&sent).unwrap_err().into_iter().map(|error| error.pointer).collect()
        };
        for wrong in [json!(10), json!(-1), json!(5.5), json!("5"), json!(null), json!([5]), json!(1e300)] {
            assert_eq!(pointers(json!({ "priority": wrong })), ["/priority"]);
        }
        assert_eq!(pointers(json!({})), ["/priority"]);
        assert_eq!(pointers(json!({"Priority": 5, "a/b": 1})), ["/Priority", "/a~1b", "/priority"]);
        assert_eq!(pointers(json!({"priority": 5, "force": true})), ["/force"]);
        for sent in [json!(null), json!(5), json!([]), json!("x")] {
            assert_eq!(pointers(sent), [""]);
        }
    }

    #[test]
    fn the_description_and_the_reader_know_the_same_fields() {
        use utoipa::PartialSchema;
        let schema = serde_json::to_value(PriorityRequest::schema()).unwrap();
        let described: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(described, MEMBERS);
        assert_eq!(schema["additionalProperties"], false);
    }
}
