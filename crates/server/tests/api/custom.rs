//! What clients and operators see of custom jobs: steps, results, dead letters, history, and the same
//! on the command line. The handlers are the plainest there can be, and tests turn the world they meet.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use outhaul::core::json::Json;
use outhaul::core::queue::QueueSpec;
use outhaul::core::retry::RetryPolicy;
use outhaul::{Cause, ChunkContext, Envelope, Failed, Handler, Outcome, Registry, StepSpec, queue_of};
use outhaul_server::config::{Config, Environment, Load};
use outhaul_server::roles::Roles;
use outhaul_server::serve;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Server, header, path_of};

/// What the custom jobs find outside of themselves; tests turn it.
#[derive(Default)]
pub(super) struct World {
    /// Whether `ship` fails.
    storm: AtomicBool,
    /// How often `charge` was done.
    charged: AtomicUsize,
    /// Given out one by one to jobs whose payload says that they wait.
    pub(super) released: tokio::sync::Notify,
}

/// `ORDER`: charges, then ships. `ONCE`: the same, and of equal ones only one at a time.
struct Order {
    name: &'static str,
    world: Arc<World>,
}

#[async_trait::async_trait]
impl Handler for Order {
    fn job_type(&self) -> &str {
        self.name
    }

    fn queues(&self) -> Vec<QueueSpec> {
        vec![QueueSpec { name: queue_of(self.name), max_concurrent: None }]
    }

    fn retry(&self, _: Option<&str>) -> RetryPolicy {
        RetryPolicy::default()
    }

    fn timeout(&self, _: Option<&str>) -> Option<Duration> {
        None
    }

    fn stall_timeout(&self, _: Option<&str>) -> Option<Duration> {
        None
    }

    fn steps(&self) -> Vec<StepSpec> {
        let charge = StepSpec { name: "charge".into(), needs: vec![] };
        vec![charge, StepSpec { name: "ship".into(), needs: vec!["charge".into()] }]
    }

    fn unique_key(&self, payload: &Json) -> Option<String> {
        (self.name == "ONCE").then(|| payload.value()["order"].to_string())
    }

    async fn run(&self, context: &ChunkContext) -> Result<Outcome, Failed> {
        let payload =
            Envelope::from_params(&context.chunk().params).map_err(|wrong| Failed::Fatal(wrong.into()))?;
        let payload = payload.payload.value();
        let recorded = context.recorded_steps().await?;
        if recorded.iter().all(|step| step.name != "charge") {
            self.world.charged.fetch_add(1, Ordering::SeqCst);
            context.record_step("charge", "{\"secret\":\"canary\"}").await?;
        }
        if payload["waits"] == true {
            self.world.released.notified().await;
        }
        if self.world.storm.load(Ordering::SeqCst) {
            let step = Some("ship".to_owned());
            return Err(Failed::Fatal(Cause { step, ..Cause::from("the Ship is away") }));
        }
        context.record_step("ship", "null").await?;
        let result = json!({ "shipped": payload["order"] }).to_string();
        Ok(Outcome::Done { file: None, reason: String::new(), result: Some(result) })
    }
}

/// The job types of every server here.
pub(super) fn registry(world: &Arc<World>) -> Registry {
    let order = |name| Order { name, world: world.clone() };
    Registry::new().with(order("ORDER")).with(order("ONCE"))
}

impl Server {
    /// Submits orders that fail; their paths, in the order in which they failed.
    async fn failed_orders(&self, count: u32) -> Vec<String> {
        self.world.storm.store(true, Ordering::SeqCst);
        let mut paths = Vec::new();
        for n in 0..count {
            let path = path_of(&self.submit(&order(n)).await);
            self.until(&path, |job| job["status"] == "FAILED").await;
            paths.push(path);
        }
        paths
    }
}

fn order(n: u32) -> Value {
    json!({"jobType": "ORDER", "payload": {"order": n, "card": "canary"}})
}

