//! What the relay does when the broker or the store does not play along.

use std::time::Duration;

use outhaul_core::delivery::Delivery as _;
use outhaul_core::id::QueueId;
use outhaul_core::outbox::NewOutboxMessage;

use super::{Bench, MemoryBroker, MemoryLedger, SETTINGS};
use crate::ledger::Ledger as _;
use crate::message;
use crate::relay::RelaySettings;

fn one_to(last: i64) -> Vec<i64> {
    (1..=last).collect()
}

#[tokio::test]
async fn all_of_a_backlog_is_announced_and_confirmed_in_order() {
    let bench = Bench::start(None);
    bench.ledger.queue(1, 1234);
    bench.delivery.announce();
    bench.ledger.0.until("all are confirmed", |state| state.confirmed.len() == 1234).await;
    assert_eq!(bench.ledger.0.read(|state| state.confirmed.clone()), one_to(1234));
    let (published, queue) =
        bench.broker.0.read(|state| (state.published.len(), state.published[0].queue.clone()));
    assert_eq!((published, queue.as_deref()), (1234, Some("source:warehouse")));
    assert_eq!(bench.ledger.0.read(|state| state.doubts), 1, "only what is older than the process");
}

#[tokio::test]
async fn hints_alone_make_it_look() {
    // It never looks by itself here.
    let settings = RelaySettings { poll_interval: Duration::from_secs(3600), ..SETTINGS };
    let bench = Bench::start_as(MemoryBroker::new(), MemoryLedger::new(), settings, Some(1));
    bench.ledger.0.until("it looked for the first time", |state| state.takes > 0).await;
    bench.ledger.queue(1, 1);
    bench.delivery.announce();
    bench.ledger.0.until("it heard of one that was queued", |state| state.confirmed == [1]).await;
    bench.ledger.queue(2, 2);
    bench.delivery.claimed(1);
    bench.ledger.0.until("it heard of a claim", |state| state.confirmed == [1, 2]).await;
    bench.ledger.queue(3, 3);
    bench.delivery.queues_known(&[(QueueId(1), "source:warehouse".to_owned())]);
    bench.ledger.0.until("it heard of the queues", |state| state.confirmed == [1, 2, 3]).await;
    bench.broker.send(b"not ours");
    let worker = async {
        loop {
            let armed = bench.delivery.arm();
            drop(bench.delivery.take(1));
            armed.await;
        }
    };
    tokio::select! {
        () = bench.broker.0.until("it heard of a message to park", |state| state.parked.len() == 1) => {}
        () = worker => {}
    }
}

#[tokio::test]
async fn nothing_is_announced_of_queues_that_are_not_known() {
    let (broker, ledger) = (MemoryBroker::new(), MemoryLedger::new());
    ledger.queue(1, 3);
    let bench = Bench::start_on(broker, ledger, None);
    bench.ledger.0.until("the known queue is announced", |state| state.confirmed.len() == 3).await;
    bench.delivery.queues_known(&[(QueueId(2), "job:MAIL".to_owned())]);
    bench.ledger.queue(4, 4);
    let takes = bench.ledger.0.read(|state| state.takes);
    bench.ledger.0.until("the relay looked twice", |state| state.takes > takes + 2).await;
    assert_eq!(bench.ledger.0.read(|state| state.confirmed.len()), 3);
}

#[tokio::test]
async fn a_batch_that_breaks_half_way_is_deferred_and_announced_again() {
    let (broker, ledger) = (MemoryBroker::new(), MemoryLedger::new());
    broker.0.change(|state| state.break_after = Some(2));
    ledger.queue(1, 5);
    let bench = Bench::start_on(broker, ledger, None);
    bench.ledger.waits_are_over().await;
    bench.ledger.0.until("all are confirmed after all", |state| state.confirmed.len() == 5).await;
    let (deferred, doubts) = bench.ledger.0.read(|state| (state.deferred.clone(), state.doubts));
    let all: Vec<_> = one_to(5).into_iter().map(|chunk| (chunk, Duration::from_secs(1))).collect();
    assert_eq!(deferred, all, "nothing is known of any of them");
    assert_eq!(doubts, 2, "the broker may have lost everything");
    assert_eq!(bench.broker.0.read(|state| state.published.len()), 2 + 5);
    let health = bench.delivery.health();
    assert!(health.relay_connected && health.last_error.is_none(), "{health:?}");
}

/// A broker short of memory lets everybody in: that alone is no sign that it is well.
#[tokio::test]
async fn a_broker_that_takes_nothing_is_not_connected_before_it_does() {
    let (broker, ledger) = (MemoryBroker::new(), MemoryLedger::new());
    broker.0.change(|state| state.blocks = true);
    ledger.queue(1, 3);
    let bench = Bench::start_on(broker, ledger, None);
    bench.broker.0.until("it is let in again", |state| state.connections == 2).await;
    let takes = bench.ledger.0.read(|state| state.takes);
    bench.ledger.0.until("there is nothing to send now", |state| state.takes > takes + 2).await;
    let health = bench.delivery.health();
    assert_eq!((health.relay_connected, health.last_error.as_deref()), (false, Some("it is out of memory")));
    bench.broker.0.change(|state| state.blocks = false);
    bench.ledger.waits_are_over().await;
    bench.ledger.0.until("all are confirmed after all", |state| state.confirmed.len() == 3).await;
    let health = bench.delivery.health();
    assert_eq!((health.relay_connected, health.last_error), (true, None));
}

