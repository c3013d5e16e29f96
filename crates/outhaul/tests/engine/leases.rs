//! Leases: lost ones stop the handler and write nothing; the reaper moves on what others left.

use std::time::Duration;

use outhaul::Stop;
use outhaul::core::id::{ChunkId, Lease};
use outhaul::core::state::ChunkState;

use crate::fake::{Fake, TestHandler, settings, start};

const LEASE: Duration = Duration::from_secs(60);

fn lease(chunk: i64, fence: i64) -> Lease {
    Lease { chunk: ChunkId(chunk), fence }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_stops_the_handler_and_writes_nothing() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    store.add("TEST", "wait");
    store.add("TEST", "late");
    let mut settings = settings(2, LEASE);
    settings.worker.heartbeat = Duration::from_millis(20);
    let engine = start(store.clone(), &handler, settings).await;
    handler.until("both run", |seen| seen.started.lock().unwrap().len() == 2).await;
    // Another worker claimed them since.
    store.edit(|rows| rows.chunks.iter_mut().for_each(|row| row.chunk.fence += 1));
    handler.until("it stopped", |seen| !seen.stopped.lock().unwrap().is_empty()).await;
    assert_eq!(*handler.seen.stopped.lock().unwrap(), [("wait".to_owned(), Stop::LeaseLost)]);
    engine.stop().await;
    assert_eq!(engine.running(), 0);
    assert_eq!(store.rows().writes, [], "neither the stopped one nor the late success is written");
    assert!(store.rows().chunks.iter().all(|row| row.chunk.state == ChunkState::Running));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_cannot_be_renewed_are_given_up_before_they_end() {
    let lease_time = Duration::from_millis(600);
    let (store, handler) = (Fake::new(lease_time), TestHandler::new());
    store.add("TEST", "wait");
    // Heartbeats fail, and nothing else does: only this process's own clock can stop the chunk.
    store.fail(|verb, leases| {
        (verb == "chunks_heartbeat" && !leases.is_empty()).then(crate::fake::unavailable)
    });
    let engine = start(store.clone(), &handler, settings(1, lease_time)).await;
    handler.until("it stopped", |seen| !seen.stopped.lock().unwrap().is_empty()).await;
    assert_eq!(handler.seen.stopped.lock().unwrap()[0], ("wait".to_owned(), Stop::LeaseLost));
    store.until("the reaper moved it on", |rows| rows.state("wait") == ChunkState::Retry).await;
    assert_eq!(store.rows().writes, [("expired", lease(0, 1))]);
    assert_eq!(store.rows().row("wait").cause, "the worker stopped responding (lease ran out)");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_longer_than_its_lease_keeps_it() {
    let lease_time = Duration::from_millis(400);
    let (store, handler) = (Fake::new(lease_time), TestHandler::new());
    store.add("TEST", "gate");
    let engine = start(store.clone(), &handler, settings(1, lease_time)).await;
    handler.until("it runs", |seen| seen.started.lock().unwrap().len() == 1).await;
    // Longer than two leases; the end of this wait decides nothing but how far the clock went.
    tokio::time::sleep(lease_time * 3).await;
    handler.gate.add_permits(1);
    store.until("done", |rows| rows.state("gate") == ChunkState::Success).await;
    assert_eq!(store.rows().writes, [("chunks_finish", lease(0, 1))], "the one attempt");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reaper_gives_up_at_the_last_attempt_and_cancels_what_was_cancelled() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    store.add("TEST", "ok-1");
    store.add("TEST", "ok-2");
    store.edit(|rows| {
        for row in &mut rows.chunks {
            row.chunk.state = ChunkState::Running;
            row.chunk.attempt = 3;
        }
        rows.chunks[1].job_cancelled = true;
    });
    let engine = start(store.clone(), &handler, settings(1, LEASE)).await;
    store
        .until("moved on", |rows| {
            rows.state("ok-1") == ChunkState::Dead && rows.state("ok-2") == ChunkState::Cancelled
        })
        .await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_for_a_moment_costs_no_attempt() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    store.add("TEST", "publish");
    let mut left = 3;
    store.fail(move |verb, _| {
        let away = verb == "chunk_may_publish" && left > 0;
        left -= i32::from(away);
        away.then(crate::fake::unavailable)
    });
    let engine = start(store.clone(), &handler, settings(1, LEASE)).await;
    handler
        .until("it was allowed to publish", |seen| {
            seen.started.lock().unwrap().contains(&"publishing".to_owned())
        })
        .await;
    assert_eq!(store.rows().row("publish").chunk.attempt, 1);
    assert_eq!(store.rows().writes, [], "no failure was recorded");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_knows_a_job_type_judges_its_lost_attempts() {
    let lease_time = Duration::from_secs(5);
    let (store, handler) = (Fake::new(lease_time), TestHandler::new());
    // Two attempts whose owner is gone: one of a type that this process knows, one of another's.
    for (job_type, key) in [("TEST", "known"), ("ELSEWHERE", "unknown")] {
        store.add(job_type, key);
    }
    store.edit(|rows| {
        for row in &mut rows.chunks {
            row.chunk = outhaul::core::state::apply(row.chunk, outhaul::core::state::Event::Claim).unwrap();
            row.expires = std::time::Instant::now();
        }
    });
    let engine = start(store.clone(), &handler, settings(0, lease_time)).await;
    store.until("the known one is judged", |rows| rows.state("known") != ChunkState::Running).await;
    assert_eq!(store.rows().state("unknown"), ChunkState::Running, "left to a process that knows it");
    // Ten leases later nobody can be left who does: it is tried again, and not called dead here.
    let long_ago =
        std::time::Instant::now().checked_sub(lease_time * 11).expect("the machine runs for longer");
    store.edit(|rows| rows.chunks[1].expires = long_ago);
    store.until("it is given up", |rows| rows.state("unknown") == ChunkState::Retry).await;
    engine.stop().await;
}
