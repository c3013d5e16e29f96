//! Whole attempts on a real store: which steps are called, what is recorded, how an attempt ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use outhaul::testing::{Stopper, context};
use outhaul::{ChunkContext, Failed, Handler, Outcome, StepSpec, Stop, Submission, SubmitOptions};
use outhaul_core::clock;
use outhaul_core::id::WorkerId;
use outhaul_core::secret::Secret;
use outhaul_core::store::{Store, StoreSettings};
use outhaul_core::worker::{Failure, NewWorker, Want};
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};

use super::super::sign::Signer;
use super::super::{Client, HttpJob};
use super::{Receiver, Reply, Seen, answer};
use crate::config::{Config, Environment, Load};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// One job on a store of its own, and a receiver for its steps.
struct Bench {
    job: HttpJob,
    store: Arc<dyn Store>,
    worker: WorkerId,
    receiver: Receiver,
    _folder: tempfile::TempDir,
}

/// `URL` in the text stands for the receiver's address.
fn handler(text: &str, receiver: &Receiver) -> HttpJob {
    let text = format!("[http]\nallow = [\"localhost\"]\n[job_types.MAIL]\n{text}");
    let load = Load {
        file: None,
        insecure: false,
        environment: Environment::from([("OLD", "hunter2"), ("NEW", "whsec_aGk=")]),
    };
    let config = Config::parse(&text.replace("URL", &receiver.url("")), std::path::Path::new("/"), &load);
    let config = config.unwrap();
    HttpJob::new("MAIL", &config.job_types["MAIL"], Client::new(config.http.allow).unwrap())
}

impl Bench {
    async fn new(text: &str, receiver: Receiver) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = StoreSettings {
            lease: Duration::from_secs(3600),
            fairness_step: Duration::ZERO,
            idempotency_window: Duration::from_secs(3600),
            parking: false,
        };
        let url = Secret::new(format!("sqlite:{}", folder.path().join("o.db").display()));
        let store = outhaul_store::open(&url, settings, Default::default()).await.unwrap().engine;
        let job = handler(text, &receiver);
        store.queues_sync(&job.queues()).await.unwrap();
        let worker = NewWorker { host: "test".into(), roles: "worker".into(), concurrency: 1 };
        let worker = store.worker_register(&worker).await.unwrap();
        let options = SubmitOptions { traceparent: Some(TRACE.to_owned()), ..SubmitOptions::default() };
        let payload = json!({ "to": "user@example.com" }).into();
        let submission = Submission { job_type: "MAIL".into(), payload, options, unique_key: None };
        store.job_submit(submission.into_new_job(clock::now(), 1)).await.unwrap();
        Self { job, store, worker, receiver, _folder: folder }
    }

    async fn claim(&self) -> (ChunkContext, Stopper) {
        let queue = self.store.queues_sync(&self.job.queues()).await.unwrap()["job:MAIL"];
        let claimed = self.store.chunks_claim(self.worker, &[Want { queue, limit: 1 }], 1).await.unwrap();
        context(claimed.into_iter().next().unwrap(), self.store.clone())
    }

    /// One attempt. What may be tried again waits for the next one at once; the rest is given back
    /// uncounted.
    async fn attempt(&self) -> Result<Option<String>, Failed> {
        let (context, _stopper) = self.claim().await;
        let ended = self.job.run(&context).await;
        let lease = context.chunk().lease;
        if let Err(Failed::Retryable(cause)) = &ended {
            let (cause, step) = (cause.text.clone(), cause.step.clone());
            let failure =
                Failure { lease, expired: false, retry_in: Some(Duration::ZERO), cause, step, detail: None };
            assert_eq!(self.store.chunks_fail(&[failure]).await.unwrap().len(), 1);
            self.store.chunks_stage(10).await.unwrap();
        } else {
            self.store.chunks_return(&[lease]).await.unwrap();
        }
        ended.map(|outcome| match outcome {
            Outcome::Done { result, file: None, .. } => result,
            other => panic!("{other:?}"),
        })
    }

    async fn recorded(&self) -> Vec<String> {
        let (context, _stopper) = self.claim().await;
        let steps = context.recorded_steps().await.unwrap();
        self.store.chunks_return(&[context.chunk().lease]).await.unwrap();
        steps.into_iter().map(|step| step.name).collect()
    }
}

