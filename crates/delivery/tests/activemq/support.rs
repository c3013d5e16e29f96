//! A test's own pair of queues on a broker, and a hand-made STOMP client that puts there what ours never
//! would.

use std::time::Duration;

use outhaul_core::secret::Secret;
use outhaul_delivery::broker::{BrokerError, Consumer, Destination, Incoming, Outgoing};
use outhaul_delivery::{ActiveMq, BrokerKind, BrokerSettings, TlsSettings};
use outhaul_testkit::servers::{activemq_url, unique_prefix};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// No test waits for longer; none is expected to wait for nearly as long.
const LONG: Duration = Duration::from_secs(300);

/// Settings for a broker at `url`, with queues that no other test uses.
pub(crate) fn settings(url: &str, tls: TlsSettings) -> BrokerSettings {
    let name = unique_prefix();
    let (work, parking) = (format!("{name}.work"), format!("{name}.parking"));
    BrokerSettings::read(BrokerKind::ActiveMq, &Secret::new(url), tls)
        .unwrap()
        .with_queues(&work, &parking)
        .unwrap()
}

/// Queues of the test's own on the shared broker.
pub(crate) fn shared() -> BrokerSettings {
    settings(&activemq_url(), TlsSettings::default())
}

pub(crate) fn broker(settings: &BrokerSettings) -> ActiveMq {
    ActiveMq::new(settings.clone()).unwrap()
}

pub(crate) fn work(id: impl ToString) -> Outgoing {
    let id = id.to_string();
    Outgoing {
        to: Destination::Work,
        queue: Some("fast: \\1".to_owned()),
        body: format!(r#"{{"jobId":"{id}","key":"é\n"}}"#),
        message_id: id,
    }
}

/// Fails a test that would hang.
pub(crate) async fn soon<T>(wait: impl Future<Output = T>) -> T {
    timeout(LONG, wait).await.expect("this does not hang")
}

/// The next messages, not acknowledged.
pub(crate) async fn take(consumer: &mut dyn Consumer, count: usize) -> Vec<Incoming> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.push(soon(consumer.next()).await.unwrap());
    }
    taken
}

/// The bodies of the next messages, acknowledged a hundred at a time.
pub(crate) async fn drain(consumer: &mut dyn Consumer, count: usize) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while bodies.len() < count {
        let taken = take(consumer, (count - bodies.len()).min(100)).await;
        let (tags, taken): (Vec<_>, Vec<_>) = taken.into_iter().map(|one| (one.tag, one.body)).unzip();
        consumer.acknowledge(&tags).await.unwrap();
        bodies.extend(taken);
    }
    bodies
}

pub(crate) fn bodies(messages: &[Outgoing]) -> Vec<Vec<u8>> {
    messages.iter().map(|message| message.body.clone().into_bytes()).collect()
}

/// Reads until the connection breaks.
pub(crate) async fn break_of(consumer: &mut dyn Consumer) -> BrokerError {
    soon(async {
        loop {
            if let Err(error) = consumer.next().await {
                break error;
            }
        }
    })
    .await
}

/// A STOMP client of a few lines that sends any bytes as a frame.
pub(crate) struct Raw(BufStream<TcpStream>);

impl Raw {
    pub(crate) async fn connect(settings: &BrokerSettings) -> Self {
        let stream = TcpStream::connect((settings.host.as_str(), settings.port)).await.unwrap();
        let mut raw = Self(BufStream::new(stream));
        let (user, password) = (&settings.user, settings.password.expose());
        raw.write(format!("CONNECT\naccept-version:1.2\nhost:h\nlogin:{user}\npasscode:{password}\n\n\0"))
            .await;
        assert!(raw.frame().await.starts_with("CONNECTED\n"));
        raw
    }

    /// Sends a message with headers (each with its line end) and waits until the broker has it.
    pub(crate) async fn send(&mut self, queue: &str, headers: &str, body: &[u8]) {
        let head = format!("SEND\ndestination:/queue/{queue}\nreceipt:r\n{headers}\n");
        self.write([head.as_bytes(), body, b"\0"].concat()).await;
        let answer = self.frame().await;
        assert!(answer.starts_with("RECEIPT\n"), "{answer}");
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// The next frame as text.
    pub(crate) async fn frame(&mut self) -> String {
        soon(async {
            let first = loop {
                match self.0.read_u8().await.unwrap() {
                    b'\n' => {}
                    byte => break byte,
                }
            };
            let mut frame = vec![first];
            self.0.read_until(0, &mut frame).await.unwrap();
            frame.pop();
            String::from_utf8(frame).unwrap()
        })
        .await
    }
}
