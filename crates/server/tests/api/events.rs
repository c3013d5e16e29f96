//! Jobs while they run: the stream of events, what `--watch` makes of it, and priorities.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::custom::outhaul;
use super::{Server, header, one_file, path_of};

/// A job that waits until it is cancelled.
fn later() -> Value {
    json!({"items": one_file()["items"], "runAt": "2999-01-01T00:00:00Z"})
}

/// A stream that is read event by event.
struct Events {
    answer: Response,
    text: String,
}

impl Events {
    async fn open(server: &Server, job: &str, headers: &[(&str, &str)]) -> Self {
        let answer = server.ask(Method::GET, &format!("{job}/events"), headers).await;
        assert_eq!(answer.status(), 200);
        Self { answer, text: String::new() }
    }

    /// The next event's id and job; `None` at an end in good order.
    async fn next(&mut self) -> Option<(i64, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                if event.starts_with(':') {
                    continue;
                }
                let lines: Vec<&str> = event.lines().collect();
                let [kind, id, data] = lines[..] else { panic!("{event}") };
                assert_eq!(kind, "event: job");
                let id = id.strip_prefix("id: ").unwrap().parse().unwrap();
                return Some((id, serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap()));
            }
            match self.answer.chunk().await.expect("it is not cut off") {
                Some(more) => self.text.push_str(std::str::from_utf8(&more).unwrap()),
                None => {
                    assert_eq!(self.text, "", "whole events only");
                    return None;
                }
            }
        }
    }

    /// The first job for which it is so.
    async fn until(&mut self, so: impl Fn(&Value) -> bool) -> (i64, Value) {
        loop {
            let (id, job) = self.next().await.expect("it comes before the end");
            if so(&job) {
                return (id, job);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_present_state_comes_first_then_changes_then_the_end() {
    let server = Server::start().await;
    let waits = json!({"jobType": "ORDER", "payload": {"order": 1, "card": "canary", "waits": true}});
    let path = path_of(&server.submit(&waits).await);
    let halfway = |job: &Value| job["steps"][0]["status"] == "DONE";
    // It may move a last time on its way there; what does not move before and after is what comes between.
    let (mut events, first_id) = loop {
        let before = server.until(&path, halfway).await;
        let mut events = Events::open(&server, &path, &[]).await;
        let (id, mut first) = events.next().await.unwrap();
        let after = server.json(&path).await;
        if before["updatedAt"] == after["updatedAt"] {
            first["etaSeconds"] = before["etaSeconds"].clone();
            assert_eq!(first, before, "as GET shows it");
            break (events, id);
        }
    };
    assert_eq!(header(&events.answer, "content-type"), "text/event-stream");
    assert_eq!(header(&events.answer, "cache-control"), "no-store");
    assert_eq!(header(&events.answer, "x-accel-buffering"), "no");

    // Another one comes later and sees the same from then on.
    let mut second = Events::open(&server, &path, &[("last-event-id", "nonsense")]).await;
    second.next().await.unwrap();
    server.world.released.notify_one();
    for events in [&mut events, &mut second] {
        let (last_id, last) = events.until(|job| job["status"] == "COMPLETED").await;
        assert!(last_id > first_id, "{last_id} after {first_id}");
        assert_eq!(last, server.json(&path).await, "with steps and result");
        assert_eq!((&last["result"], &last["progress"]), (&json!({"shipped": 1}), &json!(1.0)));
        assert!(!last["completedAt"].is_null() && !last.to_string().contains("canary"));
        assert!(events.next().await.is_none(), "and nothing more");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_back_gets_what_is_there_now() {
    let server = Server::start().await;
    let path = path_of(&server.submit(&later()).await);
    let mut events = Events::open(&server, &path, &[]).await;
    let (id, job) = events.next().await.unwrap();
    assert_eq!((&job["status"], &job["priority"]), (&json!("SUBMITTED"), &json!(5)));
    drop(events);
    let (status, _) = server.post(&format!("{path}/priority"), &json!({"priority": 9})).await;
    assert_eq!(status, 202);
    let mut events = Events::open(&server, &path, &[("last-event-id", &id.to_string())]).await;
    let (newer, job) = events.next().await.unwrap();
    assert!(newer > id && job["priority"] == 9, "{job}");
    assert_eq!(server.ask(Method::POST, &format!("{path}/cancel"), &[]).await.status(), 202);
    let (_, last) = events.until(|job| !job["completedAt"].is_null()).await;
    assert_eq!(last["status"], "CANCELLED");
    assert!(events.next().await.is_none());

    let mut after = Events::open(&server, &path, &[("last-event-id", "999999")]).await;
    assert_eq!(after.next().await.unwrap().1, last, "also when all is over");
    assert!(after.next().await.is_none());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_nothing_is_refused_before_it_starts() {
    let server = Server::start().await;
    for (path, status) in [
        ("/jobs/J20250101_0000000000000/events", 404),
        ("/jobs/x/events", 404),
        ("/jobs/J20250101_0000000000000/events?from=1", 400),
    ] {
        let answer = server.get(path).await;
        assert_eq!(
            (answer.status().as_u16(), header(&answer, "content-type")),
            (status, "application/problem+json"),
            "{path}"
        );
    }
    let (code, _, errors) = outhaul(&server, &["status", "J20250101_0000000000000", "--watch"]).await;
    assert!(code == 1 && errors.contains("there is no such job"), "{errors}");
    let path = path_of(&server.submit(&later()).await);
    let head = server.ask(Method::HEAD, &format!("{path}/events"), &[]).await;
    assert_eq!((head.status().as_u16(), header(&head, "content-type")), (200, "text/event-stream"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_streams_end_in_good_order_when_the_server_stops() {
    let server = Server::start().await;
    let path = path_of(&server.submit(&later()).await);
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut events = Events::open(&server, &path, &[]).await;
        events.next().await.unwrap();
        streams.push(events);
    }
    server.stop().await;
    for mut events in streams {
        assert!(events.next().await.is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_priority_can_be_changed_until_the_end() {
    let server = Server::start().await;
    let submitted = server.submit(&later()).await;
    let path = path_of(&submitted);
    let call = server.http.post(format!("{}{path}/priority", server.base)).json(&json!({"priority": 9}));
    let answer = call.send().await.unwrap();
    assert_eq!((answer.status().as_u16(), header(&answer, "location")), (202, &*path));
    let changed: Value = answer.json().await.unwrap();
    assert_eq!(changed["priority"], 9);
    assert_eq!(changed, server.json(&path).await, "one and the same answer");

    for (body, pointer) in [
        (json!({"priority": 10}), "/priority"),
        (json!({}), "/priority"),
        (json!({"priority": 1, "x": 1}), "/x"),
        (json!(1), ""),
    ] {
        let (status, problem) = server.post(&format!("{path}/priority"), &body).await;
        assert_eq!((status, &problem["errors"][0]["pointer"]), (400, &json!(pointer)), "{body}");
    }
    let none = server.ask(Method::POST, &format!("{path}/priority"), &[]).await;
    assert_eq!(none.status(), 415);
    let (status, _) = server.post("/jobs/J20250101_0000000000000/priority", &json!({"priority": 1})).await;
    assert_eq!(status, 404);
    assert_eq!(server.json(&path).await["priority"], 9, "nothing of this changed it");

    let id = path.trim_start_matches("/jobs/");
    let (code, said, errors) = outhaul(&server, &["priority", id, "0", "--json"]).await;
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["priority"], 0);
    assert_eq!(outhaul(&server, &["priority", id, "10"]).await.0, 2);

    assert_eq!(server.ask(Method::POST, &format!("{path}/cancel"), &[]).await.status(), 202);
    let (status, problem) = server.post(&format!("{path}/priority"), &json!({"priority": 1})).await;
    assert_eq!(status, 409, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("CANCELLED"), "{problem}");
    let (code, _, errors) = outhaul(&server, &["priority", id, "1"]).await;
    assert!(code == 1 && errors.contains("CANCELLED"), "{errors}");
    server.stop().await;
}

/// `outhaul status --watch`, its stdout line by line.
fn watch(
    base: &str,
    path: &str,
) -> (tokio::process::Child, tokio::io::Lines<BufReader<tokio::process::ChildStdout>>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outhaul"));
    command.args(["status", path.trim_start_matches("/jobs/"), "--watch", "--server", base]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_goes_on_after_a_restart_of_the_server() {
    let server = Server::start_to_come_back().await;
    let path = path_of(&server.submit(&later()).await);
    let (mut child, mut lines) = watch(&server.base, &path);
    let first = lines.next_line().await.unwrap().unwrap();
    assert!(first.contains("SUBMITTED 0%  0/1 chunks"), "{first}");
    let port = server.base.rsplit(':').next().unwrap().parse().unwrap();
    let folder = server.stop_and_keep().await;
    let second = lines.next_line().await.unwrap().unwrap();
    assert_eq!(second, "no answer from the server, trying again");
    let server = Server::start_in(folder, port).await;
    assert_eq!(server.ask(Method::POST, &format!("{path}/cancel"), &[]).await.status(), 202);
    assert_eq!(child.wait().await.unwrap().code(), Some(1), "it is CANCELLED");
    let mut said = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        said += &format!("{line}\n");
    }
    assert!(said.contains("CANCELLED"), "{said}");
    let metrics = server.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("route=\"/jobs/{jobId}/events\""), "it used the stream: {metrics}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_server_is_asked_again_and_again() {
    let looks = Arc::new(AtomicUsize::new(0));
    let count = looks.clone();
    let job = async move || {
        let status = ["IN_PROGRESS", "IN_PROGRESS", "COMPLETED"][count.fetch_add(1, Ordering::SeqCst).min(2)];
        axum::Json(json!({"jobId": "J20260102_0123456789ABC", "status": status, "total": 4, "done": 1,
            "progress": 0.375}))
    };
    let router = axum::Router::new().route("/jobs/J20260102_0123456789ABC", axum::routing::get(job));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let (mut child, mut lines) = watch(&base, "/jobs/J20260102_0123456789ABC");
    let first = lines.next_line().await.unwrap().unwrap();
    assert!(first.contains("IN_PROGRESS 37%  1/4 chunks"), "{first}");
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
    assert_eq!(looks.load(Ordering::SeqCst), 3);
    server.abort();
}
