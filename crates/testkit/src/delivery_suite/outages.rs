//! A broker that dies, is away, or comes back with nothing.

use std::sync::Arc;

use super::bench::{Kit, RELAY_ONLY, WORKING, eventually};
use super::worker::Worker;

pub(super) async fn a_broker_that_is_killed_and_comes_back(kit: Kit) {
    let bench = kit.bench_with_own_broker().await;
    let worker = Arc::new(Worker::start(&bench, &bench.store, WORKING).await);
    let other = Arc::new(Worker::start(&bench, &bench.second, WORKING).await);
    let working = [worker.run(), other.run()];
    for _ in 0..2 {
        let job = bench.submit(100).await;
        worker.delivery().announce();
        eventually("some are done", || async {
            let job = bench.store.job_get(&job.job_id).await.expect("job_get").expect("it is there");
            (job.counts.done > 0).then_some(())
        })
        .await;
        bench.wire().kill().await;
        bench.wire().start().await;
        bench.completed(&job).await;
    }
    working.iter().for_each(|task| task.abort());
}

pub(super) async fn a_broker_that_was_away_for_the_whole_submission(kit: Kit) {
    let bench = kit.bench_with_own_broker().await;
    let worker = Arc::new(Worker::start(&bench, &bench.store, WORKING).await);
    let working = worker.run();
    let before = bench.submit(1).await;
    bench.completed(&before).await;
    bench.wire().kill().await;
    let job = bench.submit(20).await;
    worker.delivery().announce();
    bench.wire().start().await;
    bench.completed(&job).await;
    working.abort();
}

pub(super) async fn a_broker_that_lost_everything(kit: Kit) {
    let bench = kit.bench_with_own_broker().await;
    let job = bench.submit(50).await;
    let relay = bench.start(RELAY_ONLY);
    eventually("all are announced", || async {
        let lag = bench.store.delivery_lag().await.expect("delivery_lag");
        (lag.announced == 50).then_some(())
    })
    .await;
    bench.wire().wipe().await;
    // Announcements last an hour here: only what the relay makes of its lost connection helps.
    let worker = Arc::new(Worker::start(&bench, &bench.second, WORKING).await);
    let working = worker.run();
    bench.completed(&job).await;
    working.abort();
    drop(relay);
}