/// Names and statuses of a job's steps.
fn steps(job: &Value) -> BTreeMap<&str, &str> {
    let steps = job["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["completedAt"].is_null() == (step["status"] != "DONE")), "{job}");
    steps.iter().map(|step| (step["name"].as_str().unwrap(), step["status"].as_str().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_job_shows_its_steps_and_its_result_and_never_its_payload() {
    let server = Server::start().await;
    let mut later = order(1);
    later["runAt"] = json!("2999-01-01T00:00:00Z");
    let submitted = server.submit(&later).await;
    let path = path_of(&submitted);
    assert_eq!(submitted, server.json(&path).await, "one and the same answer");
    assert_eq!(steps(&submitted), [("charge", "PENDING"), ("ship", "PENDING")].into());
    assert_eq!((&submitted["jobType"], &submitted["dataset"]), (&json!("ORDER"), &Value::Null));
    let cancelled = server.ask(Method::POST, &format!("{path}/cancel"), &[]).await;
    let cancelled: Value = cancelled.json().await.unwrap();
    assert_eq!(steps(&cancelled), [("charge", "CANCELLED"), ("ship", "CANCELLED")].into());

    let waits = json!({"jobType": "ORDER", "payload": {"order": 2, "card": "canary", "waits": true}});
    let path = path_of(&server.submit(&waits).await);
    let halfway = server.until(&path, |job| job["steps"][0]["status"] == "DONE").await;
    assert_eq!(steps(&halfway), [("charge", "DONE"), ("ship", "RUNNING")].into());
    let tag = header(&server.get(&path).await, "etag").to_owned();
    server.world.released.notify_one();
    let done = server.until(&path, |job| job["status"] == "COMPLETED").await;
    assert_eq!(steps(&done), [("charge", "DONE"), ("ship", "DONE")].into());
    assert_eq!(done["result"], json!({"shipped": 2}));
    assert_eq!((&done["total"], &done["done"], &done["filesGenerated"]), (&json!(1), &json!(1), &json!(0)));
    let changed = server.ask(Method::GET, &path, &[("if-none-match", &tag)]).await;
    assert_eq!(changed.status(), 200, "steps are part of the tag");

    let listed = server.json("/jobs?jobType=ORDER").await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    for job in listed["items"].as_array().unwrap() {
        assert_eq!((&job["result"], &job["steps"]), (&Value::Null, &json!([])));
    }
    for part in ["", "/chunks", "/files", "/history"] {
        let answer = server.json(&format!("{path}{part}")).await;
        assert!(!answer.to_string().contains("canary"), "{answer}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_custom_job_stores_nothing() {
    let server = Server::start().await;
    let (status, plan) = server.post("/jobs?dryRun=true", &order(1)).await;
    assert_eq!(status, 200);
    assert_eq!((&plan["total"], &plan["reuse"], &plan["generate"]), (&json!(1), &json!(0), &json!(0)));
    assert!(plan["verdict"].as_str().unwrap().contains("ORDER") && !plan.to_string().contains("canary"));
    assert_eq!(server.json("/jobs").await["items"], json!([]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_means_the_same_for_custom_jobs() {
    let server = Server::start().await;
    let send = async |payload: &str, traceparent: &str| {
        let body = format!(r#"{{"jobType": "ORDER", "payload": {payload}, "idempotencyKey": "k"}}"#);
        let call = server.http.post(format!("{}/jobs", server.base)).body(body);
        let call = call.header("content-type", "application/json").header("traceparent", traceparent);
        let answer = call.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    server.world.storm.store(true, Ordering::SeqCst);
    let (status, first) = send(r#"{"order": 1, "more": {"a": 1, "b": [2.0]}}"#, "nonsense").await;
    assert_eq!(status, 202);
    let path = path_of(&first);
    server.until(&path, |job| job["status"] == "FAILED").await;
    // What was wrong has been put right; resubmitting goes on where it failed.
    server.world.storm.store(false, Ordering::SeqCst);
    let (status, again) = send(
        r#"{"more": {"b": [2], "a": 1}, "order": 1}"#,
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    )
    .await;
    assert_eq!((status, path_of(&again)), (202, path.clone()));
    server.until(&path, |job| job["status"] == "COMPLETED").await;
    assert_eq!(server.world.charged.load(Ordering::SeqCst), 1, "a recorded step is not done again");
    let (status, other) = send(r#"{"order": 2}"#, "").await;
    assert_eq!(status, 422, "{other}");
    assert!(!other.to_string().contains("order"), "{other}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_may_allow_one_unfinished_job_per_payload() {
    let server = Server::start().await;
    let once = |key: &str, later: bool| {
        let mut body = json!({"jobType": "ONCE", "payload": {"order": 1}, "idempotencyKey": key});
        if later {
            body["runAt"] = json!("2999-01-01T00:00:00Z");
        }
        body
    };
    server.world.storm.store(true, Ordering::SeqCst);
    let first = path_of(&server.submit(&once("a", false)).await);
    server.until(&first, |job| job["status"] == "FAILED").await;
    let second = path_of(&server.submit(&once("b", true)).await);
    assert_ne!(first, second, "the first has ended");
    assert_eq!(path_of(&server.submit(&once("c", false)).await), second, "the second has not");
    // The first may not start again beside the second, however it is asked for.
    let refused = server.ask(Method::POST, &format!("{first}/retry"), &[]).await;
    assert_eq!(refused.status(), 409);
    let detail = refused.json::<Value>().await.unwrap()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("an equal job was submitted since"), "{detail}");
    let as_it_is = server.submit(&once("a", false)).await;
    assert_eq!((path_of(&as_it_is), &as_it_is["status"]), (first, &json!("FAILED")));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_found_and_run_again_by_filter() {
    let server = Server::start().await;
    let failed = server.failed_orders(5).await;
    let job = server.json(&failed[0]).await;
    assert_eq!(job["errorMessage"], "Chunk failed after retries: step=ship: the Ship is away");
    assert_eq!(steps(&job), [("charge", "DONE"), ("ship", "FAILED")].into());

    let pages = server.pages("/dead-letters", 2).await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
    let letters = pages.concat();
    let found: Vec<String> = letters.iter().rev().map(path_of).collect();
    assert_eq!(found, failed, "newest first, each once");
    let members: Vec<&str> = letters[0].as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "jobId",
        "chunkKey",
        "jobType",
        "dataset",
        "cause",
        "attempts",
        "firstFailedAt",
        "lastFailedAt",
        "step",
    ];
    assert_eq!(members, expected);
    assert!(!json!(letters).to_string().contains("canary"));
    let shown = ["chunkKey", "jobType", "dataset", "cause", "attempts", "step"].map(|name| &letters[0][name]);
    let ship = ["main", "ORDER", "", "the Ship is away", "", "ship"].map(|text| json!(text));
    assert_eq!(shown, [&ship[0], &ship[1], &Value::Null, &ship[3], &json!(1), &ship[5]]);

    let third = letters[2]["lastFailedAt"].as_str().unwrap();
    let id = failed[0].trim_start_matches("/jobs/");
    for (filter, count) in [
        ("jobType=ORDER".to_owned(), 5),
        ("jobType=ONCE".to_owned(), 0),
        ("dataset=positions".to_owned(), 0),
        ("text=the%20ship".to_owned(), 5),
        ("text=%25".to_owned(), 0),
        (format!("text={}", id.to_lowercase()), 1),
        (format!("jobId={id}"), 1),
        (format!("before={third}"), 2),
        (format!("after={third}"), 3),
        (format!("after={third}&before={third}"), 0),
    ] {
        let page = server.json(&format!("/dead-letters?{filter}")).await;
        assert_eq!(page["items"].as_array().unwrap().len(), count, "{filter}");
    }

    server.world.storm.store(false, Ordering::SeqCst);
    let redrive = async |body: Value| server.post("/dead-letters/redrive", &body).await;
    let answer = |matched: u32, redriven: u32| (200, json!({"matched": matched, "redriven": redriven}));
    assert_eq!(redrive(json!({"filter": {}, "dryRun": true})).await, answer(5, 0));
    assert_eq!(redrive(json!({"filter": {"jobType": "ONCE"}})).await, answer(0, 0));
    assert_eq!(server.json("/dead-letters").await["items"].as_array().unwrap().len(), 5, "nothing changed");
    assert_eq!(redrive(json!({"filter": {"text": "ship"}, "limit": 2})).await, answer(5, 2));
    for path in &failed[..2] {
        server.until(path, |job| job["status"] == "COMPLETED").await;
    }
    assert_eq!(redrive(json!({"filter": {"before": third}})).await, answer(0, 0), "those were the oldest");
    assert_eq!(redrive(json!({"filter": {}})).await, answer(3, 3));
    for path in &failed {
        let job = server.until(path, |job| job["status"] == "COMPLETED").await;
        assert_eq!((&job["errorMessage"], &job["steps"][1]["status"]), (&Value::Null, &json!("DONE")));
    }
    assert_eq!(server.json("/dead-letters").await, json!({"items": [], "nextCursor": null}));
    assert_eq!(server.world.charged.load(Ordering::SeqCst), 5, "each once");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_tells_what_happened_page_by_page() {
    let server = Server::start().await;
    let path = server.failed_orders(1).await.remove(0);
    server.world.storm.store(false, Ordering::SeqCst);
    assert_eq!(server.ask(Method::POST, &format!("{path}/retry"), &[]).await.status(), 202);
    server.until(&path, |job| job["status"] == "COMPLETED").await;

    let history = server.pages(&format!("{path}/history"), 200).await.remove(0);
    let moves: Vec<(Option<&str>, &str)> =
        history.iter().map(|step| (step["from"].as_str(), step["to"].as_str().unwrap())).collect();
    assert_eq!(
        moves,
        [
            (None, "QUEUED"),
            (Some("QUEUED"), "RUNNING"),
            (Some("RUNNING"), "RETRY"),
            (Some("RETRY"), "DEAD"),
            (Some("DEAD"), "QUEUED"),
            (Some("QUEUED"), "RUNNING"),
            (Some("RUNNING"), "SUCCESS"),
        ]
    );
    let members: Vec<&str> = history[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(members, ["chunkKey", "from", "to", "at", "attempt", "worker", "step", "cause"]);
    assert_eq!((&history[3]["step"], &history[3]["cause"]), (&json!("ship"), &json!("the Ship is away")));
    assert!(history[2]["worker"].is_string() && history.iter().all(|step| step["chunkKey"] == "main"));

    for limit in [1, 3] {
        let pages = server.pages(&format!("{path}/history"), limit).await;
        assert!(pages.iter().all(|page| page.len() <= limit as usize));
        assert_eq!(pages.concat(), history, "the same in pages of {limit}");
    }
    let of = async |query: &str| server.json(&format!("{path}/history?{query}")).await["items"].clone();
    assert_eq!(of("chunkKey=main").await, json!(history));
    assert_eq!(of("chunkKey=other").await, json!([]));
    let cursor =
        server.json(&format!("{path}/history?limit=1")).await["nextCursor"].as_str().unwrap().to_owned();
    let other = path_of(&server.submit(&order(2)).await);
    for refused in [
        format!("{other}/history?cursor={cursor}"),
        format!("/dead-letters?cursor={cursor}"),
        format!("{path}/history?cursor={}{}", if cursor.starts_with('0') { 1 } else { 0 }, &cursor[1..]),
        format!("{path}/history?limit=0"),
        format!("{path}/history?chunkkey=main"),
    ] {
        assert_eq!(server.get(&refused).await.status(), 400, "{refused}");
    }
    assert_eq!(server.get("/jobs/J20250101_0000000000000/history").await.status(), 404);
    server.stop().await;
}

/// Runs the built binary against the server; its exit code, stdout and stderr.
pub(super) async fn outhaul(server: &Server, words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outhaul"));
    command.args(words).args(["--server", &server.base]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_submits_custom_jobs_and_deals_with_dead_letters() {
    let server = Server::start().await;
    server.world.storm.store(true, Ordering::SeqCst);
    let file = server.folder.path().join("payload.json");
    std::fs::write(&file, r#"{"order": 7, "card": "canary"}"#).unwrap();
    let submit = ["submit", "--job-type", "ORDER", "--payload-file", file.to_str().unwrap(), "--watch"];
    let (code, said, errors) = outhaul(&server, &submit).await;
    assert_eq!(code, 1, "it is FAILED: {said}{errors}");
    assert!(!format!("{said}{errors}").contains("canary"));
    let id = said.lines().find_map(|line| line.strip_prefix("job ")).unwrap().trim().to_owned();
    let table_has = |said: &str, words: &[&str]| {
        let found = said.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().starts_with(words));
        assert!(found, "{words:?} is in\n{said}");
    };
    table_has(&said, &["charge", "DONE"]);
    table_has(&said, &["ship", "FAILED"]);

    let (code, said, _) = outhaul(&server, &["dead-letters", "list", "--text", "the ship"]).await;
    assert_eq!(code, 0);
    table_has(&said, &[&id, "main", "ORDER", "ship", "1"]);
    assert_eq!(outhaul(&server, &["dead-letters", "list", "--dataset", "x"]).await.1, "no dead letters\n");
    let (code, said, _) = outhaul(&server, &["dead-letters", "show", &id]).await;
    assert_eq!(code, 0);
    table_has(&said, &["cause", "the", "Ship", "is", "away"]);
    assert!(said.contains("RETRY") && said.contains("DEAD"), "{said}");
    let (_, said, _) = outhaul(&server, &["dead-letters", "show", &id, "main", "--json"]).await;
    let shown: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&shown["deadLetter"]["step"], shown["history"].as_array().unwrap().len()),
        (&json!("ship"), 4)
    );
    for words in [&["show", &id, "other"][..], &["show", "J20250101_0000000000000"], &["show", "x"]] {
        let (code, _, errors) = outhaul(&server, &[&["dead-letters"], words].concat()).await;
        assert!(code == 1 && errors.starts_with("error: "), "{words:?}: {errors}");
    }

    server.world.storm.store(false, Ordering::SeqCst);
    let redrive =
        async |words: &[&str]| outhaul(&server, &[&["dead-letters", "redrive"], words].concat()).await;
    assert_eq!(redrive(&[]).await.0, 2, "what is meant must be said");
    assert_eq!(redrive(&["--all", "--dry-run"]).await.1, "1 matched, 0 redriven\n");
    assert_eq!(redrive(&["--job-type", "ONCE"]).await.1, "0 matched, 0 redriven\n");
    let (code, said, _) = redrive(&["--job-id", &id, "--json"]).await;
    assert_eq!((code, serde_json::from_str(&said).unwrap()), (0, json!({"matched": 1, "redriven": 1})));
    let (code, said, _) = outhaul(&server, &["status", &id, "--watch"]).await;
    assert_eq!(code, 0);
    table_has(&said, &["result", "{\"shipped\":7}"]);
    table_has(&said, &["ship", "DONE"]);
    let (code, said, _) = outhaul(&server, &["history", &id]).await;
    assert_eq!((code, said.lines().count()), (0, 8), "a head and seven transitions: {said}");
    let (_, said, _) = outhaul(&server, &["history", &id, "--chunk-key", "other", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), json!({"items": []}));

    let (code, said, _) =
        outhaul(&server, &["submit", "--job-type", "ORDER", "--payload", "1", "--dry-run"]).await;
    assert_eq!((code, said.as_str()), (0, "1 ORDER job would be stored; it makes no files\n"));
    let (code, _, errors) = outhaul(&server, &["submit", "--job-type", "NOPE"]).await;
    assert!(code == 1 && errors.contains("known: ONCE, ORDER, EXPORT"), "{errors}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_that_is_there_twice_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[job_types.ORDER]\nsteps = [{ name = \"charge\", http = \"https://example.com/\" }]\n";
    let load = Load { file: None, insecure: false, environment: Environment::default() };
    let config = Config::parse(text, folder.path(), &load).unwrap_or_else(|wrong| panic!("{wrong}"));
    let order = |name| Order { name, world: Arc::default() };
    let registry = Registry::new().with(order("ORDER")).with(order("EXPORT"));
    let Err(refused) = serve::start(config, Roles::ALL, registry).await else { panic!("it must not start") };
    let said = refused.to_string();
    assert!(said.contains("job type ORDER is written in Rust and has steps in [job_types]"), "{said}");
    assert!(said.contains("job type EXPORT is Outhaul's own"), "{said}");
}
