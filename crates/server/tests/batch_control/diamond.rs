//! Four jobs, of which two wait for the first and the last for both, while workers are killed: the order
//! is kept, and each is done once.

use chrono::{DateTime, FixedOffset};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::common::{BRISK, Client, Kind, Process, Stack, eventually};
use crate::endpoint::{ALLOW, Call, Endpoint, done};

#[tokio::test(flavor = "multi_thread")]
async fn a_diamond_keeps_its_order_when_workers_are_killed() {
    a_diamond_keeps_its_order(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_diamond_keeps_its_order_when_an_embedded_server_is_killed() {
    a_diamond_keeps_its_order(Kind::Embedded).await;
}

async fn a_diamond_keeps_its_order(kind: Kind) {
    let (open, gate) = watch::channel(false);
    let endpoint = Endpoint::start(move |call: Call| {
        let mut gate = gate.clone();
        async move {
            match (call.body["payload"]["place"].as_str(), call.nth) {
                (Some("last"), _) => {}
                // Whoever asks first is killed.
                (_, 1) => std::future::pending().await,
                (Some("first"), _) => {}
                // Both answers leave at once.
                _ => drop(gate.wait_for(|open| *open).await),
            }
            done(&json!("done"))
        }
    })
    .await;
    let types = endpoint.job_type("NODE", &["work"], "");
    // One at a time, so that both in the middle are in different processes.
    let at_once = if kind == Kind::Embedded { "concurrency = 4" } else { "concurrency = 1" };
    let brisk = BRISK.replace("max_attempts = 3", "max_attempts = 20").replace("concurrency = 4", at_once);
    let stack = Stack::new(kind, &format!("{brisk}{ALLOW}{types}")).await;
    let mut site = Crew::start(&stack).await;
    let client = site.client();
    let node = |place: &str, parents: &[&String]| json!({ "jobType": "NODE", "payload": { "place": place }, "dependsOn": parents });
    let first = client.submit(&node("first", &[])).await;
    let left = client.submit(&node("left", &[&first])).await;
    let right = client.submit(&node("right", &[&first])).await;
    let last = client.submit(&node("last", &[&left, &right])).await;

    asked(&endpoint, &[&first], 1).await;
    site.kill().await;
    asked(&endpoint, &[&left, &right], 1).await;
    site.kill().await;
    asked(&endpoint, &[&left, &right], 2).await;
    assert_eq!(site.client().job(&last).await["status"], "SUBMITTED");
    open.send(true).expect("the endpoint waits");
    let client = site.client();
    let end = client.wait_for(&last, "COMPLETED").await;

    let [top, left_end, right_end] = [&first, &left, &right].map(|id| client.job(id));
    let [top, left_end, right_end] = [top.await, left_end.await, right_end.await];
    for (parent, child) in [(&top, &left_end), (&top, &right_end), (&left_end, &end), (&right_end, &end)] {
        assert_eq!(parent["status"], "COMPLETED", "{parent}");
        assert!(time(&parent["completedAt"]) <= time(&child["startedAt"]), "{child} began before {parent}");
    }
    for (id, released) in [(&first, 0), (&left, 1), (&right, 1), (&last, 1)] {
        let history = client.all(&format!("/jobs/{id}/history")).await;
        let count = |from: &str, to: &str| {
            history.iter().filter(|row| row["from"] == from && row["to"] == to).count()
        };
        assert_eq!((count("CREATED", "QUEUED"), count("RUNNING", "SUCCESS")), (released, 1), "{history:?}");
        let calls = endpoint.calls_of(id, "work").len();
        assert!(calls <= count("QUEUED", "RUNNING"), "{calls} calls: {history:?}");
    }
    assert_eq!(endpoint.calls_of(&last, "work").len(), 1, "nobody was killed");
    let order: Vec<String> = endpoint.calls().into_iter().map(|call| call.job).collect();
    let begin = |id: &String| order.iter().position(|job| job == id).expect("it was called");
    let over = |id: &String| order.iter().rposition(|job| job == id).expect("it was called");
    assert!(over(&first) < begin(&left).min(begin(&right)), "{order:?}");
    assert!(over(&left).max(over(&right)) < begin(&last), "{order:?}");
}

fn time(value: &Value) -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339(value.as_str().expect("a time")).expect("RFC 3339")
}

/// Waits until each of these jobs has been asked for so often.
async fn asked(endpoint: &Endpoint, jobs: &[&String], times: usize) {
    let enough = || jobs.iter().all(|job| endpoint.calls_of(job, "work").len() >= times);
    let what = format!("{jobs:?} are called {times} times");
    let called = eventually(&what, || async { enough() });
    called.await.unwrap_or_else(|error| panic!("{error}"));
}

/// An API process and two workers; one process that is all of it on the embedded default.
struct Crew<'s> {
    stack: &'s Stack,
    api: Process,
    workers: Vec<Process>,
    started: usize,
}

impl<'s> Crew<'s> {
    async fn start(stack: &'s Stack) -> Self {
        let roles = if stack.kind == Kind::Embedded { "api,worker,scheduler" } else { "api" };
        let api = stack.serve("api", roles).await;
        let mut crew = Self { stack, api, workers: Vec::new(), started: 0 };
        crew.hire();
        crew
    }

    fn hire(&mut self) {
        if self.stack.kind != Kind::Embedded {
            let names = [0, 1].map(|n| format!("worker-{}", self.started + n));
            self.workers = names.map(|name| self.stack.spawn(&name, "worker")).into();
            self.started += 2;
        }
    }

    fn client(&self) -> Client {
        self.api.client()
    }

    /// `kill -9` of everybody who works, and others in their place.
    async fn kill(&mut self) {
        if self.workers.is_empty() {
            self.api.kill9();
            self.api = self.stack.serve("next-api", "api,worker,scheduler").await;
        }
        self.workers.iter_mut().for_each(Process::kill9);
        self.hire();
    }
}
