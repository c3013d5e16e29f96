//! The door of the API, with real requests: who gets in, who does not, and what they are told.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, HOST, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Request};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use outhaul_core::clock;
use tower::ServiceExt as _;

use super::server::Server;
use super::*;
use crate::auth::tests::keys::p256;
use crate::auth::{Anyone, Auth, Gate, Rate, gate};

fn refuse(refusal: Refusal) -> Response {
    let mut response = (refusal.status(), refusal.detail()).into_response();
    response.headers_mut().extend(refusal.headers().into_iter().map(|(name, value)| (Some(name), value)));
    response
}

fn app(auth: impl Auth + 'static, rate: Option<Rate>) -> Router {
    let door = Gate { auth: Arc::new(auth), rate: rate.map(Arc::new), refuse };
    async fn who(caller: Caller) -> String {
        caller.subject().to_owned()
    }
    Router::new()
        .route("/jobs/{jobId}", get(who))
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(async || "ok"))
        .route("/metrics", get(async || "ok"))
        .route("/docs", get(async || "ok"))
        .route("/docs/{name}", get(async || "ok"))
        .route("/openapi.json", get(async || "ok"))
        .fallback(async || (axum::http::StatusCode::NOT_FOUND, "nothing"))
        .layer(from_fn_with_state(door, gate))
}

fn tokens() -> Tokens {
    Tokens::new(settings(pem(p256()))).unwrap()
}

/// Good now, by the machine's clock.
fn fresh(changes: Value) -> String {
    let mut claims = claims(json!({"exp": clock::now().timestamp() + 300}));
    claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    by(p256(), json!({}), &claims)
}

async fn ask(app: &Router, path: &str, authorization: &[&str]) -> Response {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    for value in authorization {
        request.headers_mut().append(AUTHORIZATION, value.parse().unwrap());
    }
    app.clone().oneshot(request).await.unwrap()
}

fn challenge(headers: &HeaderMap) -> &str {
    headers[WWW_AUTHENTICATE].to_str().unwrap()
}

async fn text(response: Response) -> String {
    String::from_utf8(axum::body::to_bytes(response.into_body(), 10_000).await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn a_good_token_lets_in_and_the_handler_knows_who_it_is() {
    let app = app(tokens(), None);
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let response = ask(&app, "/jobs/1", &[&format!("{scheme} {}", fresh(json!({})))]).await;
        assert_eq!(response.status(), 200);
        assert_eq!(text(response).await, "ann");
    }
}

#[tokio::test]
async fn without_one_good_bearer_header_nobody_gets_in() {
    let app = app(tokens(), None);
    let none = ask(&app, "/jobs/1", &[]).await;
    assert_eq!(none.status(), 401);
    assert_eq!(challenge(none.headers()), "Bearer");
    let good = format!("Bearer {}", fresh(json!({})));
    let bare = fresh(json!({}));
    for headers in [
        &["Basic YW5uOmh1bnRlcjI="][..],
        &["Bearer"],
        &["Bearer "],
        &["Bearer  "],
        &[&bare],
        &[&good, &good],
        &[&good, "Basic x"],
        &["Bearerx y"],
        &["Bearer\té"],
    ] {
        let response = ask(&app, "/jobs/1", headers).await;
        assert_eq!(response.status(), 401, "{headers:?}");
        assert_eq!(challenge(response.headers()), "Bearer error=\"invalid_request\"");
    }
    let query = ask(&app, &format!("/jobs/1?access_token={bare}"), &[]).await;
    assert_eq!(query.status(), 401, "a token in an address ends up in logs");
}

#[tokio::test]
async fn a_bad_token_is_told_why_and_never_repeated() {
    let app = app(tokens(), None);
    let expired = by(p256(), json!({}), &claims(json!({})));
    let response = ask(&app, "/jobs/1", &[&format!("Bearer {expired}")]).await;
    assert_eq!(response.status(), 401);
    let said = challenge(response.headers()).to_owned();
    assert_eq!(said, "Bearer error=\"invalid_token\", error_description=\"expired\"");
    let said = said + &text(response).await;
    assert!(expired.split('.').all(|piece| !said.contains(piece)));
}

#[tokio::test]
async fn without_a_role_every_route_is_forbidden_whether_it_exists_or_not() {
    let app = app(tokens(), None);
    let token = format!("Bearer {}", fresh(json!({"roles": []})));
    for path in ["/jobs/1", "/nowhere"] {
        assert_eq!(ask(&app, path, &[&token]).await.status(), 403, "{path}");
    }
}

#[tokio::test]
async fn open_routes_are_open_and_nothing_that_looks_like_them() {
    let app = app(tokens(), None);
    for path in
        ["/healthz", "/readyz", "/metrics", "/docs", "/docs/start.js", "/openapi.json", "/healthz?x=1"]
    {
        assert_eq!(ask(&app, path, &[]).await.status(), 200, "{path}");
        assert_eq!(ask(&app, path, &["Basic nonsense"]).await.status(), 200, "{path}");
    }
    for path in
        ["/", "/nowhere", "/healthz/", "/docs/../jobs/1", "/docs/a/b", "//healthz", "/jobs/%2e%2e%2fdocs"]
    {
        assert_eq!(ask(&app, path, &[]).await.status(), 401, "{path}");
    }
}

#[tokio::test]
async fn a_caller_who_asks_too_much_is_told_when_to_come_back_and_others_are_not() {
    let app = app(tokens(), Some(Rate::new(1, 2)));
    let [ann, bob] = ["ann", "bob"].map(|name| format!("Bearer {}", fresh(json!({"sub": name}))));
    let mut refused = 0;
    // More than any burst plus what flows back while this runs.
    for _ in 0..1000 {
        let response = ask(&app, "/jobs/1", &[&ann]).await;
        if response.status() == 429 {
            assert_eq!(response.headers()[RETRY_AFTER], "1");
            refused += 1;
            break;
        }
    }
    assert_eq!(refused, 1);
    assert_eq!(ask(&app, "/jobs/1", &[&bob]).await.status(), 200);
    assert_eq!(ask(&app, "/healthz", &[]).await.status(), 200);
}

#[tokio::test]
async fn a_server_without_keys_is_not_the_callers_fault() {
    let mut server = Server::start(json!([])).await;
    server.stop().await;
    let tokens = Tokens::new(settings(Keys::Jwks(server.url.clone()))).unwrap();
    let response = ask(&app(tokens, None), "/jobs/1", &[&format!("Bearer {}", fresh(json!({})))]).await;
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key(RETRY_AFTER));
    assert!(!response.headers().contains_key(WWW_AUTHENTICATE));
}

