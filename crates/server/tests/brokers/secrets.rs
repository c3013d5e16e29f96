//! The broker's password is in the configuration, and nowhere else: not in a log, an answer or the database.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use outhaul_testkit::servers::BrokerKind;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::common::{Process, STEADY, dates, eventually, files_below};
use crate::site::{SOURCES, Site};
use crate::with_both;

with_both!(the_password_is_shown_to_nobody);

/// One that the broker does not take.
const WRONG: &str = "canary-0d1f7b";

async fn the_password_is_shown_to_nobody(kind: BrokerKind) {
    let sections = format!("{STEADY}{SOURCES}");
    let mut site = Site::shared(kind, "", &sections).await;
    site.stack.environment.push(("OUTHAUL_LOG", "trace".to_owned()));
    let api = site.stack.serve("api", "api").await;
    let mut worker = site.stack.spawn_watched("worker", "worker");
    let mut scheduler = site.stack.spawn_watched("scheduler", "scheduler");
    let client = api.client();
    let export = json!({ "dataset": "free", "items": [{ "key": "ABC", "effectiveDates": dates(5) }] });
    let job = client.complete(&export).await;
    worker.ready().await;
    scheduler.ready().await;

    let url = site.url();
    let (user, password) = credentials(&url);
    site.configure(&url.replacen(&password, WRONG, 1), "", &sections);
    let mut refused = site.stack.spawn_watched("refused", "worker");
    refused.listens().await;
    let told = eventually("the refusal is told", || async {
        let answer = refused.client().get("/readyz").await;
        matches!(answer, Ok((503, problem)) if !problem.to_string().contains("not yet"))
    });
    told.await.unwrap_or_else(|error| panic!("{error}\n{}", refused.log()));

    let mut shown = answers(&api, job["jobId"].as_str().expect("a jobId")).await;
    for process in [&worker, &scheduler, &refused] {
        shown.extend(answers(process, "").await);
    }
    let check = Command::new(env!("CARGO_BIN_EXE_outhaul"))
        .args(["check", "--config"])
        .arg(site.stack.config())
        .output()
        .expect("run the binary");
    assert!(!check.status.success(), "the broker refuses it");
    shown.push(("check".to_owned(), [check.stdout, check.stderr].concat()));
    let folder = site.stack.dir.path();
    for file in files_below(folder).into_iter().filter(|file| !file.ends_with("outhaul.toml")) {
        let bytes = std::fs::read(folder.join(&file)).expect("read it");
        shown.push((file, bytes));
    }
    shown.push(("the database".to_owned(), stored(site.stack.postgres_url()).await));
    assert!(shown.iter().any(|(name, bytes)| name == "refused.log" && bytes.len() > 1000), "there are logs");
    for secret in [password.as_str(), WRONG] {
        // As AMQP's PLAIN has it, encoded.
        let encoded = STANDARD.encode(format!("\0{user}\0{secret}"));
        for (name, bytes) in &shown {
            let text = String::from_utf8_lossy(bytes);
            for form in [secret, &encoded] {
                let line = text.lines().find(|line| line.contains(form));
                assert_eq!(line, None, "{name} shows {form}");
            }
        }
    }
}

/// User and password of a URL.
fn credentials(url: &str) -> (String, String) {
    let (_, rest) = url.split_once("://").expect("a scheme");
    let (credentials, _) = rest.rsplit_once('@').expect("credentials");
    let (user, password) = credentials.split_once(':').expect("a password");
    (user.to_owned(), password.to_owned())
}

/// What a process tells everybody.
async fn answers(process: &Process, job: &str) -> Vec<(String, Vec<u8>)> {
    let client = process.client();
    let mut answers = Vec::new();
    for path in ["/readyz", "/metrics", "/queues", "/workers", &format!("/jobs/{job}")] {
        let answer = client.http.get(format!("{}{path}", client.base)).send().await.expect("it answers");
        answers.push((path.to_owned(), answer.bytes().await.expect("the whole body").to_vec()));
    }
    answers
}

/// Every row of every table.
async fn stored(url: &str) -> Vec<u8> {
    let mut db = PgConnection::connect(url).await.expect("the database answers");
    let tables: Vec<String> = sqlx::query_scalar(
        "select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_tables \
         where schemaname not in ('pg_catalog', 'information_schema')",
    )
    .fetch_all(&mut db)
    .await
    .expect("it answers");
    assert!(tables.len() > 5, "{tables:?}");
    let mut all = String::new();
    for table in tables {
        let rows = AssertSqlSafe(format!("select coalesce(string_agg(t::text, ';'), '') from {table} t"));
        let rows: String = sqlx::query_scalar(rows).fetch_one(&mut db).await.expect("it answers");
        all += &rows;
    }
    all.into_bytes()
}
