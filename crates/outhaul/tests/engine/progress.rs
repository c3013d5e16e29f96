//! Progress: one statement a second for the whole process, only of chunks that run and moved, and never a
//! reason for one of them to fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use outhaul::core::progress::Progress;
use outhaul::core::state::ChunkState;

use crate::fake::{Fake, Rows, TestHandler, settings, start, unavailable};

const LEASE: Duration = Duration::from_secs(60);

fn all_done(rows: &Rows) -> bool {
    rows.chunks.iter().all(|row| row.chunk.state == ChunkState::Success)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_chunks_of_a_process_are_written_at_once_and_only_when_they_moved() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    (0..20).for_each(|n| store.add("TEST", &format!("half-{n}")));
    (0..20).for_each(|n| store.add("TEST", &format!("gate-{n}")));
    // A witness of the seconds that pass: it moves all the time.
    store.add("TEST", "moving");
    let engine = start(store.clone(), &handler, settings(50, LEASE)).await;
    let halves =
        |rows: &Rows| rows.progress_calls.iter().flatten().filter(|lease| lease.chunk.0 < 20).count();
    store.until("all are written", |rows| halves(rows) == 20).await;
    let calls = store.rows().progress_calls.len();
    store.until("time goes on", |rows| rows.progress_calls.len() >= calls + 2).await;
    {
        let rows = store.rows();
        assert_eq!(halves(&rows), 20, "once each, for they stand still");
        assert!(calls < 20, "not a call for each, but one a second: {:?}", rows.progress_calls);
        for Progress { lease, rows, bytes, fraction } in rows.progress.iter().filter(|one| one.bytes > 0) {
            assert_eq!((lease.chunk.0 < 20, *rows, *bytes, *fraction), (true, 50, 500, 0.5));
        }
        let witness: Vec<Progress> = rows.progress.iter().filter(|one| one.bytes == 0).copied().collect();
        assert!(
            witness.iter().all(|one| one.lease.chunk.0 == 40 && one.fraction == 0.0),
            "no total is known"
        );
        assert!(witness.windows(2).all(|pair| pair[0].rows < pair[1].rows));
    }
    handler.gate.add_permits(100);
    store.until("all done", all_done).await;
    let calls = store.rows().progress_calls.len();
    // Long enough for the next call; that it does not come is what is looked at.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(store.rows().progress_calls.len(), calls, "nothing after the end");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_chunks_write_nothing() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    store.add("TEST", "moving");
    let engine = start(store.clone(), &handler, settings(8, LEASE)).await;
    // Whenever the one that lives long is written, short ones run beside it and have moved.
    let mut added = 1;
    while store.rows().progress_calls.len() < 3 {
        handler.until("one more", |seen| seen.started.lock().unwrap().len() >= added).await;
        store.add("TEST", &format!("brief-{added}"));
        store.others.send_modify(|count| *count += 1);
        added += 1;
    }
    assert!(added > 10);
    assert!(store.rows().progress_calls.iter().all(|chunks| chunks.len() == 1 && chunks[0].chunk.0 == 0));
    handler.gate.add_permits(1);
    store.until("all done", all_done).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_for_progress_does_no_harm_and_gets_it_later() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    store.add("TEST", "half");
    let refusals = Arc::new(AtomicU32::new(0));
    let count = refusals.clone();
    store.fail(move |verb, _| {
        (verb == "progress_record" && count.fetch_add(1, Ordering::SeqCst) < 2).then(unavailable)
    });
    let engine = start(store.clone(), &handler, settings(1, LEASE)).await;
    store.until("written at last", |rows| !rows.progress.is_empty()).await;
    assert_eq!(refusals.load(Ordering::SeqCst), 3, "what could not be written is tried again as it is");
    assert_eq!(store.rows().progress[0].rows, 50);
    handler.gate.add_permits(1);
    store.until("done", all_done).await;
    assert_eq!(store.rows().row("half").chunk.attempt, 1);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_to_stop_or_is_being_recorded_is_left_out() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    ["moving-lost", "brief-recording", "moving-witness"].iter().for_each(|key| store.add("TEST", key));
    let away = Arc::new(AtomicBool::new(true));
    let still = away.clone();
    store.fail(move |verb, _| (verb == "chunks_finish" && still.load(Ordering::SeqCst)).then(unavailable));
    let mut settings = settings(3, LEASE);
    settings.worker.heartbeat = Duration::from_millis(20);
    let engine = start(store.clone(), &handler, settings).await;
    handler
        .until("one has ended", |seen| {
            seen.started.lock().unwrap().len() == 3 && seen.now.load(Ordering::SeqCst) == 2
        })
        .await;
    // The first is another worker's now; it goes on moving, for it does not listen.
    store.edit(|rows| rows.chunks[0].chunk.fence += 1);
    handler.until("it was told", |seen| !seen.stopped.lock().unwrap().is_empty()).await;
    // A call may have been on its way when that happened.
    let before = store.rows().progress_calls.len() + 1;
    store.until("the witness is written", |rows| rows.progress_calls.len() >= before + 2).await;
    let named: Vec<i64> =
        store.rows().progress_calls[before..].iter().flatten().map(|lease| lease.chunk.0).collect();
    assert!(named.iter().all(|chunk| *chunk == 2), "only the witness: {named:?}");
    let recording = store.rows().progress_calls.iter().flatten().any(|lease| lease.chunk.0 == 1);
    assert!(!recording, "it moved, and was ended before it was written");
    away.store(false, Ordering::SeqCst);
    handler.gate.add_permits(1);
    store.until("recorded", |rows| rows.state("brief-recording") == ChunkState::Success).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_takes_no_more_than_its_limit() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    (0..8).for_each(|n| store.add("TEST", &format!("gate-{n}")));
    let mut settings = settings(7, LEASE);
    settings.worker.claim_limit = Some(3);
    let engine = start(store.clone(), &handler, settings).await;
    // Each look takes three at most, and the looks go on until all places are taken.
    handler.until("seven run", |seen| seen.now.load(Ordering::SeqCst) == 7).await;
    assert_eq!(store.rows().claims, [3, 3, 1]);
    handler.gate.add_permits(8);
    store.until("all done", all_done).await;
    engine.stop().await;
}
