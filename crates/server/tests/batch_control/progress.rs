//! The progress of a large export, as clients see it: it moves while rows do, never goes backwards, also
//! not when another worker begins anew, and ends with what is in the file.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sqlx::Connection;

use crate::common::{BRISK, Client, Kind, STEADY, Stack, eventually, sha256};
use crate::follower::{Follower, goes_on};
use crate::gates::{Gates, ON_THE_WAY, ROWS};
use crate::site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn it_only_goes_on_where_rows_are_counted() {
    it_only_goes_on(Kind::PostgresLocal, "warehouse_counted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_only_goes_on_where_rows_are_estimated() {
    it_only_goes_on(Kind::PostgresLocal, "warehouse_estimated").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_only_goes_on_embedded() {
    it_only_goes_on(Kind::Embedded, "warehouse_counted").await;
}

/// A job with one large file.
pub(crate) fn large(dataset: &str) -> Value {
    json!({ "dataset": dataset, "items": [{ "key": "ABC", "effectiveDates": ["20200215"] }] })
}

/// Whether all rows in front of a gate are told of. The last ones may be on their way.
pub(crate) fn is_at(gate: i64) -> impl Fn(&Value) -> bool {
    move |job| (gate - 20..gate).contains(&job["rows"].as_i64().expect("rows"))
}

async fn it_only_goes_on(kind: Kind, dataset: &str) {
    let mut gates = Gates::new().await;
    let stack = Stack::new(kind, &format!("{STEADY}{}", gates.source("warehouse", ""))).await;
    let site = Site::start(&stack).await;
    let client = site.client();
    for gate in ON_THE_WAY {
        gates.shut(gate).await;
    }
    let id = client.submit(&large(dataset)).await;
    let looks = Looks::default();
    let polled = tokio::spawn(poll(client.clone(), id.clone(), looks.clone()));
    let mut follower = Follower::connect(&client, &id).await;
    let mut tags = BTreeSet::new();
    for gate in ON_THE_WAY {
        let job = follower.until(&format!("it is at {gate}"), is_at(gate)).await;
        let part = part(&job);
        if dataset.ends_with("counted") {
            let share = job["rows"].as_f64().expect("rows") / ROWS as f64;
            assert!((part - share).abs() < 1e-9, "{share}: {job}");
        }
        assert_eq!((&job["status"], &job["running"]), (&json!("IN_PROGRESS"), &json!(1)), "{job}");
        assert!(job["etaSeconds"].is_i64(), "{job}");
        tags.insert(tag_at_rest(&client, &id).await);
        let seen = eventually("whoever polls has seen it too", || async {
            looks.lock().expect("not poisoned").iter().any(is_at(gate))
        });
        seen.await.unwrap_or_else(|error| panic!("{error}"));
        gates.open(gate).await;
    }
    assert_eq!(tags.len(), ON_THE_WAY.len(), "a tag for every state");

    let seen = follower.end().await;
    polled.await.expect("it was polled to the end");
    let polled = looks.lock().expect("not poisoned").clone();
    for seen in [&seen, &polled] {
        goes_on(seen);
        ends_with_the_file(&client, &id, seen).await;
        let parts: BTreeSet<u64> =
            seen.iter().map(part).filter(|part| 0.0 < *part && *part < 1.0).map(f64::to_bits).collect();
        assert!(parts.len() >= ON_THE_WAY.len(), "{parts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_does_not_go_back_with_another_worker() {
    it_does_not_go_back_with_the_next_attempt(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_does_not_go_back_with_another_embedded_server() {
    it_does_not_go_back_with_the_next_attempt(Kind::Embedded).await;
}

async fn it_does_not_go_back_with_the_next_attempt(kind: Kind) {
    let mut gates = Gates::new().await;
    let brisk = BRISK.replace("max_attempts = 3", "max_attempts = 20");
    let stack = Stack::new(kind, &format!("{brisk}{}", gates.source("warehouse", ""))).await;
    let mut site = Site::start(&stack).await;
    let [first, second, third] = ON_THE_WAY;
    gates.shut(second).await;
    gates.shut(third).await;
    let id = site.client().submit(&large("warehouse_counted")).await;
    let mut follower = Follower::connect(&site.client(), &id).await;
    follower.until("half of it is done", is_at(second)).await;

    // The next attempt does not get as far as this one was, before it has told how far it is.
    let shut = gates.shut_behind(first).await;
    site.kill_worker();
    let before = told_at(&stack).await;
    site.replace_worker().await;
    let behind = shut.await.expect("the gate is shut");
    if kind == Kind::Embedded {
        follower.reconnect(&site.client()).await;
    }
    gates.reached(first).await;
    let told =
        eventually("the next attempt tells how far it is", || async { told_at(&stack).await > before });
    told.await.unwrap_or_else(|error| panic!("{error}\n{}", site.worker().log()));
    let job = site.client().job(&id).await;
    assert!(is_at(second)(&job), "as far as the first attempt was: {job}");
    behind.close().await.expect("the lock goes with the connection");
    gates.open(second).await;
    follower.until("most of it is done", is_at(third)).await;
    gates.open(third).await;

    let seen = follower.end().await;
    goes_on(&seen);
    ends_with_the_file(&site.client(), &id, &seen).await;
    let (_, fence, is_done) = stack.chunks(&id, "SUCCESS").await[0];
    assert!(is_done && fence >= 2, "fence {fence}");
}

/// How far a job says it is.
pub(crate) fn part(job: &Value) -> f64 {
    job["progress"].as_f64().expect("progress")
}

/// When progress was last told, as a number that grows.
async fn told_at(stack: &Stack) -> i64 {
    let time = match stack.kind {
        Kind::Embedded => "updated_at",
        _ => "cast(extract(epoch from updated_at) * 1000000 as bigint)",
    };
    let rows = stack.recorded(&format!("select {time} from chunk_progress")).await;
    assert_eq!(rows.len(), 1, "one chunk runs");
    rows[0][0]
}

/// Every look at a job so far.
type Looks = Arc<Mutex<Vec<Value>>>;

/// Looks at a job up to its end.
async fn poll(client: Client, id: String, looks: Looks) {
    let over = eventually("it ends", || async {
        let job = client.job(&id).await;
        let is_over = !job["completedAt"].is_null();
        looks.lock().expect("not poisoned").push(job);
        is_over
    });
    over.await.unwrap_or_else(|error| panic!("{error}"));
}

/// The entity tag of a job that does not move now; a client that has it gets nothing.
async fn tag_at_rest(client: &Client, id: &str) -> String {
    let url = format!("{}/jobs/{id}", client.base);
    let tag = Mutex::new(String::new());
    let rests = eventually("the job rests", || async {
        let now = client.http.get(&url).send().await.expect("the API answers");
        let now = now.headers()["etag"].to_str().expect("text").to_owned();
        let ask = client.http.get(&url).header("if-none-match", &now);
        let again = ask.send().await.expect("the API answers");
        *tag.lock().expect("not poisoned") = now;
        again.status() == 304
    });
    rests.await.unwrap_or_else(|error| panic!("{error}"));
    tag.into_inner().expect("not poisoned")
}

/// Insists that the last that was seen is the end, and says what is in the file.
async fn ends_with_the_file(client: &Client, id: &str, seen: &[Value]) {
    let last = seen.last().expect("something was seen");
    assert_eq!(*last, client.job(id).await);
    assert_eq!((&last["status"], part(last)), (&json!("COMPLETED"), 1.0), "{last}");
    assert_eq!(seen.iter().filter(|job| part(job) >= 1.0).count(), 1, "1 is said at the end only");
    let file = client.files(id).await.remove(0);
    let bytes = client.download(file["url"].as_str().expect("a URL")).await;
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!((&last["rows"], lines), (&json!(ROWS), usize::try_from(ROWS + 1).expect("small")), "{last}");
    assert_eq!((&last["bytes"], &file["bytes"]), (&json!(bytes.len()), &json!(bytes.len())));
    assert_eq!(file["sha256"], json!(sha256(&bytes)));
}
