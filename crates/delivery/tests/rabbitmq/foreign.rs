//! Messages with properties that a client library cannot bear: they arrive like any other, one consumer
//! reads them all, and the process lives on.

use outhaul_delivery::broker::{Broker, Consumer};
use outhaul_testkit::servers::{pika_url, python, rabbitmq_url};

use crate::admin::{Admin, body, soon, work};

/// Sends a message for each word, with the word as its body; some words say what is wrong with it.
const SEND: &str = "import pika, struct, sys
latin = 'Müller'.encode('latin-1')

def nested(kind, depth):
    heads, size = [], 1
    for _ in range(depth):
        if kind == 'tables': size += 1
        heads.append((b'F' if kind == 'tables' else b'A') + struct.pack('>I', size) + (b'\\0' if kind == 'tables' else b''))
        size += 5
    return b'\\x05other' + b''.join(reversed(heads)) + b'V'

class Headers(pika.BasicProperties):
    def __init__(self, table):
        super().__init__()
        self.table = table
    def encode(self):
        return [struct.pack('>HI', 0x2000, len(self.table)), self.table]

c = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = c.channel()
channel.confirm_delivery()
queue, fanout = sys.argv[2], sys.argv[2] + '.fanout'
channel.exchange_declare(fanout, 'fanout', auto_delete=True)
channel.queue_bind(queue, fanout)
for word in sys.argv[3:]:
    exchange, key, properties = '', queue, pika.BasicProperties()
    if word == 'bad-property': properties.correlation_id = latin
    if word == 'bad-header': properties.headers = {latin: 1}
    if word == 'bad-routing-key': exchange, key = fanout, latin
    if ' ' in word: properties = Headers(nested(word.split()[1], int(word.split()[0])))
    channel.basic_publish(exchange, key, word.encode(), properties, mandatory=True)
c.close()";

async fn send(admin: &Admin, words: &[&str]) {
    let mut arguments = vec![pika_url(&rabbitmq_url()), admin.work.clone()];
    arguments.extend(words.iter().map(|word| (*word).to_owned()));
    // On a thread of its own: Python takes its time, and the consumer has heartbeats to send meanwhile.
    let sending = tokio::task::spawn_blocking(move || {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        python(SEND, &arguments).output().unwrap()
    });
    let output = sending.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Reads and acknowledges these, in this order, from a consumer that never ends.
async fn read(consumer: &mut dyn Consumer, words: &[&str]) {
    for word in words {
        let message = soon(consumer.next()).await.unwrap();
        assert_eq!(body(&message), *word);
        consumer.acknowledge(&[message.tag]).await.unwrap();
    }
}

/// The next message is one of ours, with its hint.
async fn ours_arrive(admin: &Admin, consumer: &mut dyn Consumer) {
    let mut publisher = admin.broker().publisher().await.unwrap();
    publisher.publish(&[work("ours")]).await.unwrap();
    let message = soon(consumer.next()).await.unwrap();
    assert_eq!(body(&message), r#"{"jobId":"ours"}"#);
    assert_eq!(message.queue.as_deref(), Some("source:warehouse"));
    consumer.acknowledge(&[message.tag]).await.unwrap();
}

#[tokio::test]
async fn text_that_is_not_utf_8_holds_up_nobody() {
    let admin = Admin::new().await;
    let mut consumer = admin.broker().consumer(10).await.unwrap();
    let words = ["bad-property", "a", "bad-header", "bad-header", "b", "bad-routing-key", "c"];
    send(&admin, &words).await;
    read(consumer.as_mut(), &words).await;
    ours_arrive(&admin, consumer.as_mut()).await;
    soon(consumer.close()).await;
    admin.wait_for_messages(&admin.work, 0).await;
}

/// The last two are as deep as a frame of RabbitMQ's default size allows. A parser that follows them
/// overflows its stack, which no test survives.
#[tokio::test]
async fn headers_nested_to_any_depth_hold_up_nobody() {
    let admin = Admin::new().await;
    let mut consumer = admin.broker().consumer(3).await.unwrap();
    let words = [
        "a",
        "100 tables",
        "1000 tables",
        "1000 arrays",
        "b",
        "10000 tables",
        "10000 arrays",
        "21800 tables",
        "26200 arrays",
        "c",
    ];
    send(&admin, &words).await;
    read(consumer.as_mut(), &words).await;
    ours_arrive(&admin, consumer.as_mut()).await;
    soon(consumer.close()).await;
    admin.wait_for_messages(&admin.work, 0).await;
}
