//! Messages that come to a process that claims nothing now: others get them.

use std::sync::atomic::Ordering;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_chunk_runs_alone_messages_go_to_others() {
    let handler = TestHandler { budget: Some(3), ..TestHandler::new() };
    let stage = Stage::with(Fake::new(LEASE), handler, Mailbox::new(4), without_polls(4)).await;
    for (n, key) in ["gate-1", "gate-2", "gate-3", "ok-waits"].into_iter().enumerate() {
        stage.store.add("TEST", key);
        stage.mailbox.send(n, key);
    }
    stage.mailbox.until("one waits for a slot", |post| post.acknowledged == ["ok-waits"]).await;
    stage.handler.gate.add_permits(1);
    stage.mailbox.until("its slot is free", |post| post.acknowledged.len() == 2).await;
    stage.until_state("ok-waits", ChunkState::Success).await;

    stage.store.add("TEST", "gate-poison");
    stage.store.edit(|rows| rows.chunks[4].chunk.lost = 2);
    stage.store.add("TEST", "ok-late");
    stage.mailbox.send(4, "gate-poison");
    stage.until_state("gate-poison", ChunkState::Running).await;
    stage.mailbox.until("none is wanted", |post| !post.wanted).await;
    assert!(!stage.started().contains(&"gate-poison".to_owned()), "others still run");
    // The first that comes goes to others, and with it what is held for running chunks.
    let before = stage.mailbox.post().takes;
    stage.mailbox.send(5, "ok-late");
    let returned = stage.mailbox.post().returned.clone();
    assert!(returned.len() == 3 && returned.contains(&"gate-poison".to_owned()), "{returned:?}");
    stage.handler.gate.add_permits(2);
    stage.until_running(&["gate-poison"]).await;
    assert_eq!(stage.store.rows().state("ok-late"), ChunkState::Queued);
    assert_eq!(stage.mailbox.post().takes, before, "nothing is taken meanwhile");
    stage.handler.gate.add_permits(1);
    stage.until_state("gate-poison", ChunkState::Success).await;
    // After it, messages are wanted as before.
    stage.until_state("ok-late", ChunkState::Success).await;
    stage.mailbox.until("all acknowledged", |post| post.open.is_empty()).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbours_of_a_chunk_that_runs_alone_are_given_back_and_acknowledged() {
    let store = Fake::new(LEASE);
    for (n, key) in ["ok-1", "gate-poison", "ok-2"].into_iter().enumerate() {
        store.add("TEST", key);
        store.edit(|rows| rows.chunks[n].chunk.lost = if n == 1 { 2 } else { 0 });
    }
    let mailbox = Mailbox::new(3);
    for (n, key) in ["ok-1", "gate-poison", "ok-2"].into_iter().enumerate() {
        mailbox.send(n, key);
    }
    let stage = Stage::with(store, TestHandler::new(), mailbox, settings(3, LEASE)).await;
    stage.until_running(&["gate-poison"]).await;
    stage.mailbox.until("they are for others", |post| post.acknowledged.len() == 2).await;
    assert_eq!(stage.mailbox.post().open, ["gate-poison"]);
    assert_eq!(stage.store.rows().state("ok-1"), ChunkState::Queued);
    assert_eq!(stage.store.rows().state("ok-2"), ChunkState::Queued);
    stage.handler.gate.add_permits(1);
    stage.mailbox.until_acknowledged(&["gate-poison", "ok-1", "ok-2"]).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_here_is_let_go_before_a_chunk_runs_alone() {
    let handler = TestHandler {
        budget: Some(1),
        others: vec![QueueSpec { name: "job:ZEBRA".to_owned(), max_concurrent: None }],
        ..TestHandler::new()
    };
    let stage = Stage::with(Fake::new(LEASE), handler, Mailbox::new(3), without_polls(3)).await;
    for (n, key) in ["gate-1", "ok-waits"].into_iter().enumerate() {
        stage.store.add("TEST", key);
        stage.mailbox.send(n, key);
    }
    stage.mailbox.until("one waits for a slot", |post| post.acknowledged == ["ok-waits"]).await;
    stage.store.add_to(1, "TEST", "gate-poison");
    stage.store.edit(|rows| rows.chunks[2].chunk.lost = 2);
    stage.mailbox.send_of("job:ZEBRA", 2, "gate-poison");
    stage.store.until("it is for others", |rows| rows.deferred.contains(&(ChunkId(1), SOON))).await;
    stage.handler.gate.add_permits(2);
    stage.until_state("gate-poison", ChunkState::Success).await;
    stage.mailbox.until("all acknowledged", |post| post.open.is_empty()).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_arrive_during_a_stop_go_to_others() {
    let handler = TestHandler { budget: Some(1), ..TestHandler::new() };
    let mut settings = settings(3, LEASE);
    settings.worker.shutdown_grace = LEASE;
    let stage = Stage::with(Fake::new(LEASE), handler, Mailbox::new(3), settings).await;
    for (n, key) in ["gate", "ok-waits", "ok-late"].into_iter().enumerate() {
        stage.store.add("TEST", key);
        if n < 2 {
            stage.mailbox.send(n, key);
        }
    }
    stage.until_running(&["gate"]).await;
    stage.mailbox.until("one waits for a slot", |post| post.acknowledged == ["ok-waits"]).await;
    let passed = async {
        stage
            .store
            .until("what waited is for others", |rows| rows.deferred.contains(&(ChunkId(1), SOON)))
            .await;
        stage.mailbox.send(2, "ok-late");
        assert_eq!(stage.mailbox.post().returned, ["gate"], "with what it holds");
        assert_eq!(stage.handler.seen.now.load(Ordering::SeqCst), 1, "the running one goes on");
        stage.handler.gate.add_permits(1);
    };
    tokio::join!(stage.engine.stop(), passed);
    assert_eq!(stage.store.rows().state("gate"), ChunkState::Success);
    assert_eq!(stage.started(), ["gate"], "nothing is claimed after a stop");
    assert_eq!(stage.mailbox.post().queue.len(), 1);
    stage.stop().await;
}

/// Where nothing waits, the connection is kept for the last words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ends_during_a_stop_is_acknowledged() {
    let mut settings = settings(2, LEASE);
    settings.worker.shutdown_grace = LEASE;
    let stage = Stage::with(Fake::new(LEASE), TestHandler::new(), Mailbox::new(2), settings).await;
    stage.store.add("TEST", "gate");
    stage.mailbox.send(0, "gate");
    stage.until_running(&["gate"]).await;
    let end = async {
        stage.mailbox.until("none is wanted", |post| !post.wanted).await;
        stage.handler.gate.add_permits(1);
    };
    tokio::join!(stage.engine.stop(), end);
    assert_eq!(stage.mailbox.post().acknowledged, ["gate"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_passed_on_is_left_to_the_broker() {
    let mut settings = beating(2);
    settings.worker.shutdown_grace = LEASE;
    let stage = Stage::with(Fake::new(LEASE), TestHandler::new(), Mailbox::new(3), settings).await;
    ["gate", "ok-late"].into_iter().for_each(|key| stage.store.add("TEST", key));
    stage.mailbox.send(0, "gate");
    stage.until_running(&["gate"]).await;
    let (told, mut asked) = tokio::sync::watch::channel(0);
    stage.store.fail(move |verb, _| {
        let away = verb == "chunks_claim_named";
        told.send_modify(|count| *count += u32::from(away));
        away.then(crate::fake::unavailable)
    });
    stage.mailbox.send(1, "ok-late");
    asked.wait_for(|count| *count > 0).await.unwrap();
    let end = async {
        // Once by the look, once at its end.
        asked.wait_for(|count| *count > 1).await.unwrap();
        stage.handler.gate.add_permits(1);
    };
    tokio::join!(stage.engine.stop(), end);
    assert_eq!(stage.mailbox.post().acknowledged, ["gate"]);
    assert_eq!(stage.mailbox.post().open, ["ok-late"], "it comes again when the connection ends");
}

/// A chunk that runs without its message leaves the broker to hand out more than there are places for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_process_passes_on_what_it_is_handed() {
    let stage = Stage::with(Fake::new(LEASE), TestHandler::new(), Mailbox::new(2), beating(1)).await;
    for (n, key) in ["gate-1", "gate-2"].into_iter().enumerate() {
        stage.store.add("TEST", key);
        stage.mailbox.send(n, key);
    }
    stage.until_running(&["gate-1"]).await;
    stage.mailbox.until("it is passed on", |post| post.acknowledged == ["gate-2"]).await;
    assert_eq!(stage.deferred(), [(ChunkId(1), SOON)], "another process shall have it");
    stage.handler.gate.add_permits(1);
    stage.until_state("gate-1", ChunkState::Success).await;
    assert_eq!(stage.started(), ["gate-1"]);
    stage.stop().await;
}
