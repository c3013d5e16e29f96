//! Exports as clients use them: the examples of the API's contract, reuse and regeneration, dry runs,
//! idempotency, cancel and retry. Each on SQLite with local files and on PostgreSQL with S3.

mod common;

use common::sql::{POSITIONS, warehouse};
use common::{Client, Kind, Process, STEADY, Stack, sha256};
use futures::future::join_all;
use serde_json::{Value, json};

on_both!(
    the_examples_of_the_contract,
    a_job_in_progress_and_its_end_by_cancel,
    a_failed_chunk_fails_its_job,
    an_old_file_is_reused_without_a_look_at_the_source,
    a_recent_file_is_generated_anew,
    a_file_that_vanished_is_generated_again,
    a_moved_default_overwrites_nothing,
    force_and_a_changed_query_generate_anew,
    one_key_is_one_job,
    fifty_at_once_are_one_job,
    a_failed_job_is_driven_again_by_its_key,
    cancel_and_retry_answer_by_the_jobs_state,
);

const DAYS: [&str; 2] = ["2025-02-15", "2025-03-15"];

/// An installation with one process that does everything.
async fn start(kind: Kind) -> (Stack, Process, Client) {
    let stack = Stack::new(kind, &format!("{STEADY}{}", warehouse(kind, POSITIONS))).await;
    stack.make_positions(&["ABC", "XYZ"], &DAYS).await;
    let server = stack.serve("server", "api,worker,scheduler").await;
    let client = server.client();
    (stack, server, client)
}

fn one(key: &str, date: &str) -> Value {
    json!({ "items": [{ "key": key, "effectiveDates": [date] }] })
}

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

fn counts(job: &Value) -> [i64; 8] {
    ["total", "pending", "running", "done", "failed", "cancelled", "filesGenerated", "filesReused"]
        .map(|name| job[name].as_i64().unwrap_or_else(|| panic!("{name} of {job}")))
}

async fn post(client: &Client, path: &str) -> (u16, Value) {
    client.post(path, &json!({})).await.expect("the API answers")
}

async fn the_examples_of_the_contract(kind: Kind) {
    let (stack, _server, client) = start(kind).await;
    client.complete(&one("XYZ", "20250215")).await;

    let body = json!({ "dataset": "positions", "output": { "format": "CSV" }, "items": [
        { "key": "ABC", "effectiveDates": ["20250215", "20250315"] },
        { "key": "XYZ", "effectiveDates": ["20250215", "20250315", "20250215"] } ] });
    let answer =
        client.http.post(format!("{}/jobs", client.base)).json(&body).send().await.expect("the API answers");
    assert_eq!(answer.status(), 202);
    let headers = answer.headers().clone();
    let job: Value = answer.json().await.expect("a job");
    let id = job["jobId"].as_str().expect("an id");
    assert_eq!(job["status"], "SUBMITTED");
    assert_eq!(headers["location"], format!("/jobs/{id}"));
    assert!(headers.contains_key("retry-after"));
    let (day, random) = id.strip_prefix('J').and_then(|rest| rest.split_once('_')).expect("J<day>_<random>");
    assert!(day.len() == 8 && random.len() == 13, "{id}");

    let job = client.wait_for(id, "COMPLETED").await;
    assert_eq!(counts(&job), [4, 0, 0, 4, 0, 0, 3, 1], "{job}");
    assert_eq!(job["errorMessage"], Value::Null);
    assert_eq!(
        (&job["jobType"], &job["dataset"], &job["owner"]),
        (&json!("EXPORT"), &json!("positions"), &json!("anonymous"))
    );
    assert_eq!((&job["rows"], &job["progress"], &job["etaSeconds"]), (&json!(12), &json!(1.0), &Value::Null));
    let base = job["s3BasePath"].as_str().expect("a base path");
    let scheme = if kind == Kind::Embedded { "file:///" } else { "s3://" };
    assert!(base.starts_with(scheme) && base.ends_with("/exports/"), "{base}");
    let names: Vec<&String> = job.as_object().expect("an object").keys().collect();
    for secret in ["payload", "claims", "attempt", "worker", "lease", "fence", "request", "query"] {
        assert!(
            !names.iter().any(|name| name.to_lowercase().contains(secret)),
            "{secret} is not for clients: {job}"
        );
    }

    let expected = [
        "2025/02/15/ABC_20250215.csv",
        "2025/02/15/XYZ_20250215.csv",
        "2025/03/15/ABC_20250315.csv",
        "2025/03/15/XYZ_20250315.csv",
    ];
    let expected = expected.map(|rest| stack.path(rest));
    assert_eq!(stack.published(), expected);
    let files = client.files(id).await;
    let mut paths: Vec<_> = files.iter().map(|file| file["path"].as_str().expect("a path")).collect();
    paths.sort_unstable();
    assert_eq!(paths, expected);
    for file in &files {
        let bytes = client.download(file["url"].as_str().expect("a URL")).await;
        let key = file["key"].as_str().expect("a key");
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            format!("key,n,note\n{key},1,first\n{key},2,first\n{key},3,first\n")
        );
        assert_eq!((&file["sha256"], &file["rows"]), (&json!(sha256(&bytes)), &json!(3)));
        assert_eq!((&file["bytes"], &file["format"]), (&json!(bytes.len()), &json!("CSV")));
        assert_eq!(
            (&file["current"], &file["reused"]),
            (&json!(true), &json!(key == "XYZ" && file["effectiveDate"] == "20250215"))
        );
    }
    let chunks = client.all(&format!("/jobs/{id}/chunks")).await;
    assert_eq!(chunks.len(), 4);
    assert!(
        chunks.iter().all(|chunk| chunk["status"] == "DONE" && chunk["reason"].is_string()),
        "{chunks:?}"
    );
    assert!(chunks.iter().any(|chunk| chunk["chunkKey"] == "key=ABC:date=20250215"));
    assert_eq!(client.all("/jobs").await[0]["jobId"], json!(id), "newest first");
    assert_eq!(stack.staged(), [""; 0]);
}

