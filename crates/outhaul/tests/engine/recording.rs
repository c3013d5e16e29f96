//! Recording: batches that are refused or cut off, cancellation, and giving back on a stop.

use std::sync::atomic::Ordering;
use std::time::Duration;

use outhaul::Stop;
use outhaul::core::state::{ChunkState, MAX_RETURNS};

use crate::fake::{Fake, TestHandler, settings, start};

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_batch_is_recorded_one_by_one() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    (0..4).for_each(|n| store.add("TEST", &format!("gate-{n}")));
    let seen = handler.seen.clone();
    let (mut late, mut bad) = (0, None);
    store.fail(move |verb, leases| {
        if verb != "chunks_finish" {
            return None;
        }
        // The first flush waits until the others have ended and queued up behind it.
        late += u32::from(seen.now.load(Ordering::SeqCst) == 0);
        if late < 2 {
            return Some(crate::fake::unavailable());
        }
        // One of a batch is to blame, and never of a batch of one.
        if bad.is_none() && leases.len() > 1 {
            bad = leases.last().copied();
        }
        bad.filter(|bad| leases.contains(bad)).map(|_| crate::fake::refused())
    });
    let engine = start(store.clone(), &handler, settings(4, LEASE)).await;
    handler.until("all run", |seen| seen.now.load(Ordering::SeqCst) == 4).await;
    handler.gate.add_permits(4);
    handler.until("all ended", |seen| seen.now.load(Ordering::SeqCst) == 0).await;
    store.until("settled", |rows| rows.chunks.iter().all(|row| row.chunk.state != ChunkState::Running)).await;
    {
        let rows = store.rows();
        let failed: Vec<_> =
            rows.chunks.iter().filter(|row| row.chunk.state != ChunkState::Success).collect();
        assert_eq!(failed.len(), 1, "only the one to blame: {failed:?}");
        assert_eq!(failed[0].chunk.state, ChunkState::Retry);
        assert_eq!(failed[0].cause, "its outcome could not be recorded");
    }
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_is_tried_again_while_the_lease_lives() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    store.add("TEST", "ok");
    let mut left = 3;
    store.fail(move |verb, _| {
        let fails = verb == "chunks_finish" && left > 0;
        left -= i32::from(fails);
        fails.then(crate::fake::unavailable)
    });
    let engine = start(store.clone(), &handler, settings(1, LEASE)).await;
    store.until("done", |rows| rows.state("ok") == ChunkState::Success).await;
    assert_eq!(handler.seen.started.lock().unwrap().len(), 1, "recorded, not run again");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_outlives_its_lease_is_dropped() {
    let lease_time = Duration::from_millis(300);
    let (store, handler) = (Fake::new(lease_time), TestHandler::new());
    store.add("TEST", "ok");
    store.fail(|verb, leases| {
        let first = leases.iter().any(|lease| lease.fence == 1);
        (first && matches!(verb, "chunks_finish" | "chunks_heartbeat")).then(crate::fake::unavailable)
    });
    let engine = start(store.clone(), &handler, settings(1, lease_time)).await;
    store.until("the reaper moved it on", |rows| rows.state("ok") == ChunkState::Retry).await;
    engine.stop().await;
    assert_eq!(engine.running(), 0);
    assert_eq!(store.rows().writes.len(), 1, "the expiry alone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_stops_what_runs_but_not_what_is_being_published() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    for key in ["wait", "late", "publish", "refused"] {
        store.add("TEST", key);
    }
    let engine = start(store.clone(), &handler, settings(4, LEASE)).await;
    handler
        .until("all run, one publishes", |seen| {
            let started = seen.started.lock().unwrap();
            started.len() == 5 && started.iter().any(|word| word == "publishing")
        })
        .await;
    store.edit(|rows| rows.chunks.iter_mut().for_each(|row| row.job_cancelled = true));
    store.until("the waiting one is cancelled", |rows| rows.state("wait") == ChunkState::Cancelled).await;
    assert_eq!(handler.seen.stopped.lock().unwrap()[0], ("wait".to_owned(), Stop::Cancelled));
    store.until("it was done already", |rows| rows.state("late") == ChunkState::Success).await;
    assert_eq!(store.rows().state("publish"), ChunkState::Running);
    handler.gate.add_permits(2);
    store.until("published", |rows| rows.state("publish") == ChunkState::Success).await;
    store.until("may not publish", |rows| rows.state("refused") == ChunkState::Cancelled).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_alone_may_tell_a_handler_to_stop() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    store.add("TEST", "refused");
    let engine = start(store.clone(), &handler, settings(1, LEASE)).await;
    handler.until("it runs", |seen| seen.now.load(Ordering::SeqCst) == 1).await;
    store.edit(|rows| rows.chunks[0].job_cancelled = true);
    // At once, most likely before the keeper has looked.
    handler.gate.add_permits(1);
    store.until("cancelled", |rows| rows.state("refused") == ChunkState::Cancelled).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_gives_back_what_is_not_finished() {
    let store = Fake::new(LEASE);
    let handler = TestHandler { budget: Some(4), ..TestHandler::new() };
    for key in ["wait-1", "wait-2", "late", "wait-worn"] {
        store.add("TEST", key);
    }
    store.edit(|rows| rows.chunks[3].chunk.returned = MAX_RETURNS);
    let engine = start(store.clone(), &handler, settings(4, LEASE)).await;
    handler.until("all run", |seen| seen.now.load(Ordering::SeqCst) == 4).await;
    assert_eq!(engine.running(), 4);
    tokio::join!(engine.stop(), engine.stop());
    engine.stop().await;
    let rows = store.rows();
    for key in ["wait-1", "wait-2"] {
        let chunk = rows.row(key).chunk;
        assert_eq!((chunk.state, chunk.attempt, chunk.returned), (ChunkState::Queued, 0, 1), "{key}");
    }
    assert_eq!(rows.state("late"), ChunkState::Success);
    assert_eq!(rows.state("wait-worn"), ChunkState::Retry, "given back too often: it counts");
    assert_eq!(rows.row("wait-worn").cause, "the worker was stopped");
    assert!(rows.slots.is_empty() && rows.workers.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_chunks_may_end_within_the_grace() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    store.add("TEST", "gate");
    store.add("TEST", "ok-later");
    let mut settings = settings(1, LEASE);
    settings.worker.shutdown_grace = LEASE;
    let engine = start(store.clone(), &handler, settings).await;
    handler.until("it runs", |seen| seen.now.load(Ordering::SeqCst) == 1).await;
    let end = async {
        tokio::task::yield_now().await;
        handler.gate.add_permits(1);
    };
    tokio::join!(engine.stop(), end);
    assert_eq!(store.rows().state("gate"), ChunkState::Success);
    assert_eq!(store.rows().state("ok-later"), ChunkState::Queued, "nothing is claimed after a stop");
}
