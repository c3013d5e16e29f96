//! 400 transfers (1,000 at full size) between accounts in the engine's own PostgreSQL, through `ctx.transaction`,
//! while workers are killed and stopped past their leases and PostgreSQL is restarted: each is applied once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use outhaul_testkit::servers::PrivatePostgres;
use outhaul_testkit::size::size;
use rand::RngExt;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use tokio::task::block_in_place;

use crate::common::killing::{Progress, StopKilling};
use crate::common::{Kind, Process, Stack, eventually};
use crate::lock::Lock;
use crate::own_binary::{Transfer, spawn};

const ACCOUNTS: i64 = 20;
const START: i64 = 10_000;

const TABLES: &str = "create table account (id bigint primary key, balance bigint not null); \
     insert into account select n, 10000 from generate_series(1, 20) n; \
     create table ledger (job text not null)";

const COMPLETED: &str = "select count(*) from job where status = 'COMPLETED'";

const SECTIONS: &str = "[worker]\nconcurrency = 4\nlease = \"3s\"\nheartbeat = \"1s\"\npoll_interval = \"200ms\"\n\n\
     [retry]\nmax_attempts = 50\nbackoff = { kind = \"fixed\", base = \"100ms\" }\n\n";

#[tokio::test(flavor = "multi_thread")]
async fn transfers_are_each_applied_once() {
    let count_of_transfers = size(400, 1000);
    let server = Arc::new(PrivatePostgres::start());
    let stack = Arc::new(Stack::on_server(Kind::PostgresLocal, &server, SECTIONS));
    stack.source(TABLES).await;
    let mut api = spawn(&stack, "api", "api,scheduler");
    api.ready().await;

    let mut expected: BTreeMap<i64, i64> = (1..=ACCOUNTS).map(|account| (account, START)).collect();
    let mut transfers = Vec::new();
    for _ in 0..count_of_transfers {
        let transfer = {
            let mut random = rand::rng();
            let from = random.random_range(1..=ACCOUNTS);
            let to = 1 + (from - 1 + random.random_range(1..ACCOUNTS)) % ACCOUNTS;
            Transfer { from, to, amount: random.random_range(1..=100), gated: false }
        };
        *expected.entry(transfer.from).or_default() -= transfer.amount;
        *expected.entry(transfer.to).or_default() += transfer.amount;
        transfers.push(transfer);
    }
    let client = api.client();
    let ids: Vec<String> = futures::stream::iter(transfers)
        .map(|transfer| {
            let body = json!({ "jobType": "TRANSFER", "payload": transfer });
            let client = client.clone();
            async move { client.submit(&body).await }
        })
        .buffer_unordered(16)
        .collect()
        .await;
    assert_eq!(ids.len(), count_of_transfers);

    let stop = StopKilling::default();
    let killer = tokio::spawn(kill_at_random(stack.clone(), server.clone(), stop.progress()));
    let done = eventually("all transfers are done", || async {
        count(&stack, COMPLETED).await == Some(count_of_transfers as i64)
    });
    done.await.unwrap_or_else(|error| panic!("{error}\n{}", api.log()));
    drop(stop);
    let (kills, stops, restarts) = killer.await.expect("the killer ends");
    let happened = format!("{kills} kills, {stops} stops, {restarts} restarts");
    assert!(kills >= 5 && stops >= 1 && restarts >= 1, "little happened: {happened}");

    let repeated = "select count(*) from (select job from ledger group by job having count(*) > 1) twice";
    assert_eq!(count(&stack, repeated).await, Some(0), "transfers applied more than once; {happened}");
    assert_eq!(
        count(&stack, "select count(*) from ledger").await,
        Some(count_of_transfers as i64),
        "{happened}"
    );
    let missing = "select count(*) from job where job_id not in (select job from ledger)";
    assert_eq!(count(&stack, missing).await, Some(0), "transfers not applied; {happened}");
    let balances = stack.recorded("select id, balance from account order by id").await;
    let balances: BTreeMap<i64, i64> = balances.iter().map(|row| (row[0], row[1])).collect();
    assert_eq!(balances, expected, "{happened}");
    assert_eq!(balances.values().sum::<i64>(), ACCOUNTS * START);
    let replayed =
        "select count(*) from step s join job_chunk c on c.id = s.chunk_id where s.fence < c.fence";
    assert!(
        count(&stack, replayed).await > Some(0),
        "no attempt met a transfer that was applied before: {happened}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_lost_its_lease_without_knowing_commits_nothing() {
    // Heartbeats so rare that the first owner goes on in good faith.
    let sections =
        SECTIONS.replace("\"3s\"", "\"120s\"").replace("heartbeat = \"1s\"", "heartbeat = \"40s\"");
    let stack = Stack::new(Kind::PostgresLocal, &sections).await;
    stack.source(TABLES).await;
    let mut api = spawn(&stack, "api", "api");
    api.ready().await;
    let client = api.client();
    let mut gate = Lock::take(&stack, "select pg_advisory_xact_lock(42)").await;
    let workers = ["first", "second"].map(|name| spawn(&stack, name, "worker"));
    let transfer = Transfer { from: 1, to: 2, amount: 5, gated: true };
    let id = client.submit(&json!({ "jobType": "TRANSFER", "payload": transfer })).await;
    gate.wanted_by(1, &workers[0]).await;
    stack.source("update job_chunk set lease_until = clock_timestamp() - interval '1 second'").await;
    // Now there are two: the one that lost it, and its owner.
    gate.wanted_by(2, &workers[1]).await;
    assert_eq!(stack.chunks(&id, "RUNNING").await, [(2, 2, true)]);
    gate.release().await;

    client.wait_for(&id, "COMPLETED").await;
    let said = eventually("the other was told", || async {
        workers.iter().any(|worker| worker.log().contains("lease lost"))
    });
    said.await.unwrap_or_else(|error| panic!("{error}\n{}\n{}", workers[0].log(), workers[1].log()));
    assert_eq!(stack.recorded("select count(*) from ledger").await, [[1]]);
    let balances = stack.recorded("select balance from account where id < 4 order by id").await;
    assert_eq!(balances, [[START - 5], [START + 5], [START]]);
}

/// A number from the database; `None` while it is away.
async fn count(stack: &Stack, sql: &'static str) -> Option<i64> {
    let mut db = PgConnection::connect(stack.postgres_url()).await.ok()?;
    sqlx::query_scalar(sql).fetch_one(&mut db).await.ok()
}

/// Kills, stops and restarts while transfers are done; returns how often it did each.
async fn kill_at_random(
    stack: Arc<Stack>,
    server: Arc<PrivatePostgres>,
    mut progress: Progress,
) -> (u32, u32, u32) {
    let worker = |n: usize| spawn(&stack, &format!("worker-{n}"), "worker");
    let mut workers: Vec<Process> = (0..3).map(worker).collect();
    let (mut kills, mut stops, mut restarts) = (0, 0, 0);
    let look = |workers: &mut [Process]| {
        // One that PostgreSQL left while it started has ended, and nobody else would start it again.
        for (n, place) in workers.iter_mut().enumerate() {
            if place.has_ended() {
                *place = worker(n);
            }
        }
        async { count(&stack, COMPLETED).await.and_then(|done| u64::try_from(done).ok()) }
    };
    while progress.goes_on(5..40, || look(&mut workers)).await {
        let victim = rand::rng().random_range(0..workers.len());
        if kills >= 5 * (restarts + 1) {
            block_in_place(|| server.restart_immediate());
            restarts += 1;
        } else if kills >= 3 * (stops + 1) {
            // Longer than its lease: what it then tries to commit belongs to another.
            let stopped = [victim, (victim + 1) % workers.len()];
            stopped.iter().for_each(|worker| workers[*worker].signal("STOP"));
            tokio::time::sleep(Duration::from_secs(4)).await;
            stopped.iter().for_each(|worker| workers[*worker].signal("CONT"));
            stops += 1;
        } else {
            workers[victim].kill9();
            workers[victim] = worker(victim);
            kills += 1;
        }
    }
    (kills, stops, restarts)
}
