//! `POST /dead-letters/redrive`: queues dead letters again by filter. The filter must be written, so
//! that nobody runs everything again by leaving something out.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use chrono::{DateTime, Utc};
use outhaul_core::dead_letter::DeadLetterFilter;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::bodies::Bodies;
use super::dead_letters::{read_job_id, read_words};
use super::json::{child, kind};
use super::options::text;
use super::problem::described::BadRequest;
use super::problem::{ENOUGH_ERRORS, FieldError, Problem, ProblemBody};
use super::query::{NoQuery, read_time};
use super::{AppState, access};
use crate::auth::{Act, Caller};

/// How many dead letters are redriven when the client does not say.
const DEFAULT_LIMIT: u32 = 100;
/// The most that one call redrives.
const MAX_LIMIT: u32 = 1000;
/// What a body may say.
const MEMBERS: [&str; 3] = ["filter", "limit", "dryRun"];
/// What its filter may say.
const FILTER_MEMBERS: [&str; 6] = ["jobType", "dataset", "text", "after", "before", "jobId"];

/// Which dead letters to queue again.
#[derive(Debug, ToSchema, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"filter": {"jobType": "SEND_EMAIL", "text": "503"}, "limit": 100, "dryRun": true}))]
#[expect(dead_code, reason = "describes only")]
pub(super) struct RedriveRequest {
    /// Which ones; `{}` means all.
    filter: RedriveFilter,
    /// At most this many, the oldest first.
    #[schema(nullable = false, minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// Only say how many there are; change nothing.
    #[schema(nullable = false, default = false)]
    dry_run: Option<bool>,
}

/// The same filters as `GET /dead-letters`.
#[derive(Debug, ToSchema, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "describes only")]
pub(super) struct RedriveFilter {
    /// Only jobs of this type.
    #[schema(nullable = false, min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    job_type: Option<String>,
    /// Only exports of this dataset.
    #[schema(nullable = false, min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    dataset: Option<String>,
    /// Only those whose cause, step, job id or chunk key contains this text, whatever its case.
    #[schema(nullable = false, min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    text: Option<String>,
    /// Only those that failed for good at or after this time.
    #[schema(nullable = false)]
    after: Option<DateTime<Utc>>,
    /// Only those that failed for good before this time.
    #[schema(nullable = false)]
    before: Option<DateTime<Utc>>,
    /// Only this job.
    #[schema(nullable = false, pattern = r"^J[0-9]{8}_[0-9A-HJKMNP-TV-Z]{13}$")]
    job_id: Option<String>,
}

/// What a redrive did.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct RedriveView {
    /// How many dead letters the filter met before.
    #[schema(minimum = 0)]
    pub matched: u64,
    /// How many of them are queued again.
    #[schema(minimum = 0)]
    pub redriven: u64,
}

/// A request that was understood.
#[derive(Debug, PartialEq, Eq)]
struct Redrive {
    filter: DeadLetterFilter,
    limit: u32,
    dry_run: bool,
}

/// Queues dead letters again, and what was held back because of them.
#[utoipa::path(
    post, path = "/dead-letters/redrive", tag = "operations", operation_id = "redriveDeadLetters",
    request_body = RedriveRequest,
    responses(
        (status = 200, description = "What was done", body = RedriveView),
        BadRequest,
        (status = 408, description = "The body did not arrive in time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is larger than `limits.max_body_bytes`", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not sent as JSON", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn redrive(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    Extension(bodies): Extension<Bodies>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Json<RedriveView>, Problem> {
    access::allow(&caller, Act::DeadLetters)?;
    let (sent, _room) = bodies.read(&caller, &headers, sent).await?.parse()?;
    let sent = sent.value();
    let Redrive { filter, limit, dry_run } = read(&sent).map_err(Problem::invalid)?;
    let matched = state.store.dead_letters_count(&filter).await?;
    if dry_run || matched == 0 {
        return Ok(Json(RedriveView { matched, redriven: 0 }));
    }
    let by = access::redriver(&state, &caller, format!("of the dead letters of {}", sent["filter"]));
    let redriven = state.store.dead_letters_redrive(&filter, limit, by.as_ref()).await?;
    tracing::info!(by = caller.subject(), matched, redriven, limit, "api.dead_letters_redriven");
    if redriven > 0 {
        state.delivery.announce();
    }
    Ok(Json(RedriveView { matched, redriven }))
}

/// Reads a body; the error lists every problem.
fn read(sent: &Value) -> Result<Redrive, Vec<FieldError>> {
    let mut errors = Vec::new();
    let Value::Object(members) = sent else {
        return Err(vec![FieldError::new("", format!("must be an object, not {}", kind(sent)))]);
    };
    refuse_unknown("", members, &MEMBERS, &mut errors);
    let filter = match members.get("filter") {
        Some(Value::Object(filter)) => read_filter(filter, &mut errors),
        Some(other) => {
            let message = format!("must be an object, not {}; `{{}}` means all dead letters", kind(other));
            errors.push(FieldError::new("/filter", message));
            DeadLetterFilter::default()
        }
        None => {
            let message = "is required: say which dead letters are meant; `{}` means all of them";
            errors.push(FieldError::new("/filter", message));
            DeadLetterFilter::default()
        }
    };
    let mut member = Members { pointer: "", members, errors: &mut errors };
    let limit = member.read("limit", read_limit).unwrap_or(DEFAULT_LIMIT);
    let dry_run = member.read("dryRun", |value| {
        value.as_bool().ok_or_else(|| format!("must be true or false, not {}", kind(value)))
    });
    let dry_run = dry_run.unwrap_or(false);
    if errors.is_empty() { Ok(Redrive { filter, limit, dry_run }) } else { Err(errors) }
}

fn read_filter(filter: &Map<String, Value>, errors: &mut Vec<FieldError>) -> DeadLetterFilter {
    refuse_unknown("/filter", filter, &FILTER_MEMBERS, errors);
    let mut member = Members { pointer: "/filter", members: filter, errors };
    DeadLetterFilter {
        job_type: member.read("jobType", |value| read_words(text(value)?)),
        dataset: member.read("dataset", |value| read_words(text(value)?)),
        text: member.read("text", |value| read_words(text(value)?)),
        after: member.read("after", |value| read_time(text(value)?)),
        before: member.read("before", |value| read_time(text(value)?)),
        job_id: member.read("jobId", |value| read_job_id(text(value)?)),
    }
}

fn read_limit(value: &Value) -> Result<u32, String> {
    // JSON does not tell 5 from 5.0.
    let number = value.as_f64().filter(|number| number.fract() == 0.0);
    let number = number.filter(|number| (1.0..=f64::from(MAX_LIMIT)).contains(number));
    number.map(|number| number as u32).ok_or_else(|| format!("must be a whole number from 1 to {MAX_LIMIT}"))
}

/// Points at every member that nobody knows.
pub(super) fn refuse_unknown(
    pointer: &str,
    members: &Map<String, Value>,
    known: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let unknown = members.keys().filter(|name| !known.contains(&name.as_str()));
    for name in unknown.take(ENOUGH_ERRORS) {
        errors.push(FieldError::new(child(pointer, name), "there is no such field"));
    }
}

/// The members of an object, read one by one; what is wrong is pointed at.
struct Members<'a> {
    pointer: &'a str,
    members: &'a Map<String, Value>,
    errors: &'a mut Vec<FieldError>,
}

