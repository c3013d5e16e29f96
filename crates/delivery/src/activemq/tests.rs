//! What a publisher and a consumer make of a broker's answers. How a real one answers is tested in
//! `tests/activemq/`.

use tokio::io::AsyncWriteExt as _;

use super::*;
use crate::stomp::fake::{FakeBroker, LOGIN};

async fn publisher() -> (FakeBroker, StompPublisher) {
    let (broker, connection) = FakeBroker::connected(&LOGIN, "0,0", ROOM).await;
    (broker, StompPublisher { connection, work: address("w"), parking: address("p") })
}

fn message(id: &str) -> Outgoing {
    Outgoing {
        to: Destination::Work,
        message_id: id.to_owned(),
        queue: Some("fast".to_owned()),
        body: "{}".to_owned(),
    }
}

fn receipt_of(frame: &Frame) -> String {
    frame.header("receipt").unwrap().to_owned()
}

#[tokio::test]
async fn a_message_is_text_persistent_and_named() {
    let (mut broker, mut publisher) = publisher().await;
    let parking = Outgoing { to: Destination::Parking, queue: None, ..message("b") };
    let batch = [message("a"), parking];
    let (words, ()) = tokio::join!(publisher.publish(&batch), async {
        let begin = broker.next().await;
        let [work, parking] = [broker.next().await, broker.next().await];
        for (name, value) in [
            ("destination", "/queue/w"),
            ("persistent", "true"),
            ("content-type", "application/json"),
            ("outhaul-message-id", "a"),
            ("outhaul-queue", "fast"),
            ("transaction", begin.header("transaction").unwrap()),
        ] {
            assert_eq!(work.header(name), Some(value));
        }
        assert_eq!(work.header("content-length"), None, "with it ActiveMQ makes bytes of it, not text");
        assert_eq!(
            (parking.header("destination"), parking.header("outhaul-queue")),
            (Some("/queue/p"), None)
        );
        let commit = broker.next().await;
        assert_eq!(commit.command, "COMMIT");
        broker.receipt(&receipt_of(&commit)).await;
    });
    assert_eq!(words.unwrap(), [Ok(()), Ok(())]);
}

#[tokio::test]
async fn a_refused_batch_is_sent_one_by_one_and_only_what_is_refused_fails() {
    let (mut broker, mut publisher) = publisher().await;
    let batch = [message("a"), message("b"), message("c")];
    let (words, ()) = tokio::join!(publisher.publish(&batch), async {
        for _ in 0..4 {
            broker.next().await;
        }
        // As ActiveMQ does it: an error about the message, and one about the transaction.
        broker.say(&Frame::new("ERROR").with("message", "b is not allowed")).await;
        let commit = broker.next().await;
        broker.say(&Frame::new("ERROR").with("receipt-id", receipt_of(&commit))).await;
        let each = [broker.next().await, broker.next().await, broker.next().await];
        assert!(each.iter().all(|frame| frame.header("transaction").is_none()));
        broker.receipt(&receipt_of(&each[2])).await;
        let refusal = Frame::new("ERROR").with("receipt-id", receipt_of(&each[1]));
        broker.say(&refusal.with("message", "b is not allowed")).await;
        broker.receipt(&receipt_of(&each[0])).await;
    });
    assert_eq!(words.unwrap(), [Ok(()), Err("b is not allowed".to_owned()), Ok(())]);
}

#[tokio::test]
async fn what_cannot_be_sent_fails_alone() {
    let (mut broker, mut publisher) = publisher().await;
    let batch = [message("a"), message("b\0")];
    let (words, ()) = tokio::join!(publisher.publish(&batch), async {
        let sent = broker.next().await;
        assert_eq!(sent.header("outhaul-message-id"), Some("a"));
        broker.receipt(&receipt_of(&sent)).await;
    });
    let words = words.unwrap();
    assert!(words[0].is_ok() && words[1].is_err());
}

#[tokio::test]
async fn answers_to_a_call_that_was_given_up_are_not_taken_for_the_next_ones() {
    let (mut broker, mut publisher) = publisher().await;
    let batch = [message("a"), message("b")];
    let given_up = tokio::select! {
        _ = publisher.publish(&batch) => panic!("nobody answered"),
        commit = async { loop {
            let frame = broker.next().await;
            if frame.command == "COMMIT" { break receipt_of(&frame); }
        } } => commit,
    };
    let (probed, ()) = tokio::join!(publisher.probe(), async {
        broker.say(&Frame::new("ERROR").with("receipt-id", given_up)).await;
        assert_eq!(broker.next().await.command, "BEGIN");
        let abort = broker.next().await;
        assert_eq!(abort.command, "ABORT");
        broker.receipt(&receipt_of(&abort)).await;
    });
    probed.unwrap();
}

