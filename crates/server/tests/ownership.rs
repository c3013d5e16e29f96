//! Who owns a chunk: a stopped worker that comes back changes nothing, a cancelled job publishes
//! nothing more, a terminated worker gives its chunks back, and budgets hold across processes.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use common::gate::Gate;
use common::sql::warehouse;
use common::{BRISK, Kind, Process, STEADY, Stack, dates, eventually, sha256};
use futures::TryStreamExt;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

/// Rows that come at once, then the gate (at which nobody loses patience), then the last rows.
const SMALL: &str = "with free as materialized (select set_config('lock_timeout', '0', true)), \
     gate as materialized (select pg_advisory_xact_lock_shared(42) from free) \
     select n, :key as key, :effective_date as day from gate, generate_series(1, 5) n";
const LARGE: &str = "with free as materialized (select set_config('lock_timeout', '0', true)), \
     gate as materialized (select pg_advisory_xact_lock_shared(42) from free) \
     select n, repeat('x', 20000) || :key || :effective_date as x from generate_series(1, 1000) n \
     union all select n, 'last' from gate, generate_series(1, 5) n";

fn one(key: &str) -> Value {
    json!({ "items": [{ "key": key, "effectiveDates": ["20250215"] }] })
}

/// The source's own answer.
async fn expected(stack: &Stack, query: &str, key: &str) -> String {
    let mut source = PgConnection::connect(stack.postgres_url()).await.expect("the source answers");
    let query = query.replace(":key", &format!("'{key}'")).replace(":effective_date", "date '2025-02-15'");
    let copy = format!("copy ({query}) to stdout (format csv, header)");
    let rows: Vec<_> =
        source.copy_out_raw(&copy).await.expect("copy").try_collect().await.expect("all of it");
    sha256(&rows.concat())
}

