//! What surrounds every call: an id, a span, a time limit, metrics, and the headers that keep browsers
//! from harm. Calls run in a task of their own, so that neither a client that hangs up nor the time
//! limit can cut a database call in half; a panic there becomes a 500.

use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument as _;
use url::Url;

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
    if request.method().is_safe() {
        return false;
    }
    match request.headers().get("sec-fetch-site") {
        Some(site) => matches!(site.as_bytes(), b"cross-site" | b"same-site"),
        // Older browsers send none, and none does to plain http on another machine.
        None => is_of_another_origin(request),
    }
}

/// Whether a request has an `Origin` that is not this server; without one it is not of a page. Bearer tokens are
/// let through, for proxies may change `Host`: a page of another site cannot send one, as its browser asks first
/// and is told no. What browsers add by themselves, such as `Basic`, says nothing.
fn is_of_another_origin(request: &Request) -> bool {
    let headers = request.headers();
    let is_bearer = |value: &HeaderValue| {
        value.as_bytes().get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "))
    };
    if headers.get_all(AUTHORIZATION).iter().any(is_bearer) {
        return false;
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(Authority::as_str));
    headers.get_all(ORIGIN).iter().any(|origin| !is_same(origin, host).unwrap_or(false))
}

/// Whether an `Origin` has the name and the port of a `Host`, which may leave out the usual port; `None`: one of
/// them is no such thing. The scheme is not compared, for TLS may end before us.
fn is_same(origin: &HeaderValue, host: Option<&str>) -> Option<bool> {
    let origin = origin.to_str().ok()?;
    let (scheme, place) = origin.split_once("://")?;
    // `Url` would take a path as well, and neither may have one.
    let (place, host) = (place.parse::<Authority>().ok()?, host?.parse::<Authority>().ok()?);
    let at = |place: &Authority| Url::parse(&format!("{scheme}://{place}")).ok().map(|url| url.origin());
    // An origin that is no name and port, as that of an extension, equals nothing, not even itself.
    Some(at(&place)? == at(&host)?)
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

    #[tokio::test]
    async fn where_a_browser_does_not_say_from_which_site_the_origin_decides() {
        // Host, Origin, status of a POST.
        let table = [
            ("localhost:8080", "http://localhost:8080", 200),
            ("LocalHost:8080", "HTTP://LOCALHOST:8080", 200),
            ("exports.example", "http://exports.example", 200),
            ("exports.example:80", "http://exports.example", 200),
            ("exports.example", "http://exports.example:80", 200),
            ("exports.example", "https://exports.example", 200),
            ("exports.example:443", "https://exports.example", 200),
            ("[::1]:8080", "http://[::1]:8080", 200),
            ("[::1]:8080", "http://[0:0::1]:8080", 200),
            ("exports.example", "http://evil.example", 403),
            ("exports.example", "http://exports.example.evil.example", 403),
            ("exports.example", "http://evil.exports.example", 403),
            ("exports.example", "http://exports.example:8080", 403),
            ("exports.example:8080", "http://exports.example", 403),
            ("exports.example:8080", "http://exports.example:8081", 403),
            ("exports.example:80", "https://exports.example", 403),
            ("127.0.0.1:8080", "http://localhost:8080", 403),
            ("exports.example", "null", 403),
            ("exports.example", "", 403),
            ("exports.example", "exports.example", 403),
            ("exports.example", "http://", 403),
            ("exports.example", "http://exports.example/", 403),
            ("exports.example", "http://exports.example#", 403),
            ("exports.example", "http://exports.example http://evil.example", 403),
            ("exports.example", "http://exports.example:99999", 403),
            ("exports.example", "http://[::1", 403),
            ("exports.example", "file://", 403),
            ("exports.example", "chrome-extension://exports.example", 403),
            ("exports.example", "\u{e9}", 403),
            ("", "http://exports.example", 403),
            ("exports.example/", "http://exports.example", 403),
        ];
        for (host, origin, status) in table {
            let call = |request: axum::http::request::Builder| {
                let origin = HeaderValue::from_bytes(origin.as_bytes()).unwrap();
                request.header("host", host).header("origin", origin)
            };
            let answer = ask(LONG, call(Request::post("/ok"))).await;
            assert_eq!(answer.status(), status, "{origin} at {host}");
            assert_eq!(
                ask(LONG, call(Request::get("/ok"))).await.status(),
                200,
                "{origin} may look at {host}"
            );
            let with = async |name: &str, value: &str| {
                ask(LONG, call(Request::post("/ok")).header(name, value)).await.status().as_u16()
            };
            // A browser that does say it is believed.
            assert_eq!(with("sec-fetch-site", "same-origin").await, 200, "{origin} at {host}");
            assert_eq!(with("sec-fetch-site", "cross-site").await, 403, "{origin} at {host}");
            // A page of another site cannot send a token; what a browser adds by itself is none.
            for token in ["Bearer x", "bearer x"] {
                assert_eq!(with("authorization", token).await, 200, "{origin} at {host}");
            }
            for other in ["Basic eDp5", "Negotiate x", "Bearer", "Bearerx"] {
                assert_eq!(with("authorization", other).await, status, "{origin} at {host}");
            }
        }
        let two = Request::post("/ok").header("host", "a.example").header("origin", "http://a.example");
        assert_eq!(ask(LONG, two.header("origin", "http://b.example")).await.status(), 403);
        let without_host = Request::post("/ok").header("origin", "http://a.example");
        assert_eq!(ask(LONG, without_host).await.status(), 403);
        let in_address = Request::post("http://a.example/ok").header("origin", "http://a.example");
        assert_eq!(ask(LONG, in_address).await.status(), 200, "HTTP/2 has it there");
        let no_page = Request::post("/ok").header("host", "a.example");
        assert_eq!(ask(LONG, no_page).await.status(), 200);
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
