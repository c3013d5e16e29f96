//! The queues as other languages see them: messages are read and written by Python's own clients.

use std::process::Command;

use outhaul_testkit::servers::{BrokerKind, python};
use serde::Deserialize;
use serde_json::Value;
use tokio::task::block_in_place;

use crate::site::Site;

/// Takes and acknowledges a number of messages; prints one JSON object per line.
const TAKE_STOMP: &str = "import json, queue, stomp, sys
from urllib.parse import urlparse
url, name, count = urlparse(sys.argv[1]), sys.argv[2], int(sys.argv[3])
came = queue.Queue()
class Listener(stomp.ConnectionListener):
    def on_message(self, frame): came.put(frame)
c = stomp.Connection12([(url.hostname, url.port)])
last = stomp.listener.WaitingListener('last')
c.set_listener('messages', Listener())
c.set_listener('last', last)
c.connect(url.username, url.password, wait=True)
c.subscribe('/queue/' + name, '1', 'client-individual', headers={'activemq.prefetchSize': str(count)})
for n in range(1, count + 1):
    frame = came.get(timeout=300)
    h = frame.headers
    print(json.dumps({'body': frame.body, 'messageId': h.get('outhaul-message-id'), 'queue': h.get('outhaul-queue'),
        'persistent': h.get('persistent') == 'true'}))
    c.ack(h['ack'], receipt='last' if n == count else None)
last.wait_on_receipt()
c.disconnect()";
const TAKE_AMQP: &str = "import json, pika, sys, time
PATIENT = '?connection_attempts=5&retry_delay=2&socket_timeout=60&stack_timeout=120'
url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
c = pika.BlockingConnection(pika.URLParameters(url + PATIENT))
channel = c.channel()
end = time.monotonic() + 300
while count:
    method, properties, body = channel.basic_get(name)
    if not method:
        assert time.monotonic() < end, 'too few messages'
        time.sleep(0.05)
        continue
    h = properties.headers or {}
    assert properties.message_id == h.get('outhaul-message-id'), properties
    print(json.dumps({'body': body.decode(), 'messageId': properties.message_id, 'queue': h.get('outhaul-queue'),
        'persistent': properties.delivery_mode == 2}))
    channel.basic_ack(method.delivery_tag)
    count -= 1
c.close()";

/// Sends the contents of files, each confirmed; as text where it is text.
const SEND_STOMP: &str = "import stomp, sys
from urllib.parse import urlparse
url, name = urlparse(sys.argv[1]), sys.argv[2]
c = stomp.Connection12([(url.hostname, url.port)], auto_content_length=False)
c.connect(url.username, url.password, wait=True)
for path in sys.argv[3:]:
    body = open(path, 'rb').read()
    sent = stomp.listener.WaitingListener(path)
    c.set_listener(path, sent)
    try:
        body.decode()
        headers = {}
    except UnicodeDecodeError:
        headers = {'content-length': len(body)}
    c.send('/queue/' + name, body, headers=headers, persistent='true', receipt=path)
    sent.wait_on_receipt()
c.disconnect()";
const SEND_AMQP: &str = "import pika, sys
PATIENT = '?connection_attempts=5&retry_delay=2&socket_timeout=60&stack_timeout=120'
url, name = sys.argv[1], sys.argv[2]
c = pika.BlockingConnection(pika.URLParameters(url + PATIENT))
channel = c.channel()
channel.confirm_delivery()
for path in sys.argv[3:]:
    channel.basic_publish('', name, open(path, 'rb').read(), pika.BasicProperties(delivery_mode=2), mandatory=True)
c.close()";

/// A message as Python has read it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Read {
    body: String,
    pub(crate) message_id: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) persistent: bool,
}

impl Read {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Site {
    /// Takes so many messages of a queue, and acknowledges them.
    pub(crate) fn take(&self, queue: &str, count: usize) -> Vec<Read> {
        let code = match self.kind() {
            BrokerKind::ActiveMq => TAKE_STOMP,
            BrokerKind::RabbitMq => TAKE_AMQP,
        };
        let printed = run(python(code, &[&self.url(), queue, &count.to_string()]));
        printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Puts messages on the work queue.
    pub(crate) fn send(&self, bodies: &[&[u8]]) {
        let code = match self.kind() {
            BrokerKind::ActiveMq => SEND_STOMP,
            BrokerKind::RabbitMq => SEND_AMQP,
        };
        let folder = tempfile::tempdir().expect("a folder for messages");
        let mut command = python(code, &[&self.url(), &self.work]);
        for (number, body) in bodies.iter().enumerate() {
            let file = folder.path().join(number.to_string());
            std::fs::write(&file, body).expect("write a message");
            command.arg(file);
        }
        run(command);
    }
}

fn run(mut command: Command) -> String {
    let output = block_in_place(|| command.output()).expect("run Python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}
