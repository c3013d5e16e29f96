//! Frames to bytes and back. A message that is too large for us, or that its broker cannot put into a sound
//! frame, loses its end, never the connection: the broker would deliver it again to the next one, for ever.

use std::io;

use bytes::{Buf, BufMut, BytesMut};
use thiserror::Error;
use tokio_util::codec::{Decoder, Encoder};
use tracing::warn;

use super::Frame;
use mark::Mark;

mod mark;
#[cfg(test)]
mod tests;

/// Bytes of a body that are kept; what comes after them is read and thrown away.
pub(crate) const MAX_BODY: usize = 1024 * 1024;
/// Bytes of headers that are kept. Beyond them only the `KEPT` ones are.
pub(crate) const MAX_HEADERS: usize = 64 * 1024;
/// What a header costs besides its bytes, so that many tiny ones are bounded too.
const HEADER_COST: usize = 32;
/// Headers without which a frame cannot be read or answered, however large its others are.
const KEPT: [&str; 5] = ["ack", "content-length", "message-id", "receipt-id", "subscription"];
/// What a broker says once it has let us in.
const COMMANDS: [&str; 3] = ["MESSAGE", "RECEIPT", "ERROR"];
/// Longer than any command of STOMP; what is longer is another protocol's.
const MAX_COMMAND: usize = 32;

/// Why bytes are not a frame, or a frame cannot be sent. Never repeats what it read.
#[derive(Debug, Error)]
pub(crate) enum StompError {
    #[error("what the server says is not STOMP: is this the broker's STOMP port?")]
    NotStomp,
    #[error("a line end or NUL in a STOMP header, which cannot be sent")]
    Unsendable,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Writes frames, and reads them from bytes that come in pieces of any size.
#[derive(Default)]
pub(crate) struct StompCodec {
    state: State,
    /// Bytes of the buffer in which no line end was found, so that no byte is looked at twice.
    searched: usize,
    /// Whether there was a frame: from then on the other side is known to speak STOMP.
    greeted: bool,
    /// A frame that lost its end, to be handed out next.
    cut: Option<Frame>,
}

#[derive(Default)]
enum State {
    /// Line ends here are heart-beats.
    #[default]
    Between,
    /// What is left of a body that went on after its end. The next NUL ends it.
    Noise,
    Headers {
        frame: Frame,
        kept: usize,
        /// In the midst of a line that is too long to keep.
        skipping: bool,
        /// The last line that was not empty ended with a NUL: if a command follows, that was a frame's end.
        ended: bool,
    },
    Body {
        frame: Frame,
        body: BytesMut,
        /// With a content-length: what of it is still to come. Otherwise the first NUL ends the body.
        left: Option<u64>,
    },
}

/// What came of the bytes at hand.
enum Step {
    Go(State),
    Got(Frame, State),
    /// There are too few.
    Wait(State),
}

impl Decoder for StompCodec {
    type Item = Frame;
    type Error = StompError;

    fn decode(&mut self, src: &mut BytesMut) -> Result<Option<Frame>, StompError> {
        if let Some(cut) = self.cut.take() {
            return Ok(Some(cut));
        }
        loop {
            let step = match std::mem::take(&mut self.state) {
                State::Between => self.command(src)?,
                State::Noise => noise(src),
                State::Headers { frame, kept, skipping, ended } => {
                    self.header(src, frame, kept, skipping, ended)
                }
                State::Body { frame, body, left: None } => text(src, frame, body),
                State::Body { frame, body, left: Some(left) } => sized(src, frame, body, left),
            };
            match step {
                Step::Go(state) => self.state = state,
                Step::Got(frame, state) => {
                    self.state = state;
                    self.greeted = true;
                    return Ok(Some(frame));
                }
                Step::Wait(state) => {
                    self.state = state;
                    return Ok(None);
                }
            }
        }
    }
}

impl StompCodec {
    fn command(&mut self, src: &mut BytesMut) -> Result<Step, StompError> {
        let beats = src.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
        src.advance(beats);
        let begin = &src[..src.len().min(MAX_COMMAND + 1)];
        let line = match begin.iter().position(|byte| matches!(byte, b'\n' | 0)) {
            Some(end) if begin[end] == b'\n' => trim(&begin[..end]),
            None if begin.len() <= MAX_COMMAND => return Ok(Step::Wait(State::Between)),
            _ => b"",
        };
        let command = std::str::from_utf8(line).unwrap_or_default();
        if !command.is_empty() && command.bytes().all(|byte| byte.is_ascii_uppercase()) {
            let begun = headers_of(command);
            self.line(src);
            return Ok(Step::Go(begun));
        }
        if !self.greeted {
            return Err(StompError::NotStomp);
        }
        // ActiveMQ gives text no length, also if there is a NUL in it.
        warn!("the broker sent a text with a NUL in it: what comes after the NUL is passed over");
        Ok(Step::Go(State::Noise))
    }

    /// Whether a frame is not whole whose rest may never come.
    pub(crate) fn awaits_rest(&self) -> bool {
        matches!(self.state, State::Headers { .. } | State::Body { left: Some(_), .. })
    }

