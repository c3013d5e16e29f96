//! Chunks that failed for good.

use std::time::Instant;

use outhaul_core::announcement::ANNOUNCEMENT_HELD;
use outhaul_core::worker::Failure;
use serde_json::Value;

use super::bench::{Kit, RELAY_ONLY, WORKING};
use super::worker::Worker;

pub(super) async fn a_dead_chunk_is_parked_once(kit: Kit) {
    let bench = kit.bench().await;
    // Two relays: each message of the outbox is handed to one of them.
    let relay = bench.start_settled(&bench.second, RELAY_ONLY).await;
    let job = bench.submit(1).await;
    let worker = Worker::start(&bench, &bench.store, WORKING).await;
    let held = worker.claim(8).await;
    let chunk = held[0].chunk.clone();
    let failure = Failure {
        lease: chunk.lease,
        expired: false,
        retry_in: None,
        cause: "no such table".to_owned(),
        step: None,
        detail: None,
    };
    let begun = Instant::now();
    assert_eq!(bench.store.chunks_fail(&[failure]).await.expect("chunks_fail").len(), 1);
    drop(held);
    bench.outbox_sent().await;
    let took = begun.elapsed();
    worker.process.stop().await;
    relay.stop().await;

    let parked = bench.wire().drain_parking().await;
    // The other relay may send it too if the first has no confirm for so long; that is why it has an id.
    let once = parked.len() == 1 || (took >= ANNOUNCEMENT_HELD && !parked.is_empty());
    assert!(once, "in {took:?}: {parked:?}");
    let message_id = format!("{}/{}/{}", job.job_id, chunk.chunk_key, chunk.lease.fence);
    let expected = serde_json::json!({
        "messageId": message_id,
        "jobId": job.job_id,
        "chunkKey": chunk.chunk_key,
        "key": "K00000",
        "effectiveDate": "20250315",
        "attempts": 1,
        "cause": "no such table",
    });
    for parked in parked {
        assert_eq!(serde_json::from_str::<Value>(&parked).expect("JSON"), expected);
    }
    assert_eq!(bench.wire().drain_work().await, Vec::<String>::new());
}