#[tokio::test]
async fn without_auth_everybody_is_anonymous_whatever_they_send() {
    let app = app(Anyone::default(), None);
    for headers in [&[][..], &["Bearer x"], &["Basic x", "Basic y"]] {
        let response = ask(&app, "/jobs/1", headers).await;
        assert_eq!(text(response).await, outhaul_core::identity::ANONYMOUS);
    }
    assert_eq!(Anyone::default().ready(at(NOW)), Ok(()));
}

#[tokio::test]
async fn without_auth_a_local_server_answers_to_local_names_only() {
    let asked = |local: bool, host: &'static str| async move {
        let headers = [(HOST, HeaderValue::from_static(host))].into_iter().collect();
        Anyone { local }.caller(&headers, at(NOW)).await.is_ok()
    };
    for host in ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "[::1]"] {
        assert!(asked(true, host).await, "{host}");
    }
    for host in
        ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example:1", "[x]", ""]
    {
        assert!(!asked(true, host).await, "{host}");
        assert!(asked(false, host).await, "{host}");
    }
}

#[tokio::test]
async fn a_name_that_points_here_gets_nothing_but_that_the_process_lives() {
    let app = app(Anyone { local: true }, None);
    let asked = async |path: &str, host: &str| {
        let request = Request::builder().uri(path).header(HOST, host).body(Body::empty()).unwrap();
        app.clone().oneshot(request).await.unwrap().status()
    };
    for path in ["/readyz", "/metrics", "/docs", "/openapi.json", "/jobs/1"] {
        assert_eq!(asked(path, "evil.example").await, 421, "{path}");
        assert_eq!(asked(path, "localhost:8080").await, 200, "{path}");
    }
    assert_eq!(asked("/healthz", "evil.example").await, 200, "probes know it by any name");
}

#[tokio::test]
async fn a_handler_without_a_door_fails_closed() {
    async fn who(caller: Caller) -> String {
        caller.subject().to_owned()
    }
    let app = Router::new().route("/jobs", get(who));
    assert_eq!(ask(&app, "/jobs", &[]).await.status(), 500);
}
