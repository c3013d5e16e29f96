//! Who has to do with the broker: API processes not at all, workers with no port but that of their health;
//! and a worker that is told to end leaves nothing behind that others would have to wait for.

use std::collections::{BTreeMap, BTreeSet};

use outhaul_testkit::servers::BrokerKind;
use serde_json::json;

use crate::common::gate::Gate;
use crate::common::{BRISK, Client, Process, STEADY, dates};
use crate::site::{SOURCES, Site};
use crate::sockets::{is_connected_to, listened};
use crate::with_both;

with_both!(an_api_neither_publishes_nor_consumes, a_worker_that_is_terminated_hands_over_at_once);

async fn an_api_neither_publishes_nor_consumes(kind: BrokerKind) {
    let site = Site::shared(kind, "", &format!("{STEADY}{SOURCES}")).await;
    let port = port_of(&site.url());
    let mut apis = [site.stack.serve("api-1", "api").await, site.stack.serve("api-2", "api").await];
    let client = apis[0].client();
    let export =
        |key: &str| json!({ "dataset": "free", "items": [{ "key": key, "effectiveDates": dates(5) }] });
    let first = client.submit(&export("FIRST")).await;
    let connected = |apis: &[Process]| apis.iter().any(|api| is_connected_to(api, port));
    assert_eq!((site.counts(&site.work).await, connected(&apis)), ((0, 0), false));
    assert_eq!(site.stack.recorded("select count(*) from announcement").await, [[0]]);

    // Somebody publishes, and still they consume nothing.
    let mut scheduler = site.stack.spawn_watched("scheduler", "scheduler");
    site.holds_at_least(&site.work, (5, 0)).await;
    assert!(is_connected_to(&scheduler, port), "the look at sockets finds what there is");
    assert!(scheduler.terminate(), "a clean end:\n{}", scheduler.log());
    let left = site.counts(&site.work).await;
    let second = apis[1].client().submit(&export("SECOND")).await;
    apis[1].ready().await;
    assert_eq!((site.counts(&site.work).await, connected(&apis)), (left, false));
    for id in [&first, &second] {
        let job = client.job(id).await;
        assert_eq!((&job["status"], &job["pending"]), (&json!("SUBMITTED"), &json!(5)), "{job}");
    }

    // A worker has no port, unless it is to show its health.
    let silent = site.stack.spawn("silent", "worker");
    for id in [&first, &second] {
        client.wait_for(id, "COMPLETED").await;
    }
    assert!(is_connected_to(&silent, port));
    assert_eq!(listened(&silent), BTreeSet::new());
    let mut watched = site.stack.spawn_watched("watched", "worker");
    watched.ready().await;
    assert_eq!(listened(&watched), BTreeSet::from([port_of(&watched.base)]));
    let (status, problem) = watched.client().get(&format!("/jobs/{first}")).await.expect("it answers");
    assert_eq!(status, 404, "it has no API: {problem}");
    site.is_empty().await;
}

async fn a_worker_that_is_terminated_hands_over_at_once(kind: BrokerKind) {
    // So long that the test would fail if anybody waited for one of them to run out.
    let slow = BRISK.replace("\"3s\"", "\"1h\"").replace("\"1s\"", "\"5m\"");
    let slow = slow.replace("[worker]\n", "[worker]\nshutdown_grace = \"1s\"\n");
    let site = Site::shared(kind, "expiry = \"1d\"", &format!("{slow}{SOURCES}")).await;
    let api = site.stack.serve("api", "api").await;
    let client = api.client();
    let mut leaving = site.stack.spawn("leaving", "worker");
    let mut gate = Gate::shut(&site.stack).await;
    let id = client.submit(&json!({ "items": [{ "key": "ABC", "effectiveDates": dates(10) }] })).await;
    gate.reached_by(4).await;
    site.holds_at_least(&site.work, (6, 4)).await;
    let staying = site.stack.spawn("staying", "worker");
    gate.reached_by(8).await;

    assert!(leaving.terminate(), "a clean end:\n{}", leaving.log());
    // Two that nobody had, and the four that it gave back, whose messages were acknowledged.
    gate.reached_by(4).await;
    gate.open().await;
    let job = client.wait_for(&id, "COMPLETED").await;
    assert_eq!((&job["done"], site.stack.published().len()), (&json!(10), 10), "{job}");
    finished_by(&client, &id, &staying).await;
    site.is_empty().await;
}

/// Insists that every chunk of a job was last taken by this worker.
async fn finished_by(client: &Client, id: &str, worker: &Process) {
    let log = worker.log();
    let mut last = BTreeMap::new();
    for row in client.all(&format!("/jobs/{id}/history")).await {
        if row["to"] == "RUNNING" {
            last.insert(row["chunkKey"].to_string(), row["worker"].as_str().map(str::to_owned));
        }
    }
    for (chunk, taken) in last {
        let taken = taken.unwrap_or_else(|| panic!("nobody took {chunk}"));
        assert!(log.contains(&format!("worker {taken} started")), "worker {taken} finished {chunk}");
    }
}

fn port_of(url: &str) -> u16 {
    let (_, port) = url.trim_end_matches('/').rsplit_once(':').expect("a port");
    port.parse().expect("a number")
}
