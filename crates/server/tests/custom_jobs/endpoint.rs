//! A service with HTTP steps, inside the test: it writes down every call, and answers as the test says.

use std::future::Future;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// One request for a step.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) job: String,
    pub(crate) step: String,
    pub(crate) attempt: u64,
    /// How many calls of this step of this job there were, with this one.
    pub(crate) nth: usize,
    pub(crate) headers: HeaderMap,
    /// The body as it came, for signatures.
    pub(crate) raw: Bytes,
    pub(crate) body: Value,
}

impl Call {
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).unwrap_or_else(|| panic!("a call without {name}"));
        value.to_str().expect("a header of text")
    }

    pub(crate) fn key(&self) -> &str {
        self.header("idempotency-key")
    }
}

/// A running service; gone when dropped.
pub(crate) struct Endpoint {
    pub(crate) base: String,
    calls: Arc<Mutex<Vec<Call>>>,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// Starts one that answers every call by `answer`.
    pub(crate) async fn start<F>(answer: impl Fn(Call) -> F + Clone + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response> + Send + 'static,
    {
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let book = calls.clone();
        let serve = move |request: Request| {
            let (answer, book) = (answer.clone(), book.clone());
            async move {
                let call = write_down(&book, request).await;
                answer(call).await
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a spare port");
        let base = format!("http://{}", listener.local_addr().expect("its number"));
        let app = Router::new().fallback(serve);
        let task = tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        Self { base, calls, task }
    }

    /// All calls so far, in order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("not poisoned").clone()
    }

    /// The calls of one step of a job, in order.
    pub(crate) fn calls_of(&self, job: &str, step: &str) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.job == job && call.step == step).collect()
    }

    /// How often each of these steps of a job was called.
    pub(crate) fn counts(&self, job: &str, steps: &[&str]) -> Vec<usize> {
        steps.iter().map(|step| self.calls_of(job, step).len()).collect()
    }

    /// The configuration of a job type with these steps here, one after another; `more` stands before them.
    pub(crate) fn job_type(&self, name: &str, steps: &[&str], more: &str) -> String {
        let steps: Vec<String> = steps
            .iter()
            .map(|step| {
                format!("{{ name = \"{step}\", http = \"{}/{step}\", timeout = \"60s\" }}", self.base)
            })
            .collect();
        format!("[job_types.{name}]\n{more}\nsteps = [{}]\n\n", steps.join(", "))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write_down(book: &Mutex<Vec<Call>>, request: Request) -> Call {
    let (head, body) = request.into_parts();
    let raw = to_bytes(body, usize::MAX).await.expect("the whole call");
    let body: Value = serde_json::from_slice(&raw).expect("JSON");
    let text =
        |name: &str| body[name].as_str().unwrap_or_else(|| panic!("{name} is text: {body}")).to_owned();
    let (job, step) = (text("jobId"), text("step"));
    assert_eq!(head.uri.path(), format!("/{step}"), "each step has its own URL");
    let attempt = body["attempt"].as_u64().expect("an attempt");
    let mut book = book.lock().expect("not poisoned");
    let nth = 1 + book.iter().filter(|call| call.job == job && call.step == step).count();
    let call = Call { job, step, attempt, nth, headers: head.headers, raw, body };
    book.push(call.clone());
    call
}

/// What lets steps call this machine.
pub(crate) const ALLOW: &str = "[http]\nallow = [\"localhost\"]\n\n";

/// A step that is done, with this result.
pub(crate) fn done(result: &Value) -> Response {
    axum::Json(result).into_response()
}

/// An answer with this status.
pub(crate) fn status(code: u16) -> Response {
    let code = StatusCode::from_u16(code).expect("a status");
    (code, Body::from("no")).into_response()
}
