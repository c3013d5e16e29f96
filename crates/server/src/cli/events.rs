//! One state of a job after another: from the server's stream of events, or by asking again and again
//! where there is none. A stream that breaks off is opened again.

use std::time::Duration;

use reqwest::Response;
use serde_json::Value;

use super::client::{Client, ClientError};

/// How long to wait before asking again.
const AGAIN: Duration = Duration::from_millis(250);
/// More than any job; a server that sends more than this as one event is none of ours.
const MAX_EVENT: usize = 64 << 20;

/// The states of one job.
pub(crate) struct States<'a> {
    client: &'a Client,
    path: String,
    source: Source,
    last_id: Option<String>,
}

enum Source {
    /// To be opened.
    Closed,
    Open(Box<Events>),
    /// The server is older than the stream.
    Polled,
}

impl<'a> States<'a> {
    /// The states of the job at this path.
    pub(crate) fn new(client: &'a Client, path: String) -> Self {
        Self { client, path, source: Source::Closed, last_id: None }
    }

    /// The present state at first, then each that follows. After an error it may be asked again.
    pub(crate) async fn next(&mut self) -> Result<Value, ClientError> {
        loop {
            match &mut self.source {
                Source::Polled => return self.look().await,
                Source::Closed => match self.open().await {
                    Ok(Some(events)) => self.source = Source::Open(Box::new(events)),
                    Ok(None) => self.source = Source::Polled,
                    // Too many watch jobs there, or it has nothing to read them from: ask the plain way.
                    Err(error) if error.status() == Some(503) => return self.look().await,
                    Err(error) => return Err(error),
                },
                Source::Open(events) => match events.next().await {
                    Some((id, job)) => {
                        self.last_id = id.or(self.last_id.take());
                        return Ok(job);
                    }
                    // It says at once what there is to say.
                    None if events.is_unused() => {
                        self.source = Source::Closed;
                        return Err(self.client.broken_off());
                    }
                    None => {
                        self.source = Source::Closed;
                        tokio::time::sleep(AGAIN).await;
                    }
                },
            }
        }
    }

    async fn look(&self) -> Result<Value, ClientError> {
        tokio::time::sleep(AGAIN).await;
        self.client.get(&self.path, &[]).await
    }

    /// Opens the stream; `None` where the server has none.
    async fn open(&self) -> Result<Option<Events>, ClientError> {
        match self.client.events(&format!("{}/events", self.path), self.last_id.as_deref()).await {
            Ok(response) => Ok(Events::new(response)),
            // It may also be the job that is not there; a plain look will tell.
            Err(error) if matches!(error.status(), Some(404..=406)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A stream that is open.
struct Events {
    response: Response,
    parser: Parser,
}

impl Events {
    /// `None` if the answer is no stream of events.
    fn new(response: Response) -> Option<Self> {
        let content_type = response.headers().get("content-type")?.to_str().ok()?;
        let media_type = content_type.split(';').next()?.trim();
        let parser = Parser::default();
        media_type.eq_ignore_ascii_case("text/event-stream").then_some(Self { response, parser })
    }

    /// The next job and its event's id; `None` when the stream is at its end, however it came to it.
    async fn next(&mut self) -> Option<(Option<String>, Value)> {
        loop {
            while let Some(event) = self.parser.next() {
                if let Ok(job) = serde_json::from_str(&event.data) {
                    self.parser.used = true;
                    return Some((event.id, job));
                }
            }
            let more = self.response.chunk().await.ok()??;
            self.parser.push(&more)?;
        }
    }

    fn is_unused(&self) -> bool {
        !self.parser.used
    }
}

/// Takes a stream of events apart, as the HTML standard says.
#[derive(Default)]
struct Parser {
    /// What came and is not a whole line yet.
    rest: Vec<u8>,
    /// Lines that are not a whole event yet.
    id: Option<String>,
    kind: String,
    data: String,
    /// Whole events.
    ready: std::collections::VecDeque<Event>,
    used: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Event {
    id: Option<String>,
    data: String,
}

impl Parser {
    /// Takes more bytes; `None` if it is too much for one event.
    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]).into_owned();
            self.line(line.trim_end_matches('\r'));
        }
        (self.rest.len() + self.data.len() <= MAX_EVENT).then_some(())
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            let event = Event { id: self.id.take(), data: std::mem::take(&mut self.data) };
            let is_job = matches!(std::mem::take(&mut self.kind).as_str(), "job" | "");
            if is_job && !event.data.is_empty() {
                self.ready.push_back(event);
            }
            return;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.kind),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // A comment, or something newer than this program.
            _ => {}
        }
    }

    fn next(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ": keep-alive\n\nevent: job\nid: 7\ndata: {\"a\":\ndata: \"é\"}\n\nevent: other\ndata: 1\n\n\
                        id:8\r\ndata:2\r\nfuture: x\r\n\r\nevent: job\nid: 9\ndata: half";

    #[test]
    fn events_are_found_however_the_bytes_are_cut() {
        let event = |id: &str, data: &str| Event { id: Some(id.into()), data: data.into() };
        for size in [1, 2, 3, 7, TEXT.len()] {
            let mut parser = Parser::default();
            for part in TEXT.as_bytes().chunks(size) {
                parser.push(part).unwrap();
            }
            let found: Vec<Event> = std::iter::from_fn(|| parser.next()).collect();
            assert_eq!(found, [event("7", "{\"a\":\n\"é\"}"), event("8", "2")], "in parts of {size}");
        }
    }

    #[test]
    fn an_event_without_an_end_is_given_up() {
        let mut parser = Parser::default();
        let part = vec![b'x'; MAX_EVENT / 2];
        assert!(parser.push(&part).is_some() && parser.push(&part).is_some());
        assert!(parser.push(b"x").is_none());
    }
}
