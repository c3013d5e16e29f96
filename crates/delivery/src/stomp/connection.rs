//! A signed-in connection. A task of its own owns the socket, so heart-beats go both ways however long
//! nobody looks at the connection; it ends, and the socket closes, when the [`Connection`] is dropped.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use futures::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use tokio_util::codec::{Decoder, Encoder};
use tracing::warn;

use super::{Frame, StompCodec};
use crate::broker::BrokerError;

#[cfg(test)]
mod tests;

/// A reader makes room for this much before it reads.
const READ_AHEAD: usize = 16 * 1024;
/// A frame comes in one go: one that is not whole for so long, heart-beats apart, never will be.
const REST_WITHIN: Duration = Duration::from_secs(10);
/// No heart-beat is awaited or sent for so long; stands for "never" where a timer needs a number.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a CONNECT says.
pub(crate) struct Login<'a> {
    pub(crate) virtual_host: &'a str,
    /// Empty: sign in without a name.
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
    /// For both directions; zero: none.
    pub(crate) heartbeat: Duration,
}

/// An open connection.
pub(crate) struct Connection {
    /// Unbounded, since its user waits for the broker's answers, and so bounds it by itself.
    out: mpsc::UnboundedSender<BytesMut>,
    frames: mpsc::Receiver<Frame>,
    /// Why the task ended, once it has.
    why: Arc<OnceLock<String>>,
    names: u64,
}

impl Connection {
    /// Signs in. `room` frames are read ahead of [`Self::receive`]; then the broker has to wait.
    pub(crate) async fn open<S>(mut stream: S, login: &Login<'_>, room: usize) -> Result<Self, BrokerError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut codec = StompCodec::default();
        let mut read = BytesMut::new();
        let connected = sign_in(&mut stream, &mut codec, &mut read, login).await.map_err(BrokerError)?;
        let beats = Beats::agree(login.heartbeat, connected.header("heart-beat"));
        let (out, commands) = mpsc::unbounded_channel();
        let (passed, frames) = mpsc::channel(room);
        let why = Arc::new(OnceLock::new());
        let wire = Wire { stream, codec, read, beats };
        tokio::spawn({
            let why = why.clone();
            async move {
                if let Err(reason) = wire.run(commands, &passed).await {
                    // Set before `passed` is dropped: whoever sees the end finds the reason.
                    let _ = why.set(reason);
                }
                drop(passed);
            }
        });
        Ok(Self { out, frames, why, names: 0 })
    }

    /// Sends what [`encode`] made, without waiting.
    pub(crate) fn send(&self, frames: BytesMut) -> Result<(), BrokerError> {
        match self.why.get() {
            Some(_) => Err(self.lost()),
            None => self.out.send(frames).map_err(|_| self.lost()),
        }
    }

    /// The next frame. May be dropped while it waits, and nothing is lost. What was read before the
    /// connection broke is not worth a look after it: the broker gives it to somebody else.
    pub(crate) async fn receive(&mut self) -> Result<Frame, BrokerError> {
        if self.why.get().is_some() {
            return Err(self.lost());
        }
        self.frames.recv().await.ok_or_else(|| self.lost())
    }

    /// A name that this connection has not used yet.
    pub(crate) fn name(&mut self) -> String {
        self.names += 1;
        self.names.to_string()
    }

    /// Sends DISCONNECT after `last` frames and waits until the broker has read them all.
    pub(crate) async fn say_goodbye(mut self, mut last: BytesMut) -> Result<(), BrokerError> {
        let receipt = self.name();
        encode(&Frame::new("DISCONNECT").with("receipt", &receipt), &mut last)?;
        self.send(last)?;
        while self.receive().await?.header("receipt-id") != Some(&receipt) {}
        Ok(())
    }

    fn lost(&self) -> BrokerError {
        BrokerError(
            self.why.get().cloned().unwrap_or_else(|| "the connection to the broker is closed".to_owned()),
        )
    }
}

/// Appends a frame's bytes, or nothing if it cannot be sent.
pub(crate) fn encode(frame: &Frame, to: &mut BytesMut) -> Result<(), BrokerError> {
    StompCodec::default().encode(frame, to).map_err(|error| BrokerError(error.to_string()))
}

async fn sign_in<S>(
    stream: &mut S,
    codec: &mut StompCodec,
    read: &mut BytesMut,
    login: &Login<'_>,
) -> Result<Frame, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let beat = login.heartbeat.as_millis();
    let mut connect = Frame::new("CONNECT")
        .with("accept-version", "1.2")
        .with("host", login.virtual_host)
        .with("heart-beat", format!("{beat},{beat}"));
    if !login.user.is_empty() {
        connect = connect.with("login", login.user).with("passcode", login.password);
    }
    let mut bytes = BytesMut::new();
    codec.encode(&connect, &mut bytes).map_err(|error| error.to_string())?;
    stream.write_all(&bytes).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    loop {
        if let Some(frame) = codec.decode(read).map_err(|error| error.to_string())? {
            return welcome(frame, login);
        }
        read.reserve(READ_AHEAD);
        if stream.read_buf(read).await.map_err(lost)? == 0 {
            return Err("the broker closed the connection before it answered a CONNECT".to_owned());
        }
    }
}

