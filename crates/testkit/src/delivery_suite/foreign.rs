//! What others put on the work queue.

use outhaul_core::delivery::NAMES_NOTHING;
use std::sync::Arc;

use serde_json::{Value, json};

use super::bench::{Kit, WORKING};
use super::worker::Worker;

pub(super) async fn what_is_not_ours_is_parked_and_others_go_on(kit: Kit) {
    let bench = kit.bench().await;
    let worker = Arc::new(Worker::start(&bench, &bench.store, WORKING).await);
    let working = worker.run();
    // The first chunk proves that the queues exist.
    let job = bench.submit(1).await;
    bench.completed(&job).await;
    let unknown = json!({ "jobId": "J20250315_0123456789ABC", "chunkKey": "main", "trace": "x" }).to_string();
    let sent = ["hello", r#"{"chunkKey":"main"}"#, r#"{"jobId":"J\u0000","chunkKey":"main"}"#, &unknown];
    for body in sent {
        bench.wire().send(body).await;
    }
    let job = bench.submit(5).await;
    bench.completed(&job).await;

    let mut parked: Vec<Value> = Vec::new();
    while parked.len() < sent.len() {
        bench.outbox_sent().await;
        let more = bench.wire().drain_parking().await;
        parked.extend(more.iter().map(|body| serde_json::from_str::<Value>(body).expect("JSON")));
    }
    let cause = |body: &str| {
        let found = parked.iter().find(|parked| parked["body"] == body).unwrap_or_else(|| {
            panic!("{body} is not among {parked:?}");
        });
        assert!(found["messageId"].as_str().is_some_and(|id| id.starts_with("foreign/")), "{found}");
        found["cause"].as_str().expect("a cause").to_owned()
    };
    assert!(cause("hello").starts_with("it is not JSON"));
    assert_eq!(cause(sent[1]), "`jobId` is missing");
    assert_eq!(cause(sent[2]), "`jobId` has control characters");
    assert_eq!(cause(&unknown), NAMES_NOTHING);
    assert_eq!(parked.len(), sent.len(), "each once");
    working.abort();
}

pub(super) async fn the_short_form_is_understood(kit: Kit) {
    let bench = kit.bench().await;
    let worker = Worker::start(&bench, &bench.store, WORKING).await;
    worker.delivery().queues_known(&[]);
    let job = bench.submit(1).await;
    let body = json!({ "jobId": job.job_id, "key": "K00000", "effectiveDate": "20250315" });
    bench.wire().send(&body.to_string()).await;
    let held = worker.claim(8).await;
    assert_eq!(held[0].chunk.job_id, job.job_id);
    worker.finish(held).await;
    bench.completed(&job).await;
}
