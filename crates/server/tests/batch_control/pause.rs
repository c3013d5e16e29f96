//! A paused queue starts nothing, whoever is restarted meanwhile, and the others go on.

use serde_json::{Value, json};

use crate::common::{Client, Kind, STEADY, Stack, dates};
use crate::gates::{Gates, SMALL};
use crate::site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_queue_starts_nothing_and_others_go_on() {
    a_paused_queue_starts_nothing(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_queue_starts_nothing_and_others_go_on_embedded() {
    a_paused_queue_starts_nothing(Kind::Embedded).await;
}

async fn a_paused_queue_starts_nothing(kind: Kind) {
    let mut gates = Gates::new().await;
    let sources = gates.source("north", "") + &gates.source("south", "");
    // Who is killed here owns nothing then.
    let stack = Stack::new(kind, &format!("{STEADY}{sources}")).await;
    let mut site = Site::start(&stack).await;
    let client = site.client();
    // What runs when the queue is paused goes on to its end.
    gates.shut(SMALL).await;
    let running = client.submit(&export("north", "RUNNING", 1)).await;
    gates.reached(SMALL).await;
    let (status, queue) =
        client.post("/queues/source:north/pause", &json!({})).await.expect("the API answers");
    assert_eq!((status, &queue["paused"]), (200, &json!(true)), "{queue}");
    gates.open(SMALL).await;
    client.wait_for(&running, "COMPLETED").await;

    let waits = client.submit(&export("north", "WAITS", 10)).await;
    client.complete(&export("south", "FIRST", 10)).await;
    has_not_started(&client, &waits).await;
    site.replace_api().await;
    site.replace_worker().await;
    let client = site.client();
    client.complete(&export("south", "SECOND", 10)).await;
    has_not_started(&client, &waits).await;
    let (_, queues) = client.get("/queues").await.expect("the API answers");
    let shown: Vec<[&Value; 4]> = queues["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|queue| ["name", "paused", "depth", "running"].map(|name| &queue[name]))
        .collect();
    let north = [&json!("source:north"), &json!(true), &json!(10), &json!(0)];
    assert_eq!(shown, [north, [&json!("source:south"), &json!(false), &json!(0), &json!(0)]]);

    let (status, queue) =
        client.post("/queues/source:north/resume", &json!({})).await.expect("the API answers");
    assert_eq!((status, &queue["paused"]), (200, &json!(false)), "{queue}");
    client.wait_for(&waits, "COMPLETED").await;
}

fn export(source: &str, key: &str, chunks: u32) -> Value {
    json!({ "dataset": format!("{source}_small"), "items": [{ "key": key, "effectiveDates": dates(chunks) }] })
}

async fn has_not_started(client: &Client, id: &str) {
    let job = client.job(id).await;
    assert_eq!((&job["status"], &job["pending"]), (&json!("SUBMITTED"), &json!(10)), "{job}");
    for chunk in client.all(&format!("/jobs/{id}/chunks")).await {
        assert_eq!((&chunk["status"], &chunk["startedAt"]), (&json!("PENDING"), &Value::Null), "{chunk}");
    }
}