fn welcome(frame: Frame, login: &Login<'_>) -> Result<Frame, String> {
    match (frame.command.as_str(), frame.header("version")) {
        ("CONNECTED", Some("1.2")) => Ok(frame),
        ("CONNECTED", _) => Err("the broker does not speak STOMP 1.2".to_owned()),
        ("ERROR", _) => {
            let mut reason = frame.reason();
            // No broker that we know repeats it, but this text ends up in logs.
            if !login.password.is_empty() {
                reason = reason.replace(login.password, "[secret]");
            }
            Err(format!("the broker refused to let us in: {reason}"))
        }
        _ => Err("the broker answered a CONNECT with something else".to_owned()),
    }
}

fn lost(error: std::io::Error) -> String {
    format!("the connection to the broker broke: {error}")
}

/// What both sides agreed on.
struct Beats {
    /// Something is sent at least as often.
    send: Duration,
    /// A broker that says nothing for so long is lost.
    silence: Duration,
}

impl Beats {
    fn agree(own: Duration, theirs: Option<&str>) -> Self {
        let number = |text: &str| text.trim().parse().map(Duration::from_millis).unwrap_or_default();
        let (sends, wants) = theirs
            .and_then(|text| text.split_once(','))
            .map_or_else(Default::default, |(sends, wants)| (number(sends), number(wants)));
        let agreed = |theirs: Duration| (!own.is_zero() && !theirs.is_zero()).then(|| own.max(theirs));
        if !own.is_zero() && sends.is_zero() {
            warn!("the broker sends no heart-beats: a connection that hangs will not be noticed");
        }
        Self {
            // Twice as often as agreed: ActiveMQ has no patience with one that comes a little late.
            send: agreed(wants).map_or(NEVER, |beat| beat / 2).max(Duration::from_millis(1)),
            silence: agreed(sends).map_or(NEVER, |beat| beat * 2),
        }
    }
}

/// The socket and what was read from it.
struct Wire<S> {
    stream: S,
    codec: StompCodec,
    read: BytesMut,
    beats: Beats,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Reads and writes at once, so that no broker that waits for us to read blocks our writing. Ends
    /// without an error when the connection's user is gone.
    async fn run(
        self,
        mut commands: mpsc::UnboundedReceiver<BytesMut>,
        frames: &mpsc::Sender<Frame>,
    ) -> Result<(), String> {
        let Self { stream, mut codec, mut read, beats } = self;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut write = BytesMut::new();
        let mut flushed = true;
        // A frame for which there is no room: until there is some, nothing is read, and silence is ours.
        let mut parked: Option<Frame> = None;
        let mut heard = Instant::now();
        // As `heard`, but of more than heart-beats.
        let mut moved = heard;
        let mut beat = interval_at(heard + beats.send, beats.send);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while parked.is_none() {
                let Some(frame) = codec.decode(&mut read).map_err(|error| error.to_string())? else { break };
                parked = frames.try_send(frame).err().map(mpsc::error::TrySendError::into_inner);
            }
            read.reserve(READ_AHEAD);
            tokio::select! {
                count = reader.read_buf(&mut read), if parked.is_none() => match count.map_err(lost)? {
                    0 => return Err("the broker closed the connection".to_owned()),
                    count => {
                        heard = Instant::now();
                        if !only_beats(&read, count) {
                            moved = heard;
                        }
                    }
                },
                done = push(&mut writer, &mut write), if !flushed => flushed = done.map_err(lost)?,
                more = commands.recv() => match more {
                    Some(more) => {
                        write.unsplit(more);
                        flushed = false;
                    }
                    None => return Ok(()),
                },
                room = frames.reserve(), if parked.is_some() => {
                    let (Ok(room), Some(frame)) = (room, parked.take()) else { return Ok(()) };
                    room.send(frame);
                    heard = Instant::now();
                    moved = heard;
                }
                // What waits to be written will do for a heart-beat.
                _ = beat.tick() => if flushed {
                    write.put_u8(b'\n');
                    flushed = false;
                },
                () = sleep_until(moved + REST_WITHIN), if parked.is_none() && codec.awaits_rest() => {
                    moved = Instant::now();
                    // It may be this process that was stopped: then there is something to read.
                    let count = match reader.read_buf(&mut read).now_or_never() {
                        Some(Ok(count)) => count,
                        _ => 0,
                    };
                    if count > 0 {
                        heard = moved;
                    }
                    if only_beats(&read, count) {
                        codec.distrust_rest(&mut read);
                    }
                }
                () = sleep_until(heard + beats.silence), if parked.is_none() => {
                    // It may be this process that was stopped: then there is something to read.
                    match reader.read_buf(&mut read).now_or_never() {
                        Some(Ok(count)) if count > 0 => heard = Instant::now(),
                        _ => return Err(format!(
                            "the broker has said nothing for {} s, not even a heart-beat",
                            beats.silence.as_secs_f32(),
                        )),
                    }
                }
            }
        }
    }
}

/// Whether the last so many bytes say nothing but that the broker is there.
fn only_beats(read: &[u8], count: usize) -> bool {
    read[read.len() - count..].iter().all(|byte| *byte == b'\n')
}

/// Writes some, or flushes if there is no more to write: then it is done. May be dropped while it waits.
async fn push<W: AsyncWrite + Unpin>(writer: &mut W, write: &mut BytesMut) -> std::io::Result<bool> {
    if write.is_empty() {
        return writer.flush().await.map(|()| true);
    }
    match writer.write_buf(write).await? {
        0 => Err(std::io::ErrorKind::WriteZero.into()),
        _ => Ok(false),
    }
}
