//! A broker that loses everything, and one that is away: work is delayed, and nothing else.

use std::sync::Mutex;

use outhaul_testkit::servers::BrokerKind;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::common::gate::Gate;
use crate::common::{Process, STEADY, dates, eventually};
use crate::site::{SOURCES, Site};
use crate::with_both;

with_both!(a_job_completes_though_the_broker_lost_everything, a_job_is_taken_while_the_broker_is_away);

async fn a_job_completes_though_the_broker_lost_everything(kind: BrokerKind) {
    // Nobody waits that long for an announcement to run out: what is lost has to be doubted.
    let site = Site::own(kind, "expiry = \"1h\"", &format!("{STEADY}{SOURCES}")).await;
    let api = site.stack.serve("api", "api").await;
    let mut others = [("worker-1", "worker"), ("worker-2", "worker"), ("scheduler", "scheduler")]
        .map(|(name, roles)| site.stack.spawn_watched(name, roles));
    // Whoever connects later doubts what the others have announced, and it is announced once more.
    for process in &mut others {
        process.ready().await;
    }
    let client = api.client();
    let mut gate = Gate::shut(&site.stack).await;
    let id = client.submit(&json!({ "items": [{ "key": "ABC", "effectiveDates": dates(300) }] })).await;
    gate.reached_by(8).await;
    site.holds_at_least(&site.work, (292, 8)).await;

    block_in_place(|| {
        site.own_broker().wipe();
        site.own_broker().start_again();
    });
    gate.open().await;
    let job = client.wait_for(&id, "COMPLETED").await;
    assert_eq!((&job["done"], site.stack.published().len()), (&json!(300), 300), "{job}");
    site.is_empty().await;
}

async fn a_job_is_taken_while_the_broker_is_away(kind: BrokerKind) {
    let site = Site::own(kind, "", &format!("{STEADY}{SOURCES}")).await;
    let mut api = site.stack.serve("api", "api").await;
    let mut worker = site.stack.spawn_watched("worker", "worker");
    let mut scheduler = site.stack.spawn_watched("scheduler", "scheduler");
    worker.ready().await;
    scheduler.ready().await;

    block_in_place(|| site.own_broker().kill9());
    let mut late = site.stack.spawn_watched("late", "worker");
    late.listens().await;
    for process in [&worker, &scheduler, &late] {
        misses_the_broker(process).await;
    }
    let client = api.client();
    let export = json!({ "dataset": "free", "items": [{ "key": "ABC", "effectiveDates": dates(20) }] });
    let id = client.submit(&export).await;
    api.ready().await;
    let job = client.job(&id).await;
    assert_eq!((&job["status"], &job["pending"]), (&json!("SUBMITTED"), &json!(20)), "{job}");

    block_in_place(|| site.own_broker().start_again());
    client.wait_for(&id, "COMPLETED").await;
    for process in [&mut worker, &mut scheduler, &mut late] {
        process.ready().await;
    }
    site.is_empty().await;
}

/// Waits until a process says that it cannot work for want of the broker, and of nothing else.
async fn misses_the_broker(process: &Process) {
    let (client, said) = (process.client(), Mutex::new(Value::Null));
    let missed = eventually("only the broker is missed", || async {
        let Ok((503, problem)) = client.get("/readyz").await else { return false };
        let errors = problem["errors"].as_array().map_or(&[][..], Vec::as_slice);
        let only = matches!(errors, [error] if error["pointer"] == "delivery");
        *said.lock().expect("not poisoned") = problem;
        only
    });
    missed.await.unwrap_or_else(|error| panic!("{error}: {said:?}\n{}", process.log()));
}