    /// The rest of a frame does not come: to ActiveMQ a text's `content-length` is a property like any other,
    /// and need not be true; and what began like a frame may have been the end of a text. The body is read
    /// again, up to its NUL; what can be acknowledged is handed out, and all else forgotten.
    pub(crate) fn distrust_rest(&mut self, src: &mut BytesMut) {
        self.state = match std::mem::take(&mut self.state) {
            State::Body { frame, body, left: Some(_) } => match again(src, frame, body) {
                Step::Got(frame, state) => {
                    self.cut = Some(frame);
                    state
                }
                Step::Go(state) | Step::Wait(state) => state,
            },
            State::Headers { frame, ended, .. } => {
                warn!("the broker sent the beginning of a frame and nothing more: it is passed over");
                self.cut = Some(frame).filter(acknowledgeable);
                self.searched = 0;
                let end = src.iter().rposition(|byte| *byte == 0);
                src.advance(end.map_or(0, |end| end + 1));
                if ended || end.is_some() { State::Between } else { State::Noise }
            }
            state => state,
        };
    }

    fn header(
        &mut self,
        src: &mut BytesMut,
        mut frame: Frame,
        mut kept: usize,
        skipping: bool,
        ended: bool,
    ) -> Step {
        let Some(line) = self.line(src) else {
            let too_long = skipping || src.len() > MAX_HEADERS;
            if too_long {
                src.clear();
                self.searched = 0;
            }
            return Step::Wait(State::Headers { frame, kept, skipping: too_long, ended });
        };
        let line = trim(&line);
        if line.is_empty() && !skipping {
            // ActiveMQ sends the names of JMS properties as they are, also if there is an empty line in them:
            // a message's headers are not over before there is one that acknowledges it.
            return Step::Go(if ended || (frame.command == "MESSAGE" && !acknowledgeable(&frame)) {
                State::Headers { frame, kept, skipping: false, ended }
            } else {
                let left = frame.header("content-length").and_then(|text| text.trim().parse().ok());
                State::Body { frame, body: BytesMut::new(), left }
            });
        }
        let nul = line.iter().rposition(|byte| *byte == 0);
        let last = &line[nul.map_or(0, |nul| nul + 1)..];
        if (nul.is_some() || ended) && COMMANDS.iter().any(|command| command.as_bytes() == last) {
            // These were no headers, but the end of a text with NULs in it; or a name with all of this in it.
            let begun = headers_of(&String::from_utf8_lossy(last));
            return if acknowledgeable(&frame) { Step::Got(frame, begun) } else { Step::Go(begun) };
        }
        let ended = nul.is_some() && last.is_empty();
        // Without a colon it is what follows a line end in a header's name.
        let text = String::from_utf8_lossy(line);
        let known = text.split_once(':').filter(|_| !skipping && line.len() <= MAX_HEADERS);
        if let Some((name, value)) = known {
            let header = if unescaped(&frame.command) {
                (name.to_owned(), value.to_owned())
            } else {
                (unescape(name), unescape(value))
            };
            let cost = text.len() + HEADER_COST;
            // Any of several may be the true one.
            let tag = || header.0 == "ack" && kept + cost <= 2 * MAX_HEADERS;
            let needed = || KEPT.contains(&header.0.as_str()) && frame.header(&header.0).is_none();
            if kept + cost <= MAX_HEADERS || tag() || needed() {
                kept += cost;
                frame.headers.push(header);
            }
        }
        Step::Go(State::Headers { frame, kept, skipping: false, ended })
    }

