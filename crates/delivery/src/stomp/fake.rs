//! A broker made of one end of a pipe, which says what a test wants it to say.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_util::codec::Decoder;

use super::{Connection, Frame, Login, StompCodec, encode};
use crate::broker::BrokerError;

pub(crate) const LOGIN: Login<'static> =
    Login { virtual_host: "fake", user: "somebody", password: "hunter2", heartbeat: Duration::from_secs(60) };

pub(crate) struct FakeBroker {
    pub(crate) pipe: DuplexStream,
    codec: StompCodec,
    read: BytesMut,
}

impl FakeBroker {
    /// Both ends of a pipe that holds `size` bytes each way.
    pub(crate) fn pipe(size: usize) -> (Self, DuplexStream) {
        let (pipe, other) = tokio::io::duplex(size);
        (Self { pipe, codec: StompCodec::default(), read: BytesMut::new() }, other)
    }

    /// A connection that was let in with these heart-beats.
    pub(crate) async fn connected(login: &Login<'_>, beats: &str, room: usize) -> (Self, Connection) {
        let (mut broker, other) = Self::pipe(4096);
        let answer = Frame::new("CONNECTED").with("version", "1.2").with("heart-beat", beats);
        let (connection, ()) = tokio::join!(Connection::open(other, login, room), async {
            broker.next().await;
            broker.say(&answer).await;
        });
        (broker, connection.unwrap())
    }

    /// What a client hears that is answered so.
    pub(crate) async fn refusing(answer: &[u8]) -> BrokerError {
        let (mut broker, other) = Self::pipe(4096);
        let (refused, ()) = tokio::join!(Connection::open(other, &LOGIN, 1), async {
            broker.next().await;
            broker.pipe.write_all(answer).await.unwrap();
            drop(broker);
        });
        refused.err().unwrap()
    }

    pub(crate) async fn say(&mut self, frame: &Frame) {
        let mut bytes = BytesMut::new();
        encode(frame, &mut bytes).unwrap();
        self.pipe.write_all(&bytes).await.unwrap();
    }

    pub(crate) async fn receipt(&mut self, id: &str) {
        self.say(&Frame::new("RECEIPT").with("receipt-id", id)).await;
    }

    /// A message that says of its body how long it is, and need not be right.
    pub(crate) async fn message(&mut self, said: usize, sent: usize) {
        let head = format!("MESSAGE\nack:1\ncontent-length:{said}\n\n");
        self.pipe.write_all(&[head.as_bytes(), &vec![b'x'; sent], b"\0\n"].concat()).await.unwrap();
    }

    /// The next frame that the client sends.
    pub(crate) async fn next(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.codec.decode(&mut self.read).unwrap() {
                return frame;
            }
            assert_ne!(self.pipe.read_buf(&mut self.read).await.unwrap(), 0, "the client is gone");
        }
    }
}
