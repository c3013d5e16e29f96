//! Schedules of real time, from the built binary: several processes that all schedule, every second has one
//! job at most, whoever is killed; pauses last through restarts, and a deleted schedule fires nothing more.

use std::collections::BTreeMap;
use std::process::Command;

use chrono::{DateTime, FixedOffset, TimeDelta};
use serde_json::{Value, json};

use crate::common::{BRISK, Client, Kind, Process, Stack, eventually};
use crate::endpoint::{ALLOW, Call, Endpoint, done};

/// Slots that are waited for, so that something happens in between.
const SOME: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn every_second_has_one_job_at_most() {
    every_second_has_one_job(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_second_has_one_job_at_most_embedded() {
    every_second_has_one_job(Kind::Embedded).await;
}

async fn every_second_has_one_job(kind: Kind) {
    let endpoint = Endpoint::start(|_: Call| async { done(&json!("done")) }).await;
    let stack = Stack::new(kind, &configuration(&endpoint)).await;
    let mut crew = Crew::start(&stack).await;
    let client = crew.client();
    // Who comes first may find the database empty; the schedule is there as soon as one is ready.
    let (status, schedule) = client.get("/schedules/configured").await.expect("the API answers");
    assert_eq!((status, &schedule["origin"], &schedule["paused"]), (200, &json!("config"), &json!(false)));
    assert_eq!(schedule["nextTimes"].as_array().map(Vec::len), Some(5), "{schedule}");
    assert_eq!(put(&client, "asked").await, 201);
    for name in ["configured", "asked"] {
        fires(&client, name, SOME).await;
    }
    crew.kill_one().await;
    for name in ["configured", "asked"] {
        fires(&crew.client(), name, SOME).await;
    }
    is_read_only(&crew.client()).await;

    // A pause by hand, that lasts; the other goes on.
    outhaul(&crew, &["schedules", "pause", "configured"]);
    let before = slots(&crew.client(), "configured").await;
    crew.restart().await;
    let client = crew.client();
    fires(&client, "asked", SOME).await;
    assert_eq!(slots(&client, "configured").await, before, "it is paused");
    let (_, schedule) = client.get("/schedules/configured").await.expect("the API answers");
    assert_eq!(schedule["paused"], json!(true), "{schedule}");

    // By hand all the same, and once.
    outhaul(&crew, &["schedules", "run", "configured", "--watch"]);
    let after = slots(&client, "configured").await;
    let by_hand = after.iter().find(|slot| !before.contains(slot)).expect("it is recorded").clone();
    assert_eq!(by_hand["outcome"], json!("fired"), "{by_hand}");
    assert_eq!(after.iter().filter(|slot| !before.contains(slot)).count(), 1, "{after:?}");

    let paused_until = outhaul_core::clock::now();
    outhaul(&crew, &["schedules", "resume", "configured"]);
    fires(&client, "configured", SOME).await;
    // A machine that is slow for seconds before a pause or after it may well miss something then.
    let paused_from = before.first().map(slot_of).expect("it had fired");
    for slot in slots(&client, "configured").await {
        let is_judged = slot["outcome"] == json!("missed") && slot_of(&slot) > paused_from;
        assert!(
            !is_judged || first_missed(&slot) > paused_until,
            "what passed during a pause is not missed: {slot}"
        );
    }

    // Deleted while it fires: nothing comes any more, and what came goes on.
    for again in 0..3 {
        if again > 0 {
            assert_eq!(put(&client, "asked").await, 201);
            fires(&client, "asked", 1).await;
        }
        let gone = client.http.delete(format!("{}/schedules/asked", client.base)).send().await;
        assert_eq!(gone.expect("the API answers").status(), 204);
        let (status, _) = client.get("/schedules/asked").await.expect("the API answers");
        assert_eq!(status, 404);
        let left = jobs(&client, "asked").await.len();
        fires(&client, "configured", 2).await;
        assert_eq!(jobs(&client, "asked").await.len(), left, "it is gone");
    }
    let many =
        eventually("twenty slots are shown", || async { slots(&client, "configured").await.len() == 20 });
    many.await.unwrap_or_else(|error| panic!("{error}"));
    outhaul(&crew, &["schedules", "pause", "configured"]);
    each_second_has_one(&client, &by_hand).await;
}

fn configuration(endpoint: &Endpoint) -> String {
    let schedule = "[limits]\nmin_schedule_interval = \"1s\"\n\n\
         [schedules.configured]\ncron = \"* * * * * *\"\noverlap = \"allow\"\n\
         job = { jobType = \"TICK\", payload = {}, labels = { schedule = \"configured\", slot = \"{{slot | iso}}\" } }\n\n";
    // Whoever is killed takes attempts with them.
    let brisk = BRISK.replace("max_attempts = 3", "max_attempts = 20");
    format!("{brisk}{ALLOW}{}{schedule}", endpoint.job_type("TICK", &["work"], ""))
}

async fn put(client: &Client, name: &str) -> u16 {
    let labels = json!({ "schedule": name, "slot": "{{slot | iso}}" });
    let body = json!({
        "cron": "* * * * * *", "timezone": "Asia/Kolkata", "overlap": "allow",
        "job": { "jobType": "TICK", "payload": {}, "labels": labels }
    });
    let put = client.http.put(format!("{}/schedules/{name}", client.base)).json(&body).send().await;
    put.expect("the API answers").status().as_u16()
}

/// What the API shows of a schedule's last slots.
async fn slots(client: &Client, name: &str) -> Vec<Value> {
    let (status, schedule) = client.get(&format!("/schedules/{name}")).await.expect("the API answers");
    assert_eq!(status, 200, "{schedule}");
    schedule["slots"].as_array().expect("slots").clone()
}

/// Waits until so many more slots were fired.
async fn fires(client: &Client, name: &str, more: usize) {
    let before = slots(client, name).await.first().map(slot_of);
    let what = format!("{name} fires {more} times");
    let fired = eventually(&what, || async {
        let new = slots(client, name).await.into_iter();
        let new = new.filter(|slot| Some(slot_of(slot)) > before && slot["outcome"] == json!("fired"));
        new.count() >= more
    });
    fired.await.unwrap_or_else(|error| panic!("{error}"));
}

fn slot_of(slot: &Value) -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339(slot["slot"].as_str().expect("a time")).expect("RFC 3339")
}

/// The first of the seconds that one row says were missed: the slot, or so many earlier ones.
fn first_missed(slot: &Value) -> DateTime<FixedOffset> {
    let detail = slot["detail"].as_str().expect("why");
    let earlier = detail.split(' ').find_map(|word| word.parse().ok()).unwrap_or(0);
    slot_of(slot) - TimeDelta::seconds(earlier)
}

async fn is_read_only(client: &Client) {
    assert_eq!(put(client, "configured").await, 409, "it is changed in the configuration");
    let answer = client.http.delete(format!("{}/schedules/configured", client.base)).send().await;
    assert_eq!(answer.expect("the API answers").status(), 409);
    let body = json!({ "cron": "* * * * * *", "job": { "jobType": "NOBODY", "payload": {} } });
    let answer = client.http.put(format!("{}/schedules/bad", client.base)).json(&body).send().await;
    let answer = answer.expect("the API answers");
    assert_eq!(answer.status(), 400);
    let problem: Value = answer.json().await.expect("a problem");
    assert_eq!(problem["errors"][0]["pointer"], json!("/job/jobType"), "{problem}");
    let (status, _) = client.get("/schedules/bad").await.expect("the API answers");
    assert_eq!(status, 404, "nothing half-done");
}

/// The jobs of a schedule, and the slots they were made for.
async fn jobs(client: &Client, schedule: &str) -> Vec<Value> {
    let all = client.all("/jobs").await;
    all.into_iter().filter(|job| job["labels"]["schedule"] == schedule).collect()
}

/// Each job was done, and no second of a schedule has two, but the one that was run by hand.
async fn each_second_has_one(client: &Client, by_hand: &Value) {
    for name in ["configured", "asked"] {
        let mut seconds: BTreeMap<String, usize> = BTreeMap::new();
        for job in jobs(client, name).await {
            client.wait_for(job["jobId"].as_str().expect("an id"), "COMPLETED").await;
            if job["jobId"] != by_hand["jobId"] {
                *seconds.entry(job["labels"]["slot"].to_string()).or_default() += 1;
            }
        }
        assert!(seconds.len() >= 3 * SOME, "little happened: {seconds:?}");
        assert_eq!(seconds.values().max(), Some(&1), "{name}: {seconds:?}");
    }
    let shown = slots(client, "configured").await;
    assert_eq!(shown.len(), 20, "the last ones are shown");
    assert!(shown.is_sorted_by(|one, next| slot_of(one) > slot_of(next)), "{shown:?}");
}

/// Runs a command of the built binary against the first process.
fn outhaul(crew: &Crew<'_>, args: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outhaul"));
    let output = command.args(args).args(["--server", &crew.api.base]).output().expect("run the program");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Three processes that schedule, of which one has the API; a single one on the embedded default.
struct Crew<'s> {
    stack: &'s Stack,
    api: Process,
    others: Vec<Process>,
    started: usize,
}

const ALL_ROLES: &str = "api,worker,scheduler";

impl<'s> Crew<'s> {
    async fn start(stack: &'s Stack) -> Self {
        let api = stack.serve("api-0", ALL_ROLES).await;
        let mut crew = Self { stack, api, others: Vec::new(), started: 0 };
        crew.hire();
        crew
    }

    fn hire(&mut self) {
        while self.stack.kind != Kind::Embedded && self.others.len() < 2 {
            self.started += 1;
            self.others.push(self.stack.spawn(&format!("other-{}", self.started), "worker,scheduler"));
        }
    }

    fn client(&self) -> Client {
        self.api.client()
    }

    /// `kill -9` of one, and another in its place.
    async fn kill_one(&mut self) {
        if self.others.is_empty() {
            return self.restart().await;
        }
        drop(self.others.remove(0));
        self.hire();
    }

    /// `kill -9` of all, and others in their place.
    async fn restart(&mut self) {
        self.others.clear();
        self.api.kill9();
        self.started += 1;
        self.api = self.stack.serve(&format!("api-{}", self.started), ALL_ROLES).await;
        self.hire();
    }
}
