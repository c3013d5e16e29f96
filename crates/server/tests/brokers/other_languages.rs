//! The contract of the work queue, from Python: what a message says, and that one from another language is
//! as good as our own.

use std::collections::BTreeMap;

use chrono::DateTime;
use outhaul_testkit::servers::BrokerKind;
use serde_json::{Value, json};

use crate::common::{STEADY, eventually};
use crate::site::{SOURCES, Site};
use crate::with_both;

with_both!(python_reads_and_writes_the_work_queue);

const DATES: [&str; 3] = ["20250215", "20250216", "20250315"];

/// Never called: it is cancelled before there is a worker.
const PARCEL: &str = "[http]\nallow = [\"localhost\"]\n\n\
     [job_types.PARCEL]\nsteps = [{ name = \"deliver\", http = \"http://127.0.0.1:9/deliver\" }]\n\n";

async fn python_reads_and_writes_the_work_queue(kind: BrokerKind) {
    // One at a time, in the order of their messages.
    let steady = STEADY.replace("concurrency = 4", "concurrency = 1");
    let site = Site::shared(kind, "expiry = \"1d\"", &format!("{steady}{SOURCES}{PARCEL}")).await;
    let api = site.stack.serve("api", "api").await;
    let mut scheduler = site.stack.spawn("scheduler", "scheduler");
    let client = api.client();
    let export = json!({ "dataset": "free", "items": [{ "key": "ÄBC", "effectiveDates": DATES }] });
    let id = client.submit(&export).await;
    let parcel = client.submit(&json!({ "jobType": "PARCEL", "payload": { "n": 1 } })).await;
    site.holds_at_least(&site.work, (4, 0)).await;
    // So that nobody announces anything any more.
    assert!(scheduler.terminate(), "a clean end:\n{}", scheduler.log());

    let (there, _) = site.counts(&site.work).await;
    let messages = site.take(&site.work, usize::try_from(there).expect("few"));
    let mut bodies: BTreeMap<String, Value> = BTreeMap::new();
    for message in &messages {
        let body = message.json();
        let name = format!("{} {}", body["jobId"].as_str().expect("text"), body["effectiveDate"]);
        let message_id = message.message_id.as_deref().expect("a message id");
        let chunk = [&body["jobId"], &body["chunkKey"]].map(|part| part.as_str().expect("text")).join("/");
        assert!(message.persistent && message_id.starts_with(&chunk), "{message:?}");
        let queue = if body["key"].is_null() { None } else { Some("source:free") };
        assert!(queue.is_none_or(|queue| message.queue.as_deref() == Some(queue)), "{message:?}");
        bodies.insert(name, body);
    }
    let chunks = client.all(&format!("/jobs/{id}/chunks")).await;
    let mut expected: BTreeMap<String, Value> = chunks
        .iter()
        .map(|chunk| {
            let body = json!({
                "jobId": id, "chunkKey": chunk["chunkKey"], "key": "ÄBC", "effectiveDate": chunk["effectiveDate"]
            });
            (format!("{id} {}", chunk["effectiveDate"]), body)
        })
        .collect();
    let custom = json!({ "jobId": parcel, "chunkKey": "main", "key": null, "effectiveDate": null });
    expected.insert(format!("{parcel} null"), custom);
    assert_eq!(bodies, expected);

    // Python has all messages. A worker doubts them, and announces anew what they were about, but not at once:
    // what Python puts back in the short form is run before it, though it would not be the first.
    let path = format!("/jobs/{parcel}/cancel");
    let (status, cancelled) = client.post(&path, &json!({})).await.expect("the API answers");
    assert_eq!((status, &cancelled["status"]), (202, &json!("CANCELLED")), "{cancelled}");
    let short = |date: &str| json!({ "jobId": id, "key": "ÄBC", "effectiveDate": date }).to_string();
    site.send(&[short(DATES[1]).as_bytes()]);
    let _worker = site.stack.spawn("worker", "worker");
    let ran = eventually("a chunk has run", || async { client.job(&id).await["done"].as_i64() >= Some(1) });
    ran.await.unwrap_or_else(|error| panic!("{error}"));
    site.send(&[short(DATES[0]).as_bytes(), short(DATES[2]).as_bytes()]);
    client.wait_for(&id, "COMPLETED").await;
    let chunks = client.all(&format!("/jobs/{id}/chunks")).await;
    let started = chunks.iter().map(|chunk| chunk["startedAt"].as_str().expect("a time"));
    let started = started.map(|at| DateTime::parse_from_rfc3339(at).expect("RFC 3339"));
    let first = chunks.iter().zip(started).min_by_key(|(_, started)| *started).expect("three chunks").0;
    assert_eq!(first["effectiveDate"], DATES[1], "{chunks:?}");
    site.is_empty().await;
}
