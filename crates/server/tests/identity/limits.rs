//! How much one caller may ask for, and how much they may have open.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use outhaul_server::auth::Role;
use serde_json::{Value, json};

use crate::common::eventually;
use crate::people::{operator, submitter};
use crate::server::{Server, later};

#[tokio::test(flavor = "multi_thread")]
async fn too_many_requests_of_one_caller_are_429_and_others_go_on() {
    let server = Server::start("[limits]\nrequests_per_second = 1\nburst = 5\n").await;
    let (ann, bob) = (server.at(submitter("ann")), server.at(submitter("bob")));
    let refused = AtomicUsize::new(0);
    // All at once, and so again where a machine takes seconds even for that.
    let too_many = eventually("some of many are refused", || async {
        for answer in join_all((0..20).map(|_| ann.get("/jobs"))).await {
            if answer.status == 429 {
                refused.fetch_add(1, Ordering::SeqCst);
                assert!(answer.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
                assert_eq!(answer.header("content-type"), Some("application/problem+json"));
            } else {
                assert_eq!(answer.status, 200);
            }
        }
        refused.load(Ordering::SeqCst) > 0
    });
    too_many.await.unwrap();
    assert_eq!(bob.get("/jobs").await.status, 200);
    for open in ["/healthz", "/readyz", "/openapi.json"] {
        for _ in 0..10 {
            assert_eq!(server.call(Some(&ann.token), "GET", open, None).await.status, 200, "{open}");
        }
    }
    server.stop().await;
}

async fn open_chunks(server: Server) {
    let ann = server.at(submitter("ann"));
    let calls = (0..50).map(|n| {
        // Its own key, so that whoever asks again has not asked twice.
        let mut body = later();
        body["idempotencyKey"] = json!(format!("call-{n}"));
        let call = server.http.post(format!("{}/jobs", server.base)).bearer_auth(&ann.token).json(&body);
        tokio::spawn(async move {
            for _ in 0..1000 {
                let answer = call.try_clone().unwrap().send().await.unwrap();
                // Too busy to say anything about it.
                if answer.status() != 503 {
                    return (answer.status().as_u16(), answer.headers().contains_key("retry-after"));
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            panic!("never an answer but 503")
        })
    });
    let answers = join_all(calls.collect::<Vec<_>>()).await;
    let count = |status| answers.iter().filter(|answer| answer.as_ref().unwrap().0 == status).count();
    assert_eq!((count(202), count(429)), (10, 40));
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().1), "when to come back");
    assert_eq!(ann.items("/jobs?limit=200").await.len(), 10);
    // Others have room of their own, and what is over makes room.
    assert_eq!(server.at(submitter("bob")).send("POST", "/jobs", &later()).await.status, 202);
    let one = ann.items("/jobs").await[0]["jobId"].as_str().unwrap().to_owned();
    ann.act("POST", &format!("/jobs/{one}/cancel")).await;
    ann.until(&format!("/jobs/{one}"), "CANCELLED").await;
    assert_eq!(ann.send("POST", "/jobs", &later()).await.status, 202);
    assert_eq!(ann.send("POST", "/jobs", &later()).await.status, 429);
    // A job that alone is too large never fits, and nobody is told to wait for it.
    let olga = server.at(operator());
    for path in ["/jobs", "/jobs?dryRun=true"] {
        let refused = olga.send("POST", path, &large("eleven", 11)).await;
        let message = "makes 11 chunks, but you may have at most 10 open (`limits.max_open_chunks`): \
            submit smaller jobs";
        let errors = json!([{"pointer": "/items", "message": message}]);
        assert_eq!((refused.status, &refused.json()["errors"]), (400, &errors), "{path}");
        assert_eq!(refused.header("retry-after"), None, "{path}");
        assert_eq!(ann.send("POST", path, &large("eleven", 11)).await.status, 400, "also without room");
    }
    assert!(olga.items("/jobs?owner=olga").await.is_empty(), "nothing was stored");
    assert_eq!(olga.send("POST", "/jobs", &large("ten", 10)).await.status, 202, "all that there may be");
    assert_eq!(olga.send("POST", "/jobs", &large("one more", 1)).await.status, 429);
    server.stop().await;
}

/// An export with so many chunks that does not start for a long time.
fn large(key: &str, chunks: u32) -> Value {
    let dates: Vec<String> = (1..=chunks).map(|day| format!("202501{day:02}")).collect();
    json!({"items": [{"key": "ABC", "effectiveDates": dates}], "runAt": "2999-01-01T00:00:00Z",
        "idempotencyKey": key})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_there_is_found_also_where_it_would_be_too_large_now() {
    let server = Server::start("[limits]\nmax_open_chunks = 11\n").await;
    let job = server.at(submitter("ann")).submit(&large("k", 11)).await;
    let server = server.restart(TEN).await;
    let ann = server.at(submitter("ann"));
    assert_eq!(ann.submit(&large("k", 11)).await, job);
    assert_eq!(ann.send("POST", "/jobs", &large("another", 11)).await.status, 400);
    server.stop().await;
}

const TEN: &str = "[limits]\nmax_open_chunks = 10\n";

#[tokio::test(flavor = "multi_thread")]
async fn open_chunks_never_exceed_the_quota_on_sqlite() {
    open_chunks(Server::start(TEN).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_chunks_never_exceed_the_quota_on_postgres() {
    open_chunks(Server::start_on_postgres(TEN).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn priorities_above_the_limit_are_for_operators() {
    let server = Server::start("[limits]\nmax_priority = 3\n").await;
    let (ann, olga) = (server.at(submitter("ann")), server.at(operator().with(Role::Submitter)));
    let asking = |priority: u8| {
        let mut body = later();
        body["priority"] = json!(priority);
        body
    };
    let refused = ann.send("POST", "/jobs", &asking(4)).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["errors"][0]["pointer"], "/priority");
    let job = ann.submit(&asking(3)).await;
    assert_eq!(ann.json(&job).await["priority"], 3);
    let usual = ann.submit(&later()).await;
    assert_eq!(ann.json(&usual).await["priority"], 3, "the usual one would be too high");

    let raised = json!({ "priority": 9 });
    assert_eq!(ann.send("POST", &format!("{job}/priority"), &raised).await.status, 400);
    assert_eq!(ann.json(&job).await["priority"], 3);
    assert_eq!(olga.send("POST", &format!("{job}/priority"), &raised).await.status, 202);
    assert_eq!(ann.json(&job).await["priority"], 9);
    let urgent = olga.submit(&asking(9)).await;
    assert_eq!(olga.json(&urgent).await["priority"], 9);
    server.stop().await;
}