async fn a_job_in_progress_and_its_end_by_cancel(kind: Kind) {
    // The query for the key SLOW has no end, and there is one slot: the third chunk stays RUNNING.
    let query = match kind {
        Kind::Embedded => {
            "with recursive c(n) as (select 1 union all select n + 1 from c where :key = 'SLOW' or n < 3) \
             select count(*) as n from c where :effective_date is not null"
        }
        _ => {
            "select pg_sleep(case when :key = 'SLOW' then 3600 else 0 end) where :effective_date is not null"
        }
    };
    let steady = STEADY.replace("concurrency = 4", "concurrency = 1");
    let stack = Stack::new(kind, &format!("{steady}{}", warehouse(kind, query))).await;
    stack.source("create table anything (n int)").await;
    let server = stack.serve("server", "api,worker,scheduler").await;
    let client = server.client();
    let id = client
        .submit(&json!({ "items": [
            { "key": "ABC", "effectiveDates": ["20250215", "20250315"] },
            { "key": "SLOW", "effectiveDates": ["20250215"] },
            { "key": "XYZ", "effectiveDates": ["20250215"] } ] }))
        .await;
    let there = common::eventually("two are done and one runs", || async {
        counts(&client.job(&id).await) == [4, 1, 1, 2, 0, 0, 2, 0]
    });
    there.await.unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
    let job = client.job(&id).await;
    assert_eq!((&job["status"], &job["errorMessage"]), (&json!("IN_PROGRESS"), &Value::Null));
    assert_eq!((&job["completedAt"], &job["progress"]), (&Value::Null, &json!(0.5)));
    assert!(job["startedAt"].is_string());

    assert_eq!(post(&client, &format!("/jobs/{id}/cancel")).await.0, 202);
    let job = client.wait_for(&id, "CANCELLED").await;
    assert_eq!(counts(&job), [4, 0, 0, 2, 0, 2, 2, 0], "{job}");
    assert_eq!(stack.published().len(), 2);
    assert_eq!(stack.staged(), [""; 0]);
    // The slot is free again, also on the source.
    client.complete(&one("DEF", "20250215")).await;
}

