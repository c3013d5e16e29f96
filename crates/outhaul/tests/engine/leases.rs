//! Leases: lost ones stop the handler and write nothing; the reaper moves on what others left.

use std::sync::Arc;
use std::time::Duration;

use outhaul::Stop;
use outhaul::core::delivery::Delivery;
use outhaul::core::id::{ChunkId, Lease};
use outhaul::core::state::ChunkState;
use outhaul_delivery::DatabaseDelivery;

use crate::fake::{Fake, Mailbox, TestHandler, settings, start, start_on};

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
async fn what_a_claim_took_whose_answer_was_lost_is_given_back_uncounted() {
    for brokered in [false, true] {
        let (store, handler) = (Fake::new(LEASE), TestHandler::new());
        for key in ["ok-1", "ok-2"] {
            store.add("TEST", key);
        }
        let mut lost = false;
        store.fail(move |verb, _| {
            let lose = verb.starts_with("the answer to chunks_claim") && !lost;
            lost |= lose;
            lose.then(crate::fake::unavailable)
        });
        let mut settings = settings(2, LEASE);
        settings.worker.heartbeat = Duration::from_millis(20);
        let mailbox = Mailbox::new(2);
        let delivery: Arc<dyn Delivery> = match brokered {
            true => mailbox.clone(),
            false => DatabaseDelivery::start(store.clone()),
        };
        let engine = start_on(delivery, store.clone(), &handler, settings).await;
        (0..2).for_each(|n| mailbox.send(n, &format!("ok-{}", n + 1)));
        let returned =
            |writes: &[(&str, Lease)]| writes.iter().filter(|(verb, _)| *verb == "chunks_return").count();
        store.until("both are given back", |rows| returned(&rows.writes) == 2).await;
        // A relay announces them again.
        (0..2).for_each(|n| mailbox.send(n, &format!("ok-{}", n + 1)));
        store
            .until("both are done", |rows| {
                rows.chunks.iter().all(|row| row.chunk.state == ChunkState::Success)
            })
            .await;
        engine.stop().await;
        let rows = store.rows();
        assert!(
            rows.chunks.iter().all(|row| (row.chunk.attempt, row.chunk.lost) == (1, 0)),
            "{:?}",
            rows.chunks
        );
        assert_eq!(returned(&rows.writes), 2, "and nothing that is known here was given back");
    }
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
