//! The kill run: two API processes and three workers export 2,000 chunks while workers are killed
//! with `kill -9` and restarted at random and PostgreSQL is restarted in immediate mode. Every file
//! is compared with what the source gives.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Kind, Process, Stack, dates, files_below, open_uploads, sha256};
use futures::TryStreamExt;
use outhaul_testkit::servers::PrivatePostgres;
use rand::RngExt;
use serde_json::json;
use sqlx::Connection;

const KEYS: u32 = 20;
const DAYS: u32 = 100;

/// Small chunks, and a few that need a multipart upload.
const QUERY: &str = "select n, md5(n::text || :key || :effective_date::text) as a, \
     repeat('x', case when :key = 'K0' and extract(day from :effective_date) = 1 then 20000 else 20 end) as b \
     from generate_series(1, case when :key = 'K0' and extract(day from :effective_date) = 1 then 600 else 40 end) n";

fn sections() -> String {
    format!(
        "[worker]\nconcurrency = 4\nlease = \"3s\"\nheartbeat = \"1s\"\npoll_interval = \"200ms\"\n\n\
         [retry]\nmax_attempts = 40\nbackoff = {{ kind = \"fixed\", base = \"100ms\" }}\n\n\
         [sources.warehouse]\nurl = \"{{postgres}}\"\nmax_concurrent = 8\n\n\
         [datasets.positions]\ndefault = true\nsource = \"warehouse\"\nquery = \"{QUERY}\"\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_2000_chunks_survives_kills_on_local_files() {
    kill_run(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_2000_chunks_survives_kills_on_s3() {
    kill_run(Kind::PostgresS3).await;
}

async fn kill_run(kind: Kind) {
    let server = Arc::new(PrivatePostgres::start());
    let stack = Arc::new(Stack::on_server(kind, &server, &sections()));
    let first = stack.serve("api-1", "api,scheduler").await;
    let second = stack.serve("api-2", "api,scheduler").await;
    let items: Vec<_> =
        (0..KEYS).map(|key| json!({ "key": format!("K{key}"), "effectiveDates": dates(DAYS) })).collect();
    let client = first.client();
    let id = client.submit(&json!({ "items": items, "idempotencyKey": "kill-run" })).await;

    let over = Arc::new(AtomicBool::new(false));
    let stop_killing = StopKilling(over.clone());
    let killer = tokio::task::spawn_blocking({
        let (over, stack, server) = (over.clone(), stack.clone(), server.clone());
        move || kill_at_random(&over, &stack, &server)
    });
    // The other process answers for the same job.
    let job = second.client().wait_for(&id, "COMPLETED").await;
    drop(stop_killing);
    let (kills, restarts) = killer.await.expect("the killer ends");
    assert!(kills >= 6 && restarts >= 2, "little happened: {kills} kills, {restarts} restarts");

    assert_eq!(job["total"], KEYS * DAYS, "{job}");
    assert_eq!(
        (&job["done"], &job["failed"], &job["pending"], &job["running"]),
        (&json!(2000), &json!(0), &json!(0), &json!(0))
    );
    let repeated = second.client().submit(&json!({ "items": items, "idempotencyKey": "kill-run" })).await;
    assert_eq!(repeated, id, "the key still names the job");

    let expected = expected(&server).await;
    let files = client.all(&format!("/jobs/{id}/files")).await;
    assert_eq!(files.len(), expected.len());
    let rows: i64 = files.iter().map(|file| file["rows"].as_i64().expect("rows")).sum();
    assert_eq!(job["rows"], rows);
    let mut paths = Vec::new();
    for file in &files {
        let name = format!(
            "{} {}",
            file["key"].as_str().expect("key"),
            file["effectiveDate"].as_str().expect("date")
        );
        let (source_rows, source_sum) = &expected[&name];
        assert_eq!(&file["rows"], source_rows, "{name}");
        assert_eq!(file["sha256"], json!(source_sum), "{name}: recorded");
        let bytes = client.download(file["url"].as_str().expect("url")).await;
        assert_eq!(&sha256(&bytes), source_sum, "{name}: stored");
        paths.push(file["path"].as_str().expect("path").to_owned());
    }
    paths.sort();
    match kind {
        Kind::PostgresS3 => {
            assert_eq!(open_uploads(&stack.prefix), Vec::<String>::new(), "no upload is left open")
        }
        _ => {
            let mut found = files_below(&stack.files());
            found.retain(|path| !path.starts_with(".staging"));
            assert_eq!(found, paths, "published files are those of the manifest");
        }
    }
}

/// Tells the killer to stop, also when the test fails before its end: it would go on for ever.
struct StopKilling(Arc<AtomicBool>);

impl Drop for StopKilling {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Kills and restarts until it is told to stop; returns how often it killed a worker and restarted PostgreSQL.
fn kill_at_random(over: &AtomicBool, stack: &Stack, server: &PrivatePostgres) -> (u32, u32) {
    let mut random = rand::rng();
    let mut workers: Vec<Process> = (0..3).map(|n| stack.spawn(&format!("worker-{n}"), "worker")).collect();
    let (mut kills, mut restarts) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(random.random_range(200..900)));
        if random.random_bool(0.2) || kills > 4 * (restarts + 1) {
            server.restart_immediate();
            restarts += 1;
        } else {
            let victim = random.random_range(0..workers.len());
            workers[victim].kill9();
            workers[victim] = stack.spawn(&format!("worker-{victim}"), "worker");
            kills += 1;
        }
    }
    (kills, restarts)
}

/// What the source itself gives for every key and date: rows and checksum of PostgreSQL's own CSV.
async fn expected(server: &PrivatePostgres) -> BTreeMap<String, (i64, String)> {
    let mut source = sqlx::PgConnection::connect(server.url()).await.expect("the source answers");
    let mut expected = BTreeMap::new();
    for key in 0..KEYS {
        for date in dates(DAYS) {
            let query = QUERY
                .replace(":key", &format!("'K{key}'"))
                .replace(":effective_date", &format!("date '{date}'"));
            let copy = format!("copy ({query}) to stdout (format csv, header)");
            let rows: Vec<_> =
                source.copy_out_raw(&copy).await.expect("copy").try_collect().await.expect("all of it");
            let count = i64::try_from(rows.len()).expect("few") - 1;
            expected.insert(format!("K{key} {date}"), (count, sha256(&rows.concat())));
        }
    }
    expected
}
