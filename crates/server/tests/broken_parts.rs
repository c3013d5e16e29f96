//! A process that loses one of its parts by a panic: it ends with exit code 70, and another finishes its work.
//! The relay is in `brokers/broken_relay.rs`.

mod common;

use common::gate::Gate;
use common::sql::{POSITIONS, warehouse};
use common::{BRISK, Kind, Process, Stack, dates};
use serde_json::{Value, json};

/// An export that waits at the gate while it is shut.
const GATED: &str = "[sources.warehouse]\nurl = \"{postgres}\"\n\n\
     [datasets.gated]\ndefault = true\nsource = \"warehouse\"\n\
     query = \"with free as materialized (select set_config('lock_timeout', '0', true)) \
     select pg_advisory_xact_lock_shared(42)::text as gate, :key as key, :effective_date as day from free\"\n\n";

fn export() -> Value {
    json!({ "items": [{ "key": "ABC", "effectiveDates": dates(6) }] })
}

async fn ends_with_70(faulty: &mut Process, part: &str) {
    assert_eq!(faulty.exit_code().await, Some(70), "{}", faulty.log());
    let said = format!("serve.broken: {part} of this process ended");
    assert!(faulty.log().contains(&said), "{said:?} in\n{}", faulty.log());
}

/// A worker loses the part; a second one, which starts when the first has ended, finishes the job.
async fn another_finishes(point: &str, part: &str) {
    let stack = Stack::new(Kind::PostgresLocal, &format!("{BRISK}{GATED}")).await;
    let api = stack.serve("api", "api").await;
    let mut faulty = stack.spawn_faulty(point, "worker");
    let id = api.client().submit(&export()).await;
    ends_with_70(&mut faulty, part).await;
    let _whole = stack.spawn("whole", "worker");
    let job = api.client().wait_for(&id, "COMPLETED").await;
    assert_eq!((&job["done"], stack.published().len()), (&json!(6), 6), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_its_recorder_ends_and_another_finishes() {
    another_finishes("recorder", "the recorder").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_its_claim_loop_ends_and_another_finishes() {
    another_finishes("claims", "the claim loop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_its_stager_ends_and_another_finishes() {
    // The source cannot be reached yet, so that chunks have to be queued for a second attempt.
    let nowhere = GATED.replace("{postgres}", "postgres://nobody@127.0.0.1:1/nothing");
    let stack = Stack::new(Kind::PostgresLocal, &format!("{BRISK}{nowhere}")).await;
    let api = stack.serve("api", "api").await;
    let mut faulty = stack.spawn_faulty("stager", "worker");
    let id = api.client().submit(&export()).await;
    ends_with_70(&mut faulty, "the stager").await;
    stack.configure(&format!("{BRISK}{GATED}"));
    let _whole = stack.spawn("whole", "worker");
    let job = api.client().wait_for(&id, "COMPLETED").await;
    assert_eq!(job["done"], json!(6), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_its_lease_keeper_gives_back_at_once_and_another_finishes() {
    // So long that the test would fail if anybody waited for a lease or the grace to run out.
    let slow =
        BRISK.replace("\"3s\"", "\"1h\"").replace("[worker]\n", "[worker]\nshutdown_grace = \"50m\"\n");
    let stack = Stack::new(Kind::PostgresLocal, &format!("{slow}{GATED}")).await;
    let api = stack.serve("api", "api").await;
    let gate = Gate::shut(&stack).await;
    let mut faulty = stack.spawn_faulty("keeper", "worker");
    let id = api.client().submit(&export()).await;
    ends_with_70(&mut faulty, "the lease keeper").await;
    gate.open().await;
    let _whole = stack.spawn("whole", "worker");
    let job = api.client().wait_for(&id, "COMPLETED").await;
    assert_eq!(job["done"], json!(6), "{job}");
    let attempts: Vec<i64> =
        stack.chunks(&id, "SUCCESS").await.into_iter().map(|(attempt, ..)| attempt).collect();
    assert_eq!(attempts, [1; 6], "what is given back is not counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_process_without_its_recorder_ends_and_its_next_start_finishes() {
    let kind = Kind::Embedded;
    let stack = Stack::new(kind, &format!("{BRISK}{}", warehouse(kind, POSITIONS))).await;
    stack.make_positions(&["ABC"], &["2020-01-01"]).await;
    let mut faulty = stack.spawn_faulty("recorder", "api,worker,scheduler");
    faulty.listens().await;
    let id =
        faulty.client().submit(&json!({ "items": [{ "key": "ABC", "effectiveDates": dates(1) }] })).await;
    ends_with_70(&mut faulty, "the recorder").await;
    let whole = stack.serve("whole", "api,worker,scheduler").await;
    let job = whole.client().wait_for(&id, "COMPLETED").await;
    assert_eq!(job["done"], json!(1), "{job}");
}
