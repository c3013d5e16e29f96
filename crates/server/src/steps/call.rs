//! One call: sent, answered and read within the step's time, and never more than the cap kept of the
//! answer. Causes name no place; for operators they name the host, never the path, the query or anything that
//! was sent or received.

use std::error::Error;
use std::io;
use std::time::Duration;

use outhaul::{Cause, Failed};
use outhaul_core::clock;
use outhaul_core::duration::short;
use reqwest::Response;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use url::Url;

use super::allow::Refused;
use super::answer;
use super::client::{Client, TO_CONNECT};
use super::dial::NotFound;

/// The longest part of a cause that comes from below.
const LONGEST_REASON: usize = 200;

/// What is sent, and what may come back.
pub(super) struct Call {
    pub(super) url: Url,
    /// For all of it, from the name service to the last byte.
    pub(super) timeout: Duration,
    /// Beside those of every call.
    pub(super) headers: Vec<(&'static str, String)>,
    /// JSON.
    pub(super) body: String,
    /// The most bytes of an answer.
    pub(super) max_bytes: usize,
}

impl Client {
    /// Makes the call; a result is JSON text.
    pub(super) async fn call(&self, call: Call) -> Result<String, Failed> {
        self.check(&call.url).map_err(|refused| Failed::Fatal(refused.into()))?;
        let timeout = call.timeout;
        let client = self.clone();
        let exchange = self.threads.spawn(async move { client.exchange(call).await });
        match tokio::time::timeout(timeout, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(retryable("the call broke off")),
            Err(_) => Err(Failed::Retryable(format!("no answer within {}", short(timeout)).into())),
        }
    }

    async fn exchange(&self, call: Call) -> Result<String, Failed> {
        let mut request = self.http.post(call.url.clone());
        request = request.header(CONTENT_TYPE, "application/json").header(ACCEPT, "application/json");
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        let sent = request.body(call.body).send().await;
        let response = sent.map_err(|error| not_answered(&call.url, &error))?;
        let retry_after = header(&response, &RETRY_AFTER);
        if let Some(failed) = answer::failure(response.status(), retry_after, clock::now()) {
            return Err(failed);
        }
        let declared_json = answer::is_json(header(&response, &CONTENT_TYPE));
        let body = read(response, call.max_bytes).await.map_err(retryable)?;
        answer::result(body, declared_json).map_err(retryable)
    }
}

fn retryable(text: impl Into<String>) -> Failed {
    Failed::Retryable(text.into().into())
}

pub(super) fn header<'a>(response: &'a Response, name: &HeaderName) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

async fn read(mut response: Response, max_bytes: usize) -> Result<Vec<u8>, String> {
    let too_large = || format!("answered with more than {max_bytes} bytes");
    if response.content_length().is_some_and(|length| length > max_bytes as u64) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > max_bytes => return Err(too_large()),
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(_) => return Err("the answer was cut short".to_owned()),
        }
    }
}

/// Why there was no answer.
pub(super) fn not_answered(url: &Url, error: &reqwest::Error) -> Failed {
    if let Some(refused) = find::<Refused>(error) {
        return Failed::Fatal(refused.clone().into());
    }
    let place = place(url);
    let cause = if let Some(not_found) = find::<NotFound>(error) {
        Cause::with_detail("cannot find the address that it calls", not_found.to_string())
    } else if error.is_connect() && error.is_timeout() {
        let detail = format!("cannot connect to {place}: no answer within {}", short(TO_CONNECT));
        Cause::with_detail("cannot connect", detail)
    } else if error.is_connect() {
        Cause::with_detail("cannot connect", format!("cannot connect to {place}: {}", reason(error)))
    } else {
        Cause::with_detail("no answer", format!("no answer from {place}: {}", reason(error)))
    };
    Failed::Retryable(cause.of(error))
}

impl From<Refused> for Cause {
    fn from(refused: Refused) -> Self {
        Self::with_detail("the address that it calls is not allowed", refused.to_string())
    }
}

/// Host and port.
fn place(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// The innermost error: the outer ones repeat the URL.
fn reason(error: &reqwest::Error) -> String {
    let Some(innermost) = chain(error).skip(1).last() else { return "it was not sent".to_owned() };
    let text = match innermost.downcast_ref::<io::Error>() {
        Some(io) if io.get_ref().is_none() => io.kind().to_string(),
        _ => innermost.to_string(),
    };
    text.chars().filter(|c| !c.is_control()).take(LONGEST_REASON).collect()
}
