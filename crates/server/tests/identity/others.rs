//! Another's job is not there: in no route, list, stream, count or answer to a submission, and in the very words of
//! one that never was.

use outhaul_server::auth::Role;
use serde_json::{Value, json};

use crate::people::{Person, operator, submitter};
use crate::server::{Server, later, positions};

const NEVER: &str = "/jobs/J20200101_0000000000000";

/// Everything that can be asked of a job, with a body where one is needed.
fn questions() -> Vec<(&'static str, String, Option<Value>)> {
    let get = |rest: &str| ("GET", rest.to_owned(), None);
    let post = |rest: &str, body| ("POST", rest.to_owned(), body);
    vec![
        get(""),
        get("/chunks"),
        get("/chunks?status=DONE&limit=1"),
        get("/events"),
        get("/files"),
        get("/files/f1"),
        get("/history"),
        post("/cancel", None),
        post("/retry", None),
        post("/priority", Some(json!({"priority": 9}))),
        post("/priority", Some(json!({"priority": "hunter2"}))),
        post("/priority", None),
    ]
}

/// Makes the job's row unreadable: an answer that needs to read it would differ.
#[tokio::test(flavor = "multi_thread")]
async fn anothers_job_is_not_even_read() {
    let server = Server::start_on_postgres("").await;
    let ann = server.at(submitter("ann"));
    let job = ann.submit(&later()).await;
    server.engine("update job set identity = 'not JSON'").await;
    let bob = server.at(submitter("bob"));
    let theirs = server.call(Some(&bob.token), "GET", &job, None).await;
    let nobodys = server.call(Some(&bob.token), "GET", NEVER, None).await;
    assert_eq!((theirs.status, theirs.body), (nobodys.status, nobodys.body));
    let own = server.call(Some(&ann.token), "GET", &job, None).await;
    assert_eq!(own.status, 500, "whoever may see it reads it");
}

