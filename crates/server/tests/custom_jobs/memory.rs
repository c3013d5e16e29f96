//! What payloads and results cost: a small multiple of their bytes, in the process that takes them, in the one that
//! runs them, and in the one that shows what they left. `[{"":0},…]` is the text that costs most as a tree of values:
//! 2 MiB of it were 140 MiB in an API and 400 MiB in a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use futures::StreamExt as _;
use outhaul_testkit::size::size;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::common::{Client, Kind, STEADY, Stack};
use crate::endpoint::ALLOW;

const MIB: u64 = 1024 * 1024;
/// What no process may pass.
const BOUND: u64 = 300 * MIB;
/// Jobs that run at once.
const AT_ONCE: usize = 8;

/// A list of small objects, of so many bytes.
fn objects(bytes: usize) -> String {
    let one = "{\"\":0},";
    let list = one.repeat((bytes - 2) / one.len());
    format!("[{}]", list.trim_end_matches(','))
}

async fn submit(client: &Client, payload: &str, n: usize) -> (u16, Value) {
    // Keys make the process spell out what is the same about requests.
    let body = format!(r#"{{"jobType":"LARGE","idempotencyKey":"k{n}","payload":{payload}}}"#);
    let call = client.http.post(format!("{}/jobs", client.base)).header(CONTENT_TYPE, "application/json");
    let answer = call.body(body).send().await.expect("the API answers");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

/// Answers 1 MiB, once so many calls were there at once.
async fn receiver() -> (String, Arc<AtomicUsize>) {
    let (calls, answer) = (Arc::new(AtomicUsize::new(0)), bytes::Bytes::from(objects(MIB as usize)));
    let seen = calls.clone();
    let serve = move |request: Request| {
        let (seen, answer) = (seen.clone(), answer.clone());
        async move {
            let body = to_bytes(request.into_body(), usize::MAX).await.expect("the whole call");
            assert!(body.len() as u64 > 2 * MIB - 1000, "the payload is in it");
            seen.fetch_add(1, Ordering::SeqCst);
            while seen.load(Ordering::SeqCst) < AT_ONCE {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            ([(CONTENT_TYPE, "application/json")], Body::from(answer)).into_response()
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a spare port");
    let base = format!("http://{}", listener.local_addr().expect("its number"));
    let app = Router::new().fallback(serve).layer(DefaultBodyLimit::disable());
    tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
    (base, calls)
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_and_results_cost_a_small_multiple_of_their_bytes_embedded() {
    payloads_and_results_cost_a_small_multiple_of_their_bytes(Kind::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_and_results_cost_a_small_multiple_of_their_bytes_on_postgres() {
    payloads_and_results_cost_a_small_multiple_of_their_bytes(Kind::PostgresLocal).await;
}

async fn payloads_and_results_cost_a_small_multiple_of_their_bytes(kind: Kind) {
    // Submissions and looks at once.
    let (submissions, look_count) = size((12, 16), (24, 32));
    let (base, calls) = receiver().await;
    // Nobody is turned away on a busy machine: all of them are there at once.
    let patient = "[limits]\nrequest_timeout = \"600s\"\n\n";
    let sections = STEADY.replace("concurrency = 4", &format!("concurrency = {AT_ONCE}"));
    let types = format!(
        "[job_types.LARGE]\nsteps = [{{ name = \"call\", http = \"{base}/call\", timeout = \"300s\" }}]\n\n"
    );
    let stack = Stack::new(kind, &format!("{sections}{patient}{ALLOW}{types}")).await;

    let mut api = stack.serve("api", "api,scheduler").await;
    let client = api.client();
    let payload = objects(2 * MIB as usize - 100);
    let ids: Vec<String> = futures::stream::iter(0..submissions)
        .map(|n| {
            let (client, payload) = (client.clone(), &payload);
            async move {
                let (status, job) = submit(&client, payload, n).await;
                assert_eq!(status, 202, "{job}");
                job["jobId"].as_str().expect("an id").to_owned()
            }
        })
        .buffered(submissions)
        .collect()
        .await;
    let submitting = api.peak_memory();
    println!("{kind:?}: {submissions} submissions at once: {} MiB", submitting / MIB);
    assert!(submitting < BOUND, "{} MiB", submitting / MIB);
    assert!(api.terminate(), "{}", api.log());

    let mut worker = stack.serve("worker", "api,worker,scheduler").await;
    let client = worker.client();
    for id in &ids {
        client.wait_for(id, "COMPLETED").await;
    }
    assert!(calls.load(Ordering::SeqCst) >= submissions);
    let running = worker.peak_memory();
    println!("{kind:?}: {AT_ONCE} jobs at once: {} MiB", running / MIB);
    assert!(running < BOUND, "{} MiB", running / MIB);

    // One process at a time has an embedded database.
    assert!(worker.terminate(), "{}", worker.log());

    let api = stack.serve("looking", "api").await;
    let client = api.client();
    let looks = futures::stream::iter(ids.iter().cycle().take(look_count)).map(|id| {
        let call = client.http.get(format!("{}/jobs/{id}", client.base));
        async move {
            let body = call.send().await.expect("the API answers").bytes().await.expect("all of it");
            assert!(body.len() as u64 > MIB - 1000, "with its result");
        }
    });
    looks.buffer_unordered(look_count).collect::<Vec<()>>().await;
    let looking = api.peak_memory();
    println!("{kind:?}: {look_count} looks at once: {} MiB", looking / MIB);
    assert!(looking < BOUND, "{} MiB", looking / MIB);
}
