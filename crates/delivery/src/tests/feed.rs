//! What the feed does with messages: hand out, park, acknowledge, and begin anew.

use outhaul_core::delivery::{Delivery as _, Message};

use super::{Bench, MemoryBroker, MemoryLedger};

fn body(chunk_key: &str) -> String {
    format!(r#"{{"jobId":"J20260102_0000000000123","chunkKey":"{chunk_key}"}}"#)
}

/// Waits for messages, as a worker does.
async fn taken(bench: &Bench, count: usize) -> Vec<Message> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let armed = bench.delivery.arm();
        let more = bench.delivery.take(count - taken.len()).expect("this process consumes");
        if more.is_empty() {
            tokio::time::timeout(std::time::Duration::from_secs(100), armed).await.expect("no message came");
        }
        taken.extend(more);
    }
    taken
}

#[tokio::test]
async fn a_message_is_acknowledged_when_its_receipt_is_dropped_and_room_is_made() {
    let bench = Bench::start(Some(2));
    ["a", "b", "c"].iter().for_each(|key| bench.broker.send(body(key).as_bytes()));
    let mut held = taken(&bench, 2).await;
    assert_eq!(held[0].name.chunk_key, "a");
    assert_eq!(bench.delivery.take(5).expect("it consumes").len(), 0, "no more than the prefetch");
    assert!(bench.broker.0.read(|state| state.acknowledged.is_empty()));
    held.remove(0);
    bench.broker.0.until("it is acknowledged", |state| state.acknowledged == [body("a")]).await;
    assert_eq!(taken(&bench, 1).await[0].name.chunk_key, "c");
}

#[tokio::test]
async fn a_foreign_message_is_acknowledged_only_after_it_is_in_the_outbox() {
    let (broker, ledger) = (MemoryBroker::new(), MemoryLedger::new());
    ledger.0.change(|state| state.away = true);
    let bench = Bench::start_on(broker, ledger, Some(3));
    bench.broker.send(b"hello");
    bench.broker.send(body("a").as_bytes());
    bench.broker.send(body("b").as_bytes());
    drop(taken(&bench, 2).await);
    bench.broker.0.until("the others go on", |state| state.acknowledged.len() == 2).await;
    assert!(bench.broker.0.read(|state| !state.acknowledged.contains(&"hello".to_owned())));

    bench.ledger.0.change(|state| state.away = false);
    bench.broker.0.until("it is acknowledged", |state| state.acknowledged.len() == 3).await;
    bench.broker.0.until("it is parked", |state| state.parked.len() == 1).await;
    let parked = bench.broker.0.read(|state| state.parked[0].body.clone());
    let parked: serde_json::Value = serde_json::from_str(&parked).unwrap();
    assert_eq!(parked["body"], "hello");
    assert!(parked["cause"].as_str().unwrap().starts_with("it is not JSON"), "{parked}");
}

#[tokio::test]
async fn a_message_that_names_nothing_is_parked_as_it_came() {
    let bench = Bench::start(Some(3));
    let original = r#"{"jobId":"J20260102_0000000000123","key":"A","effectiveDate":"20250315","trace":"x"}"#;
    bench.broker.send(original.as_bytes());
    let message = taken(&bench, 1).await.remove(0);
    bench.delivery.park(message, "there is no such chunk");
    bench.broker.0.until("it is acknowledged", |state| state.acknowledged == [original]).await;
    bench.broker.0.until("it is parked", |state| state.parked.len() == 1).await;
    let parked = bench.broker.0.read(|state| state.parked[0].body.clone());
    let parked: serde_json::Value = serde_json::from_str(&parked).unwrap();
    assert_eq!(parked["body"], original);
    assert_eq!(parked["cause"], "there is no such chunk");
}

#[tokio::test]
async fn what_a_lost_connection_brought_is_handed_out_again() {
    let bench = Bench::start(Some(3));
    ["a", "b", "c"].iter().for_each(|key| bench.broker.send(body(key).as_bytes()));
    bench.broker.0.until("all are handed out", |state| state.unacknowledged.len() == 3).await;
    let old = taken(&bench, 1).await;
    bench.broker.cut();
    bench.broker.0.until("it is connected again", |state| state.unacknowledged.len() == 3).await;
    // The tags of the old connection mean nothing on the new one; this broker would cut it for them.
    drop(old);
    let new = taken(&bench, 3).await;
    assert_eq!(new.iter().map(|m| m.name.chunk_key.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    drop(new);
    bench.broker.0.until("each is acknowledged once", |state| state.acknowledged.len() == 3).await;
}

#[tokio::test]
async fn a_message_that_waits_to_be_parked_is_not_acknowledged_by_a_stop() {
    let (broker, ledger) = (MemoryBroker::new(), MemoryLedger::new());
    let bench = Bench::start_on(broker, ledger, Some(3));
    bench.broker.send(body("a").as_bytes());
    let done = taken(&bench, 1).await;
    bench.ledger.0.change(|state| state.away = true);
    bench.broker.send(b"hello");
    bench.broker.0.until("it is handed out", |state| state.unacknowledged.len() == 2).await;
    drop(done);
    bench.delivery.stop().await;
    let (acknowledged, left) = bench.broker.0.read(|state| (state.acknowledged.clone(), state.work.len()));
    assert_eq!(acknowledged, [body("a")], "what is done with is acknowledged by then");
    assert_eq!(left, 1, "the other goes to another");
    assert_eq!(bench.ledger.0.read(|state| state.puts), 0);
    bench.delivery.stop().await;
}

/// The relay's own connection holds: only the feed knows that its queue was taken away.
#[tokio::test]
async fn a_lost_consumer_casts_doubt_on_what_was_announced() {
    let bench = Bench::start(Some(1));
    bench.ledger.0.until("a new process doubts", |state| state.doubts == 1).await;
    bench.broker.send(body("a").as_bytes());
    drop(taken(&bench, 1).await);
    bench.broker.cut();
    bench.ledger.0.until("it doubts once more", |state| state.doubts == 2).await;
}

/// It would fill the broker with the same messages again and again.
#[tokio::test]
async fn a_consumer_that_is_not_let_in_casts_no_doubt() {
    let broker = MemoryBroker::new();
    broker.0.change(|state| state.publish_only = true);
    let bench = Bench::start_on(broker, MemoryLedger::new(), Some(1));
    bench.broker.0.until("it tried again", |state| state.turned_away >= 2).await;
    let takes = bench.ledger.0.read(|state| state.takes);
    bench.ledger.0.until("the relay looked twice", |state| state.takes > takes + 2).await;
    assert_eq!(bench.ledger.0.read(|state| state.doubts), 1, "only what is older than the process");
}
