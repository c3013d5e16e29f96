//! Claiming and running: bounds, budgets, isolation, panics, outcomes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use outhaul::core::queue::QueueSpec;
use outhaul::core::state::ChunkState;

use crate::fake::{Fake, TestHandler, settings, start};

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_runs_more_than_its_concurrency() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    (0..200).for_each(|n| store.add("TEST", &format!("ok-{n}")));
    let engine = start(store.clone(), &handler, settings(3, LEASE)).await;
    store
        .until("all done", |rows| rows.chunks.iter().all(|row| row.chunk.state == ChunkState::Success))
        .await;
    engine.stop().await;
    assert!(handler.seen.most.load(Ordering::SeqCst) <= 3);
    assert_eq!(handler.seen.started.lock().unwrap().len(), 200, "each ran once");
    assert!(store.rows().workers.is_empty(), "a stopped worker is forgotten");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_holds_across_workers_and_idle_slots_are_given_back() {
    let store = Fake::new(LEASE);
    let handler = TestHandler { budget: Some(2), ..TestHandler::new() };
    (0..100).for_each(|n| store.add("TEST", &format!("ok-{n}")));
    let one = start(store.clone(), &handler, settings(8, LEASE)).await;
    let two = start(store.clone(), &handler, settings(8, LEASE)).await;
    store
        .until("all done", |rows| rows.chunks.iter().all(|row| row.chunk.state == ChunkState::Success))
        .await;
    assert!(handler.seen.most.load(Ordering::SeqCst) <= 2);
    store.until("idle slots are free", |rows| rows.slots.is_empty()).await;
    tokio::join!(one.stop(), two.stop());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_never_shows_more_running_than_are_allowed() {
    let store = Fake::new(LEASE);
    let others = vec![QueueSpec { name: "job:ZEBRA".to_owned(), max_concurrent: None }];
    let handler = TestHandler { budget: Some(2), others, ..TestHandler::new() };
    (0..200).for_each(|n| store.add_to(n % 2, "TEST", &format!("ok-{n}")));
    // Outcomes that wait to be recorded for a while: their chunks are still shown as running.
    let mut left = 5;
    store.fail(move |verb, _| {
        let fails = verb == "chunks_finish" && left > 0;
        left -= i32::from(fails);
        fails.then(crate::fake::unavailable)
    });
    let engine = start(store.clone(), &handler, settings(4, LEASE)).await;
    store
        .until("all done", |rows| rows.chunks.iter().all(|row| row.chunk.state == ChunkState::Success))
        .await;
    engine.stop().await;
    let rows = store.rows();
    assert!(rows.most_running[&0] <= 2 && rows.most_running_of_all <= 4, "{:?}", rows.most_running);
}

/// Lets heartbeats and looks for slots go by.
async fn rounds(store: &Fake) {
    let later = *store.changed.borrow() + 20;
    store.changed.subscribe().wait_for(|count| *count > later).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_was_lost_starts_nothing() {
    let store = Fake::new(LEASE);
    let handler = TestHandler { budget: Some(1), ..TestHandler::new() };
    store.add("TEST", "gate-1");
    store.add("TEST", "gate-2");
    let mut settings = settings(8, LEASE);
    settings.worker.heartbeat = Duration::from_millis(20);
    let engine = start(store.clone(), &handler, settings).await;
    handler.until("the first runs", |seen| seen.now.load(Ordering::SeqCst) == 1).await;
    // Another process took the slot.
    store.edit(|rows| rows.slots.values_mut().for_each(|holder| *holder = 99));
    rounds(&store).await;
    handler.gate.add_permits(2);
    store.until("the first is done", |rows| rows.state("gate-1") == ChunkState::Success).await;
    rounds(&store).await;
    assert_eq!(store.rows().state("gate-2"), ChunkState::Queued, "no slot, no start");
    store.edit(|rows| rows.slots.clear());
    store.until("the second is done", |rows| rows.state("gate-2") == ChunkState::Success).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_whose_slot_was_lost_is_given_back_uncounted() {
    let store = Fake::new(LEASE);
    let handler = TestHandler { budget: Some(1), ..TestHandler::new() };
    store.add("TEST", "wait");
    let mut settings = settings(8, LEASE);
    settings.worker.heartbeat = Duration::from_millis(20);
    let engine = start(store.clone(), &handler, settings).await;
    handler.until("it runs", |seen| seen.started.lock().unwrap().len() == 1).await;
    // Another process took the slot, and will run a chunk under it.
    store.edit(|rows| rows.slots.values_mut().for_each(|holder| *holder = 99));
    store.until("it is given back", |rows| rows.state("wait") == ChunkState::Queued).await;
    assert_eq!(store.rows().row("wait").chunk.attempt, 0);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poison_chunk_runs_alone() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    store.add("TEST", "gate");
    let engine = start(store.clone(), &handler, settings(8, LEASE)).await;
    handler.until("one runs", |seen| seen.now.load(Ordering::SeqCst) == 1).await;
    store.edit(|rows| {
        for (n, key) in ["ok-1", "alone", "ok-2", "ok-3"].into_iter().enumerate() {
            let mut row = rows.chunks[0].clone();
            row.key = key.to_owned();
            row.chunk = outhaul::core::state::Chunk::new(true);
            row.chunk.lost = if n == 1 { 2 } else { 0 };
            rows.chunks.push(row);
        }
    });
    store
        .until("its neighbours were given back", |rows| {
            let returned = rows.writes.iter().filter(|(verb, _)| *verb == "chunks_return").count();
            returned == 3 && rows.state("alone") == ChunkState::Running
        })
        .await;
    assert_eq!(handler.seen.started.lock().unwrap().len(), 1, "it waits for the one that runs");
    handler.gate.add_permits(1);
    store
        .until("all done", |rows| rows.chunks.iter().all(|row| row.chunk.state == ChunkState::Success))
        .await;
    assert_eq!(handler.seen.beside_alone.load(Ordering::SeqCst), 1);
    assert!(store.rows().chunks.iter().all(|row| row.chunk.attempt == 1), "giving back is not counted");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_end_is_recorded() {
    let store = Fake::new(LEASE);
    let handler = TestHandler { retry_after: Duration::from_millis(1), ..TestHandler::new() };
    for key in ["ok", "panic", "fail", "fatal", "snooze"] {
        store.add("TEST", key);
    }
    store.add("FOREIGN", "foreign");
    let engine = start(store.clone(), &handler, settings(8, LEASE)).await;
    let expected = [
        ("ok", ChunkState::Success, 1, ""),
        ("panic", ChunkState::Dead, 3, "the handler panicked: boom"),
        ("fail", ChunkState::Dead, 3, "no luck"),
        ("fatal", ChunkState::Dead, 1, "never"),
        ("snooze", ChunkState::Created, 0, ""),
        ("foreign", ChunkState::Created, 0, ""),
    ];
    store
        .until("all settled", |rows| expected.iter().all(|(key, state, ..)| rows.state(key) == *state))
        .await;
    for (key, _, attempts, cause) in expected {
        let row = store.rows().row(key).clone();
        assert_eq!((row.chunk.attempt, row.cause.as_str()), (attempts, cause), "{key}");
    }
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_overrun_fail_and_are_tried_again() {
    let limit = Some(Duration::from_millis(50));
    for (timeout, stall_timeout, cause) in
        [(limit, None, "timed out after 50ms"), (None, limit, "no data for 50ms")]
    {
        let store = Fake::new(LEASE);
        let handler = TestHandler { timeout, stall_timeout, ..TestHandler::new() };
        store.add("TEST", "wait");
        let engine = start(store.clone(), &handler, settings(1, LEASE)).await;
        store.until("it failed", |rows| rows.state("wait") == ChunkState::Retry).await;
        assert_eq!(store.rows().row("wait").cause, cause);
        engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_no_hint_told_of_is_found_by_polling_also_after_an_outage() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    let engine = start(store.clone(), &handler, settings(1, LEASE)).await;
    let mut left = 5;
    let (told, mut over) = tokio::sync::watch::channel(false);
    store.fail(move |verb, _| {
        if verb != "chunks_claim" {
            return None;
        }
        left -= 1;
        told.send_replace(left <= 0);
        (left >= 0).then(crate::fake::unavailable)
    });
    over.wait_for(|over| *over).await.unwrap();
    store.add("TEST", "ok");
    store.until("done", |rows| rows.state("ok") == ChunkState::Success).await;
    engine.stop().await;
}
