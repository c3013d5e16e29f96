//! Publishing: what was confirmed is there, in order, and readable by others.

use outhaul_delivery::broker::{Broker, Destination, Outgoing};
use outhaul_testkit::servers::BrokerKind;

use crate::support::{Raw, bodies, broker, drain, shared, soon, take, work};

#[tokio::test]
async fn a_batch_of_a_thousand_is_confirmed_and_arrives_in_order() {
    let settings = shared();
    let broker = broker(&settings);
    let batch: Vec<_> = (0..1000).map(work).collect();
    let mut publisher = soon(broker.publisher()).await.unwrap();
    let words = soon(publisher.publish(&batch)).await.unwrap();
    assert_eq!(words, vec![Ok(()); 1000]);
    publisher.close().await;

    let mut consumer = soon(broker.consumer(100)).await.unwrap();
    assert!(drain(consumer.as_mut(), 1000).await == bodies(&batch));
    soon(consumer.close()).await;
    assert_eq!(BrokerKind::ActiveMq.shared_queue_counts(&settings.work_queue), Ok((0, 0)));
}

#[tokio::test]
async fn more_than_one_transaction_and_none_at_all() {
    let settings = shared();
    let broker = broker(&settings);
    let mut publisher = soon(broker.publisher()).await.unwrap();
    assert_eq!(soon(publisher.publish(&[])).await.unwrap(), []);
    let batch: Vec<_> = (0..2001).map(work).collect();
    assert_eq!(soon(publisher.publish(&batch)).await.unwrap(), vec![Ok(()); 2001]);
    let mut consumer = soon(broker.consumer(100)).await.unwrap();
    assert!(drain(consumer.as_mut(), 2001).await == bodies(&batch));
}

#[tokio::test]
async fn each_queue_gets_its_own_and_another_client_reads_text() {
    let settings = shared();
    let broker = broker(&settings);
    let mut publisher = soon(broker.publisher()).await.unwrap();
    let parking = Outgoing { to: Destination::Parking, queue: None, ..work("parked") };
    for message in [parking.clone(), work("ready")] {
        assert_eq!(soon(publisher.publish(&[message])).await.unwrap(), [Ok(())]);
    }
    let mut consumer = soon(broker.consumer(5)).await.unwrap();
    let ready = take(consumer.as_mut(), 1).await;
    assert_eq!(ready[0].body, work("ready").body.as_bytes());
    assert_eq!(ready[0].queue, work("ready").queue);

    let mut raw = Raw::connect(&settings).await;
    raw.write(format!("SUBSCRIBE\nid:0\ndestination:/queue/{}\nack:auto\n\n\0", settings.parking_queue))
        .await;
    let frame = raw.frame().await;
    assert!(!frame.contains("content-length:"), "ActiveMQ has it as text: {frame}");
    for line in ["\nouthaul-message-id:parked\n", "\npersistent:true\n", "\ncontent-type:application/json\n"]
    {
        assert!(frame.contains(line), "{frame}");
    }
    assert!(frame.ends_with(&format!("\n\n{}", parking.body)), "{frame}");
}

#[tokio::test]
async fn a_probe_is_answered_and_leaves_nothing_behind() {
    let settings = shared();
    let broker = broker(&settings);
    let mut publisher = soon(broker.publisher()).await.unwrap();
    for round in 0..3 {
        soon(publisher.probe()).await.unwrap();
        assert_eq!(soon(publisher.publish(&[work(round), work(round)])).await.unwrap(), [Ok(()), Ok(())]);
    }
    let mut consumer = soon(broker.consumer(6)).await.unwrap();
    take(consumer.as_mut(), 6).await;
}
