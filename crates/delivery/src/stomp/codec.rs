//! Frames to bytes and back. A message that is too large for us, or that its broker cannot put into a sound
//! frame, loses its end, never the connection: the broker would deliver it again to the next one, for ever.

use std::io;

use bytes::{Buf, BufMut, BytesMut};
use thiserror::Error;
use tokio_util::codec::{Decoder, Encoder};
use tracing::warn;

use super::Frame;

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
/// Longer than any command of STOMP; what is longer is another protocol's.
const MAX_COMMAND: usize = 32;

/// Why bytes are not a frame, or a frame cannot be sent. Never repeats what it read.
#[derive(Debug, Error)]
pub(crate) enum StompError {
    #[error("what the server says is not STOMP: is this the broker's STOMP port?")]
    NotStomp,
    #[error("the broker sent a broken STOMP frame: {0}")]
    Broken(&'static str),
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
}

#[derive(Default)]
enum State {
    /// Line ends here are heart-beats.
    #[default]
    Between,
    /// What is left of a body that went on after a NUL. The next NUL ends it.
    Noise,
    Headers {
        frame: Frame,
        kept: usize,
        /// In the midst of a line that is too long to keep.
        skipping: bool,
    },
    Body {
        frame: Frame,
        body: BytesMut,
        /// With a content-length: what of it is still to come. Otherwise the first NUL ends the body.
        left: Option<u64>,
    },
}

impl Decoder for StompCodec {
    type Item = Frame;
    type Error = StompError;

    fn decode(&mut self, src: &mut BytesMut) -> Result<Option<Frame>, StompError> {
        loop {
            // `None`: the state was put back, and needs more bytes.
            let next = match std::mem::take(&mut self.state) {
                State::Between => self.command(src)?,
                State::Noise => self.noise(src),
                State::Headers { frame, kept, skipping } => self.header(src, frame, kept, skipping)?,
                State::Body { frame, body, left } => match self.body(src, frame, body, left)? {
                    Some(frame) => {
                        self.greeted = true;
                        return Ok(Some(frame));
                    }
                    // A body whose length was not true is read once more.
                    None if !src.is_empty() => continue,
                    None => None,
                },
            };
            match next {
                Some(state) => self.state = state,
                None => return Ok(None),
            }
        }
    }
}

impl StompCodec {
    fn command(&mut self, src: &mut BytesMut) -> Result<Option<State>, StompError> {
        let beats = src.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
        src.advance(beats);
        let begin = &src[..src.len().min(MAX_COMMAND + 1)];
        let line = match begin.iter().position(|byte| matches!(byte, b'\n' | 0)) {
            Some(end) if begin[end] == b'\n' => trim(&begin[..end]),
            None if begin.len() <= MAX_COMMAND => return Ok(None),
            _ => b"",
        };
        let command = std::str::from_utf8(line).unwrap_or_default();
        if !command.is_empty() && command.bytes().all(|byte| byte.is_ascii_uppercase()) {
            let frame = Frame::new(command);
            self.line(src);
            return Ok(Some(State::Headers { frame, kept: 0, skipping: false }));
        }
        if !self.greeted {
            return Err(StompError::NotStomp);
        }
        // ActiveMQ gives text no length, also if there is a NUL in it.
        warn!("the broker sent a text with a NUL in it: what comes after the NUL is passed over");
        Ok(Some(State::Noise))
    }

    fn noise(&mut self, src: &mut BytesMut) -> Option<State> {
        let end = src.iter().position(|byte| *byte == 0);
        src.advance(end.map_or(src.len(), |end| end + 1));
        if end.is_none() {
            self.state = State::Noise;
        }
        end.map(|_| State::Between)
    }

    /// Whether a body is not as long yet as its frame says.
    pub(crate) fn awaits_length(&self) -> bool {
        matches!(self.state, State::Body { left: Some(_), .. })
    }

    /// The rest of a body does not come: to ActiveMQ a text's `content-length` is a property like any other,
    /// and need not be true. The body is read again, up to its NUL.
    pub(crate) fn distrust_length(&mut self, src: &mut BytesMut) -> Result<(), StompError> {
        match std::mem::take(&mut self.state) {
            State::Body { frame, body, left: Some(_) } => self.again(src, frame, body),
            state => {
                self.state = state;
                Ok(())
            }
        }
    }

    /// Puts back what was taken for a body, to find its end by the NUL.
    fn again(&mut self, src: &mut BytesMut, frame: Frame, mut body: BytesMut) -> Result<(), StompError> {
        if frame.length > body.len() {
            return Err(StompError::Broken("its body is not of its content-length"));
        }
        body.unsplit(src.split());
        *src = body;
        let frame = Frame { length: 0, ..frame };
        self.state = State::Body { frame, body: BytesMut::new(), left: None };
        Ok(())
    }

    fn header(
        &mut self,
        src: &mut BytesMut,
        mut frame: Frame,
        mut kept: usize,
        skipping: bool,
    ) -> Result<Option<State>, StompError> {
        let Some(line) = self.line(src) else {
            let too_long = skipping || src.len() > MAX_HEADERS;
            if too_long {
                src.clear();
                self.searched = 0;
            }
            self.state = State::Headers { frame, kept, skipping: too_long };
            return Ok(None);
        };
        if skipping || line.len() > MAX_HEADERS {
            return Ok(Some(State::Headers { frame, kept, skipping: false }));
        }
        let line = trim(&line);
        if line.is_empty() {
            let left = frame.header("content-length").and_then(|text| text.trim().parse().ok());
            return Ok(Some(State::Body { frame, body: BytesMut::new(), left }));
        }
        let line = String::from_utf8_lossy(line);
        // Without a colon it is what follows a line end in a header's name.
        let Some((name, value)) = line.split_once(':') else {
            return Ok(Some(State::Headers { frame, kept, skipping: false }));
        };
        let header = if unescaped(&frame.command) {
            (name.to_owned(), value.to_owned())
        } else {
            (unescape(name), unescape(value))
        };
        let cost = line.len() + HEADER_COST;
        let needed = || KEPT.contains(&header.0.as_str()) && frame.header(&header.0).is_none();
        if kept + cost <= MAX_HEADERS || needed() {
            kept += cost;
            frame.headers.push(header);
        }
        Ok(Some(State::Headers { frame, kept, skipping: false }))
    }

    fn body(
        &mut self,
        src: &mut BytesMut,
        mut frame: Frame,
        mut body: BytesMut,
        left: Option<u64>,
    ) -> Result<Option<Frame>, StompError> {
        let end = match left {
            Some(left) => usize::try_from(left).ok().filter(|left| *left < src.len()),
            None => src.iter().position(|byte| *byte == 0),
        };
        let piece = src.split_to(end.unwrap_or(match left {
            // Without its NUL the frame is not whole, even if all of its body is there.
            Some(left) => usize::try_from(left).unwrap_or(usize::MAX).min(src.len()),
            None => src.len(),
        }));
        let fits = piece.len().min(MAX_BODY - body.len());
        body.extend_from_slice(&piece[..fits]);
        frame.length += piece.len();
        if end.is_none() {
            let left = left.map(|left| left - piece.len() as u64);
            self.state = State::Body { frame, body, left };
            return Ok(None);
        }
        if src[0] != 0 {
            self.again(src, frame, body)?;
            return Ok(None);
        }
        src.advance(1);
        frame.body = body.freeze();
        Ok(Some(frame))
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
fn unescape(text: &str) -> String {
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