#[tokio::test(flavor = "multi_thread")]
async fn anothers_job_is_answered_like_one_that_never_was() {
    let server = Server::start("").await;
    let ann = server.at(submitter("ann").department("sales"));
    let (waiting, done) = (ann.submit(&later()).await, ann.complete(&positions()).await);
    let viewer = Person { roles: vec![Role::Viewer], ..submitter("vic") };
    for stranger in [
        submitter("bob"),
        submitter("bob").department("sales"),
        viewer.clone().department("audit"),
        viewer.clone(),
        viewer.department("Sales"),
    ] {
        let stranger = server.at(stranger);
        for job in [&waiting, &done] {
            for (method, rest, body) in questions() {
                let call = async |job: &str| {
                    let path = format!("{job}{rest}");
                    let answer = server.call(Some(&stranger.token), method, &path, body.as_ref()).await;
                    let mut headers = answer.headers;
                    headers.remove("x-request-id");
                    headers.remove("date");
                    (answer.status, headers, String::from_utf8(answer.body).unwrap())
                };
                let (theirs, nobodys) = (call(job).await, call(NEVER).await);
                assert_eq!(theirs, nobodys, "{method} {rest}");
                assert_eq!(theirs.0, 404, "{method} {rest}: {theirs:?}");
            }
        }
        for list in ["/jobs", "/jobs?owner=ann", "/jobs?status=COMPLETED", "/jobs?dataset=positions"] {
            assert_eq!(stranger.json(list).await, json!({"items": [], "nextCursor": null}), "{list}");
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_does_what_it_is_for() {
    let server = Server::start("").await;
    let ann = server.at(submitter("ann").department("sales"));
    let job = ann.submit(&later()).await;
    let viewer = Person { roles: vec![Role::Viewer], ..submitter("vic") }.department("sales");
    let both = viewer.clone().with(Role::Submitter);
    // What they are told of: history, retry, priority; and the cancellation of a job that never was.
    for (who, told) in [
        (submitter("ann"), [403, 409, 202, 404]),
        (viewer, [403, 403, 403, 404]),
        (both, [403, 403, 403, 404]),
        (operator(), [200, 409, 202, 404]),
    ] {
        let who = server.at(who);
        for path in ["", "/chunks", "/files"] {
            assert_eq!(who.get(&format!("{job}{path}")).await.status, 200, "{path}");
        }
        assert_eq!(who.get(&format!("{job}/files/f1")).await.status, 404, "there is none");
        assert_eq!(who.items("/jobs").await.len(), 1);
        let heard = [
            who.get(&format!("{job}/history")).await.status,
            who.act("POST", &format!("{job}/retry")).await.status,
            who.send("POST", &format!("{job}/priority"), &json!({"priority": 7})).await.status,
            who.act("POST", &format!("{NEVER}/cancel")).await.status,
        ];
        assert_eq!(heard, told);
    }
    assert_eq!(ann.act("POST", &format!("{job}/cancel")).await.status, 202);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_show_ones_own_the_departments_or_all_and_cursors_are_ones_own() {
    let server = Server::start("").await;
    let (ann, bob) = (server.at(submitter("ann").department("sales")), server.at(submitter("bob")));
    let mut of_ann = Vec::new();
    for _ in 0..3 {
        of_ann.push(ann.submit(&later()).await);
        bob.submit(&later()).await;
    }
    let owners = |items: Vec<Value>| -> Vec<String> {
        items.iter().map(|job| job["owner"].as_str().unwrap().to_owned()).collect()
    };
    let viewer = Person { roles: vec![Role::Viewer], ..submitter("vic") }.department("sales");
    assert_eq!(owners(ann.items("/jobs").await), ["ann"; 3]);
    assert_eq!(owners(server.at(viewer).items("/jobs").await), ["ann"; 3]);
    assert_eq!(server.at(operator()).items("/jobs").await.len(), 6);
    assert_eq!(owners(server.at(operator()).items("/jobs?owner=bob").await), ["bob"; 3]);
    assert_eq!(owners(bob.items("/jobs?owner=bob").await), ["bob"; 3]);
    assert_eq!(owners(bob.items("/jobs?owner=ann").await), [""; 0]);
    // Page by page, others' jobs in between make no difference.
    let first = ann.json("/jobs?limit=2").await;
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = ann.json(&format!("/jobs?limit=2&cursor={cursor}")).await;
    assert_eq!((second["items"].as_array().unwrap().len(), &second["nextCursor"]), (1, &Value::Null));
    for other in [&bob, &server.at(operator())] {
        assert_eq!(other.get(&format!("/jobs?limit=2&cursor={cursor}")).await.status, 400);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idempotency_keys_of_two_callers_never_meet() {
    let server = Server::start("").await;
    let (ann, bob) = (server.at(submitter("ann")), server.at(submitter("bob")));
    let mut body = later();
    body["idempotencyKey"] = json!("k");
    let of_ann = ann.submit(&body).await;
    let of_bob = bob.submit(&body).await;
    assert_ne!(of_ann, of_bob);
    assert_eq!((ann.submit(&body).await, bob.submit(&body).await), (of_ann.clone(), of_bob));
    let mut other = body.clone();
    other["priority"] = json!(9);
    assert_eq!(ann.send("POST", "/jobs", &other).await.status, 422);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn anothers_job_is_none_to_wait_for() {
    let server = Server::start("").await;
    let ann = server.at(submitter("ann").department("sales"));
    let of_ann = ann.submit(&later()).await;
    let after = |job: &str| {
        let job = job.trim_start_matches("/jobs/");
        json!({"jobType": "SINGLE", "payload": {"n": 5}, "dependsOn": [job]})
    };
    let colleague = submitter("bea").with(Role::Viewer).department("sales");
    // In a dry run as in the real one, and in words that are true also for those who see the job.
    for other in [submitter("bob"), colleague, operator()] {
        let at = server.at(other);
        for path in ["/jobs", "/jobs?dryRun=true"] {
            for job in [&*of_ann, NEVER] {
                let refused = at.send("POST", path, &after(job)).await;
                let message = format!("{} is no job that you submitted", job.trim_start_matches("/jobs/"));
                let errors = json!([{"pointer": "/dependsOn", "message": message}]);
                assert_eq!((refused.status, &refused.json()["errors"]), (400, &errors), "{path}");
            }
        }
    }
    assert_eq!(ann.send("POST", "/jobs?dryRun=true", &after(&of_ann)).await.status, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_may_be_there_once_is_not_shown_to_others() {
    let server = Server::start("").await;
    let (ann, bob) = (server.at(submitter("ann")), server.at(submitter("bob")));
    let body = json!({"jobType": "SINGLE", "payload": {"n": 1}, "runAt": "2999-01-01T00:00:00Z",
        "labels": {"canary": "hunter2"}});
    let job = ann.submit(&body).await;
    assert_eq!(ann.submit(&body).await, job);
    let refused = bob.send("POST", "/jobs", &body).await;
    let said = String::from_utf8(refused.body.clone()).unwrap();
    assert_eq!(refused.status, 409, "{said}");
    assert!(!said.contains(job.trim_start_matches("/jobs/")) && !said.contains("hunter2"), "{said}");
    assert_eq!(server.at(operator()).submit(&body).await, job, "operators see it anyway");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_for_those_who_may_look() {
    let server = Server::start("").await;
    let ann = server.at(submitter("ann"));
    let job = ann.complete(&positions()).await;
    let events = ann.get(&format!("{job}/events")).await;
    assert_eq!((events.status, events.header("content-type")), (200, Some("text/event-stream")));
    assert!(String::from_utf8(events.body).unwrap().contains("\"COMPLETED\""));
    assert_eq!(server.at(submitter("bob")).get(&format!("{job}/events")).await.status, 404);
    assert_eq!(server.at(operator()).get(&format!("{job}/events")).await.status, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_file_names_its_successor_only_to_those_who_may_see_it() {
    let server = Server::start("").await;
    let (ann, bob) = (server.at(submitter("ann")), server.at(submitter("bob")));
    let first = ann.complete(&positions()).await;
    let url = ann.file(&first).await["url"].as_str().unwrap().to_owned();
    let mut forced = positions();
    forced["output"] = json!({"force": true});
    server.source("update positions set amount = amount + 1").await;
    let second = bob.complete(&forced).await;
    let id = second.trim_start_matches("/jobs/");
    let gone = ann.get(&url).await;
    assert_eq!((gone.status, gone.json()["detail"].as_str().unwrap().contains(id)), (410, false));
    let gone = server.at(operator()).get(&url).await;
    assert_eq!((gone.status, gone.json()["detail"].as_str().unwrap().contains(id)), (410, true));
    server.stop().await;
}
