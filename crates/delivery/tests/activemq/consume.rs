//! Consuming: nothing twice to one consumer, nothing lost with a connection, never more than asked for.

use std::time::Duration;

use futures::FutureExt;
use outhaul_delivery::BrokerSettings;
use outhaul_delivery::broker::{Broker, Consumer, Incoming, Tag};

use crate::support::{broker, shared, soon, take, work};

fn tags(messages: &[Incoming]) -> Vec<Tag> {
    messages.iter().map(|message| message.tag.clone()).collect()
}

fn bodies(messages: &[Incoming]) -> Vec<Vec<u8>> {
    messages.iter().map(|message| message.body.clone()).collect()
}

/// Publishes a last message and expects it next: so nothing else was left for this consumer.
async fn expect_no_more(broker: &impl Broker, consumer: &mut dyn Consumer) {
    let mut publisher = soon(broker.publisher()).await.unwrap();
    soon(publisher.publish(&[work("last")])).await.unwrap();
    assert_eq!(take(consumer, 1).await[0].body, work("last").body.as_bytes());
}

#[tokio::test]
async fn what_is_not_acknowledged_is_delivered_again_after_the_connection_drops() {
    let broker = broker(&shared());
    let mut publisher = soon(broker.publisher()).await.unwrap();
    soon(publisher.publish(&[work(0), work(1), work(2)])).await.unwrap();

    let mut consumer = soon(broker.consumer(3)).await.unwrap();
    let first = take(consumer.as_mut(), 3).await;
    consumer.acknowledge(&tags(&first[1..2])).await.unwrap();
    // A round trip on the same connection, so that the acknowledgement was read.
    soon(consumer.close()).await;

    let mut consumer = soon(broker.consumer(3)).await.unwrap();
    let second = take(consumer.as_mut(), 2).await;
    assert_eq!(bodies(&second), [work(0).body.into_bytes(), work(2).body.into_bytes()]);
    drop(consumer);

    let mut consumer = soon(broker.consumer(3)).await.unwrap();
    assert_eq!(bodies(&take(consumer.as_mut(), 2).await), bodies(&second), "a drop is as good as a goodbye");
    expect_no_more(&broker, consumer.as_mut()).await;
}

#[tokio::test]
async fn no_more_than_the_prefetch_is_taken_from_others() {
    let broker = broker(&shared());
    let mut publisher = soon(broker.publisher()).await.unwrap();
    let mut greedy = soon(broker.consumer(2)).await.unwrap();
    let batch: Vec<_> = (0..6).map(work).collect();
    soon(publisher.publish(&batch)).await.unwrap();
    let mut other = soon(broker.consumer(10)).await.unwrap();

    let held = take(greedy.as_mut(), 2).await;
    let rest = take(other.as_mut(), 4).await;
    let mut all = [bodies(&held), bodies(&rest)].concat();
    all.sort();
    assert_eq!(all, batch.iter().map(|message| message.body.clone().into_bytes()).collect::<Vec<_>>());
    assert!(greedy.next().now_or_never().is_none());

    // Each acknowledgement makes room for as many, also after many rounds.
    other.acknowledge(&tags(&rest)).await.unwrap();
    soon(other.close()).await;
    greedy.acknowledge(&tags(&held)).await.unwrap();
    let batch: Vec<_> = (0..20).map(work).collect();
    soon(publisher.publish(&batch)).await.unwrap();
    for pair in batch.chunks(2) {
        let taken = take(greedy.as_mut(), 2).await;
        assert_eq!(
            bodies(&taken),
            pair.iter().map(|message| message.body.clone().into_bytes()).collect::<Vec<_>>()
        );
        soon(publisher.probe()).await.unwrap();
        assert!(greedy.next().now_or_never().is_none(), "both are unacknowledged");
        greedy.acknowledge(&tags(&taken)).await.unwrap();
    }
}

/// ActiveMQ looks at 200 messages at a time, and a single subscription would wait there for half a minute.
#[tokio::test]
async fn a_prefetch_of_more_than_a_page_is_filled() {
    let broker = broker(&shared());
    let mut publisher = soon(broker.publisher()).await.unwrap();
    let batch: Vec<_> = (0..1000).map(work).collect();
    soon(publisher.publish(&batch)).await.unwrap();
    let mut consumer = soon(broker.consumer(450)).await.unwrap();
    let held = take(consumer.as_mut(), 450).await;
    soon(publisher.probe()).await.unwrap();
    assert!(consumer.next().now_or_never().is_none(), "and not exceeded");
    consumer.acknowledge(&tags(&held)).await.unwrap();
    let rest = take(consumer.as_mut(), 450).await;
    let mut all = [bodies(&held), bodies(&rest)].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 900, "none twice");
    soon(consumer.close()).await;

    let mut consumer = soon(broker.consumer(650)).await.unwrap();
    take(consumer.as_mut(), 550).await;
    expect_no_more(&broker, consumer.as_mut()).await;
}

#[tokio::test]
async fn waiting_for_a_message_may_be_given_up_at_any_time() {
    let broker = broker(&shared());
    let mut consumer = soon(broker.consumer(100)).await.unwrap();
    let mut publisher = soon(broker.publisher()).await.unwrap();
    let batch: Vec<_> = (0..100).map(work).collect();
    assert!(consumer.next().now_or_never().is_none());
    soon(publisher.publish(&batch)).await.unwrap();
    let mut taken = Vec::new();
    soon(async {
        while taken.len() < 100 {
            match consumer.next().now_or_never() {
                Some(message) => taken.push(message.unwrap().body),
                None => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert_eq!(taken, batch.into_iter().map(|message| message.body.into_bytes()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_consumer_stays_connected_for_many_heartbeats_in_which_nobody_looks() {
    let settings = BrokerSettings { heartbeat: Duration::from_secs(10), ..shared() };
    let broker = broker(&settings);
    let mut consumer = soon(broker.consumer(1)).await.unwrap();
    let mut publisher = soon(broker.publisher()).await.unwrap();
    soon(publisher.publish(&[work(0), work(1)])).await.unwrap();
    // The subject is time itself: the broker closes connections that are silent for longer than one.
    tokio::time::sleep(settings.heartbeat * 3).await;
    let first = take(consumer.as_mut(), 1).await;
    consumer.acknowledge(&tags(&first)).await.unwrap();
    take(consumer.as_mut(), 1).await;
    soon(publisher.probe()).await.unwrap();
}
