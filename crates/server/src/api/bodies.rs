//! The bodies that clients send. A process holds a limited number of bytes of them at once: one limit for all callers,
//! and a lower one for each caller. Room for a body is reserved before its first byte is read, so a request that waits
//! for room holds nothing. The room is given back when the request has been answered.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::header::{CONTENT_LENGTH, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use futures::StreamExt as _;
use outhaul_core::json::Json;
use tokio::time::{Instant, timeout_at};

use super::json;
use super::problem::Problem;
use super::shares::{NoShare, Share, Shares};
use crate::auth::Caller;
use crate::config::Limits;

/// The bytes for all callers.
const OF_ALL: usize = 64 * 1024 * 1024;
/// The bytes for one caller.
const OF_ONE: usize = 8 * 1024 * 1024;

/// Reads bodies. Cheap to clone.
#[derive(Clone)]
pub(super) struct Bodies {
    room: Shares,
    /// The most bytes of one body.
    limit: usize,
    /// How long room is waited for.
    to_begin: Duration,
    /// How long all of it may take.
    to_end: Duration,
}

/// A body that has arrived. It is text, not values: those who wait for their turn hold no more than they sent.
pub(super) struct Held {
    text: String,
    room: Share,
}

impl Bodies {
    /// As the limits say. One body of the largest size always has room, however large that is.
    pub(super) fn new(limits: &Limits) -> Self {
        let limit = limits.max_body_bytes;
        let room = Shares::new(OF_ALL.max(limit), OF_ONE.max(limit));
        Self { room, limit, to_begin: limits.request_timeout / 2, to_end: limits.request_timeout }
    }

    /// Reads a body that must be JSON.
    pub(super) async fn read(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Held, Problem> {
        self.read_for(caller.subject(), headers, body).await
    }

    async fn read_for(&self, subject: &str, headers: &HeaderMap, body: Body) -> Result<Held, Problem> {
        json::expect_json(headers)?;
        let announced = announced(headers).or(body.size_hint().exact());
        if announced.is_some_and(|length| length > self.limit as u64) {
            return Err(self.too_large());
        }
        // A body that does not announce its length may have any.
        let expected = announced.map_or(self.limit, |length| length as usize);
        let began = Instant::now();
        let amount = u32::try_from(expected).unwrap_or(u32::MAX);
        let room = self.room.take(subject, amount, began + self.to_begin).await.map_err(no_room)?;
        let text = match timeout_at(began + self.to_end, self.collect(body, expected)).await {
            Ok(text) => text?,
            Err(_) => {
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"));
            }
        };
        let text = String::from_utf8(text).map_err(|_| Problem::bad_request("the body is not UTF-8"))?;
        Ok(Held { text, room })
    }

    /// Copies what arrives into one buffer: the parts that it comes in may be a byte each.
    async fn collect(&self, body: Body, expected: usize) -> Result<Vec<u8>, Problem> {
        let (mut text, mut parts) = (Vec::with_capacity(expected), body.into_data_stream());
        while let Some(part) = parts.next().await {
            let part = part.map_err(|_| Problem::bad_request("the body broke off"))?;
            if text.len() + part.len() > self.limit {
                return Err(self.too_large());
            }
            text.extend_from_slice(&part);
        }
        Ok(text)
    }

    fn too_large(&self) -> Problem {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body may have at most {} bytes (`limits.max_body_bytes`)", self.limit),
        )
    }
}

