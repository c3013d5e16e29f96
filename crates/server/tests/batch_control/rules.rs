//! A diamond by trigger rules: two jobs follow the first, and the last follows both, for many values at
//! once. The order is kept and each fires once, whoever is killed, and also when both parents complete at
//! the same instant in different processes.

use std::collections::BTreeMap;
use std::process::Command;

use chrono::{DateTime, FixedOffset};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::common::{BRISK, Client, Kind, Process, Stack, dates, eventually};
use crate::endpoint::{ALLOW, Call, Endpoint, done};

/// Values for which the diamond is run at the same time.
const VALUES: usize = 50;
const TYPES: [&str; 4] = ["TOP", "LEFT", "RIGHT", "BOTTOM"];

#[tokio::test(flavor = "multi_thread")]
async fn a_diamond_of_rules_fires_once_when_processes_are_killed() {
    a_diamond_fires_once(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_diamond_of_rules_fires_once_when_an_embedded_server_is_killed() {
    a_diamond_fires_once(Kind::Embedded).await;
}

async fn a_diamond_fires_once(kind: Kind) {
    let (open, gate) = watch::channel(false);
    let endpoint = Endpoint::start(move |call: Call| {
        let mut gate = gate.clone();
        async move {
            if ["LEFT", "RIGHT"].contains(&type_of(&call)) {
                // All answers leave at once.
                drop(gate.wait_for(|open| *open).await);
            }
            done(&json!("done"))
        }
    })
    .await;
    let stack = Stack::new(kind, &configuration(&endpoint, kind)).await;
    let mut crew = Crew::start(&stack).await;
    let client = crew.client();
    rules(&client).await;
    for day in days() {
        client.submit(&top(&day)).await;
    }

    // Schedulers die while the first rules fire, and workers while both parents run.
    called(&endpoint, &["LEFT", "RIGHT"], VALUES / 2, 1).await;
    crew.replace_schedulers().await;
    fired(&stack, 2 * VALUES).await;
    called(&endpoint, &["LEFT", "RIGHT"], 2 * VALUES, 1).await;
    // Not where that was one and the same: what lost its worker twice runs alone, and here all must run.
    if kind != Kind::Embedded {
        crew.replace_workers().await;
        called(&endpoint, &["LEFT", "RIGHT"], 2 * VALUES, 2).await;
    }
    assert_eq!(jobs(&crew.client(), "BOTTOM").await.len(), 0, "its parents have not completed");
    // Both parents of all complete at once, and schedulers die while what follows is fired.
    open.send(true).expect("the endpoint waits");
    called(&endpoint, &["BOTTOM"], VALUES / 5, 1).await;
    crew.replace_schedulers().await;
    called(&endpoint, &["BOTTOM"], VALUES / 2, 1).await;
    crew.replace_schedulers().await;
    crew.replace_workers().await;

    let client = crew.client();
    fired(&stack, 3 * VALUES).await;
    let mut all = BTreeMap::new();
    for job_type in TYPES {
        let jobs = jobs(&client, job_type).await;
        assert_eq!(jobs.len(), VALUES, "{job_type}");
        for job in jobs {
            let id = job["jobId"].as_str().expect("an id");
            let job = client.wait_for(id, "COMPLETED").await;
            let day = job["labels"]["day"].as_str().expect("a day").to_owned();
            assert!(all.insert((job_type, day), job).is_none(), "one for each day");
        }
    }
    for day in days() {
        let [top, left, right, bottom] = TYPES.map(|job_type| &all[&(job_type, day.clone())]);
        for (parent, child) in [(top, left), (top, right), (left, bottom), (right, bottom)] {
            assert!(time(parent, "completedAt") <= time(child, "createdAt"), "{child} before {parent}");
        }
        for (child, parents) in [(left, vec![top]), (right, vec![top]), (bottom, vec![left, right])] {
            let ids: Vec<&Value> = parents.iter().map(|parent| &parent["jobId"]).collect();
            let calls = endpoint.calls_of(child["jobId"].as_str().expect("an id"), "work");
            assert_eq!(calls[0].body["payload"]["parents"], json!(ids), "{child}");
        }
    }
    fired(&stack, 3 * VALUES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_parents_complete_at_once_while_no_scheduler_is_alive() {
    let (open, gate) = watch::channel(false);
    let endpoint = Endpoint::start(move |call: Call| {
        let mut gate = gate.clone();
        async move {
            if ["LEFT", "RIGHT"].contains(&type_of(&call)) {
                drop(gate.wait_for(|open| *open).await);
            }
            done(&json!("done"))
        }
    })
    .await;
    let kind = Kind::PostgresLocal;
    let stack = Stack::new(kind, &configuration(&endpoint, kind)).await;
    let mut crew = Crew::start(&stack).await;
    let client = crew.client();
    rules(&client).await;
    for day in days() {
        client.submit(&top(&day)).await;
    }
    called(&endpoint, &["LEFT", "RIGHT"], 2 * VALUES, 1).await;
    crew.schedulers.iter_mut().for_each(Process::kill9);
    open.send(true).expect("the endpoint waits");
    for job_type in ["LEFT", "RIGHT"] {
        for job in jobs(&client, job_type).await {
            client.wait_for(job["jobId"].as_str().expect("an id"), "COMPLETED").await;
        }
    }
    assert_eq!(jobs(&client, "BOTTOM").await.len(), 0, "nobody was there to fire it");
    crew.replace_schedulers().await;
    fired(&stack, 3 * VALUES).await;
    let bottoms = jobs(&client, "BOTTOM").await;
    assert_eq!(bottoms.len(), VALUES);
    for job in bottoms {
        client.wait_for(job["jobId"].as_str().expect("an id"), "COMPLETED").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_failed_and_completed_after_all_fires_its_rule() {
    a_parent_that_failed_fires_after_all(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_failed_and_completed_after_all_fires_its_rule_embedded() {
    a_parent_that_failed_fires_after_all(Kind::Embedded).await;
}

async fn a_parent_that_failed_fires_after_all(kind: Kind) {
    let endpoint = Endpoint::start(|call: Call| async move {
        match (type_of(&call), call.nth) {
            ("RIGHT", 1) => crate::endpoint::status(400),
            _ => done(&json!("done")),
        }
    })
    .await;
    let stack = Stack::new(kind, &configuration(&endpoint, kind)).await;
    let crew = Crew::start(&stack).await;
    let client = crew.client();
    rules(&client).await;
    let day = &days()[0];
    client.complete(&top(day)).await;
    fired(&stack, 2).await;
    let [left, right] = [only(&client, "LEFT").await, only(&client, "RIGHT").await];
    client.wait_for(&left, "COMPLETED").await;
    client.wait_for(&right, "FAILED").await;
    let seen = eventually("the rule waits for the other", || async {
        let (_, rule) = client.get("/triggers/bottom").await.expect("the API answers");
        let waiting = &rule["waiting"][0];
        waiting["value"] == json!(day)
            && waiting["arrived"][0]["jobId"] == json!(left)
            && waiting["missing"] == json!(["job:RIGHT"])
            && rule["fired"] == json!([])
    });
    seen.await.unwrap_or_else(|error| panic!("{error}"));

    let (status, job) =
        client.post(&format!("/jobs/{right}/retry"), &json!({})).await.expect("the API answers");
    assert_eq!(status, 202, "{job}");
    client.wait_for(&right, "COMPLETED").await;
    fired(&stack, 3).await;
    let bottom = only(&client, "BOTTOM").await;
    client.wait_for(&bottom, "COMPLETED").await;
    let (_, rule) = client.get("/triggers/bottom").await.expect("the API answers");
    let firing = &rule["fired"][0];
    assert_eq!(
        ["value", "parents", "state", "jobId"].map(|name| &firing[name]),
        [&json!(day), &json!([left, right]), &json!("fired"), &json!(bottom)],
        "{rule}"
    );

    // Another of one kind makes another set, with what is there of the other.
    let again = json!({ "jobType": "LEFT", "payload": {}, "labels": { "day": day } });
    let again = client.complete(&again).await;
    fired(&stack, 4).await;
    let (_, rule) = client.get("/triggers/bottom").await.expect("the API answers");
    assert_eq!(rule["fired"][0]["parents"], json!([again["jobId"], right]), "{rule}");
    assert_eq!(jobs(&client, "BOTTOM").await.len(), 2);
}

fn configuration(endpoint: &Endpoint, kind: Kind) -> String {
    let types: String = TYPES.iter().map(|name| endpoint.job_type(name, &["work"], "")).collect();
    // Nobody may lose a lease but by a kill. An embedded server knows at its start that the last one is dead.
    let lease = if kind == Kind::Embedded { "lease = \"60s\"" } else { "lease = \"8s\"" };
    let brisk = BRISK.replace("max_attempts = 3", "max_attempts = 20").replace("lease = \"3s\"", lease);
    // Room for all parents at once.
    format!("{}{ALLOW}{types}", brisk.replace("concurrency = 4", "concurrency = 110"))
}

async fn rules(client: &Client) {
    let job = |job_type: &str, parents: &[&str]| {
        json!({
            "jobType": job_type,
            "payload": { "type": job_type, "parents": parents },
            "labels": { "day": "{{label.day}}" }
        })
    };
    let [first, second] = ["{{parents.0.jobId}}", "{{parents.1.jobId}}"];
    for (name, rule) in [
        ("left", json!({ "after": ["job:TOP"], "match": "day", "job": job("LEFT", &[first]) })),
        ("right", json!({ "after": ["job:TOP"], "match": "day", "job": job("RIGHT", &[first]) })),
        (
            "bottom",
            json!({
                "after": ["job:LEFT", "job:RIGHT"], "match": "day", "within": "24h",
                "job": job("BOTTOM", &[first, second])
            }),
        ),
    ] {
        let put = client.http.put(format!("{}/triggers/{name}", client.base)).json(&rule).send().await;
        let put = put.expect("the API answers");
        let status = put.status();
        assert_eq!(status, 201, "{}", put.text().await.unwrap_or_default());
    }
}

fn days() -> Vec<String> {
    dates(u32::try_from(VALUES).expect("small"))
}

fn top(day: &str) -> Value {
    json!({ "jobType": "TOP", "payload": { "type": "TOP" }, "labels": { "day": day } })
}

fn type_of(call: &Call) -> &str {
    call.body["payload"]["type"].as_str().unwrap_or_default()
}

fn time(job: &Value, name: &str) -> DateTime<FixedOffset> {
    let time = job[name].as_str().unwrap_or_else(|| panic!("{name} in {job}"));
    DateTime::parse_from_rfc3339(time).expect("RFC 3339")
}

/// Waits until so many jobs of these types were each called so often.
async fn called(endpoint: &Endpoint, types: &[&str], jobs: usize, times: usize) {
    let what = format!("{jobs} of {types:?} are called {times} times");
    let called = eventually(&what, || async {
        let calls = endpoint.calls();
        let of_types = calls.iter().filter(|call| types.contains(&type_of(call)));
        of_types.filter(|call| call.nth == times).count() >= jobs
    });
    called.await.unwrap_or_else(|error| panic!("{error}"));
}

/// Waits until nothing is to be fired any more, and insists that so many were.
async fn fired(stack: &Stack, times: usize) {
    let times = i64::try_from(times).expect("small");
    let what = format!("{times} have fired");
    let over = eventually(&what, || async {
        let open =
            "select (select count(*) from trigger_due) + count(*) from trigger_fire where state = 'due'";
        let fired = "select count(*) from trigger_fire where state = 'fired'";
        stack.recorded(open).await == [[0]] && stack.recorded(fired).await[0][0] >= times
    });
    over.await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        stack.recorded("select count(*), count(distinct job_id) from trigger_fire").await,
        [[times; 2]]
    );
}

async fn jobs(client: &Client, job_type: &str) -> Vec<Value> {
    let all = client.all("/jobs").await;
    all.into_iter().filter(|job| job["jobType"] == job_type).collect()
}

async fn only(client: &Client, job_type: &str) -> String {
    let jobs = jobs(client, job_type).await;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs[0]["jobId"].as_str().expect("an id").to_owned()
}

/// An API process, two schedulers, and two workers of which one runs what is left and the other what is
/// right, so that both parents complete in different processes; one process that is all of it on the
/// embedded default.
struct Crew<'s> {
    stack: &'s Stack,
    api: Process,
    schedulers: Vec<Process>,
    workers: Vec<Process>,
    started: usize,
}

impl<'s> Crew<'s> {
    async fn start(stack: &'s Stack) -> Self {
        let roles = if stack.kind == Kind::Embedded { "api,worker,scheduler" } else { "api" };
        let api = stack.serve("api", roles).await;
        let mut crew = Self { stack, api, schedulers: Vec::new(), workers: Vec::new(), started: 0 };
        if stack.kind != Kind::Embedded {
            crew.replace_schedulers().await;
            crew.replace_workers().await;
        }
        crew
    }

    fn client(&self) -> Client {
        self.api.client()
    }

    /// `kill -9` of all schedulers, and others in their place.
    async fn replace_schedulers(&mut self) {
        if self.stack.kind == Kind::Embedded {
            return self.replace_all().await;
        }
        self.schedulers.iter_mut().for_each(Process::kill9);
        self.started += 1;
        let names = [1, 2].map(|n| format!("scheduler-{}-{n}", self.started));
        self.schedulers = names.iter().map(|name| self.stack.spawn(name, "scheduler")).collect();
    }

    /// The same of the workers.
    async fn replace_workers(&mut self) {
        if self.stack.kind == Kind::Embedded {
            return self.replace_all().await;
        }
        self.workers.iter_mut().for_each(Process::kill9);
        self.started += 1;
        self.workers = ["LEFT", "RIGHT"].map(|unknown| self.worker_without(unknown)).into();
    }

    /// A worker that does not know a job type, and so leaves it to others.
    fn worker_without(&self, unknown: &str) -> Process {
        let whole = std::fs::read_to_string(self.stack.config()).expect("the configuration");
        let (before, rest) = whole.split_once(&format!("[job_types.{unknown}]")).expect("it is there");
        let rest = rest.find("[job_types.").map_or("", |next| &rest[next..]);
        let path = self.stack.dir.path().join(format!("without-{unknown}.toml"));
        std::fs::write(&path, format!("{before}{rest}")).expect("write the configuration");
        let mut command = Command::new(env!("CARGO_BIN_EXE_outhaul"));
        command.args(["serve", "--roles", "worker", "--config"]).arg(path);
        self.stack.spawn_command(&format!("worker-{}-without-{unknown}", self.started), command)
    }

    async fn replace_all(&mut self) {
        self.api.kill9();
        self.started += 1;
        self.api = self.stack.serve(&format!("api-{}", self.started), "api,worker,scheduler").await;
    }
}
