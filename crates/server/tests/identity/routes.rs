//! Every route that the description names: none answers without a token but the open ones, and none that is for
//! others lets a submitter or a viewer do anything.

use outhaul_server::auth::{Role, is_open};
use serde_json::{Value, json};

use crate::people::{Person, operator, submitter};
use crate::server::{Server, later};

/// What there is for anybody with a role.
const FOR_ALL: [&str; 3] = ["get /jobs", "post /jobs", "get /datasets"];

/// Every method and path of the description.
async fn described(server: &Server) -> Vec<(String, String)> {
    let api = server.call(None, "GET", "/openapi.json", None).await.json();
    let mut routes = Vec::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let secured = operation["security"] == json!([{"bearer": []}]);
            assert_eq!(secured, !is_open(path), "{method} {path}");
            for status in ["401", "403", "429"] {
                assert_eq!(operation["responses"].get(status).is_some(), secured, "{method} {path} {status}");
            }
            routes.push((method.clone(), path.clone()));
        }
    }
    assert_eq!(api["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    assert!(routes.len() > 30, "{routes:?}");
    routes
}

fn filled(path: &str, job: &str) -> String {
    let name = if path.starts_with("/queues") { "source:warehouse" } else { "mine" };
    let job = job.trim_start_matches("/jobs/");
    path.replace("{jobId}", job).replace("{fileId}", "f1").replace("{name}", name)
}

/// A body that would be taken.
fn body(path: &str) -> Option<Value> {
    let job = json!({"jobType": "SINGLE", "payload": {"n": 1}});
    match path {
        "/jobs" => Some(job),
        "/jobs/{jobId}/priority" => Some(json!({"priority": 9})),
        "/dead-letters/redrive" => Some(json!({"filter": {}})),
        "/schedules/{name}" => Some(json!({"cron": "0 0 29 2 *", "job": job, "runAs": "nightly"})),
        "/triggers/{name}" => Some(json!({"after": ["dataset:positions"], "job": job, "runAs": "nightly"})),
        _ => None,
    }
}

const NIGHTLY: &str = "[auth.identities.nightly]\n";

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_nothing_but_the_open_routes_answers() {
    let server = Server::start(NIGHTLY).await;
    let job = server.at(submitter("ann")).submit(&later()).await;
    let other_secret = "0.".repeat(3);
    for (method, path) in described(&server).await {
        let body = body(&path);
        let filled = filled(&path, &job);
        let answer = server.call(None, &method, &filled, body.as_ref()).await;
        if is_open(&path) {
            assert_ne!(answer.status, 401, "{method} {path}");
            continue;
        }
        assert_eq!(
            (answer.status, answer.header("www-authenticate")),
            (401, Some("Bearer")),
            "{method} {path}"
        );
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let forged = server.call(Some(&other_secret), &method, &filled, body.as_ref()).await;
        assert_eq!(forged.status, 401, "{method} {path}");
        let nobody = Person { roles: vec![], ..submitter("nobody") };
        let nobody = server.call(Some(&nobody.token()), &method, &filled, body.as_ref()).await;
        assert_eq!(nobody.status, 403, "{method} {path}: {}", nobody.json());
    }
    for path in ["/nowhere", "/jobs/", "/docs/../jobs"] {
        assert_eq!(server.call(None, "GET", path, None).await.status, 401, "{path}");
    }
    assert_eq!(server.call(None, "PATCH", "/jobs", None).await.status, 401);
    assert_eq!(server.call(None, "HEAD", "/jobs", None).await.status, 401);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_does_for_others_what_is_not_theirs_to_do() {
    let server = Server::start(NIGHTLY).await;
    let job = server.at(submitter("ann").department("sales")).submit(&later()).await;
    let viewer = Person { roles: vec![Role::Viewer], ..submitter("vic") }.department("audit");
    let strangers = [submitter("bob"), viewer, submitter("bill").with(Role::Viewer).department("audit")];
    let routes = described(&server).await;
    for stranger in strangers {
        let at = server.at(stranger.clone());
        for (method, path) in routes.iter().filter(|(_, path)| !is_open(path)) {
            let route = format!("{method} {path}");
            let answer = server.call(Some(&at.token), method, &filled(path, &job), body(path).as_ref()).await;
            if FOR_ALL.contains(&route.as_str()) {
                continue;
            }
            let expected = if path.contains("{jobId}") { 404 } else { 403 };
            assert_eq!(answer.status, expected, "{} {route}: {}", stranger.subject, answer.json());
        }
    }
    // Those who see the job are told what they may not do to it.
    let colleague = Person { roles: vec![Role::Viewer], ..submitter("vera") }.department("sales");
    for (method, path) in routes.iter().filter(|(_, path)| path.contains("{jobId}")) {
        let expected = match path.rsplit('/').next().unwrap() {
            // It does not end.
            "events" => continue,
            "history" => 403,
            "{fileId}" => 404,
            _ if method == "post" => 403,
            _ => 200,
        };
        let token = colleague.token();
        let answer = server.call(Some(&token), method, &filled(path, &job), body(path).as_ref()).await;
        assert_eq!(answer.status, expected, "{method} {path}: {}", answer.json());
    }
    let shown = server.at(operator()).json(&job).await;
    assert_eq!(
        (&shown["status"], &shown["priority"]),
        (&json!("SUBMITTED"), &json!(5)),
        "nothing was changed"
    );
    let acts = server.at(operator()).items("/audit?act=operate").await;
    assert!(acts.is_empty(), "and nothing recorded that was not allowed");

    // The same calls by one who may: none of them is refused.
    let at = server.at(operator());
    for (method, path) in routes.iter().filter(|(_, path)| !is_open(path)) {
        if path.ends_with("/events") {
            continue;
        }
        let answer = server.call(Some(&at.token), method, &filled(path, &job), body(path).as_ref()).await;
        assert!(
            answer.status < 400 || [404, 409].contains(&answer.status),
            "{method} {path}: {}",
            answer.json()
        );
    }
    server.stop().await;
}