impl Held {
    /// Checks it. The room is to be kept for as long as anything of the body is.
    pub(super) fn parse(self) -> Result<(Json, Share), Problem> {
        Ok((json::parse(&self.text)?, self.room))
    }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

fn no_room(none: NoShare) -> Problem {
    match none {
        NoShare::OfYours => Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too many of your bodies are being read now; nothing of this one was: send it again",
        )
        .with_header(RETRY_AFTER, HeaderValue::from_static("5")),
        NoShare::OfAll => {
            Problem::unavailable("too many bodies are being read now; nothing of this one was: send it again")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::header::CONTENT_TYPE;
    use bytes::Bytes;
    use futures::stream;

    const LIMIT: usize = 100;

    fn bodies(to_begin: Duration, to_end: Duration) -> Bodies {
        Bodies { room: Shares::new(2 * LIMIT, LIMIT + LIMIT / 2), limit: LIMIT, to_begin, to_end }
    }

    const PATIENT: Duration = Duration::from_secs(600);

    fn headers(length: Option<&str>) -> HeaderMap {
        let json = HeaderValue::from_static("application/json");
        let length = length.map(|length| (CONTENT_LENGTH, length.parse().unwrap()));
        [(CONTENT_TYPE, json)].into_iter().chain(length).collect()
    }

    async fn refused(bodies: &Bodies, subject: &str, length: Option<&str>, body: Body) -> u16 {
        let read = bodies.read_for(subject, &headers(length), body).await;
        read.err().expect("it is refused").status().as_u16()
    }

    fn never() -> Body {
        Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>())
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_413_announced_or_not() {
        let bodies = bodies(PATIENT, PATIENT);
        let long = format!("\"{}\"", "x".repeat(LIMIT - 1));
        let parts = Body::from_stream(stream::iter([Ok::<_, std::io::Error>(long)]));
        assert_eq!(refused(&bodies, "ann", None, parts).await, 413);
        assert_eq!(refused(&bodies, "ann", Some("101"), never()).await, 413, "without reading it");
        let whole = format!("\"{}\"", "x".repeat(LIMIT - 2));
        let read = bodies.read_for("ann", &headers(None), Body::from(whole.clone())).await.ok().unwrap();
        assert_eq!(read.parse().ok().unwrap().0.as_str(), whole);
    }

    #[tokio::test]
    async fn a_body_that_never_comes_is_408() {
        let bodies = bodies(PATIENT, Duration::from_millis(1));
        assert_eq!(refused(&bodies, "ann", None, never()).await, 408);
    }

    #[tokio::test]
    async fn parts_of_a_byte_each_are_one_text() {
        let parts = stream::iter("[1, 2, 3]".bytes().map(|byte| Ok::<_, std::io::Error>(vec![byte])));
        let read = bodies(PATIENT, PATIENT).read_for("ann", &headers(None), Body::from_stream(parts)).await;
        assert_eq!(read.ok().unwrap().text, "[1, 2, 3]");
        let broken = Body::from_stream(stream::iter([Ok(vec![0xff]), Err(std::io::Error::other("x"))]));
        assert_eq!(refused(&bodies(PATIENT, PATIENT), "ann", None, broken).await, 400);
    }

    #[tokio::test]
    async fn one_caller_holds_some_bytes_and_all_callers_no_more_than_there_is_room_for() {
        let bodies = bodies(Duration::ZERO, PATIENT);
        let text = || Body::from(format!("\"{}\"", "x".repeat(LIMIT - 2)));
        let hold = async |subject| bodies.read_for(subject, &headers(None), text()).await.ok().unwrap();
        let anns = hold("ann").await;
        assert_eq!(refused(&bodies, "ann", Some("51"), never()).await, 429);
        let small = bodies.read_for("ann", &headers(None), Body::from("1")).await.ok().unwrap();
        drop(small);
        let bobs = hold("bob").await;
        assert_eq!(refused(&bodies, "carol", Some("1"), never()).await, 503);
        assert_eq!(refused(&bodies, "anonymous", Some("1"), never()).await, 503);
        let (json, room) = anns.parse().ok().unwrap();
        drop(json);
        assert_eq!(refused(&bodies, "carol", Some("1"), never()).await, 503, "what was made of it is there");
        drop((room, bobs));
        // Callers without a token may use all of it.
        drop((hold("anonymous").await, hold("anonymous").await));
        assert!(bodies.room.is_idle(), "nobody is remembered");
    }
}
