//! File descriptors: clients that take many leave jobs what they need, and an attempt that finds none left is
//! not counted.

mod common;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::sql::{POSITIONS, warehouse};
use common::{Kind, Process, STEADY, Stack, eventually};
use serde_json::{Value, json};
use tokio::net::TcpStream;

const KEYS: [&str; 19] =
    ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S"];

fn items() -> Value {
    json!({ "items": KEYS.map(|key| json!({ "key": key, "effectiveDates": ["20250315"] })) })
}

/// Two processes of one installation: one that only takes jobs, and one with so many descriptors at first.
async fn start(stack: &Stack, descriptors: u32) -> (Process, Process) {
    let api = stack.serve("api", "api").await;
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={descriptors}:{descriptors}")).arg(env!("CARGO_BIN_EXE_outhaul"));
    command.args(["serve", "--roles", "api,worker,scheduler", "--config"]).arg(stack.config());
    let mut limited = stack.spawn_command("limited", command);
    limited.ready().await;
    (api, limited)
}

fn open_descriptors(process: &Process) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", process.pid())).expect("it runs").count()
}

/// Changes the limit of a process that runs.
fn limit(process: &Process, soft: u32) {
    let pid = process.pid().to_string();
    let done = Command::new("prlimit").args(["--pid", &pid]).arg(format!("--nofile={soft}:")).status();
    assert!(done.expect("run prlimit").success(), "prlimit --nofile={soft}:");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_idle_connections_fail_no_job() {
    let kind = Kind::PostgresLocal;
    let stack = Stack::new(kind, &format!("{STEADY}{}", warehouse(kind, POSITIONS))).await;
    stack.make_positions(&KEYS, &["2025-03-15"]).await;
    let (api, limited) = start(&stack, 1024).await;
    let address = limited.base.strip_prefix("http://").expect("a URL").to_owned();
    // Each client sends nothing and connects again when it is disconnected.
    let over = Arc::new(AtomicBool::new(false));
    let idle: Vec<_> = (0..1000)
        .map(|_| {
            let (address, over) = (address.clone(), over.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    match TcpStream::connect(&address).await {
                        Ok(stream) => drop(stream.readable().await),
                        Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                    }
                }
            })
        })
        .collect();
    let flooded = eventually("the flood has arrived", || async { open_descriptors(&limited) > 300 });
    flooded.await.unwrap_or_else(|error| panic!("{error}\n{}", limited.log()));

    let client = api.client();
    for _ in 0..3 {
        let mut body = items();
        body["output"] = json!({ "force": true });
        let id = client.submit(&body).await;
        client.wait_for(&id, "COMPLETED").await;
        let chunks = stack.chunks(&id, "SUCCESS").await;
        assert!(chunks.iter().all(|chunk| *chunk == (1, 1, true)), "one attempt each: {chunks:?}");
    }
    assert!(!limited.log().contains("serve.accept_failed"), "{}", limited.log());
    over.store(true, Ordering::Relaxed);
    idle.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_finds_no_descriptor_is_not_counted() {
    // A SQLite file as the source: its library does not say why it could not be opened.
    for kind in [Kind::PostgresLocal, Kind::PostgresS3] {
        let source = if kind == Kind::PostgresLocal { Kind::Embedded } else { kind };
        let stack = Stack::new(kind, &format!("{STEADY}{}", warehouse(source, POSITIONS))).await;
        make_positions(&stack, source).await;
        let (api, limited) = start(&stack, 1024).await;
        limit(&limited, 8);
        let client = api.client();
        let id = client.submit(&items()).await;
        limited.says("worker.no_descriptors").await;
        limit(&limited, 1024);
        client.wait_for(&id, "COMPLETED").await;
        let chunks = stack.chunks(&id, "SUCCESS").await;
        assert!(chunks.iter().all(|(attempt, _, done)| *attempt == 1 && *done), "{chunks:?}");
        assert!(chunks.iter().any(|(_, fence, _)| *fence > 1), "some were put back: {chunks:?}");
    }
}

/// The rows, in the installation's PostgreSQL or in the SQLite file beside its configuration.
async fn make_positions(stack: &Stack, source: Kind) {
    if source != Kind::Embedded {
        return stack.make_positions(&KEYS, &["2025-03-15"]).await;
    }
    use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};
    let mut sql = String::from("create table positions (key text, day date, n bigint, note text);");
    for key in KEYS {
        sql += &format!("insert into positions values ('{key}', '2025-03-15', 1, 'first');");
    }
    let url = format!("sqlite:{}?mode=rwc", stack.dir.path().join("source.db").display());
    let mut file = SqliteConnection::connect(&url).await.expect("open the source");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut file).await.expect("the source takes it");
    file.close().await.expect("close the source");
}