async fn a_failed_chunk_fails_its_job(kind: Kind) {
    let (stack, _server, client) = start(kind).await;
    stack
        .source(
            "insert into positions values ('ABC', '2025-03-15', -9223372036854775808, 'no absolute value')",
        )
        .await;
    let body = json!({ "onFailure": "continue", "items": [
        { "key": "ABC", "effectiveDates": ["20250215", "20250315"] },
        { "key": "XYZ", "effectiveDates": ["20250215", "20250315"] } ] });
    let id = client.submit(&body).await;
    let job = client.wait_for(&id, "FAILED").await;
    assert_eq!(counts(&job), [4, 0, 0, 3, 1, 0, 3, 0], "{job}");
    let error = job["errorMessage"].as_str().expect("an error");
    assert!(error.starts_with("Chunk failed after retries: key=ABC date=2025-03-15: "), "{error}");
    assert!(!error.contains("select") && !error.contains("panicked"), "{error}");
    assert_eq!(stack.published().len(), 3, "nothing of the failed one");
}

async fn an_old_file_is_reused_without_a_look_at_the_source(kind: Kind) {
    let (stack, _server, client) = start(kind).await;
    let first = client.complete(&one("ABC", "20250215")).await;
    stack.source("alter table positions rename to hidden").await;

    let again = client.complete(&one("ABC", "20250215")).await;
    assert_eq!(counts(&again), [1, 0, 0, 1, 0, 0, 0, 1], "{again}");
    let (old, new) = (
        client.files(first["jobId"].as_str().expect("id")).await,
        client.files(again["jobId"].as_str().expect("id")).await,
    );
    assert_eq!((&new[0]["reused"], &new[0]["sha256"]), (&json!(true), &old[0]["sha256"]));
    assert_eq!((&old[0]["current"], &new[0]["current"]), (&json!(true), &json!(true)));
    assert!(new[0]["reason"].as_str().expect("a reason").contains("older than the 7-day window"), "{new:?}");

    // What is foreseen is what the recorded files allow, and nothing is stored.
    let jobs = client.all("/jobs").await.len();
    let body = json!({ "items": [{ "key": "ABC", "effectiveDates": ["20250215", "20250315"] }] });
    let (status, plan) = client.post("/jobs?dryRun=true", &body).await.expect("the API answers");
    assert_eq!(status, 200);
    assert_eq!(
        (&plan["total"], &plan["reuse"], &plan["generate"]),
        (&json!(2), &json!(1), &json!(1)),
        "{plan}"
    );
    assert!(plan["verdict"].as_str().is_some_and(|verdict| !verdict.is_empty()), "{plan}");
    let forced = with(body, "output", json!({ "force": true }));
    assert_eq!(client.post("/jobs?dryRun=true", &forced).await.expect("the API answers").1["generate"], 2);
    assert_eq!(client.all("/jobs").await.len(), jobs);
}

async fn a_recent_file_is_generated_anew(kind: Kind) {
    let (stack, _server, client) = start(kind).await;
    let today = outhaul_core::clock::now().date_naive();
    let edge = today - chrono::Days::new(6);
    let (day, date) = (edge.to_string(), edge.format("%Y%m%d").to_string());
    stack.source(&format!("insert into positions values ('ABC', '{day}', 1, 'before')")).await;
    let first = client.complete(&one("ABC", &date)).await;
    stack.source("update positions set note = 'after the change'").await;
    let second = client.complete(&one("ABC", &date)).await;
    assert_eq!(counts(&second), [1, 0, 0, 1, 0, 0, 1, 0], "{second}");

    let (first, second) = (first["jobId"].as_str().expect("an id"), second["jobId"].as_str().expect("an id"));
    let (old, new) = (client.files(first).await, client.files(second).await);
    assert_eq!(old[0]["path"], new[0]["path"], "one file, overwritten");
    assert_eq!(stack.published(), [new[0]["path"].as_str().expect("a path")]);
    assert_eq!((&old[0]["current"], &new[0]["current"]), (&json!(false), &json!(true)));
    let bytes = client.download(new[0]["url"].as_str().expect("a URL")).await;
    assert_eq!(String::from_utf8_lossy(&bytes), "key,n,note\nABC,1,after the change\n");
    assert!(new[0]["reason"].as_str().expect("a reason").contains("inside the 7-day window"));
    let (status, gone) = client.get(old[0]["url"].as_str().expect("a URL")).await.expect("the API answers");
    assert_eq!(status, 410);
    assert!(gone["detail"].as_str().expect("a detail").contains(second), "names the newer job: {gone}");
}