/// The worker that was stopped past its lease, and then goes on.
async fn a_stopped_worker_changes_nothing(kind: Kind, query: &str) {
    let brisk = BRISK.replace("max_attempts = 3", "max_attempts = 20");
    let stack = Stack::new(kind, &format!("{brisk}{}", warehouse(kind, query))).await;
    let api = stack.serve("api", "api").await;
    let client = api.client();
    let mut gate = Gate::shut(&stack).await;
    let stale = stack.spawn("stale", "worker");
    let id = client.submit(&one("ABC")).await;
    gate.reached_by(1).await;
    if query == LARGE {
        let begun = eventually("the first part is staged", || async { !stack.staged().is_empty() });
        begun.await.unwrap_or_else(|error| panic!("{error}\n{}", stale.log()));
    }
    stale.signal("STOP");

    let owner = stack.spawn("owner", "worker");
    let taken = eventually("another worker owns the chunk", || async {
        let chunks = stack.chunks(&id, "RUNNING").await;
        chunks[0].1 >= 2 && chunks[0].2
    });
    taken.await.unwrap_or_else(|error| panic!("{error}\n{}", owner.log()));
    gate.open().await;
    let job = client.wait_for(&id, "COMPLETED").await;
    assert_eq!(job["filesGenerated"], 1, "{job}");
    let chunks = stack.chunks(&id, "SUCCESS").await;
    let generations = stack.recorded("select generation, rows from file_cache").await;
    let file = client.files(&id).await.remove(0);
    let sum = expected(&stack, query, "ABC").await;
    assert_eq!(file["sha256"], json!(sum));

    stale.signal("CONT");
    stale.says("lease lost").await;
    // It takes part again: this one is its own, for the other worker is gone.
    drop(owner);
    let next = client.submit(&one("XYZ")).await;
    client.wait_for(&next, "COMPLETED").await;

    assert_eq!(client.job(&id).await, job, "nothing about the job has changed");
    assert_eq!(stack.chunks(&id, "SUCCESS").await, chunks);
    assert_eq!(
        stack.recorded("select generation, rows from file_cache order by id limit 1").await,
        generations
    );
    assert_eq!(client.files(&id).await, std::slice::from_ref(&file));
    let bytes = client.download(file["url"].as_str().expect("a URL")).await;
    assert_eq!(sha256(&bytes), sum, "what is stored is what is recorded");
    assert_eq!(stack.published().len(), 2);
    let clean = eventually("nothing is left behind", || async { stack.staged().is_empty() });
    clean.await.unwrap_or_else(|error| panic!("{error}: {:?}", stack.staged()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_worker_changes_nothing_on_local_files() {
    a_stopped_worker_changes_nothing(Kind::PostgresLocal, SMALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_worker_changes_nothing_on_large_local_files() {
    a_stopped_worker_changes_nothing(Kind::PostgresLocal, LARGE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_worker_changes_nothing_on_s3() {
    a_stopped_worker_changes_nothing(Kind::PostgresS3, SMALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_worker_changes_nothing_on_multipart_s3() {
    a_stopped_worker_changes_nothing(Kind::PostgresS3, LARGE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_publishes_nothing_more_on_local_files() {
    a_cancelled_job_publishes_nothing_more(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_publishes_nothing_more_on_s3() {
    a_cancelled_job_publishes_nothing_more(Kind::PostgresS3).await;
}

async fn a_cancelled_job_publishes_nothing_more(kind: Kind) {
    // The last ones wait at the gate, so that it cannot be over before it is cancelled.
    let query = "with free as materialized (select set_config('lock_timeout', '0', true)) \
         select pg_sleep(0.03), :key as key, :effective_date as day, \
         case when :key = 'K9' then pg_advisory_xact_lock_shared(42)::text end as gate from free";
    let stack = Stack::new(kind, &format!("{STEADY}{}", warehouse(kind, query))).await;
    let api = stack.serve("api", "api,scheduler").await;
    let gate = Gate::shut(&stack).await;
    let workers = ["one", "two"].map(|name| stack.spawn(name, "worker"));
    let client = api.client();
    let items: Vec<Value> =
        (0..10).map(|key| json!({ "key": format!("K{key}"), "effectiveDates": dates(100) })).collect();
    let id = client.submit(&json!({ "items": items })).await;
    let going =
        eventually("it is well under way", || async { client.job(&id).await["done"].as_i64() > Some(20) });
    going.await.unwrap_or_else(|error| panic!("{error}\n{}", workers[0].log()));
    let (status, job) =
        client.post(&format!("/jobs/{id}/cancel"), &json!({})).await.expect("the API answers");
    assert_eq!((status, &job["status"]), (202, &json!("CANCELLED")));

    let job = client.wait_for(&id, "CANCELLED").await;
    gate.open().await;
    let published: BTreeSet<String> = stack.published().into_iter().collect();
    let (done, cancelled) =
        (job["done"].as_u64().expect("done"), job["cancelled"].as_u64().expect("cancelled"));
    assert_eq!((done + cancelled, &job["pending"], &job["running"]), (1000, &json!(0), &json!(0)), "{job}");
    assert!(cancelled > 0 && done > 20, "it was cancelled half-way: {job}");
    assert_eq!(published.len() as u64, done, "what is there is what was done");
    let files: BTreeSet<String> = client
        .files(&id)
        .await
        .iter()
        .map(|file| file["path"].as_str().expect("a path").to_owned())
        .collect();
    assert_eq!(files, published);

    // The workers do other work, so whatever they had of the cancelled job is over.
    let later: Vec<Value> =
        (0..2).map(|key| json!({ "key": format!("L{key}"), "effectiveDates": dates(20) })).collect();
    client.complete(&json!({ "items": later })).await;
    let after: BTreeSet<String> = stack.published().into_iter().filter(|path| !path.contains("/L")).collect();
    assert_eq!(after, published);
    assert_eq!(client.job(&id).await, job);
    assert_eq!(stack.staged(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_last_attempt_that_nobody_recorded_on_local_files() {
    a_published_file_that_nobody_recorded(Kind::PostgresLocal, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_attempt_that_nobody_recorded_on_s3() {
    a_published_file_that_nobody_recorded(Kind::PostgresS3, true).await;
}

/// A worker is killed after it has published over a recorded file and before it could record that, and no other
/// attempt follows: the job is cancelled meanwhile, or that was the last attempt.
async fn a_published_file_that_nobody_recorded(kind: Kind, cancelled: bool) {
    let query = "with free as materialized (select set_config('lock_timeout', '0', true)), \
         gate as materialized (select pg_advisory_xact_lock_shared(42) from free) \
         select note, :key as key, :effective_date as day from gate, notes";
    // A long lease: there is one attempt, which must not be lost on a busy machine.
    let brisk =
        BRISK.replace("max_attempts = 3", "max_attempts = 1").replace("lease = \"3s\"", "lease = \"20s\"");
    let stack = Stack::new(kind, &format!("{brisk}{}", warehouse(kind, query))).await;
    stack.source("create table notes (note text); insert into notes values ('first')").await;
    let api = stack.serve("api", "api,scheduler").await;
    let client = api.client();
    let mut worker = stack.spawn("worker", "worker");
    let first = client.complete(&one("ABC")).await;
    let first = first["jobId"].as_str().expect("an id");
    let file = client.files(first).await.remove(0);
    let url = file["url"].as_str().expect("a URL");
    assert_eq!(file["current"], true);

    stack.source("update notes set note = 'second'").await;
    let mut gate = Gate::shut(&stack).await;
    let mut forced = one("ABC");
    forced["output"] = json!({ "force": true });
    let id = client.submit(&forced).await;
    gate.reached_by(1).await;
    // The worker is the writer already. From here on it can publish, but not record.
    let mut holder = PgConnection::connect(stack.postgres_url()).await.expect("the database answers");
    let mut held = holder.begin().await.expect("begin");
    sqlx::query("select from file_cache for update").execute(&mut *held).await.expect("lock the file's row");
    gate.open().await;
    let mut looker = PgConnection::connect(stack.postgres_url()).await.expect("the database answers");
    let waiting = "from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' \
         and query like '%Success of chunks%'";
    loop {
        let sql = sqlx::AssertSqlSafe(format!("select count(*) {waiting}"));
        let recording: i64 = sqlx::query_scalar(sql).fetch_one(&mut looker).await.expect("it answers");
        if recording > 0 {
            break;
        }
        assert!(!worker.has_ended(), "{}", worker.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if cancelled {
        let (status, job) =
            client.post(&format!("/jobs/{id}/cancel"), &json!({})).await.expect("the API answers");
        assert_eq!((status, &job["status"]), (202, &json!("CANCELLED")));
    }
    worker.kill9();
    // The statement would go on after its worker was killed.
    let sql = sqlx::AssertSqlSafe(format!("select pg_terminate_backend(pid, 10000) {waiting}"));
    sqlx::query(sql).execute(&mut looker).await.expect("it answers");
    held.rollback().await.expect("rollback");

    let next = stack.spawn("next", "worker");
    client.wait_for(&id, if cancelled { "CANCELLED" } else { "FAILED" }).await;
    let told = eventually("the list says that the file is gone", || async {
        client.files(first).await[0]["current"] == false
    });
    told.await.unwrap_or_else(|error| panic!("{error}\n{}\n{}", api.log(), next.log()));
    let (status, gone) = client.get(url).await.expect("the API answers");
    assert_eq!(status, 410, "{gone}");
    assert!(gone["detail"].as_str().is_some_and(|detail| detail.contains("submit it again")), "{gone}");

    let again = client.complete(&one("ABC")).await;
    assert_eq!((&again["filesGenerated"], &again["filesReused"]), (&json!(1), &json!(0)), "{again}");
    let file = client.files(again["jobId"].as_str().expect("an id")).await.remove(0);
    let bytes = client.download(file["url"].as_str().expect("a URL")).await;
    assert_eq!(json!(sha256(&bytes)), file["sha256"]);
    assert_eq!(stack.published().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_worker_gives_its_chunks_back() {
    let kind = Kind::PostgresLocal;
    let steady = STEADY.replace("[worker]", "[worker]\nshutdown_grace = \"100ms\"");
    let stack = Stack::new(kind, &format!("{steady}{}", warehouse(kind, SMALL))).await;
    let api = stack.serve("api", "api").await;
    let client = api.client();
    let mut gate = Gate::shut(&stack).await;
    let mut first = stack.spawn("first", "worker");
    let id = client.submit(&json!({ "items": [{ "key": "ABC", "effectiveDates": dates(4) }] })).await;
    gate.reached_by(4).await;
    assert!(first.terminate(), "a clean end: {}", first.log());
    assert_eq!(stack.chunks(&id, "QUEUED").await, [(0, 1, true); 4], "given back, and no attempt counted");
    gate.reached_by(0).await;
    assert_eq!(client.job(&id).await["status"], "IN_PROGRESS");

    let _second = stack.spawn("second", "worker");
    gate.reached_by(4).await;
    gate.open().await;
    client.wait_for(&id, "COMPLETED").await;
    assert_eq!(stack.chunks(&id, "SUCCESS").await, [(1, 2, true); 4]);
    assert_eq!((stack.published().len(), stack.staged()), (4, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_holds_across_workers_that_are_killed() {
    let kind = Kind::PostgresLocal;
    let query = "select pg_sleep(0.1), :key as key, :effective_date as day";
    let sections = warehouse(kind, query).replace("\n\n[datasets", "\nmax_concurrent = 2\n\n[datasets");
    let brisk = BRISK.replace("max_attempts = 3", "max_attempts = 50");
    let stack = Stack::new(kind, &format!("{brisk}{sections}")).await;
    let api = stack.serve("api", "api").await;
    let client = api.client();
    let over = Arc::new(AtomicBool::new(false));
    let most = Arc::new(AtomicI64::new(0));
    let sampler = tokio::spawn(sample(stack.postgres_url().to_owned(), over.clone(), most.clone()));

    let mut workers: Vec<Process> = (0..4).map(|n| stack.spawn(&format!("worker-{n}"), "worker")).collect();
    let id = client.submit(&json!({ "items": [{ "key": "ABC", "effectiveDates": dates(100) }] })).await;
    let mut kills = 0;
    // Each kill comes once the work goes on: after so many more are done.
    for done in (5..=75).step_by(10) {
        let what = format!("{done} are done");
        let going = eventually(&what, || async { client.job(&id).await["done"].as_i64() >= Some(done) });
        going.await.unwrap_or_else(|error| panic!("{error}\n{}", api.log()));
        // Someone who runs an export; which one changes from look to look.
        let running = stack
            .recorded("select worker_id from job_chunk where state = 'RUNNING' order by id limit 1")
            .await;
        let named = |worker: &Process, id: i64| worker.log().contains(&format!("worker {id} started"));
        let victim = running.first().and_then(|row| workers.iter().position(|worker| named(worker, row[0])));
        let victim = victim.unwrap_or(usize::try_from(done / 10).expect("small") % 4);
        workers[victim].kill9();
        workers[victim] = stack.spawn(&format!("worker-{victim}-{done}"), "worker");
        kills += 1;
    }
    client.wait_for(&id, "COMPLETED").await;
    over.store(true, Ordering::Relaxed);
    let samples = sampler.await.expect("the sampler ends");
    assert!(kills == 8 && samples > 100, "little happened: {kills} kills, {samples} samples");
    assert_eq!(most.load(Ordering::Relaxed), 2, "the budget is used, and never exceeded");
    assert_eq!(stack.published().len(), 100);
}

/// Looks every 20 ms how many exports the source runs; returns how often it looked.
async fn sample(url: String, over: Arc<AtomicBool>, most: Arc<AtomicI64>) -> u64 {
    let mut source = PgConnection::connect(&url).await.expect("the source answers");
    let mut samples = 0;
    while !over.load(Ordering::Relaxed) {
        let exports: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where application_name like 'outhaul%' and state = 'active' \
             and query like 'COPY (%' and datname = current_database()",
        )
        .fetch_one(&mut source)
        .await
        .expect("the source answers");
        most.fetch_max(exports, Ordering::Relaxed);
        samples += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    samples
}
