//! What becomes of messages whose chunks cannot be claimed.

use outhaul::core::delivery::NAMES_NOTHING;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_message_is_dropped_and_runs_nothing() {
    let stage = Stage::new(Fake::new(LEASE), TestHandler::new(), 4).await;
    let states = [ChunkState::Success, ChunkState::Running, ChunkState::Retry, ChunkState::Dead];
    for (n, state) in states.into_iter().enumerate() {
        stage.store.add("TEST", &format!("ok-{n}"));
        stage.store.edit(|rows| {
            rows.chunks[n].chunk.state = state;
            rows.chunks[n].expires += LEASE;
            rows.chunks[n].due += LEASE;
        });
        stage.mailbox.send(n, &format!("ok-{n}"));
    }
    stage.mailbox.until_acknowledged(&["ok-0", "ok-1", "ok-2", "ok-3"]).await;
    assert_eq!(stage.started(), Vec::<String>::new());
    assert_eq!((stage.deferred(), stage.mailbox.post().parked.len()), (vec![], 0));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_chunk_is_parked_and_the_next_runs() {
    let stage = Stage::new(Fake::new(LEASE), TestHandler::new(), 1).await;
    stage.store.add("TEST", "ok");
    stage.mailbox.send(7, "nobody");
    stage.mailbox.send(0, "ok");
    stage.mailbox.until_acknowledged(&["nobody", "ok"]).await;
    assert_eq!(stage.mailbox.post().parked, [("nobody".to_owned(), NAMES_NOTHING.to_owned())]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_run_now_is_announced_again_and_keeps_no_place() {
    let stage = Stage::new(Fake::new(LEASE), TestHandler::new(), 1).await;
    stage.store.edit(|rows| rows.paused.insert(5));
    for (queue, key) in [(5, "paused"), (7, "elsewhere"), (0, "ok")] {
        stage.store.add_to(queue, "TEST", key);
    }
    for (n, key) in ["paused", "elsewhere", "ok"].into_iter().enumerate() {
        stage.mailbox.send(n, key);
    }
    stage.mailbox.until_acknowledged(&["elsewhere", "ok", "paused"]).await;
    assert_eq!(stage.deferred(), [(ChunkId(0), Duration::ZERO), (ChunkId(1), SOON)]);
    assert_eq!(stage.started(), ["ok"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_held_until_its_chunk_is_to_be_announced_again() {
    let stage = Stage::new(Fake::new(LEASE), TestHandler::new(), 1).await;
    stage.store.add_to(7, "TEST", "elsewhere");
    stage.store.hold(Some("announcements_defer"));
    stage.mailbox.send(0, "elsewhere");
    stage.store.until("it is deferred", |rows| !rows.deferred.is_empty()).await;
    // Should this process die now, the broker still has it.
    assert_eq!(stage.mailbox.post().open, ["elsewhere"]);
    stage.store.hold(None);
    stage.mailbox.until_acknowledged(&["elsewhere"]).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_kept_until_its_announcement_is_deferred_and_stops_nobody() {
    let stage = Stage::new(Fake::new(LEASE), TestHandler::new(), 2).await;
    let (mut left, mailbox) = (3, stage.mailbox.clone());
    stage.store.fail(move |verb, _| {
        let away = verb == "announcements_defer" && left > 0;
        left -= i32::from(away);
        // Or nobody would have a message of a chunk that counts as announced.
        let kept = || mailbox.post().open.iter().any(|key| key == "elsewhere");
        assert!(verb != "announcements_defer" || kept(), "acknowledged too early");
        away.then(crate::fake::unavailable)
    });
    for (n, (queue, key)) in [(7, "elsewhere"), (0, "ok")].into_iter().enumerate() {
        stage.store.add_to(queue, "TEST", key);
        stage.mailbox.send(n, key);
    }
    stage.mailbox.until("both are acknowledged", |post| post.acknowledged.len() == 2).await;
    assert_eq!(stage.mailbox.post().acknowledged, ["ok", "elsewhere"]);
    assert_eq!(stage.deferred(), [(ChunkId(0), SOON)]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_kept_while_the_database_is_away() {
    let stage = Stage::new(Fake::new(LEASE), TestHandler::new(), 1).await;
    stage.store.add("TEST", "gate");
    let (mut left, mailbox) = (3, stage.mailbox.clone());
    stage.store.fail(move |verb, _| {
        let away = verb == "chunks_claim_named" && left > 0;
        left -= i32::from(away);
        assert!(verb != "chunks_claim_named" || mailbox.post().open == ["gate"], "nobody dropped it");
        away.then(crate::fake::unavailable)
    });
    stage.mailbox.send(0, "gate");
    stage.until_running(&["gate"]).await;
    stage.handler.gate.add_permits(1);
    stage.mailbox.until_acknowledged(&["gate"]).await;
    stage.stop().await;
}