async fn a_file_that_vanished_is_generated_again(kind: Kind) {
    let (stack, _server, client) = start(kind).await;
    client.complete(&one("ABC", "20250215")).await;
    stack.remove(&stack.path("2025/02/15/ABC_20250215.csv"));
    assert_eq!(stack.published(), [""; 0]);

    let again = client.complete(&one("ABC", "20250215")).await;
    assert_eq!(counts(&again), [1, 0, 0, 1, 0, 0, 1, 0], "{again}");
    let files = client.files(again["jobId"].as_str().expect("an id")).await;
    assert_eq!(
        sha256(&client.download(files[0]["url"].as_str().expect("a URL")).await),
        files[0]["sha256"].as_str().expect("a sum")
    );
    assert!(files[0]["reason"].as_str().expect("a reason").contains("gone"), "{files:?}");
}

/// The datasets `positions` and `totals` on one source; `totals` has these further settings.
fn two_datasets(kind: Kind, default: &str, totals: &str) -> String {
    let sections = warehouse(kind, POSITIONS).replace("default = true\n", "");
    let sections = format!(
        "{STEADY}{sections}[datasets.totals]\n{totals}source = \"warehouse\"\n\
         query = \"select count(*) as n from positions where key = :key and day = :effective_date\"\n"
    );
    sections.replace(&format!("[datasets.{default}]\n"), &format!("[datasets.{default}]\ndefault = true\n"))
}

async fn a_moved_default_overwrites_nothing(kind: Kind) {
    let stack = Stack::new(kind, &two_datasets(kind, "positions", "")).await;
    stack.make_positions(&["ABC"], &DAYS).await;
    let mut server = stack.serve("server", "api,worker,scheduler").await;
    let first = server.client().complete(&one("ABC", "20250215")).await;
    assert!(server.terminate());

    stack.configure(&two_datasets(kind, "totals", ""));
    let mut refused = stack.spawn("refused", "api,worker,scheduler");
    let ended = common::eventually("it has ended", || {
        let ended = refused.has_ended();
        async move { ended }
    });
    ended.await.unwrap_or_else(|error| panic!("{error}"));
    let why = "dataset `totals` would publish below";
    assert!(refused.log().contains(why), "{}", refused.log());
    assert!(refused.log().contains("set datasets.totals.base_path"), "{}", refused.log());
    let check = std::process::Command::new(env!("CARGO_BIN_EXE_outhaul"))
        .args(["check", "--config"])
        .arg(stack.config())
        .current_dir(stack.dir.path())
        .output()
        .expect("run check");
    let said = String::from_utf8_lossy(&check.stdout);
    assert!(!check.status.success() && said.contains(why), "{said}");

    let own = stack.path("totals/");
    stack.configure(&two_datasets(kind, "totals", &format!("base_path = \"{own}\"\n")));
    let server = stack.serve("again", "api,worker,scheduler").await;
    let client = server.client();
    let force = with(one("ABC", "20250215"), "output", json!({ "force": true }));
    let totals = client.complete(&force).await;
    assert!(totals["s3BasePath"].as_str().is_some_and(|path| path.ends_with(&own)), "{totals}");
    let file = client.files(first["jobId"].as_str().expect("an id")).await.remove(0);
    assert_eq!(file["current"], true);
    let bytes = client.download(file["url"].as_str().expect("a URL")).await;
    assert_eq!(json!(sha256(&bytes)), file["sha256"], "the first dataset's file is as it was");

    // The first dataset is no longer the default: its files are generated where it publishes now.
    let moved = client.complete(&with(one("ABC", "20250215"), "dataset", json!("positions"))).await;
    let files = client.files(moved["jobId"].as_str().expect("an id")).await;
    let base = moved["s3BasePath"].as_str().expect("a base path");
    let path = files[0]["path"].as_str().expect("a path");
    assert!(
        base.ends_with(&stack.path("positions/")) && path.starts_with(&stack.path("positions/")),
        "{files:?}"
    );
    assert_eq!(files[0]["reason"], "the dataset's base path changed");
    assert_eq!(stack.published().len(), 3);
}

