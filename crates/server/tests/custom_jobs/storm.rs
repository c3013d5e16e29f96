//! 40 keys (200 at full size), each submitted by 50 clients at once over three API processes, which are killed
//! with `kill -9` and restarted meanwhile: one job per key, and everybody is told the same.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use outhaul_testkit::size::size;
use serde_json::{Value, json};

use crate::common::{Kind, Process, STEADY, Stack, eventually};
use crate::endpoint::{ALLOW, Call, Endpoint, done};

const CLIENTS: usize = 50;
/// How many keys are stormed at the same time.
const AT_ONCE: usize = 4;

/// Where the API processes are now.
type Addresses = Arc<RwLock<Vec<String>>>;

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_a_storm_is_one_job() {
    let keys = size(40, 200);
    let endpoint = Endpoint::start(|call: Call| async move { done(&call.body["payload"]) }).await;
    let types = endpoint.job_type("PARCEL", &["deliver"], "");
    // Nothing runs before the storm is over, so every answer for a key must be the same in every field.
    let stack = Arc::new(Stack::new(Kind::PostgresLocal, &format!("{STEADY}{ALLOW}{types}")).await);
    let mut processes = Vec::new();
    for n in 0..3 {
        processes.push(stack.serve(&format!("api-{n}"), "api").await);
    }
    let addresses: Addresses =
        Arc::new(RwLock::new(processes.iter().map(|process| process.base.clone()).collect()));
    let answered = Arc::new(AtomicUsize::new(0));
    let cut_off = Arc::new(AtomicUsize::new(0));
    let killer = tokio::spawn(kill_in_turn(
        stack.clone(),
        processes,
        addresses.clone(),
        answered.clone(),
        keys * CLIENTS,
    ));

    let http = reqwest::Client::new();
    let storm = futures::stream::iter(0..keys).map(|key| {
        let submit =
            |client| submit(http.clone(), addresses.clone(), key, client, answered.clone(), cut_off.clone());
        let clients: Vec<_> = (0..CLIENTS).map(submit).collect();
        async move { (key, join_all(clients).await) }
    });
    let answers: Vec<(usize, Vec<Value>)> = storm.buffer_unordered(AT_ONCE).collect().await;
    let (processes, kills) = killer.await.expect("the killer ends");
    let cut_off = cut_off.load(Ordering::SeqCst);
    assert!(kills >= 6 && cut_off > 0, "little happened: {kills} kills, {cut_off} calls cut off");

    let mut ids = BTreeSet::new();
    for (key, answers) in &answers {
        assert_eq!(answers.len(), CLIENTS);
        for answer in answers {
            assert_eq!(answer, &answers[0], "key {key}: everybody is told the same");
        }
        ids.insert(answers[0]["jobId"].as_str().expect("a jobId").to_owned());
    }
    assert_eq!(ids.len(), keys, "one job per key");
    let client = processes[0].client();
    let listed = client.all("/jobs").await;
    let listed: BTreeSet<String> =
        listed.iter().map(|job| job["jobId"].as_str().expect("a jobId").to_owned()).collect();
    assert_eq!(listed, ids, "and no other");
    assert_eq!(stack.recorded("select count(*) from job").await, [[keys as i64]]);
    assert_eq!(stack.recorded("select count(*) from job_chunk").await, [[keys as i64]]);

    let _worker = stack.spawn("worker", "worker");
    let done = eventually("all are done", || async {
        let sql = "select count(*) from job where status = 'COMPLETED'";
        stack.recorded(sql).await == [[keys as i64]]
    });
    done.await.unwrap_or_else(|error| panic!("{error}"));
    let called: BTreeSet<String> = endpoint.calls().into_iter().map(|call| call.job).collect();
    assert_eq!(called, ids);
}

/// Submits until somebody answers, as a client does that lost its connection.
async fn submit(
    http: reqwest::Client,
    addresses: Addresses,
    key: usize,
    client: usize,
    answered: Arc<AtomicUsize>,
    cut_off: Arc<AtomicUsize>,
) -> Value {
    let body =
        json!({ "jobType": "PARCEL", "payload": { "key": key }, "idempotencyKey": format!("key-{key}") });
    for attempt in 0.. {
        let base = {
            let addresses = addresses.read().expect("not poisoned");
            addresses[(client + attempt) % addresses.len()].clone()
        };
        let sent = http.post(format!("{base}/jobs")).json(&body).send().await;
        let told = match sent {
            Ok(answer) if answer.status() == 202 => {
                let location = answer.headers()["location"].to_str().expect("text").to_owned();
                answer.json::<Value>().await.map(|job| (location, job))
            }
            // It is there, and too busy; that is not what is counted here.
            Ok(answer) if answer.status() == 503 => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            Ok(answer) => panic!("{}: {}", answer.status(), answer.text().await.unwrap_or_default()),
            Err(error) => Err(error),
        };
        if let Ok((location, job)) = told {
            assert_eq!(location, format!("/jobs/{}", job["jobId"].as_str().expect("a jobId")));
            answered.fetch_add(1, Ordering::SeqCst);
            return job;
        }
        cut_off.fetch_add(1, Ordering::SeqCst);
        // A process that is not there refuses at once; asking it all the time would only take its time.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    unreachable!("a client asks until it is answered")
}

/// Kills one process after another, each when so many more submissions are answered.
async fn kill_in_turn(
    stack: Arc<Stack>,
    mut processes: Vec<Process>,
    addresses: Addresses,
    answered: Arc<AtomicUsize>,
    submissions: usize,
) -> (Vec<Process>, usize) {
    let rounds = 8;
    for round in 1..=rounds {
        let enough = round * submissions / (rounds + 1);
        let going = eventually("the storm goes on", || async { answered.load(Ordering::SeqCst) >= enough });
        going.await.unwrap_or_else(|error| panic!("{error}"));
        let victim = round % processes.len();
        processes[victim].kill9();
        processes[victim] = stack.serve(&format!("api-{victim}-{round}"), "api").await;
        addresses.write().expect("not poisoned")[victim] = processes[victim].base.clone();
    }
    (processes, rounds)
}
