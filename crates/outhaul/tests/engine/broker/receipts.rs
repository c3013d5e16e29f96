//! When a message is acknowledged: after its chunk's outcome is recorded, whatever that is.

use std::sync::atomic::Ordering;

use outhaul::core::state::{ChunkState, MAX_RETURNS};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_acknowledged_after_the_success_is_recorded() {
    let stage = Stage::new(Fake::new(LEASE), TestHandler::new(), 1).await;
    stage.store.add("TEST", "gate");
    stage.store.hold(Some("chunks_finish"));
    stage.mailbox.send(0, "gate");
    stage.until_running(&["gate"]).await;
    stage.handler.gate.add_permits(1);
    stage.until_state("gate", ChunkState::Success).await;
    // The store has it, and has not said so.
    assert_eq!(stage.mailbox.post().open, ["gate"]);
    stage.store.hold(None);
    stage.mailbox.until_acknowledged(&["gate"]).await;
    assert_eq!(stage.mailbox.post().claims, 1, "the relay may announce one more");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_acknowledged_after_the_failure_is_recorded() {
    let stage = Stage::new(Fake::new(LEASE), TestHandler::new(), 1).await;
    stage.store.add("TEST", "fail");
    stage.store.hold(Some("chunks_fail"));
    stage.mailbox.send(0, "fail");
    stage.until_state("fail", ChunkState::Retry).await;
    assert_eq!(stage.mailbox.post().open, ["fail"]);
    stage.store.hold(None);
    stage.mailbox.until_acknowledged(&["fail"]).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_acknowledges() {
    let keys = ["fail", "fatal", "foreign", "ok", "panic", "refused", "snooze", "wait"];
    let stage = Stage::new(Fake::new(LEASE), TestHandler::new(), 8).await;
    for (n, key) in keys.into_iter().enumerate() {
        stage.store.add(if key == "foreign" { "FOREIGN" } else { "TEST" }, key);
        stage.mailbox.send(n, key);
    }
    stage.until_running(&["wait", "refused"]).await;
    stage.store.edit(|rows| [5, 7].map(|n: usize| rows.chunks[n].job_cancelled = true));
    stage.handler.gate.add_permits(1);
    stage.mailbox.until_acknowledged(&keys).await;
    assert_eq!(stage.engine.running(), 0);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_and_a_refused_outcome_acknowledge() {
    let stage = Stage::new(Fake::new(LEASE), TestHandler::new(), 2).await;
    for (n, key) in ["wait", "gate"].into_iter().enumerate() {
        stage.store.add("TEST", key);
        stage.mailbox.send(n, key);
    }
    stage.until_running(&["wait", "gate"]).await;
    stage.store.fail(|verb, _| matches!(verb, "chunks_finish" | "chunks_fail").then(crate::fake::refused));
    // Another worker owns this one since; the other's outcome is refused, again and again.
    stage.store.edit(|rows| rows.chunks[0].chunk.fence += 1);
    stage.handler.gate.add_permits(1);
    stage.mailbox.until_acknowledged(&["gate", "wait"]).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_back_at_a_stop_is_acknowledged() {
    let stage = Stage::new(Fake::new(LEASE), TestHandler::new(), 2).await;
    for (n, key) in ["wait-1", "wait-worn"].into_iter().enumerate() {
        stage.store.add("TEST", key);
        stage.store.edit(|rows| rows.chunks[n].chunk.returned = MAX_RETURNS * n as u32);
        stage.mailbox.send(n, key);
    }
    stage.until_running(&["wait-1", "wait-worn"]).await;
    assert_eq!(stage.mailbox.post().acknowledged, Vec::<String>::new());
    stage.engine.stop().await;
    assert_eq!(stage.store.rows().state("wait-1"), ChunkState::Queued);
    assert_eq!(stage.store.rows().state("wait-worn"), ChunkState::Retry);
    assert_eq!(stage.mailbox.post().acknowledged.len(), 2);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_of_a_running_chunk_is_dropped() {
    let stage = Stage::new(Fake::new(LEASE), TestHandler::new(), 2).await;
    stage.store.add("TEST", "gate");
    stage.mailbox.send(0, "gate");
    stage.until_running(&["gate"]).await;
    stage.mailbox.send(0, "gate");
    stage.mailbox.until("one of them is over", |post| post.acknowledged.len() == 1).await;
    assert_eq!(stage.mailbox.post().open, ["gate"], "the other stands for the running chunk");
    stage.handler.gate.add_permits(1);
    stage.mailbox.until_acknowledged(&["gate", "gate"]).await;
    assert_eq!(stage.started(), ["gate"]);
    assert_eq!(stage.deferred(), []);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_claims_more_than_it_has_places() {
    // The broker hands out as many as it is asked for: the worker alone knows its places.
    let mailbox = Mailbox::new(1000);
    let stage = Stage::with(Fake::new(LEASE), TestHandler::new(), mailbox.clone(), settings(3, LEASE)).await;
    for n in 0..200 {
        stage.store.add("TEST", &format!("ok-{n}"));
        mailbox.send(n, &format!("ok-{n}"));
    }
    let done =
        |rows: &crate::fake::Rows| rows.chunks.iter().all(|row| row.chunk.state == ChunkState::Success);
    stage.store.until("all done", done).await;
    mailbox.until("all acknowledged", |post| post.acknowledged.len() == 200).await;
    assert!(stage.handler.seen.most.load(Ordering::SeqCst) <= 3);
    assert_eq!(stage.started().len(), 200, "each ran once");
    assert!(mailbox.post().most <= 3);
    assert_eq!(stage.deferred(), [], "what it took it ran");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_wait_for_a_place_without_being_asked_for_again_and_again() {
    let mailbox = Mailbox::restless(3);
    let stage = Stage::with(Fake::new(LEASE), TestHandler::new(), mailbox.clone(), without_polls(1)).await;
    for (n, key) in ["gate-1", "gate-2"].into_iter().enumerate() {
        stage.store.add("TEST", key);
        mailbox.send(n, key);
    }
    stage.until_running(&["gate-1"]).await;
    beats(&stage.store).await;
    assert!(mailbox.post().takes < 10, "no place, no look");
    assert_eq!(mailbox.post().arrived.len(), 1);
    stage.handler.gate.add_permits(2);
    mailbox.until_acknowledged(&["gate-1", "gate-2"]).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_limit_leaves_no_place_empty() {
    let mut settings = without_polls(2);
    settings.worker.claim_limit = Some(1);
    let (store, mailbox) = (Fake::new(LEASE), Mailbox::new(2));
    for (n, key) in ["gate-1", "gate-2"].into_iter().enumerate() {
        store.add("TEST", key);
        mailbox.send(n, key);
    }
    // Both have arrived already, and no other arrival wakes it.
    let stage = Stage::with(store, TestHandler::new(), mailbox, settings).await;
    stage.until_running(&["gate-1", "gate-2"]).await;
    assert_eq!(stage.mailbox.post().most, 1);
    stage.handler.gate.add_permits(2);
    stage.mailbox.until_acknowledged(&["gate-1", "gate-2"]).await;
    stage.stop().await;
}
