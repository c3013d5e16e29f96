//! A STOMP frame: a command, headers, a body. `Debug` shows neither headers nor body, since a CONNECT has
//! the password in a header and a MESSAGE is somebody's payload.

use std::fmt;

use bytes::Bytes;

use super::codec::unescape;

/// As much of a broker's own words as an error repeats.
const MAX_REASON: usize = 300;

/// One frame, sent or received.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// `SEND`, `MESSAGE` and so on.
    pub(crate) command: String,
    /// In the order of the wire. Of a repeated one the first counts.
    pub(crate) headers: Vec<(String, String)>,
    /// What the sender put there; at most the codec's limit of what was received.
    pub(crate) body: Bytes,
    /// How long the body is, or was before the codec threw its end away.
    pub(crate) length: usize,
}

impl Frame {
    pub(crate) fn new(command: &str) -> Self {
        Self { command: command.to_owned(), headers: Vec::new(), body: Bytes::new(), length: 0 }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.length = self.body.len();
        self
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whatever may acknowledge a message: an empty line in the name of a JMS property ends the headers too
    /// early, and then the true one may be in what looks like the body.
    pub(crate) fn tags(&self) -> impl Iterator<Item = String> {
        let headers = self.headers.iter().filter(|(name, _)| name == "ack").map(|(_, value)| value.clone());
        let lines = self.body.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"ack:"));
        headers.chain(lines.map(|value| unescape(&String::from_utf8_lossy(value))))
    }

    /// What an ERROR says, in one line: its `message`, or the first line of its body. The rest of the body
    /// is left out; ActiveMQ puts a stack trace there.
    pub(crate) fn reason(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let text = self.header("message").unwrap_or_else(|| body.lines().next().unwrap_or_default());
        let line: String =
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON).collect();
        match line.trim() {
            "" => "it gave no reason".to_owned(),
            line => line.to_owned(),
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("command", &self.command)
            .field("headers", &self.headers.len())
            .field("length", &self.length)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_header_and_no_body() {
        let frame = Frame::new("CONNECT").with("passcode", "hunter2").body("a payload");
        let shown = format!("{frame:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("payload"), "{shown}");
    }

    #[test]
    fn every_tag_is_found() {
        let frame = Frame::new("MESSAGE").with("ack", "a").with("x", "ack:b").with("ack", "c");
        assert_eq!(frame.tags().collect::<Vec<_>>(), ["a", "c"]);
        let frame = frame.body("ack:d\\c1\n ack:e\nx:y\nack:f\n\nbody");
        assert_eq!(frame.tags().collect::<Vec<_>>(), ["a", "c", "d:1", "f"]);
    }

    #[test]
    fn a_reason_is_one_line() {
        let error = |frame: Frame| frame.reason();
        assert_eq!(error(Frame::new("ERROR").with("message", "no\nway").body("x")), "no way");
        assert_eq!(error(Frame::new("ERROR").body("first\n\tat java.lang")), "first");
        assert_eq!(error(Frame::new("ERROR")), "it gave no reason");
        assert_eq!(error(Frame::new("ERROR").with("message", "é".repeat(5000))).chars().count(), MAX_REASON);
    }
}