#[tokio::test]
async fn a_lost_connection_is_an_error_for_the_whole_batch() {
    let (mut broker, mut publisher) = publisher().await;
    let batch = [message("a"), message("b")];
    let (words, ()) = tokio::join!(publisher.publish(&batch), async {
        broker.next().await;
        drop(broker);
    });
    assert!(words.is_err());
    assert!(publisher.probe().await.is_err());
}

#[test]
fn a_transaction_stays_small() {
    let many = vec![message("a"); TRANSACTION_MESSAGES * 2 + 1];
    let sizes: Vec<_> = batches(&many).map(<[_]>::len).collect();
    assert_eq!(sizes, [TRANSACTION_MESSAGES, TRANSACTION_MESSAGES, 1]);
    let large = Outgoing { body: "x".repeat(TRANSACTION_BYTES / 2), ..message("a") };
    let too_large = Outgoing { body: "x".repeat(TRANSACTION_BYTES + 1), ..message("a") };
    let mixed = [large.clone(), large.clone(), large.clone(), too_large, large];
    let sizes: Vec<_> = batches(&mixed).map(<[_]>::len).collect();
    assert_eq!(sizes, [2, 1, 1, 1]);
    assert_eq!(batches(&[]).count(), 0);
}

async fn consumer(patience: usize) -> (FakeBroker, StompConsumer) {
    let (broker, connection) = FakeBroker::connected(&LOGIN, "0,0", ROOM).await;
    (broker, StompConsumer { connection, early: VecDeque::new(), subscriptions: 1, patience })
}

#[tokio::test]
async fn a_consumer_passes_over_errors_but_not_over_any_number() {
    let (mut broker, mut consumer) = consumer(2).await;
    let error = Frame::new("ERROR").with("message", "Unexpected ACK");
    broker.receipt("of no matter").await;
    broker.say(&error).await;
    broker.say(&error).await;
    broker.say(&Frame::new("MESSAGE").with("ack", "1")).await;
    assert_eq!(consumer.next().await.unwrap().tag.0, "1");
    broker.say(&error).await;
    assert!(consumer.next().await.unwrap_err().0.contains("Unexpected ACK"));
}

#[tokio::test]
async fn whatever_may_be_the_tag_of_a_message_acknowledges_it() {
    let (mut broker, mut consumer) = consumer(2).await;
    // What ActiveMQ makes of JMS properties with such names: their line ends are sent as they are.
    for (headers, expected) in [
        ("x\nack:fake\nack:ID\\c1\n", &["fake", "ID:1"][..]),
        ("ack:ID\\c1\nx\nack:fake\n", &["ID:1", "fake"]),
        ("x\n\ny:v\nack:ID\\c1\n", &["ID:1"]),
        ("x\nack:fake\n\ny:v\nack:ID\\c1\n", &["fake", "ID:1"]),
        ("ack:ID\\c1\nx\0\nMESSAGE\ny:v\n", &["ID:1"]),
        ("x\0\nMESSAGE\ny:v\nack:ID\\c1\n", &["ID:1"]),
    ] {
        let frames = format!("MESSAGE\nexpires:0\n{headers}\n{{}}\0\nMESSAGE\nack:next\n\n\0\n");
        broker.pipe.write_all(frames.as_bytes()).await.unwrap();
        let message = consumer.next().await.unwrap();
        consumer.acknowledge(&[message.tag]).await.unwrap();
        for tag in expected {
            assert_eq!(broker.next().await.header("id"), Some(*tag), "{headers:?}");
        }
        assert_eq!(consumer.next().await.unwrap().tag.0, "next", "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_never_answers_is_given_up() {
    // Its heart-beats would go on: a broker out of memory or disk blocks its producers, not its timers.
    let (_broker, mut publisher) = publisher().await;
    let error = publisher.publish(&[message("a"), message("b")]).await.unwrap_err();
    assert!(error.0.contains("has not answered"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_a_broker_said_before_it_fell_silent_is_told() {
    let why = format!("no rights to write {}", "x".repeat(5000));
    for batch in [vec![message("a")], vec![message("a"), message("b")]] {
        let (mut broker, mut publisher) = publisher().await;
        let (words, _broker) = tokio::join!(publisher.publish(&batch), async {
            broker.next().await;
            broker.say(&Frame::new("ERROR").with("message", &why)).await;
            broker
        });
        let error = words.unwrap_err().0;
        assert!(error.contains("has not answered") && error.contains("no rights to write"), "{error}");
        assert!(error.len() < 500, "{error}");
    }
}
