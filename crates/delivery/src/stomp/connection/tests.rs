//! The connection against a broker that does what brokers do on bad days.

use super::super::fake::{FakeBroker, LOGIN};
use super::*;

const MEBIBYTE: usize = 1024 * 1024;
const SLOW: Login<'static> = Login { heartbeat: Duration::from_secs(5), ..LOGIN };

fn bytes(frame: &Frame) -> BytesMut {
    let mut bytes = BytesMut::new();
    encode(frame, &mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn says_who_it_is() {
    let (mut broker, other) = FakeBroker::pipe(4096);
    tokio::spawn(async move {
        let login = Login { password: "p:\\w", ..LOGIN };
        Connection::open(other, &login, 1).await.map(drop)
    });
    let connect = broker.next().await;
    assert_eq!(connect.command, "CONNECT");
    for (name, value) in [
        ("accept-version", "1.2"),
        ("host", "fake"),
        ("login", "somebody"),
        ("passcode", "p:\\w"),
        ("heart-beat", "60000,60000"),
    ] {
        assert_eq!(connect.header(name), Some(value));
    }
}

#[tokio::test]
async fn a_refusal_gives_the_brokers_words_without_the_password() {
    let error = FakeBroker::refusing(b"ERROR\nmessage:somebody with hunter2 is unknown\n\nat java\0").await;
    assert_eq!(error.0, "the broker refused to let us in: somebody with [secret] is unknown");
    let error = FakeBroker::refusing(b"CONNECTED\nversion:1.1\n\n\0").await;
    assert!(error.0.contains("STOMP 1.2"), "{error}");
    let error = FakeBroker::refusing(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    assert!(error.0.contains("not STOMP"), "{error}");
    let error = FakeBroker::refusing(b"").await;
    assert!(error.0.contains("closed"), "{error}");
}

#[test]
fn heart_beats_are_agreed_on() {
    let own = Duration::from_secs(4);
    let agreed = |theirs| {
        let beats = Beats::agree(own, theirs);
        (beats.send.as_millis(), beats.silence.as_millis())
    };
    let never = NEVER.as_millis();
    assert_eq!(agreed(Some("4000,4000")), (2000, 8000));
    assert_eq!(agreed(Some("1000,9000")), (4500, 8000), "the slower of the two counts");
    assert_eq!(agreed(Some("9000,1000")), (2000, 18000));
    assert_eq!(agreed(Some("0,4000")), (2000, never));
    assert_eq!(agreed(Some("4000,0")), (never, 8000));
    assert_eq!(agreed(Some("nonsense")), (never, never));
    assert_eq!(agreed(None), (never, never));
    let none = Beats::agree(Duration::ZERO, Some("4000,4000"));
    assert_eq!((none.send, none.silence), (NEVER, NEVER));
}

#[tokio::test(start_paused = true)]
async fn heart_beats_are_sent_while_nobody_looks() {
    let login = Login { heartbeat: Duration::from_millis(20), ..LOGIN };
    let (mut broker, _connection) = FakeBroker::connected(&login, "0,20", 1).await;
    let mut beats = [0; 5];
    broker.pipe.read_exact(&mut beats).await.unwrap();
    assert_eq!(&beats, b"\n\n\n\n\n");
}

#[tokio::test(start_paused = true)]
async fn silence_is_an_error_for_everybody_and_stays_one() {
    let login = Login { heartbeat: Duration::from_millis(50), ..LOGIN };
    let (_broker, mut connection) = FakeBroker::connected(&login, "50,0", 1).await;
    let error = connection.receive().await.unwrap_err();
    assert!(error.0.contains("said nothing for 0.1 s"), "{error}");
    assert_eq!(connection.receive().await.unwrap_err().0, error.0);
    assert_eq!(connection.send(BytesMut::new()).unwrap_err().0, error.0);
}

#[tokio::test(start_paused = true)]
async fn heart_beats_alone_keep_a_connection() {
    let (mut broker, mut connection) = FakeBroker::connected(&SLOW, "5000,0", 1).await;
    for _ in 0..24 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        broker.pipe.write_all(b"\n").await.unwrap();
    }
    broker.receipt("after more than two heart-beats").await;
    assert_eq!(connection.receive().await.unwrap().command, "RECEIPT");
}

#[tokio::test]
async fn a_closed_connection_is_an_error_and_what_was_read_before_it_is_not_given_out() {
    let (mut broker, mut connection) = FakeBroker::connected(&LOGIN, "0,0", 8).await;
    broker.say(&Frame::new("MESSAGE").with("ack", "1")).await;
    drop(broker);
    while connection.why.get().is_none() {
        tokio::task::yield_now().await;
    }
    let error = connection.receive().await.unwrap_err();
    assert!(error.0.contains("closed"), "{error}");
}

/// As ActiveMQ passes them on: to it, `content-length` on a text is a property like any other.
#[tokio::test(start_paused = true)]
async fn a_false_length_of_any_size_costs_a_message_its_end_and_never_the_connection() {
    for (said, sent) in [(9999, 3), (MEBIBYTE, 3), (9 * MEBIBYTE, 3), (9 * MEBIBYTE, 2 * MEBIBYTE)] {
        // No heart-beats at all: it is not they that end the wait.
        let (mut broker, mut connection) = FakeBroker::connected(&LOGIN, "0,0", 8).await;
        broker.message(said, sent).await;
        let message = connection.receive().await.unwrap();
        assert_eq!((message.header("ack"), message.length), (Some("1"), sent), "{said} {sent}");
        broker.receipt("the next").await;
        assert_eq!(connection.receive().await.unwrap().command, "RECEIPT", "{said} {sent}");
    }
    for (said, sent) in [(1, 3), (2 * MEBIBYTE, 2 * MEBIBYTE + 5), (9 * MEBIBYTE, 2 * MEBIBYTE)] {
        let (mut broker, mut connection) = FakeBroker::connected(&LOGIN, "0,0", 8).await;
        let talk = async {
            broker.message(said, sent).await;
            broker.receipt("the next").await;
            broker
        };
        let (_broker, message) = tokio::join!(talk, connection.receive());
        let message = message.unwrap();
        assert_eq!(message.header("ack"), Some("1"));
        assert_eq!(
            (message.body.len(), message.length),
            (sent.min(MEBIBYTE), sent.min(said.max(sent.min(MEBIBYTE))))
        );
        assert_eq!(connection.receive().await.unwrap().command, "RECEIPT", "{said} {sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_rest_does_not_come_is_not_waited_for_while_hearts_beat() {
    let (mut broker, mut connection) = FakeBroker::connected(&SLOW, "5000,0", 8).await;
    broker.message(9999, 3).await;
    let beats = async {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            broker.pipe.write_all(b"\n").await.unwrap();
        }
    };
    let message = tokio::select! {
        message = connection.receive() => message.unwrap(),
        () = beats => unreachable!("they never stop"),
    };
    assert_eq!((message.header("ack"), &message.body[..]), (Some("1"), &b"xxx"[..]));
    broker.receipt("the next").await;
    assert_eq!(connection.receive().await.unwrap().command, "RECEIPT");
}

#[tokio::test(start_paused = true)]
async fn what_only_began_like_a_frame_is_forgotten() {
    for (begun, ack) in [("MESSAGE\nexpires:0\n", None), ("MESSAGE\nack:2\n", Some("2")), ("RECEIPT\n", None)]
    {
        let (mut broker, mut connection) = FakeBroker::connected(&LOGIN, "0,0", 8).await;
        // A text with a NUL in it.
        broker.pipe.write_all(format!("MESSAGE\nack:1\n\ntext\0{begun}\0\n").as_bytes()).await.unwrap();
        assert_eq!(connection.receive().await.unwrap().header("ack"), Some("1"));
        if ack.is_some() {
            assert_eq!(connection.receive().await.unwrap().header("ack"), ack);
        } else {
            tokio::time::sleep(REST_WITHIN * 2).await;
        }
        broker.receipt("the next").await;
        assert_eq!(connection.receive().await.unwrap().header("receipt-id"), Some("the next"), "{begun}");
    }
}

#[tokio::test]
async fn the_socket_closes_when_the_connection_is_dropped() {
    let (mut broker, connection) = FakeBroker::connected(&LOGIN, "0,0", 1).await;
    drop(connection);
    assert_eq!(broker.pipe.read(&mut [0; 9]).await.unwrap(), 0);
}

#[tokio::test]
async fn the_socket_closes_when_the_connection_is_dropped_with_no_room_left() {
    let (mut broker, connection) = FakeBroker::connected(&LOGIN, "0,0", 1).await;
    for id in 0..4 {
        broker.receipt(&id.to_string()).await;
    }
    drop(connection);
    assert_eq!(broker.pipe.read(&mut [0; 9]).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_room_the_broker_waits_and_heart_beats_go_on() {
    let login = Login { heartbeat: Duration::from_secs(1), ..LOGIN };
    let (mut broker, mut connection) = FakeBroker::connected(&login, "2000,1000", 1).await;
    for id in 0..50 {
        broker.receipt(&id.to_string()).await;
    }
    // More than two heart-beats of the broker's silence, in which it is us who do not listen.
    broker.pipe.read_exact(&mut [0; 10]).await.unwrap();
    for id in 0..50 {
        let frame = connection.receive().await.unwrap();
        assert_eq!(frame.header("receipt-id"), Some(id.to_string().as_str()));
    }
}

#[tokio::test]
async fn a_broker_that_talks_before_it_listens_blocks_nobody() {
    let (mut broker, mut connection) = FakeBroker::connected(&LOGIN, "0,0", 2000).await;
    let mut batch = BytesMut::new();
    for _ in 0..1000 {
        encode(&Frame::new("SEND").body("x".repeat(100)), &mut batch).unwrap();
    }
    connection.send(batch).unwrap();
    for id in 0..1000 {
        broker.receipt(&id.to_string()).await;
    }
    for _ in 0..1000 {
        assert_eq!(broker.next().await.body.len(), 100);
        connection.receive().await.unwrap();
    }
}

#[tokio::test]
async fn a_goodbye_comes_last_and_is_answered() {
    let (mut broker, connection) = FakeBroker::connected(&LOGIN, "0,0", 1).await;
    let (goodbye, ()) = tokio::join!(connection.say_goodbye(bytes(&Frame::new("UNSUBSCRIBE"))), async {
        assert_eq!(broker.next().await.command, "UNSUBSCRIBE");
        let disconnect = broker.next().await;
        assert_eq!(disconnect.command, "DISCONNECT");
        broker.say(&Frame::new("MESSAGE").with("ack", "late")).await;
        broker.receipt(disconnect.header("receipt").unwrap()).await;
    });
    goodbye.unwrap();
}
