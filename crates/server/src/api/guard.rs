//! What surrounds every call: an id, a span, a time limit, metrics, and the headers that keep browsers
//! from harm. Calls run in a task of their own, so that neither a client that hangs up nor the time
//! limit can cut a database call in half; a panic there becomes a 500.

use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument as _;

use super::problem::Problem;

/// The header that ties an answer to its log lines.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Wraps every call.
pub(super) async fn guard(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    // The path, never the query: names of ours, no secrets.
    let span = tracing::info_span!("request", id = %id, method = %method, path = request.uri().path());
    let mut response = if is_cross_site(&request) {
        Problem::new(StatusCode::FORBIDDEN, "pages of other sites may not do this").into_response()
    } else {
        run(limit, request, next).instrument(span.clone()).await
    };
    let status = response.status();
    span.in_scope(|| {
        let ms = started.elapsed().as_secs_f64() * 1000.0;
        tracing::debug!(status = status.as_u16(), ms, "api.answered");
    });
    let labels = [("method", method_label(&method).to_owned()), ("route", route)];
    metrics::histogram!("outhaul_http_request_seconds", &labels).record(started.elapsed().as_secs_f64());
    let [method, route] = labels;
    let labels = [method, route, ("status", status.as_str().to_owned())];
    metrics::counter!("outhaul_http_requests_total", &labels).increment(1);
    protect(response.headers_mut());
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Clients may invent methods; each would be a time series of its own for ever.
fn method_label(method: &Method) -> &str {
    match *method {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::PATCH
        | Method::DELETE
        | Method::OPTIONS
        | Method::TRACE
        | Method::CONNECT => method.as_str(),
        _ => "other",
    }
}

async fn run(limit: Duration, request: Request, next: Next) -> Response {
    let task = tokio::spawn(next.run(request).in_current_span());
    match tokio::time::timeout(limit, task).await {
        Ok(Ok(response)) => response,
        Ok(Err(failed)) => {
            tracing::error!(error = %failed, "api.panicked");
            Problem::internal().into_response()
        }
        Err(_) => {
            tracing::warn!("api.timed_out");
            Problem::unavailable("this took too long; it may still happen, so look before you repeat it")
                .into_response()
        }
    }
}

/// The client's own id where it is harmless, else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let harmless = |id: &&str| {
        (1..=64).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    };
    match headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(harmless) {
        Some(id) => id.to_owned(),
        None => format!("{:016x}", rand::random::<u64>()),
    }
}

/// Whether a browser says that a page of another site wants to change something. The calls without a
/// body would otherwise need no preflight.
fn is_cross_site(request: &Request) -> bool {
    let site = request.headers().get("sec-fetch-site").map(HeaderValue::as_bytes);
    !request.method().is_safe() && matches!(site, Some(b"cross-site" | b"same-site"))
}

fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt as _;

    fn app(limit: Duration) -> Router {
        async fn panics() -> &'static str {
            panic!("the password is hunter2")
        }
        Router::new()
            .route("/ok", get(async || "ok").post(async || "ok"))
            .route("/panics", get(panics))
            .route("/hangs", get(async || std::future::pending::<()>().await))
            .layer(axum::middleware::from_fn_with_state(limit, guard))
    }

    async fn ask(limit: Duration, request: axum::http::request::Builder) -> Response {
        app(limit).oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_panic_is_500_without_its_words() {
        let response = ask(LONG, Request::get("/panics")).await;
        assert_eq!(response.status(), 500);
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        assert!(!String::from_utf8_lossy(&body).contains("hunter2"));
    }

    #[tokio::test]
    async fn a_call_that_takes_too_long_is_503() {
        assert_eq!(ask(Duration::from_millis(1), Request::get("/hangs")).await.status(), 503);
    }

    #[tokio::test]
    async fn ids_are_kept_when_harmless_and_always_given() {
        let id = |response: Response| response.headers()[REQUEST_ID].to_str().unwrap().to_owned();
        assert_eq!(id(ask(LONG, Request::get("/ok").header("x-request-id", "abc-1")).await), "abc-1");
        for bad in ["", "a b", "\"x\"", &"x".repeat(65)] {
            let given = id(ask(LONG, Request::get("/ok").header("x-request-id", bad)).await);
            assert!(given != bad && given.len() == 16, "{given}");
        }
    }

    #[tokio::test]
    async fn pages_of_other_sites_may_look_but_not_touch() {
        let from = |request: axum::http::request::Builder, site: &str| request.header("sec-fetch-site", site);
        assert_eq!(ask(LONG, from(Request::post("/ok"), "cross-site")).await.status(), 403);
        assert_eq!(ask(LONG, from(Request::post("/ok"), "same-origin")).await.status(), 200);
        assert_eq!(ask(LONG, from(Request::get("/ok"), "cross-site")).await.status(), 200);
        assert_eq!(ask(LONG, Request::post("/ok")).await.status(), 200);
    }

    #[test]
    fn invented_methods_share_one_label() {
        assert_eq!(method_label(&Method::GET), "GET");
        for invented in ["get", "BREW", "X1", "X2"] {
            assert_eq!(method_label(&Method::from_bytes(invented.as_bytes()).unwrap()), "other");
        }
    }

    #[tokio::test]
    async fn every_answer_carries_the_protective_headers() {
        let response = ask(LONG, Request::get("/nowhere")).await;
        assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
    }
}