async fn force_and_a_changed_query_generate_anew(kind: Kind) {
    let (stack, mut server, client) = start(kind).await;
    client.complete(&one("ABC", "20250215")).await;
    let forced = client.complete(&with(one("ABC", "20250215"), "output", json!({ "force": true }))).await;
    assert_eq!(counts(&forced), [1, 0, 0, 1, 0, 0, 1, 0], "{forced}");

    assert!(server.terminate(), "a clean end: {}", server.log());
    let query = POSITIONS.replace("note", "upper(note) as note");
    stack.configure(&format!("{STEADY}{}", warehouse(kind, &query)));
    let server = stack.serve("server", "api,worker,scheduler").await;
    let client = server.client();
    let foreseen =
        client.post("/jobs?dryRun=true", &one("ABC", "20250215")).await.expect("the API answers").1;
    assert_eq!(foreseen["generate"], 1, "{foreseen}");
    let job = client.complete(&one("ABC", "20250215")).await;
    assert_eq!(counts(&job), [1, 0, 0, 1, 0, 0, 1, 0], "{job}");
    let files = client.files(job["jobId"].as_str().expect("an id")).await;
    let bytes = client.download(files[0]["url"].as_str().expect("a URL")).await;
    assert_eq!(String::from_utf8_lossy(&bytes), "key,n,note\nABC,1,FIRST\nABC,2,FIRST\nABC,3,FIRST\n");
    assert!(files[0]["reason"].as_str().expect("a reason").contains("definition changed"), "{files:?}");
    assert_eq!(client.complete(&one("ABC", "20250215")).await["filesReused"], 1, "under the new definition");
}

async fn one_key_is_one_job(kind: Kind) {
    let (_stack, _server, client) = start(kind).await;
    let body = json!({ "idempotencyKey": "req 1", "items": [{ "key": "ABC", "effectiveDates": ["20250215", "20250315"] }] });
    let id = client.submit(&body).await;
    client.wait_for(&id, "COMPLETED").await;
    // The same request in other words: order, white space, defaults, the header instead of the field.
    let same = json!({ "priority": 5, "onFailure": "stop", "labels": {}, "dataset": "positions", "output": { "format": "CSV" },
        "items": [{ "effectiveDates": ["20250315"], "key": " ABC " }, { "effectiveDates": ["20250215"], "key": "ABC" }] });
    let send = |body: Value| {
        client
            .http
            .post(format!("{}/jobs", client.base))
            .header("Idempotency-Key", "req 1")
            .json(&body)
            .send()
    };
    let answer = send(same).await.expect("the API answers");
    assert_eq!((answer.status().as_u16(), answer.headers().contains_key("location")), (202, true));
    let job: Value = answer.json().await.expect("a job");
    assert_eq!((&job["jobId"], &job["status"]), (&json!(id), &json!("COMPLETED")));

    for different in [one("ABC", "20250215"), with(one("ABC", "20250215"), "priority", json!(6))] {
        let answer = send(different).await.expect("the API answers");
        assert_eq!(answer.status(), 422);
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
    }
    assert_eq!(client.all("/jobs").await.len(), 1);
    assert_ne!(client.submit(&with(body, "idempotencyKey", json!("req 2"))).await, id);
}

async fn fifty_at_once_are_one_job(kind: Kind) {
    let (_stack, _server, client) = start(kind).await;
    let body = json!({ "idempotencyKey": "all at once", "items": [{ "key": "ABC", "effectiveDates": ["20250215"] }] });
    let mut ids = join_all((0..50).map(|_| client.submit(&body))).await;
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(client.all("/jobs").await.len(), 1);
    client.wait_for(&ids[0], "COMPLETED").await;
}

