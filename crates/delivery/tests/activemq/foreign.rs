//! Messages that others put on the work queue: whatever they are, they arrive, can be acknowledged, and
//! the next one comes.

use outhaul_delivery::broker::Broker;

use crate::support::{Raw, broker, shared, soon, take};

#[tokio::test]
async fn any_body_and_any_headers_arrive_and_break_nothing() {
    let settings = shared();
    let large = vec![b'x'; 2 * 1024 * 1024];
    let sized = format!("content-length:{}\n", large.len());
    // As many and as long as ActiveMQ takes over STOMP: together more than we keep.
    let long = format!("property:{}\n", "v".repeat(8000));
    let many: String = (0..900).map(|n| format!("property{n}:{}\n", "v".repeat(100))).collect();
    let sent: [(&str, &[u8]); 19] = [
        ("content-length:5\n", b"a\0\xff\x01b"),
        ("content-length:0\n", b""),
        ("", b"plain text"),
        ("outhaul-queue:a\\cb\\n\\\\c\n", b"escapes"),
        ("", &large),
        (&sized, &large),
        (&long, b"a long header"),
        (&many, b"many headers"),
        ("a\\tb\\:x\\ty\n", b"escapes that STOMP does not know"),
        ("no colon\nna\0me:va\0lue\n", b"a line without a colon, and NULs"),
        ("amq-msg-type:text\ncontent-length:5\n", b"a\0b\0c"),
        ("amq-msg-type:text\ncontent-length:1\n", b"\xff"),
        (" content-length:4\ncontent-length :4\n", b"almost a length"),
        ("ack:x\nmessage-id:y\nsubscription:z\n", b"somebody else's headers"),
        // Over STOMP ActiveMQ keeps the escapes of names as they are.
        ("a\\nb:v\n", b"a line end in a name"),
        ("a\\n\\nb:v\n\\n\\n:v\n", b"empty lines in names"),
        ("a\\r\\n\\r\\nb:v\n", b"carriage returns in a name"),
        ("x\\nack:fake\nx\\nack\\cfake\\ny:v\n", b"a tag in a name"),
        ("content-length:32\n", b"a\0\nMESSAGE\nack:fake\n\na frame\0\n\0b"),
    ];
    let mut raw = Raw::connect(&settings).await;
    for (headers, body) in sent {
        raw.send(&settings.work_queue, headers, body).await;
    }
    raw.send(&settings.work_queue, "", b"the last").await;

    let broker = broker(&settings);
    let mut consumer = soon(broker.consumer(1)).await.unwrap();
    for (place, (_, body)) in sent.iter().enumerate() {
        let message = take(consumer.as_mut(), 1).await.remove(0);
        if body.len() < 1024 * 1024 {
            assert!(message.body == *body, "message {place}");
        } else {
            assert!(message.body == body[..1024 * 1024], "message {place} lost its end only");
        }
        assert_eq!(message.length, body.len());
        assert_eq!(message.queue.as_deref(), (place == 3).then_some("a:b\n\\c"));
        consumer.acknowledge(&[message.tag]).await.unwrap();
    }
    assert_eq!(take(consumer.as_mut(), 1).await[0].body, b"the last");
    soon(consumer.close()).await;

    let mut consumer = soon(broker.consumer(1)).await.unwrap();
    assert_eq!(take(consumer.as_mut(), 1).await[0].body, b"the last", "all others were acknowledged");
}

/// The start of a frame in so large a body cannot be told from the broker's next one, for a `content-length`
/// may be false: what looks like a message then is none, and cannot be acknowledged.
#[tokio::test]
async fn frames_within_a_large_body_end_no_connection() {
    let settings = shared();
    let inside = b"\0\nMESSAGE\nack:fake\n\nnot one\0\nERROR\nmessage:fake\n\n\0\nMESSAGE\nto no end";
    let mut raw = Raw::connect(&settings).await;
    for begin in [10, 1024 * 1024 - 20, 1024 * 1024 + 10] {
        let body = [vec![b'x'; begin], inside.to_vec(), vec![b'y'; 1024 * 1024]].concat();
        raw.send(&settings.work_queue, &format!("content-length:{}\n", body.len()), &body).await;
    }
    raw.send(&settings.work_queue, "", b"the last").await;

    let broker = broker(&settings);
    // Each alone: the next comes only if what there was is acknowledged.
    let mut consumer = soon(broker.consumer(1)).await.unwrap();
    let mut taken = Vec::new();
    while taken.last().is_none_or(|body| body != b"the last") {
        let message = take(consumer.as_mut(), 1).await.remove(0);
        consumer.acknowledge(&[message.tag]).await.unwrap();
        taken.push(message.body);
    }
    let large = taken.iter().filter(|body| body.starts_with(b"xxxxxxxxxx")).count();
    let fake = taken.iter().filter(|body| *body == b"not one").count();
    assert_eq!((large, fake, taken.len()), (3, 3, 7));
    soon(consumer.close()).await;
}