    /// Takes a whole line, without its line feed.
    fn line(&mut self, src: &mut BytesMut) -> Option<BytesMut> {
        match src[self.searched..].iter().position(|byte| *byte == b'\n') {
            Some(found) => {
                let line = src.split_to(self.searched + found);
                src.advance(1);
                self.searched = 0;
                Some(line)
            }
            None => {
                self.searched = src.len();
                None
            }
        }
    }
}

fn headers_of(command: &str) -> State {
    State::Headers { frame: Frame::new(command), kept: 0, skipping: false, ended: false }
}

fn acknowledgeable(frame: &Frame) -> bool {
    frame.header("ack").is_some()
}

fn noise(src: &mut BytesMut) -> Step {
    let end = src.iter().position(|byte| *byte == 0);
    src.advance(end.map_or(src.len(), |end| end + 1));
    if end.is_some() { Step::Go(State::Between) } else { Step::Wait(State::Noise) }
}

/// A body that its first NUL ends.
fn text(src: &mut BytesMut, mut frame: Frame, mut body: BytesMut) -> Step {
    let end = src.iter().position(|byte| *byte == 0);
    let piece = src.split_to(end.unwrap_or(src.len()));
    let fits = piece.len().min(MAX_BODY - body.len());
    body.extend_from_slice(&piece[..fits]);
    frame.length += piece.len();
    if end.is_none() {
        return Step::Wait(State::Body { frame, body, left: None });
    }
    src.advance(1);
    frame.body = body.freeze();
    Step::Got(frame, State::Between)
}

/// A body that says how long it is. While all of it is kept, that it was not true can be found out in the
/// end; before the first byte of it is thrown away, and from then on, the next frame is looked for in it.
fn sized(src: &mut BytesMut, mut frame: Frame, mut body: BytesMut, mut left: u64) -> Step {
    let to_come = |left: u64| usize::try_from(left).unwrap_or(usize::MAX);
    let fits = to_come(left).min(src.len()).min(MAX_BODY - body.len());
    body.extend_from_slice(&src.split_to(fits));
    frame.length += fits;
    left -= fits as u64;
    if left > 0 && !src.is_empty() {
        if frame.length == MAX_BODY {
            body.unsplit(src.split());
            let found = mark::find(&body, MAX_BODY);
            *src = body.split_off(MAX_BODY);
            match found {
                Mark::Found(_) => return again(src, frame, body),
                Mark::Open(_) => return Step::Wait(State::Body { frame, body, left: Some(left) }),
                Mark::None => {}
            }
        }
        let piece = to_come(left).min(src.len());
        let found = mark::find(src, piece);
        let piece = match found {
            Mark::Found(at) | Mark::Open(at) => at,
            Mark::None => piece,
        };
        src.advance(piece);
        frame.length += piece;
        left -= piece as u64;
        if matches!(found, Mark::Found(_)) {
            src.advance(1);
            frame.body = body.freeze();
            return Step::Got(frame, State::Between);
        }
    }
    if left > 0 || src.is_empty() {
        // Without its NUL the frame is not whole, even if all of its body is there.
        return Step::Wait(State::Body { frame, body, left: Some(left) });
    }
    if src[0] != 0 {
        return again(src, frame, body);
    }
    src.advance(1);
    frame.body = body.freeze();
    Step::Got(frame, State::Between)
}

/// What was taken for a body was not of its length: it is put back, to find its end by the NUL. Where its
/// end was thrown away it stays without it, and the rest is passed over.
fn again(src: &mut BytesMut, mut frame: Frame, mut body: BytesMut) -> Step {
    warn!("the broker sent a message whose content-length is not true");
    if frame.length > body.len() {
        frame.body = body.freeze();
        return Step::Got(frame, State::Noise);
    }
    body.unsplit(src.split());
    *src = body;
    frame.length = 0;
    Step::Go(State::Body { frame, body: BytesMut::new(), left: None })
}

impl Encoder<&Frame> for StompCodec {
    type Error = StompError;

    /// Adds a `content-length` only to a body that needs one: ActiveMQ makes a TextMessage of a SEND without
    /// it and a BytesMessage of one with it. After an error nothing was added to the buffer.
    fn encode(&mut self, frame: &Frame, dst: &mut BytesMut) -> Result<(), StompError> {
        let begin = dst.len();
        dst.put_slice(frame.command.as_bytes());
        dst.put_u8(b'\n');
        let plain = unescaped(&frame.command);
        for (name, value) in &frame.headers {
            let sendable = put(dst, name, plain, b':') && put(dst, value, plain, b'\n');
            if !sendable {
                dst.truncate(begin);
                return Err(StompError::Unsendable);
            }
        }
        if frame.body.contains(&0) && frame.header("content-length").is_none() {
            dst.put_slice(format!("content-length:{}\n", frame.body.len()).as_bytes());
        }
        dst.put_u8(b'\n');
        dst.put_slice(&frame.body);
        dst.put_u8(0);
        Ok(())
    }
}

/// For the sake of STOMP 1.0, which knew no escapes, the first frames of a connection have none.
fn unescaped(command: &str) -> bool {
    matches!(command, "CONNECT" | "CONNECTED")
}

/// Without the carriage return of a line that ends with one.
fn trim(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Whether the text could be put there, with what ends it.
fn put(dst: &mut BytesMut, text: &str, plain: bool, end: u8) -> bool {
    for byte in text.bytes() {
        match byte {
            0 => return false,
            b'\n' | b'\r' if plain => return false,
            _ if plain => dst.put_u8(byte),
            b'\n' => dst.put_slice(b"\\n"),
            b'\r' => dst.put_slice(b"\\r"),
            b':' => dst.put_slice(b"\\c"),
            b'\\' => dst.put_slice(b"\\\\"),
            _ => dst.put_u8(byte),
        }
    }
    dst.put_u8(end);
    true
}

/// ActiveMQ escapes values and not names, so a backslash that begins no escape of STOMP stands for itself.
pub(super) fn unescape(text: &str) -> String {
    let mut chars = text.chars();
    let mut out = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        let known = match (c, chars.clone().next()) {
            ('\\', Some('n')) => Some('\n'),
            ('\\', Some('r')) => Some('\r'),
            ('\\', Some('c')) => Some(':'),
            ('\\', Some('\\')) => Some('\\'),
            _ => None,
        };
        if known.is_some() {
            chars.next();
        }
        out.push(known.unwrap_or(c));
    }
    out
}