/// Answers each step with its own name.
fn echo(seen: &Seen) -> Reply {
    super::json(&seen.json()["step"].to_string())
}

const THREE: &str = r#"steps = [
    { name = "render", http = "URL/render" },
    { name = "deliver", http = "URL/deliver?key=hunter2" },
    { name = "log", http = "URL/log" },
]"#;

#[tokio::test]
async fn steps_run_in_order_with_the_results_before_them() {
    let receiver = Receiver::start(|seen| match seen.json()["step"].as_str() {
        Some("render") => super::json("{\"b\": 1.50, \"a\": 12345678901234567890123}"),
        _ => echo(&seen),
    })
    .await;
    let bench = Bench::new(THREE, receiver).await;
    assert_eq!(bench.attempt().await, Ok(Some("\"log\"".into())));
    assert_eq!(bench.receiver.called(), ["render", "deliver?key=hunter2", "log"]);
    assert_eq!(bench.recorded().await, ["render", "deliver", "log"]);

    let seen = bench.receiver.seen();
    let body = seen[2].json();
    let job_id = body["jobId"].as_str().unwrap();
    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["jobId", "jobType", "step", "attempt", "payload", "results"]);
    assert_eq!(body["jobType"], "MAIL");
    assert_eq!(body["step"], "log");
    assert_eq!(body["attempt"], 1);
    assert_eq!(body["payload"], json!({ "to": "user@example.com" }));
    assert_eq!(body["results"]["deliver"], "deliver");
    assert!(
        seen[2].body.contains("\"render\":{\"b\": 1.50, \"a\": 12345678901234567890123}"),
        "{}",
        seen[2].body
    );
    assert_eq!(seen[0].json()["results"], json!({}));
    for (seen, step) in seen.iter().zip(["render", "deliver", "log"]) {
        assert_eq!(seen.headers["idempotency-key"], format!("{job_id}/{step}"));
        assert!(seen.headers["traceparent"].starts_with(&TRACE[..36]), "{seen:?}");
        assert!(!seen.headers.contains_key("webhook-signature"));
    }
    assert_ne!(seen[0].headers["traceparent"], seen[1].headers["traceparent"], "a span of its own");
}

#[tokio::test]
async fn another_attempt_begins_at_the_first_unfinished_step() {
    let down = Arc::new(AtomicBool::new(true));
    let is_down = down.clone();
    let receiver = Receiver::start(move |seen| {
        let fails = seen.json()["step"] == "deliver" && is_down.load(Ordering::SeqCst);
        if fails { answer("503 x", "text/plain", "hunter2") } else { echo(&seen) }
    })
    .await;
    let bench = Bench::new(THREE, receiver).await;
    let Err(Failed::Retryable(cause)) = bench.attempt().await else { panic!("it must fail") };
    assert_eq!(cause.step.as_deref(), Some("deliver"));
    assert_eq!(cause.text, "answered 503 Service Unavailable");
    assert_eq!(bench.recorded().await, ["render"]);
    down.store(false, Ordering::SeqCst);
    assert_eq!(bench.attempt().await, Ok(Some("\"log\"".into())));
    let called = bench.receiver.called();
    assert_eq!(called, ["render", "deliver?key=hunter2", "deliver?key=hunter2", "log"]);
    let seen = bench.receiver.seen();
    assert_eq!(seen[1].headers["idempotency-key"], seen[2].headers["idempotency-key"]);
    assert_eq!(seen[2].json()["results"], json!({ "render": "render" }));
    let attempts: Vec<Value> = seen.iter().map(|seen| seen.json()["attempt"].clone()).collect();
    assert_eq!(attempts, [1, 1, 2, 2]);
    // Everything is recorded: a further attempt calls nobody and has the same result.
    assert_eq!(bench.attempt().await, Ok(Some("\"log\"".into())));
    assert_eq!(bench.receiver.called(), called);
}