#[tokio::test]
async fn an_answer_that_is_lost_leaves_none_confirmed() {
    let (broker, ledger) = (MemoryBroker::new(), MemoryLedger::new());
    broker.0.change(|state| state.lose_an_answer = true);
    ledger.queue(1, 3);
    let bench = Bench::start_on(broker, ledger, None);
    bench.ledger.waits_are_over().await;
    bench.ledger.0.until("all are confirmed after all", |state| state.confirmed.len() == 3).await;
    assert_eq!(bench.ledger.0.read(|state| state.deferred.len()), 3);
    assert_eq!(bench.broker.0.read(|state| state.connections), 2);
}

#[tokio::test]
async fn what_is_refused_waits_and_the_others_are_confirmed() {
    let (broker, ledger) = (MemoryBroker::new(), MemoryLedger::new());
    broker.0.change(|state| state.refuse = Some("\"c2\""));
    ledger.queue(1, 3);
    let bench = Bench::start_on(broker, ledger, None);
    bench.ledger.0.until("the others are confirmed", |state| state.confirmed == [1, 3]).await;
    bench.ledger.0.until("it is deferred", |state| !state.deferred.is_empty()).await;
    assert_eq!(bench.ledger.0.read(|state| state.deferred.clone()), [(2, Duration::from_secs(1))]);
    // The queue may be gone: a new connection makes it again.
    bench.broker.0.until("it is connected anew, once", |state| state.connections == 2).await;
    assert_eq!(bench.ledger.0.read(|state| state.doubts), 1, "a refusal loses nothing");
}

#[tokio::test]
async fn while_the_broker_is_away_nothing_is_marked() {
    let (broker, ledger) = (MemoryBroker::new(), MemoryLedger::new());
    broker.0.change(|state| state.down = true);
    ledger.queue(1, 3);
    let bench = Bench::start_on(broker, ledger, None);
    let away = || bench.delivery.health().last_error.is_some();
    while !away() {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.ledger.0.read(|state| state.takes), 0);
    assert!(!bench.delivery.health().relay_connected);
    bench.broker.0.change(|state| state.down = false);
    bench.ledger.0.until("they are announced when it is back", |state| state.confirmed.len() == 3).await;
    assert_eq!(bench.ledger.0.read(|state| state.doubts), 1);
}

#[tokio::test]
async fn a_store_that_is_away_costs_no_connection() {
    let (broker, ledger) = (MemoryBroker::new(), MemoryLedger::new());
    ledger.0.change(|state| state.lose_a_confirm = true);
    ledger.queue(1, 3);
    let bench = Bench::start_on(broker, ledger, None);
    bench.ledger.0.until("the confirm was lost", |state| state.takes > 0 && !state.lose_a_confirm).await;
    bench.ledger.queue(4, 6);
    bench.ledger.0.until("it goes on", |state| state.confirmed == [4, 5, 6]).await;
    assert_eq!(bench.ledger.0.read(|state| state.deferred.len()), 0, "the broker has them");
    assert_eq!(bench.broker.0.read(|state| state.connections), 1);
}

#[tokio::test]
async fn the_outbox_is_sent_and_what_is_refused_stays() {
    let (broker, ledger) = (MemoryBroker::new(), MemoryLedger::new());
    broker.0.change(|state| state.refuse = Some("unwanted"));
    let messages: Vec<NewOutboxMessage> =
        (0..250).map(|n| message::foreign(format!("message {n}").as_bytes(), "it is not JSON")).collect();
    ledger.outbox_put(&messages).await.unwrap();
    ledger.outbox_put(&[message::foreign(b"unwanted", "it is not JSON")]).await.unwrap();
    let bench = Bench::start_on(broker, ledger, None);
    bench.ledger.0.until("the others are sent and deleted", |state| state.outbox.len() == 1).await;
    let parked = bench.broker.0.read(|state| state.parked.clone());
    let ids = |messages: &[NewOutboxMessage]| -> Vec<String> {
        messages.iter().map(|message| message.message_id.clone()).collect()
    };
    assert_eq!(parked.iter().map(|sent| sent.message_id.clone()).collect::<Vec<_>>(), ids(&messages));
    bench.broker.0.change(|state| state.refuse = None);
    bench.ledger.0.until("it is sent when it is taken", |state| state.outbox.is_empty()).await;
}

#[tokio::test]
async fn a_dropped_delivery_lets_go_of_the_broker() {
    let Bench { broker, ledger, delivery } = Bench::start(Some(4));
    broker.send(b"not ours");
    ledger.0.until("it runs", |state| state.puts > 0).await;
    drop(delivery);
    // The tasks hold the broker for as long as they run.
    for _ in 0..10_000 {
        if std::sync::Arc::strong_count(&broker) == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("tasks are left behind");
}

#[tokio::test]
async fn a_purged_queue_is_noticed() {
    let bench = Bench::start(None);
    bench.ledger.queue(1, 3);
    bench.delivery.announce();
    bench.ledger.0.until("they are announced", |state| state.confirmed.len() == 3).await;
    assert_eq!(bench.ledger.0.read(|state| state.doubts), 1, "only what is older than the process");
    bench.broker.0.change(|state| state.work.clear());
    bench.ledger.0.until("they are doubted", |state| state.doubts == 2).await;
}
