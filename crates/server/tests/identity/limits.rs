//! How much one caller may ask for, and how much they may have open.

use serde_json::json;

use crate::people::{operator, submitter};
use crate::server::{Server, later};

#[tokio::test(flavor = "multi_thread")]
async fn too_many_requests_of_one_caller_are_429_and_others_go_on() {
    let server = Server::start("[limits]\nrequests_per_second = 1\nburst = 5\n").await;
    let (ann, bob) = (server.at(submitter("ann")), server.at(submitter("bob")));
    let mut refused = 0;
    for _ in 0..20 {
        let answer = ann.get("/jobs").await;
        if answer.status == 429 {
            refused += 1;
            assert!(answer.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
            assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        } else {
            assert_eq!(answer.status, 200);
        }
    }
    assert!(refused > 0);
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
    let calls = (0..50).map(|_| {
        let call = server.http.post(format!("{}/jobs", server.base)).bearer_auth(&ann.token).json(&later());
        tokio::spawn(async move {
            let answer = call.send().await.unwrap();
            (answer.status().as_u16(), answer.headers().contains_key("retry-after"))
        })
    });
    let answers = futures::future::join_all(calls.collect::<Vec<_>>()).await;
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
    // A job that alone is too large never fits.
    let dates: Vec<String> = (10..22).map(|day| format!("202502{day}")).collect();
    let large = json!({"items": [{"key": "ABC", "effectiveDates": dates}], "runAt": "2999-01-01T00:00:00Z"});
    assert_eq!(server.at(operator()).send("POST", "/jobs", &large).await.status, 429);
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
