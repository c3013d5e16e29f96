//! Parts of the engine that panic: the engine says which, claims nothing more, and lets go of what it owns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outhaul::Stop;
use outhaul::core::state::ChunkState;
use outhaul::core::vitals::Broken;

use crate::fake::{Fake, TestHandler, settings, start};

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_without_one_of_its_parts_says_which_and_claims_nothing_more() {
    let parts = [
        ("chunks_heartbeat", "the lease keeper"),
        ("chunks_claim", "the claim loop"),
        ("chunks_stage", "the stager"),
        ("chunks_expired", "the reaper"),
    ];
    for (verb, part) in parts {
        let (store, handler) = (Fake::new(LEASE), TestHandler::new());
        store.add("TEST", "wait");
        let armed = Arc::new(AtomicBool::new(false));
        let fuse = armed.clone();
        store.fail(move |called, _| {
            assert!(called != verb || !fuse.load(Ordering::SeqCst), "as the test wants it");
            None
        });
        let mut settings = settings(2, LEASE);
        settings.worker.heartbeat = Duration::from_millis(20);
        settings.worker.shutdown_grace = LEASE;
        let engine = start(store.clone(), &handler, settings).await;
        handler.until("it runs", |seen| !seen.started.lock().unwrap().is_empty()).await;
        armed.store(true, Ordering::SeqCst);
        let broken = tokio::time::timeout(LEASE, engine.broken()).await.expect("it says so");
        assert_eq!(broken, Broken::Ended(part));
        // The grace is for healthy processes: this one gives back at once.
        engine.stop().await;
        assert_eq!(*handler.seen.stopped.lock().unwrap(), [("wait".to_owned(), Stop::Shutdown)]);
        assert_eq!(store.rows().state("wait"), ChunkState::Queued, "given back without {part}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_recorder_held_is_lost_and_renewed_by_nobody() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    for key in ["gate-1", "gate-2", "wait"] {
        store.add("TEST", key);
    }
    let renewed = Arc::new(Mutex::new(Vec::new()));
    let seen = renewed.clone();
    store.fail(move |verb, leases| {
        assert_ne!(verb, "chunks_finish", "as the test wants it");
        if verb == "chunks_heartbeat" {
            *seen.lock().unwrap() = leases.to_vec();
        }
        None
    });
    let mut settings = settings(3, LEASE);
    settings.worker.heartbeat = Duration::from_millis(20);
    let engine = start(store.clone(), &handler, settings).await;
    handler.until("all run", |seen| seen.started.lock().unwrap().len() == 3).await;
    handler.gate.add_permits(1);
    assert_eq!(engine.broken().await, Broken::Ended("the recorder"));
    handler.until("it was stopped", |seen| !seen.stopped.lock().unwrap().is_empty()).await;
    assert_eq!(*handler.seen.stopped.lock().unwrap(), [("wait".to_owned(), Stop::LeaseLost)]);
    // One whose success comes now, and cannot be handed in.
    handler.gate.add_permits(1);
    store.until("no lease is renewed that nobody can end", |_| renewed.lock().unwrap().is_empty()).await;
    store.until("nothing is owned any more", |_| engine.running() == 0).await;
    engine.stop().await;
    assert_eq!(store.rows().writes, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_whose_end_is_refused_keeps_no_other_from_being_reaped() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    for (key, job_type) in [("bad", "TEST"), ("good", "TEST")] {
        store.add(job_type, key);
    }
    // Of a worker that is gone.
    store.edit(|rows| {
        for row in &mut rows.chunks {
            row.chunk = outhaul::core::state::apply(row.chunk, outhaul::core::state::Event::Claim).unwrap();
        }
    });
    store.fail(|verb, leases| {
        let bad = leases.iter().any(|lease| lease.chunk.0 == 0);
        (verb == "chunks_fail" && bad).then(crate::fake::refused)
    });
    let engine = start(store.clone(), &handler, settings(1, LEASE)).await;
    store.until("the other was reaped", |rows| rows.state("good") == ChunkState::Retry).await;
    assert_eq!(store.rows().state("bad"), ChunkState::Running);
    engine.stop().await;
}
