//! A client that follows one job through `GET /jobs/{jobId}/events`, and comes back when it was cut off.

use std::future::Future;

use reqwest::Response;
use serde_json::Value;

use crate::common::{Client, PATIENCE};

/// What must never go backwards.
const FORWARD: [&str; 3] = ["progress", "rows", "bytes"];

/// One open stream, and everything that was seen of the job, also on streams before it.
pub(crate) struct Follower {
    job: String,
    answer: Response,
    text: Vec<u8>,
    last_id: Option<i64>,
    pub(crate) seen: Vec<Value>,
}

impl Follower {
    pub(crate) async fn connect(client: &Client, job: &str) -> Self {
        let answer = open(client, job, None).await;
        Self { job: job.to_owned(), answer, text: Vec::new(), last_id: None, seen: Vec::new() }
    }

    /// Comes back, with the id of the last event that came.
    pub(crate) async fn reconnect(&mut self, client: &Client) {
        self.answer = open(client, &self.job, self.last_id).await;
        self.text.clear();
    }

    /// The next state of the job; `None` at an end in good order, an error when it is cut off.
    pub(crate) async fn next(&mut self) -> reqwest::Result<Option<Value>> {
        loop {
            if let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.text.drain(..end + 2).collect();
                let event = String::from_utf8(event).expect("text");
                if !event.starts_with(':') {
                    return Ok(Some(self.read(&event)));
                }
            } else {
                let Some(more) = self.answer.chunk().await? else {
                    assert!(self.text.is_empty(), "whole events only");
                    return Ok(None);
                };
                self.text.extend_from_slice(&more);
            }
        }
    }

    fn read(&mut self, event: &str) -> Value {
        let field = |name: &str| {
            let line = event.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("{name} in {event}"))
        };
        assert_eq!(field("event: "), "job");
        let id: i64 = field("id: ").parse().expect("a version");
        assert!(Some(id) >= self.last_id, "versions go on: {id} after {:?}", self.last_id);
        let job: Value = serde_json::from_str(field("data: ")).expect("JSON");
        if Some(id) == self.last_id {
            let last = self.seen.last().expect("an event has come");
            assert_eq!(stated(&job), stated(last), "the id {id} names one state");
        }
        self.last_id = Some(id);
        self.seen.push(job.clone());
        goes_on(&self.seen);
        job
    }

    /// The first state from now on for which it is so.
    pub(crate) async fn until(&mut self, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        let look = async {
            loop {
                let job = self.next().await.expect("it is not cut off").expect("it comes before the end");
                if so(&job) {
                    return job;
                }
            }
        };
        patiently(what, look).await
    }

    /// Whatever comes until it is cut off.
    pub(crate) async fn is_cut_off(&mut self) {
        let cut = async {
            while let Ok(event) = self.next().await {
                event.expect("no end in good order");
            }
        };
        patiently("the stream is cut off", cut).await;
    }

    /// Everything that was seen, after an end in good order.
    pub(crate) async fn end(mut self) -> Vec<Value> {
        let end = async { while self.next().await.expect("it is not cut off").is_some() {} };
        patiently("the stream ends", end).await;
        self.seen
    }
}

/// A job without its estimate, which is not part of its state.
fn stated(job: &Value) -> Value {
    let mut job = job.clone();
    job["etaSeconds"].take();
    job
}

async fn open(client: &Client, job: &str, last_id: Option<i64>) -> Response {
    let mut ask = client.http.get(format!("{}/jobs/{job}/events", client.base));
    if let Some(id) = last_id {
        ask = ask.header("last-event-id", id);
    }
    let answer = ask.send().await.expect("the API answers");
    assert_eq!(answer.status(), 200, "{job}");
    answer
}

async fn patiently<T>(what: &str, look: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("waited in vain until {what}"))
}

/// Insists that a job as it was seen, in order, never went backwards.
pub(crate) fn goes_on(seen: &[Value]) {
    for pair in seen.windows(2) {
        for name in FORWARD {
            let [before, after] = [&pair[0], &pair[1]].map(|job| job[name].as_f64().expect("a number"));
            assert!(before <= after, "{name} went back from {before} to {after}: {pair:?}");
        }
    }
}
