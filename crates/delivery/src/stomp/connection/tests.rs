//! The connection against a broker that does what brokers do on bad days.

use super::super::fake::{FakeBroker, LOGIN};
use super::*;

/// With heart-beats so far apart that one which comes late, on a busy machine, is not taken for a silence.
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

#[tokio::test]
async fn heart_beats_are_sent_while_nobody_looks() {
    let login = Login { heartbeat: Duration::from_millis(20), ..LOGIN };
    let (mut broker, _connection) = FakeBroker::connected(&login, "0,20", 1).await;
    let mut beats = [0; 5];
    broker.pipe.read_exact(&mut beats).await.unwrap();
    assert_eq!(&beats, b"\n\n\n\n\n");
}

#[tokio::test]
async fn silence_is_an_error_for_everybody_and_stays_one() {
    let login = Login { heartbeat: Duration::from_millis(50), ..LOGIN };
    let (_broker, mut connection) = FakeBroker::connected(&login, "50,0", 1).await;
    let error = connection.receive().await.unwrap_err();
    assert!(error.0.contains("said nothing for 0.1 s"), "{error}");
    assert_eq!(connection.receive().await.unwrap_err().0, error.0);
    assert_eq!(connection.send(BytesMut::new()).unwrap_err().0, error.0);
}

#[tokio::test]
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

#[tokio::test]
async fn a_broken_frame_is_an_error() {
    let (mut broker, mut connection) = FakeBroker::connected(&LOGIN, "0,0", 8).await;
    let head = format!("MESSAGE\ncontent-length:{}\n\n", 2 << 20);
    broker.pipe.write_all(head.as_bytes()).await.unwrap();
    broker.pipe.write_all(&vec![b'x'; (2 << 20) + 1]).await.unwrap();
    let error = connection.receive().await.unwrap_err();
    assert!(error.0.contains("content-length"), "{error}");
}

#[tokio::test]
async fn a_body_whose_rest_does_not_come_is_not_waited_for() {
    let (mut broker, mut connection) = FakeBroker::connected(&SLOW, "5000,0", 8).await;
    broker.pipe.write_all(b"MESSAGE\nack:1\ncontent-length:9999\n\none\0\n").await.unwrap();
    let beats = async {
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            broker.pipe.write_all(b"\n").await.unwrap();
        }
    };
    let message = tokio::select! {
        message = connection.receive() => message.unwrap(),
        () = beats => panic!("it waits for the rest"),
    };
    assert_eq!((message.header("ack"), &message.body[..]), (Some("1"), &b"one"[..]));
    broker.receipt("the next").await;
    assert_eq!(connection.receive().await.unwrap().command, "RECEIPT");
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

#[tokio::test]
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
