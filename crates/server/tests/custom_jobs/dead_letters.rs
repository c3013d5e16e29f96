//! Dead letters and history, through the API and the command line: lists with filters, a dry run, a
//! redrive with a limit, and a history in which every transition is an allowed one.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use serde_json::{Value, json};

use crate::common::history::{ALLOWED, time};
use crate::common::{Client, Kind, STEADY, Stack};
use crate::endpoint::{ALLOW, Call, Endpoint, done, status};

const PARCELS: usize = 6;
const LETTERS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_found_and_redriven_on_postgres() {
    dead_letters_are_found_and_redriven(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_found_and_redriven_embedded() {
    dead_letters_are_found_and_redriven(Kind::Embedded).await;
}

async fn dead_letters_are_found_and_redriven(kind: Kind) {
    let repaired = Arc::new(AtomicBool::new(false));
    let is_repaired = repaired.clone();
    let endpoint = Endpoint::start(move |call: Call| {
        let repaired = is_repaired.load(Ordering::SeqCst);
        async move {
            match call.step.as_str() {
                _ if repaired => done(&json!("arrived")),
                "post" => status(503),
                _ => status(400),
            }
        }
    })
    .await;
    let steady = STEADY.replace("max_attempts = 3", "max_attempts = 2");
    let types = endpoint.job_type("PARCEL", &["deliver"], "") + &endpoint.job_type("LETTER", &["post"], "");
    let stack = Stack::new(kind, &format!("{steady}{ALLOW}{types}")).await;
    let server = stack.serve("server", "api,worker,scheduler").await;
    let client = server.client();
    let mut jobs = Vec::new();
    for (job_type, count) in [("PARCEL", PARCELS), ("LETTER", LETTERS)] {
        for n in 0..count {
            let id = client.submit(&json!({ "jobType": job_type, "payload": { "n": n } })).await;
            client.wait_for(&id, "FAILED").await;
            jobs.push(id);
        }
    }

    // The list: newest first, every field, all filters.
    let letters = client.all("/dead-letters").await;
    let newest_first: Vec<&String> = jobs.iter().rev().collect();
    assert_eq!(letters.iter().map(id).collect::<Vec<_>>(), newest_first);
    let fields: BTreeSet<&str> =
        letters[0].as_object().expect("an object").keys().map(String::as_str).collect();
    let named = ["attempts", "cause", "chunkKey", "dataset", "firstFailedAt", "jobId", "jobType"];
    assert_eq!(fields, named.into_iter().chain(["lastFailedAt", "step"]).collect());
    let (letter, parcel) = (&letters[0], &letters[LETTERS]);
    let seen = |letter: &Value| {
        ["chunkKey", "jobType", "dataset", "cause", "attempts", "step"].map(|name| letter[name].clone())
    };
    let words = |text: &str| json!(text);
    assert_eq!(
        seen(letter),
        [
            words("main"),
            words("LETTER"),
            Value::Null,
            words("answered 503 Service Unavailable"),
            json!(2),
            words("post")
        ]
    );
    assert_eq!(
        seen(parcel),
        [
            words("main"),
            words("PARCEL"),
            Value::Null,
            words("answered 400 Bad Request"),
            json!(1),
            words("deliver")
        ]
    );
    assert!(time(&letter["firstFailedAt"]) < time(&letter["lastFailedAt"]), "{letter}");
    assert_eq!(parcel["firstFailedAt"], parcel["lastFailedAt"], "{parcel}");
    let middle = letters[4]["lastFailedAt"].as_str().expect("a time");
    for (filter, expected) in [
        ("jobType=PARCEL", &newest_first[LETTERS..]),
        ("jobType=LETTER", &newest_first[..LETTERS]),
        ("jobType=NONE", &[]),
        ("dataset=positions", &[]),
        ("text=503", &newest_first[..LETTERS]),
        ("text=bAD%20rEQUEST", &newest_first[LETTERS..]),
        ("text=deliver", &newest_first[LETTERS..]),
        (&format!("text={}", jobs[2]), &newest_first[6..7]),
        ("text=%25", &[]),
        (&format!("after={middle}"), &newest_first[..5]),
        (&format!("before={middle}"), &newest_first[5..]),
        (&format!("before={middle}&jobType=LETTER"), &[]),
        (&format!("after={middle}&jobType=PARCEL"), &newest_first[LETTERS..5]),
    ] {
        assert_eq!(pages(&client, filter).await.iter().collect::<Vec<_>>(), *expected, "{filter}");
    }

    // Redrives: told first, then done, the oldest first and not more than asked for.
    for wrong in [json!({}), json!({ "filter": {}, "limit": 0 }), json!({ "filter": { "status": "DEAD" } })] {
        assert_eq!(redrive(&client, &wrong).await.0, 400, "{wrong}");
    }
    let parcels = json!({ "jobType": "PARCEL" });
    let told = redrive(&client, &json!({ "filter": parcels, "limit": 2, "dryRun": true })).await;
    assert_eq!(told, (200, json!({ "matched": 6, "redriven": 0 })));
    assert_eq!(client.all("/dead-letters").await, letters, "a dry run changes nothing");
    repaired.store(true, Ordering::SeqCst);
    let did = redrive(&client, &json!({ "filter": parcels, "limit": 2 })).await;
    assert_eq!(did, (200, json!({ "matched": 6, "redriven": 2 })));
    for id in &jobs[..2] {
        client.wait_for(id, "COMPLETED").await;
    }
    assert_eq!(pages(&client, "").await.iter().collect::<Vec<_>>(), newest_first[..7]);

    // The same from the command line.
    let listed = outhaul(&stack, &client, &["list", "--job-type", "PARCEL"]).expect("it lists");
    assert_eq!(listed["items"].as_array().expect("items").len(), 4);
    let shown = outhaul(&stack, &client, &["show", &jobs[8]]).expect("it shows");
    assert_eq!(shown["deadLetter"], letters[0]);
    assert_eq!(shown["history"], json!(client.all(&format!("/jobs/{}/history", jobs[8])).await));
    assert!(
        outhaul(&stack, &client, &["redrive"]).is_none(),
        "a redrive of nothing in particular is refused"
    );
    assert!(outhaul(&stack, &client, &["show", &jobs[0]]).is_none(), "it is not dead any more");
    let told = outhaul(&stack, &client, &["redrive", "--all", "--dry-run"]).expect("it answers");
    assert_eq!(told, json!({ "matched": 7, "redriven": 0 }));
    let did =
        outhaul(&stack, &client, &["redrive", "--job-type", "PARCEL", "--limit", "3"]).expect("it answers");
    assert_eq!(did, json!({ "matched": 4, "redriven": 3 }));
    for id in &jobs[2..5] {
        client.wait_for(id, "COMPLETED").await;
    }
    assert_eq!(pages(&client, "jobType=PARCEL").await, [jobs[5].clone()]);

    // Many at once: each dead letter is redriven by one of them.
    let asked = json!({ "filter": { "text": "503" } });
    let answers = join_all((0..10).map(|_| redrive(&client, &asked))).await;
    let redriven: u64 = answers.iter().map(|(_, answer)| answer["redriven"].as_u64().expect("a count")).sum();
    assert!(answers.iter().all(|(code, _)| *code == 200), "{answers:?}");
    assert_eq!(redriven, LETTERS as u64, "{answers:?}");
    for id in &jobs[PARCELS..] {
        client.wait_for(id, "COMPLETED").await;
    }

    // What happened to each of them, in order.
    let first = [(None, "QUEUED"), (Some("QUEUED"), "RUNNING"), (Some("RUNNING"), "RETRY")];
    let death = [(Some("RETRY"), "DEAD")];
    let again = [(Some("RETRY"), "QUEUED"), (Some("QUEUED"), "RUNNING"), (Some("RUNNING"), "RETRY")];
    let end = [(Some("DEAD"), "QUEUED"), (Some("QUEUED"), "RUNNING"), (Some("RUNNING"), "SUCCESS")];
    for (place, job) in jobs.iter().enumerate() {
        let expected = match place {
            5 => [&first[..], &death].concat(),
            0..PARCELS => [&first[..], &death, &end].concat(),
            _ => [&first[..], &again, &death, &end].concat(),
        };
        assert_eq!(history(&client, job).await, as_text(&expected), "{job}");
    }
    assert_eq!(endpoint.calls().len(), 5 * 2 + 1 + LETTERS * 3);
}

fn id(letter: &Value) -> &str {
    letter["jobId"].as_str().expect("a jobId")
}

/// Jobs of the dead letters that a filter finds, over pages of two.
async fn pages(client: &Client, filter: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/dead-letters?limit=2&{filter}{cursor}");
        let (code, page) = client.get(path.trim_end_matches('&')).await.expect("the API answers");
        assert_eq!(code, 200, "{filter}: {page}");
        found.extend(page["items"].as_array().expect("items").iter().map(|letter| id(letter).to_owned()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

async fn redrive(client: &Client, body: &Value) -> (u16, Value) {
    client.post("/dead-letters/redrive", body).await.expect("the API answers")
}

/// `outhaul dead-letters … --json`; `None`: it ended with a failure.
fn outhaul(stack: &Stack, client: &Client, arguments: &[&str]) -> Option<Value> {
    let ran = Command::new(env!("CARGO_BIN_EXE_outhaul"))
        .arg("dead-letters")
        .args(arguments)
        .args(["--json", "--server", &client.base])
        .current_dir(stack.dir.path())
        .output()
        .expect("run the binary");
    ran.status.success().then(|| serde_json::from_slice(&ran.stdout).expect("JSON"))
}

type Step = (Option<String>, String);

fn as_text(steps: &[(Option<&str>, &str)]) -> Vec<Step> {
    steps.iter().map(|(from, to)| (from.map(str::to_owned), (*to).to_owned())).collect()
}

/// Where a job's chunk went, after a look that it may go there, from where it was, and not back in time.
async fn history(client: &Client, job: &str) -> Vec<Step> {
    let rows = client.all(&format!("/jobs/{job}/history")).await;
    let mut steps: Vec<Step> = Vec::new();
    let mut before = None;
    for row in &rows {
        let from = row["from"].as_str().map(str::to_owned);
        let to = row["to"].as_str().expect("a state").to_owned();
        assert!(ALLOWED.contains(&(from.as_deref(), to.as_str())), "{job}: {row}");
        assert_eq!(from, steps.last().map(|(_, to)| to.clone()), "{job}: it goes on where it was: {rows:?}");
        let at = Some(time(&row["at"]));
        assert!(before <= at, "{job}: {rows:?}");
        assert_eq!(row["chunkKey"], "main");
        if to == "RETRY" || to == "DEAD" {
            assert!(row["cause"].is_string() && row["step"].is_string(), "{row}");
        }
        before = at;
        steps.push((from, to));
    }
    steps
}
