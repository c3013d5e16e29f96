//! Budgets with a broker: slots are taken for what messages ask for, and what waits for one keeps
//! nobody else waiting.

use super::*;

fn zebra(max_concurrent: Option<u32>) -> QueueSpec {
    QueueSpec { name: "job:ZEBRA".to_owned(), max_concurrent }
}

fn budgeted(budget: u32) -> TestHandler {
    TestHandler { budget: Some(budget), ..TestHandler::new() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exhausted_budget_keeps_nobody_else_waiting() {
    let handler = TestHandler { others: vec![zebra(None)], ..budgeted(1) };
    let stage = Stage::with(Fake::new(LEASE), handler, Mailbox::new(2), without_polls(2)).await;
    for n in 0..10 {
        stage.store.add("TEST", &format!("gate-{n}"));
        stage.mailbox.send(n, &format!("gate-{n}"));
    }
    stage.store.add_to(1, "TEST", "other");
    stage.mailbox.send_of("job:ZEBRA", 10, "other");
    stage.until_state("other", ChunkState::Success).await;
    stage.until_running(&["gate-0"]).await;
    assert_eq!(stage.started().len(), 2, "and nothing else");
    // The rest is done as the one slot frees up, in order, although no message comes again.
    stage.handler.gate.add_permits(10);
    stage.mailbox.until("all acknowledged", |post| post.acknowledged.len() == 11).await;
    stage.until_state("gate-9", ChunkState::Success).await;
    let expected: Vec<String> = (1..10).map(|n| format!("gate-{n}")).collect();
    assert_eq!(stage.started()[2..], expected);
    let deferred: Vec<_> = (1..10).map(|n| (ChunkId(n), AGAIN)).collect();
    assert_eq!(stage.deferred(), deferred, "should this process die, they are announced again");
    stage.stop().await;
}

/// One place is free, over and over: neither those that wait for slots nor messages have it every time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_wait_take_turns_with_messages() {
    let handler = TestHandler { others: vec![zebra(None)], ..budgeted(1) };
    let stage = Stage::with(Fake::new(LEASE), handler, Mailbox::new(4), without_polls(2)).await;
    for n in 0..200 {
        stage.store.add("TEST", &format!("gate-{n}"));
        stage.mailbox.send(n, &format!("gate-{n}"));
    }
    stage.store.add_to(1, "TEST", "wait");
    stage.store.add_to(1, "TEST", "other");
    stage.mailbox.until("all but one wait", |post| post.acknowledged.len() == 199).await;
    stage.mailbox.send_of("job:ZEBRA", 200, "wait");
    stage.until_running(&["gate-0", "wait"]).await;
    stage.handler.gate.add_permits(200);
    stage.send_until_done(201, "other").await;
    stage.until_state("gate-199", ChunkState::Success).await;
    let place = stage.started().iter().position(|key| key == "other").unwrap();
    assert!(place < 201, "it had to wait for all others");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_slot_is_claimed_without_a_new_message() {
    let stage = Stage::with(Fake::new(LEASE), budgeted(1), Mailbox::new(2), without_polls(2)).await;
    for (n, key) in ["gate-1", "gate-2", "gate-3"].into_iter().enumerate() {
        stage.store.add("TEST", key);
        stage.mailbox.send(n, key);
    }
    stage.mailbox.until("two wait, unheld", |post| post.acknowledged == ["gate-2", "gate-3"]).await;
    // One of them is done elsewhere meanwhile: the slot goes to the next at once.
    stage.store.edit(|rows| rows.chunks[1].chunk.state = ChunkState::Success);
    stage.handler.gate.add_permits(1);
    stage.until_running(&["gate-3"]).await;
    stage.handler.gate.add_permits(1);
    stage.until_state("gate-3", ChunkState::Success).await;
    assert_eq!(stage.started(), ["gate-1", "gate-3"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_for_what_waits_already_changes_nothing() {
    let stage = Stage::with(Fake::new(LEASE), budgeted(1), Mailbox::new(2), without_polls(2)).await;
    for (n, key) in ["gate-1", "gate-2"].into_iter().enumerate() {
        stage.store.add("TEST", key);
        stage.mailbox.send(n, key);
    }
    stage.mailbox.until("one waits", |post| post.acknowledged == ["gate-2"]).await;
    let asked = stage.store.rows().named.len();
    stage.mailbox.send(1, "gate-2");
    stage.mailbox.until("dropped", |post| post.acknowledged == ["gate-2", "gate-2"]).await;
    assert_eq!(stage.store.rows().named.len(), asked, "the store has answered that already");
    assert_eq!(stage.deferred(), [(ChunkId(1), AGAIN); 2]);
    stage.handler.gate.add_permits(2);
    stage.until_state("gate-2", ChunkState::Success).await;
    assert_eq!(stage.started(), ["gate-1", "gate-2"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_slot_it_is_for_others_and_for_whoever_has_one_first() {
    let stage = Stage::with(Fake::new(LEASE), budgeted(1), Mailbox::new(2), without_polls(2)).await;
    stage.store.add("TEST", "ok");
    // Another process holds it.
    stage.store.edit(|rows| rows.slots.insert((0, 0), 99));
    stage.mailbox.send(0, "ok");
    stage.mailbox.until_acknowledged(&["ok"]).await;
    assert_eq!(stage.deferred(), [(ChunkId(0), AGAIN), (ChunkId(0), SOON)]);
    beats(&stage.store).await;
    assert_eq!(stage.started(), Vec::<String>::new());
    // The other process has no more names, and gave it back.
    stage.store.edit(|rows| rows.slots.clear());
    stage.until_state("ok", ChunkState::Success).await;
    stage.stop().await;
}

/// Another process may have names that wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_without_a_name_is_given_back_soon() {
    let stage = Stage::with(Fake::new(LEASE), budgeted(1), Mailbox::new(2), without_polls(2)).await;
    stage.store.add("TEST", "gate");
    stage.mailbox.send(0, "gate");
    stage.until_running(&["gate"]).await;
    assert_eq!(stage.store.rows().slots.len(), 1);
    stage.handler.gate.add_permits(1);
    stage.store.until("it is given back", |rows| rows.slots.is_empty()).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_are_taken_only_for_what_is_asked_for() {
    let handler = TestHandler { others: vec![zebra(Some(4))], ..budgeted(4) };
    let stage = Stage::with(Fake::new(LEASE), handler, Mailbox::new(8), without_polls(8)).await;
    stage.store.add("TEST", "gate");
    stage.mailbox.send(0, "gate");
    stage.until_running(&["gate"]).await;
    let slots: Vec<_> = stage.store.rows().slots.keys().copied().collect();
    assert_eq!(slots, [(0, 0)], "one chunk, one slot, of its queue");
    stage.handler.gate.add_permits(1);
    stage.mailbox.until_acknowledged(&["gate"]).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_does_not_say_its_queue_gets_a_slot_at_once() {
    for hint in ["", "job:NOWHERE", "job:ZEBRA"] {
        let handler = TestHandler { others: vec![zebra(None)], ..budgeted(2) };
        let stage = Stage::with(Fake::new(LEASE), handler, Mailbox::new(2), without_polls(2)).await;
        for (n, key) in ["gate-1", "gate-2"].into_iter().enumerate() {
            stage.store.add("TEST", key);
            stage.mailbox.send_of(hint, n, key);
        }
        // Nothing frees up and nothing is polled for.
        stage.until_running(&["gate-1", "gate-2"]).await;
        stage.handler.gate.add_permits(2);
        stage.until_state("gate-1", ChunkState::Success).await;
        stage.until_state("gate-2", ChunkState::Success).await;
        stage.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_loses_its_last_slot_waits_for_another() {
    let stage = Stage::new(Fake::new(LEASE), budgeted(1), 2).await;
    for (n, key) in ["gate-1", "gate-2"].into_iter().enumerate() {
        stage.store.add("TEST", key);
        stage.mailbox.send(n, key);
    }
    stage.mailbox.until("one waits", |post| post.acknowledged == ["gate-2"]).await;
    // Another process took the slot, and runs a chunk under it.
    stage.store.edit(|rows| rows.slots.values_mut().for_each(|holder| *holder = 99));
    beats(&stage.store).await;
    stage.handler.gate.add_permits(1);
    stage.mailbox.until("it has ended", |post| post.open.is_empty()).await;
    beats(&stage.store).await;
    assert!(!stage.started().contains(&"gate-2".to_owned()));
    stage.store.edit(|rows| rows.slots.clear());
    stage.until_running(&["gate-2"]).await;
    stage.handler.gate.add_permits(2);
    stage.until_state("gate-2", ChunkState::Success).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_kept_while_the_database_is_away() {
    let stage = Stage::with(Fake::new(LEASE), budgeted(1), Mailbox::new(2), without_polls(2)).await;
    for (n, key) in ["gate-1", "gate-2"].into_iter().enumerate() {
        stage.store.add("TEST", key);
        stage.mailbox.send(n, key);
    }
    stage.mailbox.until("one waits", |post| post.acknowledged == ["gate-2"]).await;
    let mut left = 2;
    stage.store.fail(move |verb, _| {
        let away = verb == "chunks_claim_named" && left > 0;
        left -= i32::from(away);
        away.then(crate::fake::unavailable)
    });
    stage.handler.gate.add_permits(2);
    stage.until_state("gate-2", ChunkState::Success).await;
    stage.stop().await;
}
