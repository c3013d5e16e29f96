//! Queues that may not run, or only slowly, keep nobody else waiting, though their chunks are announced.

use outhaul_testkit::servers::BrokerKind;
use serde_json::{Value, json};

use crate::common::gate::Gate;
use crate::common::{STEADY, dates, eventually};
use crate::site::{SOURCES, Site};
use crate::with_both;

with_both!(a_paused_queue_blocks_nobody_else, an_exhausted_budget_blocks_nobody_else);

const WINDOW: i64 = 20;

async fn a_paused_queue_blocks_nobody_else(kind: BrokerKind) {
    let site = Site::shared(kind, &format!("window = {WINDOW}\n"), &format!("{STEADY}{SOURCES}")).await;
    let api = site.stack.serve("api", "api").await;
    let _others =
        [("worker", "worker"), ("scheduler", "scheduler")].map(|(name, roles)| site.stack.spawn(name, roles));
    let client = api.client();
    let mut gate = Gate::shut(&site.stack).await;
    let waits = client.submit(&export("gated", 40)).await;
    gate.reached_by(4).await;
    // So that there are messages of it when it is paused.
    site.announced(WINDOW).await;
    let (status, queue) =
        client.post("/queues/source:gated/pause", &json!({})).await.expect("the API answers");
    assert_eq!((status, &queue["paused"]), (200, &json!(true)), "{queue}");
    gate.open().await;
    let ended = eventually("what ran has ended", || async { client.job(&waits).await["done"] == 4 });
    ended.await.unwrap_or_else(|error| panic!("{error}"));

    client.complete(&export("free", 30)).await;
    let job = client.job(&waits).await;
    assert_eq!((&job["done"], &job["running"], &job["pending"]), (&json!(4), &json!(0), &json!(36)), "{job}");
    // Also its messages keep no place.
    site.holds(&site.work, (0, 0)).await;

    let (status, queue) =
        client.post("/queues/source:gated/resume", &json!({})).await.expect("the API answers");
    assert_eq!((status, &queue["paused"]), (200, &json!(false)), "{queue}");
    client.wait_for(&waits, "COMPLETED").await;
    site.is_empty().await;
}

async fn an_exhausted_budget_blocks_nobody_else(kind: BrokerKind) {
    let sources = SOURCES.replacen("max_concurrent = 100", "max_concurrent = 1", 1);
    let site = Site::shared(kind, &format!("window = {WINDOW}\n"), &format!("{STEADY}{sources}")).await;
    let api = site.stack.serve("api", "api").await;
    let _others = [("worker-1", "worker"), ("worker-2", "worker"), ("scheduler", "scheduler")]
        .map(|(name, roles)| site.stack.spawn(name, roles));
    let client = api.client();
    let mut gate = Gate::shut(&site.stack).await;
    let narrow = client.submit(&export("gated", 60)).await;
    gate.reached_by(1).await;
    site.announced(WINDOW).await;

    client.complete(&export("free", 60)).await;
    let job = client.job(&narrow).await;
    assert_eq!((&job["running"], &job["pending"]), (&json!(1), &json!(59)), "{job}");
    gate.open().await;
    client.wait_for(&narrow, "COMPLETED").await;
    site.is_empty().await;
}

fn export(dataset: &str, chunks: u32) -> Value {
    json!({ "dataset": dataset, "items": [{ "key": "ABC", "effectiveDates": dates(chunks) }] })
}
