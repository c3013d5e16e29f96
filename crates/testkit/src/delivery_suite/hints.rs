//! Whoever waits learns that something was queued, here or in another process.

use super::bench::{Bench, Kit, QUEUE, RELAY_ONLY, WORKING, in_time};
use super::worker::Worker;

/// One chunk, claimed with nothing but hints, and finished.
async fn one_is_heard_of(bench: &Bench, worker: &Worker) {
    let held = worker.claim(8).await;
    assert_eq!(held.len(), 1);
    worker.finish(held).await;
    let left = bench.store.queues_list().await.expect("queues_list");
    assert!(left.iter().all(|queue| queue.depth == 0));
}

pub(super) async fn a_waiting_worker_is_woken(kit: Kit) {
    let bench = kit.bench().await;
    let worker = Worker::start(&bench, &bench.store, WORKING).await;
    // The second and third find a delivery that has nothing left to do.
    for _ in 0..3 {
        let (waiting, submitting) = (one_is_heard_of(&bench, &worker), async {
            bench.submit(1).await;
            worker.delivery().announce();
        });
        tokio::join!(waiting, submitting);
    }
}

pub(super) async fn what_comes_between_arming_and_waiting_is_not_missed(kit: Kit) {
    let bench = kit.bench().await;
    let worker = Worker::start(&bench, &bench.store, WORKING).await;
    let armed = worker.delivery().arm();
    assert!(worker.look(8).await.is_empty());
    bench.submit(1).await;
    worker.delivery().announce();
    in_time("the wake-up", armed).await;
    one_is_heard_of(&bench, &worker).await;
}

pub(super) async fn what_was_queued_before_anybody_ran_is_found(kit: Kit) {
    let bench = kit.bench().await;
    let job = bench.submit(3).await;
    let worker = Worker::start(&bench, &bench.store, WORKING).await;
    let mut found = 0;
    while found < 3 {
        found += worker.finish(worker.claim(8).await).await.len();
    }
    bench.completed(&job).await;
}

pub(super) async fn another_process_hears(kit: Kit) {
    let bench = kit.bench().await;
    let worker = Worker::start(&bench, &bench.second, WORKING).await;
    let api = bench.start_unaware(&bench.store, RELAY_ONLY);
    for _ in 0..2 {
        let (waiting, submitting) = (one_is_heard_of(&bench, &worker), async {
            bench.submit_to(QUEUE, 1).await;
            api.delivery.announce();
        });
        tokio::join!(waiting, submitting);
    }
}
