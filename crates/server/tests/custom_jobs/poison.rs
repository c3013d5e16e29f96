//! 8 poison jobs among 400 good ones (20 among 2,000 at full size): jobs that panic, abort the process, never
//! return, or get an answer without end. Each is dead at exactly its `max_attempts`, and takes no good one with it.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use outhaul_testkit::size::size;
use serde_json::{Value, json};

use crate::common::{Kind, Process, Stack, eventually};
use crate::endpoint::{ALLOW, Call, Endpoint};
use crate::own_binary::spawn;

const MAX_ATTEMPTS: u64 = 3;
const LEASE_RAN_OUT: &str = "the worker stopped responding (lease ran out)";

// Leases of those that abort must run out; those of the others last through a pause of a busy machine.
const SECTIONS: &str = "[worker]\nconcurrency = 4\nlease = \"10s\"\nheartbeat = \"1s\"\npoll_interval = \"200ms\"\n\
     shutdown_grace = \"500ms\"\n\n\
     [retry]\nmax_attempts = 3\nbackoff = { kind = \"fixed\", base = \"100ms\" }\n\n";

#[tokio::test(flavor = "multi_thread")]
async fn poison_jobs_die_alone() {
    let (good_ones, of_each) = size((400, 2), (2000, 5));
    let endpoint = Endpoint::start(|_: Call| async { endless() }).await;
    let types = endpoint.job_type("OVERSIZED", &["fetch"], "");
    let stack = Stack::new(Kind::PostgresLocal, &format!("{SECTIONS}{ALLOW}{types}")).await;
    let mut api = spawn(&stack, "api", "api,scheduler");
    api.ready().await;
    let client = api.client();

    let mut jobs: Vec<Value> = (0..good_ones).map(|_| json!({ "jobType": "GOOD", "payload": {} })).collect();
    for n in 0..of_each {
        for (place, poison) in [
            json!({ "jobType": "PANICS", "payload": {} }),
            json!({ "jobType": "ABORTS", "payload": {} }),
            json!({ "jobType": "NEVER_RETURNS", "payload": { "busy": n == 0 } }),
            json!({ "jobType": "OVERSIZED", "payload": {} }),
        ]
        .into_iter()
        .enumerate()
        {
            // Spread among the good ones.
            jobs.insert((n * 4 + place + 1) * good_ones / (of_each * 4), poison);
        }
    }
    let submitted = jobs.len();
    let ids: Vec<String> = futures::stream::iter(jobs)
        .map(|body| {
            let client = client.clone();
            async move { client.submit(&body).await }
        })
        .buffered(16)
        .collect()
        .await;
    assert_eq!(ids.len(), submitted);

    let mut workers: Vec<Process> = (0..3).map(|n| spawn(&stack, &format!("worker-{n}"), "worker")).collect();
    let mut deaths = 0;
    let workers_cell = tokio::sync::Mutex::new((&mut workers, &mut deaths));
    let settled = eventually("every job has ended", || async {
        let mut guard = workers_cell.lock().await;
        let (workers, deaths) = &mut *guard;
        for (n, worker) in workers.iter_mut().enumerate() {
            if worker.has_ended() {
                **deaths += 1;
                *worker = spawn(&stack, &format!("worker-{n}"), "worker");
            }
        }
        let open = "select count(*) from job where completed_at is null";
        stack.recorded(open).await == [[0]]
    });
    settled.await.unwrap_or_else(|error| panic!("{error}\n{}", api.log()));
    assert!(deaths >= of_each, "each that aborts ends a process of its own at last: {deaths}");

    let good = "select count(*) from job_chunk c join job j on j.id = c.job_id \
                where j.job_type = 'GOOD' and j.status = 'COMPLETED' and c.state = 'SUCCESS'";
    let letters = client.all("/dead-letters").await;
    assert_eq!(stack.recorded(good).await, [[good_ones as i64]], "all good ones are done: {letters:?}");
    let mut dead: BTreeMap<&str, Vec<(u64, &str)>> = BTreeMap::new();
    for letter in &letters {
        let job_type = letter["jobType"].as_str().expect("a type");
        let attempts = letter["attempts"].as_u64().expect("attempts");
        dead.entry(job_type).or_default().push((attempts, letter["cause"].as_str().expect("a cause")));
    }
    let causes = [
        ("ABORTS", LEASE_RAN_OUT),
        ("NEVER_RETURNS", "timed out after 1s"),
        ("OVERSIZED", "answered with more than 1048576 bytes"),
        ("PANICS", "the handler panicked: poison"),
    ];
    assert_eq!(dead.keys().copied().collect::<Vec<_>>(), causes.map(|(job_type, _)| job_type));
    for (job_type, cause) in causes {
        let dead = &dead[job_type];
        assert_eq!(dead.len(), of_each, "{job_type}: {dead:?}");
        assert!(dead.iter().all(|(attempts, _)| *attempts == MAX_ATTEMPTS), "{job_type}: {dead:?}");
        // One that aborts may have ended the last attempt of another poison job beside it.
        assert!(
            dead.iter().all(|(_, said)| *said == cause || *said == LEASE_RAN_OUT),
            "{job_type}: {dead:?}"
        );
        assert!(dead.iter().any(|(_, said)| *said == cause), "{job_type}: {dead:?}");
    }
}

/// Says nothing of its length, and goes on for as long as it is read.
fn endless() -> Response {
    let part = || Ok::<_, std::io::Error>(bytes::Bytes::from_static(&[b' '; 64 * 1024]));
    Body::from_stream(futures::stream::repeat_with(part)).into_response()
}