#[tokio::test]
async fn independent_steps_run_at_the_same_time() {
    let both = Arc::new(Barrier::new(2));
    let receiver = Receiver::start_async(move |seen| {
        let both = both.clone();
        Box::pin(async move {
            if seen.json()["step"] != "send" {
                // Answers only when the other one is there too.
                both.wait().await;
            }
            echo(&seen)
        })
    })
    .await;
    let text = r#"steps = [
        { name = "send", http = "URL/send", needs = ["text", "image"] },
        { name = "text", http = "URL/text" },
        { name = "image", http = "URL/image" },
    ]"#;
    let bench = Bench::new(text, receiver).await;
    let spec = |name: &str, needs: &[&str]| StepSpec {
        name: name.to_owned(),
        needs: needs.iter().map(|name| (*name).to_owned()).collect(),
    };
    let specs = [spec("send", &["text", "image"]), spec("text", &[]), spec("image", &[])];
    assert_eq!(bench.job.steps(), specs);
    assert_eq!(bench.attempt().await, Ok(Some("\"image\"".into())), "the last as listed");
    assert_eq!(bench.receiver.called()[2], "send");
    assert_eq!(bench.receiver.seen()[2].json()["results"], json!({ "text": "text", "image": "image" }));
}

#[tokio::test]
async fn no_more_than_sixteen_calls_of_a_job_are_in_flight() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen_most, all) = (most.clone(), Arc::new(Barrier::new(16)));
    let receiver = Receiver::start_async(move |seen| {
        let (now, most, all) = (now.clone(), seen_most.clone(), all.clone());
        Box::pin(async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Nobody is answered before sixteen are there.
            all.wait().await;
            now.fetch_sub(1, Ordering::SeqCst);
            echo(&seen)
        })
    })
    .await;
    let step = |i: usize| format!("{{ name = \"s{i}\", http = \"URL/s{i}\", needs = [] }}");
    let steps: Vec<String> = (0..64).map(step).collect();
    let bench = Bench::new(&format!("steps = [{}]", steps.join(",")), receiver).await;
    assert_eq!(bench.attempt().await, Ok(Some("\"s63\"".into())));
    assert_eq!(most.load(Ordering::SeqCst), 16);
}

#[tokio::test]
async fn a_text_that_is_too_long_as_json_fails_its_step() {
    // Six times as long once it is escaped.
    let receiver = Receiver::start(|_| answer("200 OK", "text/plain", &"\u{1}".repeat(200_000))).await;
    let bench = Bench::new(THREE, receiver).await;
    let Err(Failed::Retryable(cause)) = bench.attempt().await else { panic!("it must fail") };
    assert_eq!(cause.step.as_deref(), Some("render"));
    assert!(bench.recorded().await.is_empty());
}

#[tokio::test]
async fn the_longer_wait_counts_when_two_receivers_ask_for_one() {
    let both = Arc::new(Barrier::new(2));
    let receiver = Receiver::start_async(move |seen| {
        let both = both.clone();
        Box::pin(async move {
            both.wait().await;
            let wait = if seen.json()["step"] == "a" { 40 } else { 70 };
            let head = format!("HTTP/1.1 429 x\r\nretry-after: {wait}\r\nconnection: close\r\n");
            Reply::Raw(format!("{head}content-length: 0\r\n\r\n").into_bytes())
        })
    })
    .await;
    let bench = Bench::new(TWO_AND_ONE, receiver).await;
    let Err(Failed::Retryable(cause)) = bench.attempt().await else { panic!("it must fail") };
    assert_eq!(cause.retry_in, Some(Duration::from_secs(70)));
}

const TWO_AND_ONE: &str = r#"steps = [
    { name = "a", http = "URL/a", needs = [] },
    { name = "b", http = "URL/b", needs = [] },
    { name = "c", http = "URL/c", needs = ["b"] },
]"#;

#[tokio::test]
async fn what_is_in_flight_when_a_step_fails_is_still_recorded_and_nothing_new_starts() {
    let failed = Arc::new(Notify::new());
    let receiver = Receiver::start_async(move |seen| {
        let failed = failed.clone();
        Box::pin(async move {
            if seen.json()["step"] == "a" {
                let bytes = "HTTP/1.1 500 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                return Reply::Watched(bytes.into(), failed);
            }
            // By now the caller has read the failure.
            failed.notified().await;
            echo(&seen)
        })
    })
    .await;
    let bench = Bench::new(TWO_AND_ONE, receiver).await;
    let Err(Failed::Retryable(cause)) = bench.attempt().await else { panic!("it must fail") };
    assert_eq!(cause.step.as_deref(), Some("a"));
    assert_eq!(bench.recorded().await, ["b"]);
    assert!(!bench.receiver.called().contains(&"c".to_owned()), "nothing starts after a failure");
}