impl Members<'_> {
    fn read<T>(&mut self, name: &str, read: impl FnOnce(&Value) -> Result<T, String>) -> Option<T> {
        match read(self.members.get(name)?) {
            Ok(value) => Some(value),
            Err(message) => {
                self.errors.push(FieldError::new(child(self.pointer, name), message));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pointers(sent: Value) -> Vec<String> {
        read(&sent).unwrap_err().into_iter().map(|error| error.pointer).collect()
    }

    #[test]
    fn defaults_are_filled_in() {
        let all = Redrive { filter: DeadLetterFilter::default(), limit: 100, dry_run: false };
        assert_eq!(read(&json!({"filter": {}})), Ok(all));
        let sent = json!({"limit": 7.0, "dryRun": true, "filter": {"jobType": "A", "dataset": "b", "text": "c",
            "after": "2026-01-02T03:04:05Z", "before": "2026-01-02T05:04:05+02:00", "jobId": "J20260102_0123456789ABC"}});
        let Redrive { filter, limit, dry_run } = read(&sent).unwrap();
        assert_eq!((limit, dry_run), (7, true));
        assert_eq!(filter.job_id.unwrap().as_str(), "J20260102_0123456789ABC");
        assert!(filter.after.is_some() && filter.after == filter.before);
        let words = [filter.job_type, filter.dataset, filter.text];
        assert_eq!(words.map(Option::unwrap), ["A", "b", "c"]);
    }

    #[test]
    fn the_filter_must_be_written_and_it_is_said_how_to_mean_all() {
        for sent in [json!({}), json!({"filter": null}), json!({"filter": []}), json!({"filter": "all"})] {
            let errors = read(&sent).unwrap_err();
            assert_eq!(errors[0].pointer, "/filter");
            assert!(errors[0].message.contains("`{}` means all"), "{}", errors[0].message);
        }
    }

    #[test]
    fn every_problem_is_named_at_once() {
        let sent = json!({"limit": 0, "dryRun": "yes", "all": true, "filter": {"jobType": "", "dataset": 5,
            "text": "a\u{0}", "after": "yesterday", "before": null, "jobId": "x", "status": "DEAD"}});
        assert_eq!(
            pointers(sent),
            [
                "/all",
                "/filter/status",
                "/filter/jobType",
                "/filter/dataset",
                "/filter/text",
                "/filter/after",
                "/filter/before",
                "/filter/jobId",
                "/limit",
                "/dryRun"
            ]
        );
        for sent in [json!(null), json!([]), json!("x")] {
            assert_eq!(pointers(sent), [""]);
        }
        for limit in [json!(1001), json!(-1), json!(1.5), json!("5"), json!(null), json!(1e300)] {
            assert_eq!(pointers(json!({"filter": {}, "limit": limit})), ["/limit"]);
        }
    }

    #[test]
    fn the_description_and_the_reader_know_the_same_fields() {
        use utoipa::PartialSchema;
        for (schema, read) in [
            (RedriveRequest::schema(), MEMBERS.as_slice()),
            (RedriveFilter::schema(), FILTER_MEMBERS.as_slice()),
        ] {
            let schema = serde_json::to_value(schema).unwrap();
            let described: Vec<&str> =
                schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(described, read);
            assert_eq!(schema["additionalProperties"], false);
        }
    }
}
