//! Every refusal of the API as RFC 9457 `application/problem+json`. The one place that decides which
//! HTTP status a store error becomes; causes go to the log, never to the client.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use outhaul_core::store::StoreError;
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

use crate::auth::Refusal;

/// The media type of every refusal.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// An answer that lists more problems helps nobody.
pub(super) const MAX_ERRORS: usize = 1000;
/// Where the search for problems may end: one more than is listed shows that there are more.
pub(super) const ENOUGH_ERRORS: usize = MAX_ERRORS + 1;

/// One thing that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct FieldError {
    /// Where: a JSON pointer into the body (`/items/0/key`), `?name` for a query parameter, `{name}` for
    /// a part of the path, or the name of a header.
    pub pointer: String,
    /// What is wrong, for people.
    pub message: String,
}

impl FieldError {
    /// A thing that is wrong at `pointer`.
    pub(super) fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }
}

/// Why a request was refused (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProblemBody {
    /// `about:blank`: the status says which kind of problem it is.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The status in words.
    pub title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What is wrong and what to do about it.
    pub detail: String,
    /// Every single problem, up to 1000; empty where there is only the one that `detail` names.
    #[schema(max_items = 1000)]
    pub errors: Vec<FieldError>,
}

/// A refusal on its way to the client.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    errors: Vec<FieldError>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A refusal with a status and a sentence.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), errors: Vec::new(), headers: Vec::new() }
    }

    /// 400 with every problem at once; where there are too many to list, it says so.
    pub(super) fn invalid(mut errors: Vec<FieldError>) -> Self {
        let more = errors.len() > MAX_ERRORS;
        errors.truncate(MAX_ERRORS);
        let detail = match errors.as_slice() {
            _ if more => format!("the request has more than {MAX_ERRORS} problems; {MAX_ERRORS} are listed"),
            [only] if only.pointer.is_empty() => only.message.clone(),
            [only] => format!("{}: {}", only.pointer, only.message),
            all => format!("the request has {} problems", all.len()),
        };
        Self { errors, ..Self::new(StatusCode::BAD_REQUEST, detail) }
    }

    /// 400 with one sentence and no place to point at.
    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// 404.
    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// 404 for a job, the same words whether it never existed or may not be seen.
    pub(super) fn no_such_job() -> Self {
        Self::not_found("there is no such job")
    }

    /// 409.
    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// 500; what happened is in the log under the request's id.
    pub(super) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "something went wrong here; the log has the details")
    }

    /// 503: worth another try soon.
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
            .with_header(RETRY_AFTER, HeaderValue::from_static("5"))
    }

    /// 503 that names what is not there.
    pub(super) fn not_ready(errors: Vec<FieldError>) -> Self {
        let names: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
        let detail = format!("not ready: {}", names.join(", "));
        Self { errors, ..Self::unavailable(detail) }
    }

    /// Adds a header to the answer.
    #[must_use]
    pub(super) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// What is wrong, in a sentence.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    /// The status it will be sent with.
    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// What is wrong, place by place.
    #[cfg(test)]
    pub(super) fn errors(&self) -> &[FieldError] {
        &self.errors
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self { headers: refusal.headers(), ..Self::new(refusal.status(), refusal.detail()) }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => {
                tracing::warn!(error = error_chain(&error), "api.store_unavailable");
                Self::unavailable("the database is not available now; try again")
            }
            StoreError::NewerSchema { .. }
            | StoreError::Unsafe(_)
            | StoreError::UnknownQueue(_)
            | StoreError::Refused(_) => {
                tracing::error!(error = error_chain(&error), "api.store_failed");
                Self::internal()
            }
        }
    }
}

/// An error with all its causes in one line, for the log.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = next.source();
    }
    text
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = ProblemBody {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error").to_owned(),
            status: self.status.as_u16(),
            detail: self.detail,
            errors: self.errors,
        };
        let json = serde_json::to_vec(&body).expect("text and numbers always serialize");
        let mut response = (self.status, json).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        response
    }
}

/// The refusals as the API's description lists them; handlers name the ones they can give.
pub(super) mod described {
    use super::{IntoResponses, ProblemBody};

    /// The request itself is wrong.
    #[derive(IntoResponses)]
    #[response(
        status = 400,
        description = "The request is wrong; `errors` lists every problem",
        content_type = "application/problem+json"
    )]
    pub(crate) struct BadRequest(#[expect(dead_code, reason = "describes only")] ProblemBody);

    /// What the path names is not there.
    #[derive(IntoResponses)]
    #[response(
        status = 404,
        description = "There is nothing of that name",
        content_type = "application/problem+json"
    )]
    pub(crate) struct NotFound(#[expect(dead_code, reason = "describes only")] ProblemBody);

    /// The state of things forbids it.
    #[derive(IntoResponses)]
    #[response(
        status = 409,
        description = "Not possible in the present state",
        content_type = "application/problem+json"
    )]
    pub(crate) struct Conflict(#[expect(dead_code, reason = "describes only")] ProblemBody);
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;

    async fn json(response: Response) -> serde_json::Value {
        serde_json::from_slice(&to_bytes(response.into_body(), 1 << 20).await.unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_refusal_is_problem_json_with_every_member() {
        let response = Problem::invalid(vec![
            FieldError::new("/items/0/key", "must not be empty"),
            FieldError::new("?limit", "must be 1 to 200"),
        ])
        .into_response();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()[CONTENT_TYPE], PROBLEM_JSON);
        assert_eq!(
            json(response).await,
            serde_json::json!({"type": "about:blank", "title": "Bad Request", "status": 400,
                "detail": "the request has 2 problems",
                "errors": [{"pointer": "/items/0/key", "message": "must not be empty"},
                           {"pointer": "?limit", "message": "must be 1 to 200"}]})
        );
    }

    #[test]
    fn too_many_problems_are_cut_and_it_is_said() {
        let problem = |count: usize| Problem::invalid(vec![FieldError::new("/x", "is wrong"); count]);
        assert_eq!(problem(MAX_ERRORS).detail, "the request has 1000 problems");
        let cut = problem(ENOUGH_ERRORS);
        assert_eq!(cut.errors().len(), MAX_ERRORS);
        assert_eq!(cut.detail, "the request has more than 1000 problems; 1000 are listed");
    }

    #[tokio::test]
    async fn an_unavailable_store_is_503_and_says_when_to_come_back() {
        let response = Problem::from(StoreError::Unavailable("postgres://user:hunter2@db refused".into()))
            .into_response();
        assert_eq!(response.status(), 503);
        assert!(response.headers().contains_key(RETRY_AFTER));
        assert!(!json(response).await.to_string().contains("hunter2"));
    }

    #[tokio::test]
    async fn other_store_errors_are_500_without_internals() {
        for error in [
            StoreError::Refused("syntax error at SELECT secret".into()),
            StoreError::Unsafe("fsync = off".into()),
            StoreError::UnknownQueue("source:crm".into()),
            StoreError::NewerSchema { found: 9, known: 1 },
        ] {
            let response = Problem::from(error).into_response();
            assert_eq!(response.status(), 500);
            let text = json(response).await.to_string();
            for inside in ["SELECT", "fsync", "source:crm", "schema"] {
                assert!(!text.contains(inside), "{text}");
            }
        }
    }
}