#[tokio::test]
async fn a_fatal_failure_wins_over_one_that_could_be_tried_again() {
    for (a, b, winner) in [("503 x", "400 x", "b"), ("404 x", "500 x", "a")] {
        let both = Arc::new(Barrier::new(2));
        let receiver = Receiver::start_async(move |seen| {
            let both = both.clone();
            Box::pin(async move {
                both.wait().await;
                answer(if seen.json()["step"] == "a" { a } else { b }, "text/plain", "")
            })
        })
        .await;
        let bench = Bench::new(TWO_AND_ONE, receiver).await;
        let Err(Failed::Fatal(cause)) = bench.attempt().await else { panic!("it must be fatal") };
        assert_eq!(cause.step.as_deref(), Some(winner));
    }
}

#[tokio::test]
async fn a_stop_is_heeded_at_once() {
    for reason in [Stop::Cancelled, Stop::Shutdown, Stop::LeaseLost, Stop::TimedOut] {
        let bench = Bench::new(THREE, Receiver::start(|_| Reply::Hang(Vec::new())).await).await;
        let (context, stopper) = bench.claim().await;
        let stop = async {
            bench.receiver.arrived().await;
            stopper.tell(reason);
        };
        let (ended, ()) = tokio::join!(bench.job.run(&context), stop);
        assert!(matches!(ended, Err(Failed::Stopped)), "{ended:?}");
    }
}

#[tokio::test]
async fn a_chunk_that_was_taken_away_records_nothing() {
    let bench = Bench::new(THREE, Receiver::start(|seen| echo(&seen)).await).await;
    let (context, _stopper) = bench.claim().await;
    bench.store.chunks_return(&[context.chunk().lease]).await.unwrap();
    let ended = bench.job.run(&context).await;
    assert!(matches!(ended, Err(Failed::Stopped)), "{ended:?}");
    assert_eq!(bench.receiver.called(), ["render"], "it stops at the first record that is refused");
    assert!(bench.recorded().await.is_empty());
}

#[tokio::test]
async fn calls_are_signed_with_every_secret() {
    let text = "secret_env = [\"OLD\", \"NEW\"]\nsteps = [{ name = \"send\", http = \"URL/send\" }]";
    let bench = Bench::new(text, Receiver::start(|seen| echo(&seen)).await).await;
    bench.attempt().await.unwrap();
    let seen = &bench.receiver.seen()[0];
    let id = &seen.headers["webhook-id"];
    assert_eq!(id, &seen.headers["idempotency-key"]);
    let timestamp: i64 = seen.headers["webhook-timestamp"].parse().unwrap();
    let secrets = [Secret::new("hunter2"), Secret::new("whsec_aGk=")];
    let expected = Signer::new(&secrets).headers(id, timestamp, &seen.body);
    assert_eq!(seen.headers["webhook-signature"], expected[2].1);
    assert_eq!(seen.headers["webhook-signature"].split(' ').count(), 2);
    assert!(!seen.body.contains("hunter2"));
}

#[tokio::test]
async fn what_the_handler_says_of_itself() {
    let text = r#"
        steps = [{ name = "send", http = "URL/send" }]
        max_concurrent = 3
        timeout = "2m"
        retry = { max_attempts = 4 }
    "#;
    let job = handler(text, &Receiver::start(|seen| echo(&seen)).await);
    assert_eq!(job.job_type(), "MAIL");
    let queue = &job.queues()[0];
    assert_eq!((queue.name.as_str(), queue.max_concurrent), ("job:MAIL", Some(3)));
    assert_eq!(job.retry(None).max_attempts, 4);
    assert_eq!(job.timeout(None), Some(Duration::from_secs(120)));
    assert_eq!(job.unique_key(&outhaul_core::json::Json::null()), None);
}
