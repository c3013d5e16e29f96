//! Both brokers keep what they confirmed through a kill, lose it to a wipe, and their counts are true.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::super::{activemq_url, pika_url, python, rabbitmq_url, unique_prefix};
use super::*;

/// Sends two persistent messages, each confirmed.
const SEND: [&str; 2] = [
    "import stomp, sys
from urllib.parse import urlparse
class Receipts(stomp.listener.WaitingListener): pass
url, queue = urlparse(sys.argv[1]), sys.argv[2]
c = stomp.Connection12([(url.hostname, url.port)])
c.connect(url.username, url.password, wait=True)
for n in range(2):
    receipt = Receipts(str(n))
    c.set_listener(str(n), receipt)
    c.send('/queue/' + queue, 'hello', persistent='true', receipt=str(n))
    receipt.wait_on_receipt()
c.disconnect()",
    "import pika, sys
c = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = c.channel()
channel.confirm_delivery()
channel.queue_declare(sys.argv[2], durable=True)
for n in range(2):
    channel.basic_publish('', sys.argv[2], b'hello', pika.BasicProperties(delivery_mode=2))
c.close()",
];

/// Takes one message without acknowledging it, says so, and holds it until it is killed.
const HOLD: [&str; 2] = [
    "import stomp, sys, threading
from urllib.parse import urlparse
class Say(stomp.ConnectionListener):
    def on_message(self, frame): print('held', flush=True)
url, queue = urlparse(sys.argv[1]), sys.argv[2]
c = stomp.Connection12([(url.hostname, url.port)])
c.set_listener('', Say())
c.connect(url.username, url.password, wait=True)
c.subscribe('/queue/' + queue, '1', 'client-individual', headers={'activemq.prefetchSize': '1'})
threading.Event().wait()",
    "import pika, sys, threading
channel = pika.BlockingConnection(pika.URLParameters(sys.argv[1])).channel()
assert channel.basic_get(sys.argv[2])[0]
print('held', flush=True)
threading.Event().wait()",
];

#[test]
fn a_private_activemq_keeps_messages_through_a_kill_and_loses_them_to_a_wipe() {
    keeps_through_kill_and_loses_to_wipe(BrokerKind::ActiveMq);
}

#[test]
fn a_private_rabbitmq_keeps_messages_through_a_kill_and_loses_them_to_a_wipe() {
    keeps_through_kill_and_loses_to_wipe(BrokerKind::RabbitMq);
}

#[test]
fn the_shared_brokers_are_there_and_count_what_is_unacknowledged() {
    for (kind, url) in [(BrokerKind::ActiveMq, activemq_url()), (BrokerKind::RabbitMq, rabbitmq_url())] {
        let queue = unique_prefix();
        assert_eq!(kind.shared_queue_counts(&queue), Ok((0, 0)), "a queue that nobody made");
        send_two(kind, &url, &queue);
        assert_eq!(kind.shared_queue_counts(&queue), Ok((2, 0)));

        let mut holder = hold_one(kind, &url, &queue);
        // ActiveMQ counts a message as held only after it was sent.
        until(|| kind.shared_queue_counts(&queue) == Ok((1, 1)));
        holder.kill().unwrap();
        holder.wait().unwrap();
        until(|| kind.shared_queue_counts(&queue) == Ok((2, 0)));
    }
}

#[test]
fn the_shared_brokers_have_a_listener_for_tls_and_its_authority() {
    for kind in [BrokerKind::ActiveMq, BrokerKind::RabbitMq] {
        let check = "import socket, ssl, sys
from urllib.parse import urlparse
url = urlparse(sys.argv[1])
trust = ssl.create_default_context(cafile=sys.argv[2])
trust.wrap_socket(socket.create_connection((url.hostname, url.port)), server_hostname=url.hostname)";
        let trusted = kind.shared_ca_file();
        let output = python(check, &[&kind.shared_tls_url(), trusted.to_str().unwrap()]).output().unwrap();
        assert!(output.status.success(), "{kind:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn keeps_through_kill_and_loses_to_wipe(kind: BrokerKind) {
    let broker = PrivateBroker::start(kind);
    send_two(kind, broker.url(), "kept");
    let (tls_url, ca) = (broker.tls_url(), std::fs::read(broker.ca_file()).unwrap());

    broker.kill9();
    assert!(!listens(broker.url()), "nothing listens after a kill");
    broker.start_again();
    broker.start_again();
    // RabbitMQ shows what it counted some time ago.
    until(|| broker.queue_counts("kept") == Ok((2, 0)));

    broker.wipe();
    assert!(!listens(broker.url()), "nothing listens after a wipe");
    broker.start_again();
    assert_eq!(broker.queue_counts("kept"), Ok((0, 0)));
    assert_eq!((broker.tls_url(), std::fs::read(broker.ca_file()).unwrap()), (tls_url, ca));
    send_two(kind, broker.url(), "kept");
    until(|| broker.queue_counts("kept") == Ok((2, 0)));

    let (url, folder) = (broker.url().to_owned(), broker.server.folder().to_owned());
    drop(broker);
    assert!(!listens(&url), "nothing listens after the drop");
    assert!(!folder.exists());
}

fn send_two(kind: BrokerKind, url: &str, queue: &str) {
    let output = python(SEND[kind as usize], &[&patient(kind, url), queue]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The URL for the Python client; that of ActiveMQ waits for ever as it is.
fn patient(kind: BrokerKind, url: &str) -> String {
    match kind {
        BrokerKind::ActiveMq => url.to_owned(),
        BrokerKind::RabbitMq => pika_url(url),
    }
}

fn hold_one(kind: BrokerKind, url: &str, queue: &str) -> Child {
    let mut command = python(HOLD[kind as usize], &[&patient(kind, url), queue]);
    let mut holder = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    holder
}

fn listens(url: &str) -> bool {
    let address = url.rsplit_once('@').unwrap().1.trim_end_matches('/');
    TcpStream::connect(address).is_ok()
}

fn until(done: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(300);
    while !done() {
        assert!(Instant::now() < limit, "it did not come about");
        std::thread::sleep(Duration::from_millis(50));
    }
}
