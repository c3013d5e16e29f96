//! Publishing: what the broker has, what it refused, and what it was asked to keep.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use outhaul_delivery::broker::{Broker, Outgoing};

use crate::admin::{Admin, parked, soon, work};

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

#[tokio::test]
async fn a_published_message_is_durable_and_says_what_it_is() {
    let admin = Admin::new().await;
    let mut publisher = admin.broker().publisher().await.unwrap();
    let results = publisher.publish(&[work("a"), parked("b")]).await.unwrap();
    assert_eq!(results, [Ok(()), Ok(())]);

    let message = admin.take(&admin.work).await.unwrap();
    assert_eq!(message.data, br#"{"jobId":"a"}"#);
    let properties = &message.properties;
    assert_eq!(properties.delivery_mode(), &Some(2));
    assert_eq!(properties.content_type(), &Some("application/json".into()));
    assert_eq!(properties.message_id(), &Some("a".into()));
    assert_eq!(properties.app_id(), &Some("outhaul".into()));
    let headers = properties.headers().as_ref().unwrap().inner();
    assert_eq!(headers.get("outhaul-queue"), Some(&text("source:warehouse")));
    assert_eq!(headers.get("outhaul-message-id"), Some(&text("a")));

    let message = admin.take(&admin.parking).await.unwrap();
    assert_eq!(message.properties.message_id(), &Some("b".into()));
    assert!(!message.properties.headers().as_ref().unwrap().contains_key("outhaul-queue"));
    // The queues outlive the broker: declaring them durable again is no contradiction.
    admin.declare(&admin.work, FieldTable::default()).await;
    soon(publisher.close()).await;
}

#[tokio::test]
async fn an_id_longer_than_amqp_allows_is_kept_in_the_header() {
    let admin = Admin::new().await;
    let mut publisher = admin.broker().publisher().await.unwrap();
    let (short, long) = ("s".repeat(255), "l".repeat(256));
    assert_eq!(publisher.publish(&[work(&short), work(&long)]).await.unwrap(), [Ok(()), Ok(())]);
    assert_eq!(admin.take(&admin.work).await.unwrap().properties.message_id(), &Some(short.as_str().into()));
    let message = admin.take(&admin.work).await.unwrap();
    assert_eq!(message.properties.message_id(), &None);
    let headers = message.properties.headers().as_ref().unwrap().inner();
    assert_eq!(headers.get("outhaul-message-id"), Some(&text(&long)));
}

#[tokio::test]
async fn a_thousand_messages_are_confirmed_in_one_batch() {
    let admin = Admin::new().await;
    let mut publisher = admin.broker().publisher().await.unwrap();
    let batch: Vec<Outgoing> = (0..1000).map(|n| work(&format!("m{n}"))).collect();
    let results = publisher.publish(&batch).await.unwrap();
    assert!(results.iter().all(Result::is_ok) && results.len() == 1000);
    assert_eq!(admin.look(&admin.work).await, Some((1000, 0)));
    assert_eq!(publisher.publish(&[]).await.unwrap(), []);
}

#[tokio::test]
async fn a_queue_deleted_under_the_publisher_refuses_and_is_made_again_at_the_next_publish() {
    let admin = Admin::new().await;
    // Not durable, so that its confirms come at once and mix with the returns of the other queue: each
    // message must still be told its own fate.
    admin.declare_transient(&admin.parking).await;
    let mut publisher = admin.broker().publisher().await.unwrap();
    admin.delete(&admin.work).await;

    let batch: Vec<Outgoing> =
        (0..200).map(|n| if n % 2 == 0 { parked(&format!("{n}")) } else { work(&format!("{n}")) }).collect();
    let results = publisher.publish(&batch).await.unwrap();
    for (n, result) in results.iter().enumerate() {
        let expected = if n % 2 == 0 { Ok(()) } else { Err("no queue took it".to_owned()) };
        assert_eq!(result, &expected, "message {n}");
    }
    assert_eq!(admin.look(&admin.parking).await, Some((100, 0)));

    assert_eq!(publisher.publish(&[work("again")]).await.unwrap(), [Ok(())]);
    assert_eq!(admin.look(&admin.work).await, Some((1, 0)));
}

#[tokio::test]
async fn a_probe_tells_what_the_queue_holds_and_that_it_is_gone_before_a_message_is_refused() {
    let admin = Admin::new().await;
    let mut publisher = admin.broker().publisher().await.unwrap();
    assert_eq!(publisher.probe().await.unwrap(), Some(0));
    assert_eq!(publisher.publish(&[work("a"), work("b")]).await.unwrap(), [Ok(()), Ok(())]);
    assert_eq!(publisher.probe().await.unwrap(), Some(2));
    admin.delete(&admin.work).await;
    assert_eq!(publisher.probe().await.unwrap(), Some(0));
    assert_eq!(admin.look(&admin.work).await, None, "a probe makes no queue");
    assert_eq!(publisher.publish(&[work("a")]).await.unwrap(), [Ok(())]);
    assert_eq!(publisher.probe().await.unwrap(), Some(1));
}

#[tokio::test]
async fn queues_that_a_team_made_with_arguments_of_its_own_are_used_as_they_are() {
    let admin = Admin::new().await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), text("quorum"));
    admin.declare(&admin.work, arguments).await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(1));
    arguments.insert("x-overflow".into(), text("reject-publish"));
    admin.declare(&admin.parking, arguments).await;

    let mut publisher = admin.broker().publisher().await.unwrap();
    assert_eq!(publisher.publish(&[work("a"), parked("b")]).await.unwrap(), [Ok(()), Ok(())]);
    // Full: the broker says no to this one, and the others are as good as ever.
    let results = publisher.publish(&[work("c"), parked("d")]).await.unwrap();
    assert_eq!(results[0], Ok(()));
    assert!(results[1].as_ref().unwrap_err().contains("did not take it"), "{results:?}");

    let mut consumer = admin.broker().consumer(10).await.unwrap();
    assert_eq!(crate::admin::body(&soon(consumer.next()).await.unwrap()), r#"{"jobId":"a"}"#);
    // Taken out, there is room again.
    assert_eq!(admin.take(&admin.parking).await.unwrap().properties.message_id(), &Some("b".into()));
    assert_eq!(publisher.publish(&[parked("e")]).await.unwrap(), [Ok(())]);
}

#[tokio::test]
async fn a_message_over_one_frame_arrives_whole() {
    let admin = Admin::new().await;
    let mut publisher = admin.broker().publisher().await.unwrap();
    let body = format!("\"{}\"", "x".repeat(500_000));
    let large = Outgoing { body: body.clone(), ..parked("large") };
    assert_eq!(publisher.publish(&[large]).await.unwrap(), [Ok(())]);
    assert_eq!(admin.take(&admin.parking).await.unwrap().data, body.as_bytes());
    // A stranger's message in between changes nothing.
    admin.publish(&admin.parking, b"", BasicProperties::default()).await;
    assert_eq!(publisher.publish(&[parked("next")]).await.unwrap(), [Ok(())]);
}