async fn a_failed_job_is_driven_again_by_its_key(kind: Kind) {
    let (stack, _server, client) = start(kind).await;
    stack.source("alter table positions rename to hidden").await;
    let body = json!({ "idempotencyKey": "mended later", "items": [{ "key": "ABC", "effectiveDates": ["20250215", "20250315"] }] });
    let id = client.submit(&body).await;
    client.wait_for(&id, "FAILED").await;
    stack.source("alter table hidden rename to positions").await;

    let ids = join_all((0..50).map(|_| client.submit(&body))).await;
    assert!(ids.iter().all(|again| *again == id), "{ids:?}");
    let job = client.wait_for(&id, "COMPLETED").await;
    assert_eq!(counts(&job), [2, 0, 0, 2, 0, 0, 2, 0], "{job}");
    assert_eq!(job["errorMessage"], Value::Null);
    // A chunk that died, or was held because the other did, is queued once more. Its fence says less: it also
    // rises when a worker that was stopped for a while gives the chunk back.
    let history = client.all(&format!("/jobs/{id}/history")).await;
    let redriven = |row: &&Value| {
        let died = row["from"] == "DEAD" || row["from"] == "CREATED";
        died && row["to"] == "QUEUED"
    };
    let mut chunks: Vec<&str> =
        history.iter().filter(redriven).map(|row| row["chunkKey"].as_str().expect("a key")).collect();
    chunks.sort_unstable();
    assert_eq!(
        chunks,
        ["key=ABC:date=20250215", "key=ABC:date=20250315"],
        "each is driven again once: {history:?}"
    );
}

async fn cancel_and_retry_answer_by_the_jobs_state(kind: Kind) {
    let (stack, _server, client) = start(kind).await;
    let (cancel, retry) = (|id: &str| format!("/jobs/{id}/cancel"), |id: &str| format!("/jobs/{id}/retry"));
    let done = client.complete(&one("ABC", "20250215")).await["jobId"].as_str().expect("an id").to_owned();
    assert_eq!(post(&client, &cancel(&done)).await.0, 409);
    assert_eq!(post(&client, &retry(&done)).await.0, 409);
    for unknown in ["J20250101_0000000000000", "nonsense", "..", "J20250101_0000000000000%00"] {
        assert_eq!(post(&client, &cancel(unknown)).await.0, 404, "{unknown}");
        assert_eq!(post(&client, &retry(unknown)).await.0, 404, "{unknown}");
    }
    // It waits for its time, so that nothing of it starts.
    let later = client.submit(&with(one("ABC", "20250315"), "runAt", json!("2999-01-01T00:00:00Z"))).await;
    assert_eq!(client.job(&later).await["status"], "SUBMITTED");
    for _ in 0..2 {
        let (status, job) = post(&client, &cancel(&later)).await;
        assert_eq!((status, &job["status"]), (202, &json!("CANCELLED")), "{job}");
    }
    assert_eq!(counts(&client.wait_for(&later, "CANCELLED").await), [1, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(post(&client, &retry(&later)).await.0, 409);

    stack.source("alter table positions rename to hidden").await;
    let failed = client.submit(&one("XYZ", "20250315")).await;
    client.wait_for(&failed, "FAILED").await;
    assert_eq!(post(&client, &cancel(&failed)).await.0, 409);
    stack.source("alter table hidden rename to positions").await;
    assert_eq!(post(&client, &retry(&failed)).await.0, 202);
    client.wait_for(&failed, "COMPLETED").await;
    assert_eq!((stack.published().len(), stack.staged()), (2, vec![]));
}

/// The schema `outhaul` is not there, so a statement that names it, or none, finds nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_installation_lives_in_the_schema_that_it_is_told() {
    let kind = Kind::PostgresLocal;
    let mut stack = Stack::new(kind, &format!("{STEADY}{}", warehouse(kind, POSITIONS))).await;
    stack.environment.push(("OUTHAUL__DATABASE__SCHEMA", "elsewhere".to_owned()));
    stack.make_positions(&["ABC"], &DAYS).await;
    stack.source("drop schema outhaul cascade").await;
    let server = stack.serve("server", "api,worker,scheduler").await;
    let client = server.client();
    let done = client.complete(&one("ABC", "20250215")).await;
    assert_eq!(client.files(done["jobId"].as_str().expect("a jobId")).await.len(), 1);
    let again = client.complete(&one("ABC", "20250215")).await;
    assert_eq!(again["filesReused"], 1, "{again}");
    assert_eq!(stack.recorded("select count(*) from elsewhere.job").await, [[2]]);
    assert_eq!(stack.recorded("select count(*) from pg_namespace where nspname = 'outhaul'").await, [[0]]);
}
