//! Many workers, one of which gets each chunk; and messages that outlive their worker.

use std::collections::HashSet;
use std::sync::Arc;

use outhaul_core::id::ChunkId;

use super::bench::{Kit, RELAY_ONLY, WORKING, in_time};
use super::worker::{Held, Worker};
use super::{Process, Wanted};

pub(super) async fn every_chunk_is_claimed_once(kit: Kit) {
    const CHUNKS: usize = 300;
    let bench = kit.bench().await;
    let job = bench.submit(CHUNKS).await;
    // A window smaller than the job: the relays have to go on while the workers do.
    let wanted = Wanted { window: 40, prefetch: Some(4), ..WORKING };
    let mut workers = Vec::new();
    for store in [&bench.store, &bench.second, &bench.second] {
        let worker = Arc::new(Worker::start(&bench, store, wanted).await);
        workers.push((worker.run(), worker));
    }
    bench.completed(&job).await;
    let job = bench.store.job_get(&job.job_id).await.expect("job_get").expect("it is there");
    assert_eq!((job.counts.done, job.counts.failed), (CHUNKS as i64, 0));
    let mut claimed = Vec::new();
    for (task, worker) in workers {
        task.abort();
        // It holds the worker until it has noticed.
        let ended = task.await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "a worker panicked");
        claimed.extend(worker.claimed());
        let worker = Arc::into_inner(worker).expect("its task has ended");
        worker.process.stop().await;
    }
    let distinct: HashSet<ChunkId> = claimed.iter().copied().collect();
    assert_eq!((claimed.len(), distinct.len()), (CHUNKS, CHUNKS), "each was claimed once");
    if bench.brokered() {
        assert_eq!(bench.wire().drain_work().await, Vec::<String>::new(), "all were acknowledged");
    }
}

pub(super) async fn a_message_is_held_until_its_receipt_is_dropped(kit: Kit) {
    let bench = kit.bench().await;
    bench.submit(2).await;
    let one = Wanted { prefetch: Some(1), ..WORKING };
    let first = Worker::start(&bench, &bench.store, one).await;
    let held = first.claim(8).await;
    assert_eq!(held.len(), 1, "no more than it may hold");
    let name = name(&held[0]);

    // It ends with its chunk unrecorded: the message goes to another.
    drop(first);
    let second = bench.start_unaware(&bench.second, WORKING);
    let heard = hear(&second, 2).await;
    assert!(heard.contains(&name), "{heard:?} has no {name:?}");

    // The second let go of them, so they are over; what the first held means nothing any more.
    drop(held);
    second.stop().await;
    assert_eq!(bench.wire().drain_work().await, Vec::<String>::new());
}

/// What its message calls it.
fn name(held: &Held) -> (String, String) {
    (held.chunk.job_id.to_string(), held.chunk.chunk_key.clone())
}

/// Takes messages, and lets go of them, until they have named so many chunks.
async fn hear(process: &Process, count: usize) -> HashSet<(String, String)> {
    let mut heard = HashSet::new();
    in_time("messages come", async {
        while heard.len() < count {
            let armed = process.delivery.arm();
            let messages = process.delivery.take(8).expect("it consumes");
            if messages.is_empty() {
                armed.await;
            }
            heard.extend(messages.into_iter().map(|message| (message.name.job_id, message.name.chunk_key)));
        }
    })
    .await;
    heard
}

/// A process that stops, or runs something alone, would have more places free than any other.
pub(super) async fn what_is_not_wanted_goes_to_others(kit: Kit) {
    let bench = kit.bench().await;
    bench.submit(3).await;
    let first = Worker::start(&bench, &bench.store, WORKING).await;
    let running = first.claim(1).await;
    let name = name(&running[0]);
    first.delivery().consume(false);
    let second = bench.start_unaware(&bench.second, WORKING);
    // The next that comes to the first ends its connection; some may go to the second before.
    let mut heard = HashSet::new();
    while !heard.contains(&name) {
        bench.submit(1).await;
        heard.extend(hear(&second, 1).await);
    }
    second.stop().await;
    first.finish(running).await;

    first.delivery().consume(true);
    bench.submit(1).await;
    let again = first.claim(8).await;
    first.finish(again).await;
    first.process.stop().await;
}

pub(super) async fn a_stop_acknowledges_what_is_done_with(kit: Kit) {
    let bench = kit.bench().await;
    bench.submit(3).await;
    let worker = Worker::start(&bench, &bench.store, WORKING).await;
    let mut held = Vec::new();
    while held.len() < 3 {
        held.extend(worker.claim(8).await);
    }
    let left = held.pop().expect("three were claimed");
    worker.finish(held).await;
    worker.process.stop().await;
    // Only what was not recorded comes back.
    let waiting = bench.announced(1).await;
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    assert!(waiting[0].contains(&left.chunk.chunk_key), "{waiting:?}");
    drop(left);

    // A process that consumes nothing has nothing to give back, and stops as well.
    bench.start(RELAY_ONLY).stop().await;
}
