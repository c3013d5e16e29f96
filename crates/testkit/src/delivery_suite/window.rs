//! How much is announced, and of what.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::Wanted;
use super::bench::{Bench, Kit, MAIL, QUEUE, RELAY_ONLY, WORKING, eventually};
use super::worker::Worker;

/// Messages by the chunks they name: on a slow machine some come twice, which is allowed.
#[derive(Default)]
struct Seen(BTreeMap<String, String>);

impl Seen {
    fn add(&mut self, bodies: Vec<String>) {
        for body in bodies {
            let message: Value = serde_json::from_str(&body).expect("JSON");
            self.0.insert(message["chunkKey"].as_str().expect("it names a chunk").to_owned(), body);
        }
    }

    /// Waits until so many chunks were announced; they are the first of the queue.
    async fn wait_for(&mut self, bench: &Bench, count: usize) {
        while self.0.len() < count {
            self.add(bench.announced(1).await);
        }
        self.are_the_first(count);
    }

    fn are_the_first(&self, count: usize) {
        let expected: Vec<String> = (0..count).map(|n| format!("key=K{n:05}:date=20250315")).collect();
        assert_eq!(self.0.keys().cloned().collect::<Vec<_>>(), expected);
    }
}

pub(super) async fn no_more_than_the_window_is_announced(kit: Kit) {
    let bench = kit.bench().await;
    let wanted = Wanted { window: 5, ..RELAY_ONLY };
    let relays =
        [bench.start_settled(&bench.store, wanted).await, bench.start_settled(&bench.second, wanted).await];
    bench.submit(30).await;
    relays.iter().for_each(|relay| relay.delivery.queues_known(&bench.queues));
    let mut seen = Seen::default();
    seen.wait_for(&bench, 5).await;
    // Three are claimed, so three more may be announced; in the order of the queue.
    let worker = Worker::start(&bench, &bench.store, Wanted { prefetch: Some(3), ..wanted }).await;
    for body in seen.0.values().take(3) {
        bench.wire().send(body).await;
    }
    let mut held = Vec::new();
    while held.len() < 3 {
        held.extend(worker.claim(3).await);
    }
    relays.iter().for_each(|relay| relay.delivery.claimed(3));
    // As many messages as it may hold are held, so the others are for us.
    let claimed = held.iter().map(|held| (held.chunk.chunk_key.clone(), String::new()));
    seen.0.extend(claimed);
    seen.wait_for(&bench, 8).await;
    // What two of the three relays had begun comes to its end.
    for relay in relays {
        relay.stop().await;
    }
    seen.add(bench.wire().drain_work().await);
    seen.are_the_first(8);
    // Fewer for a moment, when those that the worker's relay has doubts about run out.
    eventually("all of the window is announced", || async {
        let announced = bench.store.delivery_lag().await.expect("delivery_lag").announced;
        assert!(announced <= 5, "{announced} are announced and unclaimed");
        (announced == 5).then_some(())
    })
    .await;
}

pub(super) async fn a_paused_queue_blocks_no_other(kit: Kit) {
    let bench = kit.bench().await;
    assert!(bench.store.queue_pause(MAIL, true).await.expect("queue_pause"));
    let paused = bench.submit_to(MAIL, 3).await;
    let other = bench.submit_to(QUEUE, 3).await;
    let worker = Arc::new(Worker::start(&bench, &bench.store, WORKING).await);
    let working = worker.run();
    bench.completed(&other).await;
    let lag = bench.store.delivery_lag().await.expect("delivery_lag");
    assert_eq!(lag.announced, 0, "nothing of a paused queue is announced");
    assert!(bench.store.queue_pause(MAIL, false).await.expect("queue_pause"));
    bench.completed(&paused).await;
    working.abort();
}

pub(super) async fn a_relay_that_died_delays_its_batch(kit: Kit) {
    let bench = kit.bench().await;
    let job = bench.submit(4).await;
    let queues: Vec<_> = bench.queues.iter().map(|(id, _)| *id).collect();
    let taken = bench.second.announcements_take(&queues, 3, 500).await.expect("announcements_take");
    assert_eq!(taken.len(), 3, "they are marked, and nobody will publish them");
    let worker = Arc::new(Worker::start(&bench, &bench.store, WORKING).await);
    let working = worker.run();
    bench.completed(&job).await;
    working.abort();
}
