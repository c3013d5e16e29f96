//! Consuming: one at a time, never lost, never more than asked for.

use futures::FutureExt;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use outhaul_delivery::broker::{Broker, Tag};

use crate::admin::{Admin, body, soon, soon_error, work};

#[tokio::test]
async fn what_is_acknowledged_is_gone_and_the_rest_goes_to_the_next_consumer() {
    let admin = Admin::new().await;
    // The consumer makes the queue too: a worker may be there before any relay.
    let mut consumer = admin.broker().consumer(10).await.unwrap();
    let mut publisher = admin.broker().publisher().await.unwrap();
    publisher.publish(&[work("a"), work("b"), work("c")]).await.unwrap();

    let mut messages = Vec::new();
    for expected in ["a", "b", "c"] {
        let message = soon(consumer.next()).await.unwrap();
        assert_eq!(body(&message), format!("{{\"jobId\":\"{expected}\"}}"));
        assert_eq!(message.queue.as_deref(), Some("source:warehouse"));
        messages.push(message);
    }
    // Not in order, and not the ones before it.
    consumer.acknowledge(&[messages[2].tag.clone(), messages[1].tag.clone()]).await.unwrap();
    soon(consumer.close()).await;
    admin.wait_for_messages(&admin.work, 1).await;

    let mut consumer = admin.broker().consumer(10).await.unwrap();
    let message = soon(consumer.next()).await.unwrap();
    assert_eq!(body(&message), r#"{"jobId":"a"}"#);
    // Dropped without a goodbye, as when a process dies.
    drop(consumer);
    admin.wait_for_messages(&admin.work, 1).await;
    let mut consumer = admin.broker().consumer(10).await.unwrap();
    let message = soon(consumer.next()).await.unwrap();
    consumer.acknowledge(&[message.tag]).await.unwrap();
    soon(consumer.close()).await;
    admin.wait_for_messages(&admin.work, 0).await;
}

#[tokio::test]
async fn no_more_than_the_prefetch_are_held() {
    let admin = Admin::new().await;
    let mut publisher = admin.broker().publisher().await.unwrap();
    publisher.publish(&[work("a"), work("b"), work("c"), work("d")]).await.unwrap();
    let mut consumer = admin.broker().consumer(2).await.unwrap();
    let first = soon(consumer.next()).await.unwrap();
    soon(consumer.next()).await.unwrap();
    admin.wait_for_messages(&admin.work, 2).await;
    assert!(consumer.next().now_or_never().is_none(), "a third came although two are unacknowledged");
    consumer.acknowledge(&[first.tag]).await.unwrap();
    assert_eq!(body(&soon(consumer.next()).await.unwrap()), r#"{"jobId":"c"}"#);
    admin.wait_for_messages(&admin.work, 1).await;

    // Zero is not "without limit".
    let other = Admin::new().await;
    let mut publisher = other.broker().publisher().await.unwrap();
    publisher.publish(&[work("a"), work("b"), work("c")]).await.unwrap();
    let mut consumer = other.broker().consumer(0).await.unwrap();
    soon(consumer.next()).await.unwrap();
    other.wait_for_messages(&other.work, 2).await;
}

#[tokio::test]
async fn a_wait_that_is_dropped_loses_nothing() {
    let admin = Admin::new().await;
    let mut consumer = admin.broker().consumer(100).await.unwrap();
    let mut publisher = admin.broker().publisher().await.unwrap();
    let batch: Vec<_> = (0..100).map(|n| work(&format!("{n}"))).collect();
    assert!(consumer.next().now_or_never().is_none());
    let mut publishing = std::pin::pin!(publisher.publish(&batch));
    let mut seen = Vec::new();
    let mut published = false;
    while seen.len() < 100 {
        // Most of these waits are dropped half-way, by the publisher's progress or by the clock.
        tokio::select! {
            biased;
            results = &mut publishing, if !published => {
                published = true;
                assert!(results.unwrap().iter().all(Result::is_ok));
            }
            () = tokio::task::yield_now() => {
                if let Some(message) = consumer.next().now_or_never() {
                    seen.push(body(&message.unwrap()).to_owned());
                }
            }
        }
    }
    let expected: Vec<_> = batch.iter().map(|message| message.body.clone()).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn whatever_a_stranger_sends_is_handed_over_but_not_more_than_a_mebibyte() {
    let admin = Admin::new().await;
    let mut consumer = admin.broker().consumer(10).await.unwrap();
    let mut headers = FieldTable::default();
    headers.insert("outhaul-queue".into(), AMQPValue::LongInt(7));
    admin.publish(&admin.work, b"", BasicProperties::default().with_headers(headers)).await;
    let mut headers = FieldTable::default();
    headers.insert("outhaul-queue".into(), AMQPValue::LongString(vec![0xff].into()));
    admin.publish(&admin.work, &[0xff, 0], BasicProperties::default().with_headers(headers)).await;
    admin.publish(&admin.work, &vec![b'x'; 3 << 20], BasicProperties::default()).await;
    admin.publish(&admin.work, &vec![b'y'; 1 << 20], BasicProperties::default()).await;

    let message = soon(consumer.next()).await.unwrap();
    assert_eq!((message.queue, message.body), (None, Vec::new()));
    let message = soon(consumer.next()).await.unwrap();
    assert_eq!((message.queue, message.body), (None, vec![0xff, 0]));
    for (byte, length) in [(b'x', 3 << 20), (b'y', 1 << 20)] {
        let message = soon(consumer.next()).await.unwrap();
        assert!(message.body.len() == 1 << 20 && message.body.iter().all(|b| *b == byte));
        assert_eq!(message.length, length);
        consumer.acknowledge(&[message.tag]).await.unwrap();
    }
}

#[tokio::test]
async fn a_queue_deleted_under_the_consumer_is_an_error_that_stays() {
    let admin = Admin::new().await;
    let mut consumer = admin.broker().consumer(10).await.unwrap();
    assert!(consumer.next().now_or_never().is_none());
    admin.delete(&admin.work).await;
    let error = soon_error(consumer.next()).await;
    assert!(error.contains("ended the consumer"), "{error}");
    assert_eq!(soon_error(consumer.next()).await, error);
    // Made anew, it consumes a queue made anew.
    admin.broker().consumer(10).await.unwrap();
    assert!(admin.look(&admin.work).await.is_some());
}

#[tokio::test]
async fn a_channel_that_the_broker_closes_is_an_error() {
    let admin = Admin::new().await;
    let mut consumer = admin.broker().consumer(10).await.unwrap();
    // What it does to a consumer that holds a message for too long, it does to an unknown tag at once.
    consumer.acknowledge(&[Tag("7".to_owned())]).await.unwrap();
    let error = soon_error(consumer.next()).await;
    assert!(error.contains("PRECONDITION_FAILED"), "{error}");
    assert_eq!(soon_error(consumer.next()).await, error);
    soon_error(consumer.acknowledge(&[Tag("1".to_owned())])).await;

    let mut consumer = admin.broker().consumer(10).await.unwrap();
    soon_error(consumer.acknowledge(&[Tag("ID:not-ours".to_owned())])).await;
}
