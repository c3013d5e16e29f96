//! The three-step job whose second step fails twice, and what of it may be seen by whom.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};

use crate::common::history::time;
use crate::common::{Client, Kind, Process, STEADY, Stack};
use crate::endpoint::{ALLOW, Call, Endpoint, done, status};

const STEPS: [&str; 3] = ["render", "deliver", "tell"];
/// Must be seen by nobody but the endpoint.
const CANARY: &str = "canary-payload-5b1f";
const KEY: &[u8] = b"canary-secret-key-of-24-bytes-77";

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_twice_is_called_three_times_and_the_others_once_on_postgres() {
    a_step_that_fails_twice_is_called_three_times_and_the_others_once(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_twice_is_called_three_times_and_the_others_once_embedded() {
    a_step_that_fails_twice_is_called_three_times_and_the_others_once(Kind::Embedded).await;
}

async fn a_step_that_fails_twice_is_called_three_times_and_the_others_once(kind: Kind) {
    let endpoint = Endpoint::start(|call: Call| async move {
        match (call.step.as_str(), call.nth) {
            ("deliver", 1 | 2) => status(503),
            (step, _) => done(&json!({ "by": step, "echo": CANARY.len() })),
        }
    })
    .await;
    let secret = format!("whsec_{}", STANDARD.encode(KEY));
    let types = endpoint.job_type("PARCEL", &STEPS, "secret_env = \"PARCEL_SECRET\"");
    let mut stack = Stack::new(kind, &format!("{STEADY}{ALLOW}{types}")).await;
    stack.environment = vec![("PARCEL_SECRET", secret.clone()), ("OUTHAUL_LOG", "debug".to_owned())];
    let processes = match kind {
        Kind::Embedded => vec![stack.serve("server", "api,worker,scheduler").await],
        _ => vec![stack.serve("api", "api,scheduler").await, stack.spawn("worker", "worker")],
    };
    let client = processes[0].client();
    let payload = json!({ "to": CANARY, "copies": 2 });
    let body = json!({ "jobType": "PARCEL", "payload": payload, "idempotencyKey": "three-steps" });
    let id = client.submit(&body).await;
    let job = client.wait_for(&id, "COMPLETED").await;

    assert_eq!(endpoint.counts(&id, &STEPS), [1, 3, 1]);
    let calls = endpoint.calls();
    assert_eq!(calls.len(), 5, "nobody else was called");
    let order: Vec<&str> = calls.iter().map(|call| call.step.as_str()).collect();
    assert_eq!(order, ["render", "deliver", "deliver", "deliver", "tell"]);
    let attempts: Vec<u64> = calls.iter().map(|call| call.attempt).collect();
    assert_eq!(attempts, [1, 1, 2, 3, 3]);
    for call in &calls {
        assert_eq!(call.key(), format!("{id}/{}", call.step));
        assert_eq!((&call.body["jobType"], &call.body["payload"]), (&json!("PARCEL"), &payload));
        verify(call);
        assert_eq!(trace(call), trace(&calls[0]), "all calls of a job belong to one trace");
    }
    let result = |step: &str| json!({ "by": step, "echo": CANARY.len() });
    assert_eq!(calls[0].body["results"], json!({}));
    assert_eq!(calls[3].body["results"], json!({ "render": result("render") }));
    assert_eq!(calls[4].body["results"], json!({ "render": result("render"), "deliver": result("deliver") }));

    let steps: Vec<(&str, &str)> = job["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .map(|step| (step["name"].as_str().expect("a name"), step["status"].as_str().expect("a status")))
        .collect();
    assert_eq!(steps, STEPS.map(|step| (step, "DONE")), "{job}");
    let times: Vec<_> =
        job["steps"].as_array().into_iter().flatten().map(|step| time(&step["completedAt"])).collect();
    assert!(times.is_sorted(), "{job}");
    assert_eq!(job["result"], result("tell"), "{job}");
    assert_eq!((&job["errorMessage"], &job["done"], &job["total"]), (&Value::Null, &json!(1), &json!(1)));

    // Asked again: the same job, and nothing is called.
    assert_eq!(client.submit(&body).await, id);
    assert_eq!(endpoint.calls().len(), 5);

    let said = everything_said(&stack, &client, &id, &processes).await;
    let hidden = [CANARY, "canary-secret", secret.as_str(), &secret["whsec_".len()..]];
    for (place, text) in &said {
        assert!(!text.is_empty(), "{place} says something");
        for canary in hidden {
            let shown = text.lines().find(|line| line.contains(canary));
            assert_eq!(shown, None, "{place} shows {canary}");
        }
    }
}

/// The signature by the published rules: HMAC-SHA256 over `id.timestamp.body`.
fn verify(call: &Call) {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(KEY).expect("any key");
    mac.update(format!("{}.{}.", call.header("webhook-id"), call.header("webhook-timestamp")).as_bytes());
    mac.update(&call.raw);
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(call.header("webhook-signature"), expected);
    let sent: i64 = call.header("webhook-timestamp").parse().expect("seconds");
    let apart = (outhaul_core::clock::now().timestamp() - sent).abs();
    assert!(apart < 3600, "the time of the call: {sent}");
}

/// The trace that a call belongs to.
fn trace(call: &Call) -> &str {
    call.header("traceparent").split('-').nth(1).expect("a trace id")
}

/// Whatever the API, the command line and the processes say, with where they said it.
async fn everything_said(
    stack: &Stack,
    client: &Client,
    id: &str,
    processes: &[Process],
) -> Vec<(String, String)> {
    let mut said: Vec<(String, String)> =
        processes.iter().map(|process| (format!("the log of {}", process.pid()), process.log())).collect();
    for path in [
        format!("/jobs/{id}"),
        format!("/jobs/{id}/chunks"),
        format!("/jobs/{id}/history"),
        format!("/jobs/{id}/files"),
        "/jobs?jobType=PARCEL".to_owned(),
        "/dead-letters".to_owned(),
        "/queues".to_owned(),
        "/workers".to_owned(),
        "/metrics".to_owned(),
    ] {
        let answer = client.http.get(format!("{}{path}", client.base)).send().await.expect("the API answers");
        assert_eq!(answer.status(), 200, "{path}");
        said.push((path, answer.text().await.expect("text")));
    }
    for arguments in [vec!["status", id, "--json"], vec!["status", id], vec!["jobs", "--json"]] {
        let ran = Command::new(env!("CARGO_BIN_EXE_outhaul"))
            .args(&arguments)
            .args(["--server", &client.base])
            .current_dir(stack.dir.path())
            .output()
            .expect("run the binary");
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        said.push((format!("{arguments:?}"), String::from_utf8_lossy(&ran.stdout).into_owned()));
    }
    said
}
