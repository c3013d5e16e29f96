//! A worker whose relay panics with announcements in its hands: it ends with exit code 70, and the relay and the
//! feed of another finish the work.

use outhaul_testkit::servers::BrokerKind;
use serde_json::json;

use crate::common::{STEADY, dates};
use crate::site::{SOURCES, Site};
use crate::with_both;

with_both!(a_worker_without_its_relay_ends_and_another_finishes);

async fn a_worker_without_its_relay_ends_and_another_finishes(kind: BrokerKind) {
    let site = Site::shared(kind, "", &format!("{STEADY}{SOURCES}")).await;
    let api = site.stack.serve("api", "api").await;
    let mut faulty = site.stack.spawn_faulty("relay", "worker");
    let export = json!({ "dataset": "free", "items": [{ "key": "ABC", "effectiveDates": dates(6) }] });
    let id = api.client().submit(&export).await;
    assert_eq!(faulty.exit_code().await, Some(70), "{}", faulty.log());
    assert!(faulty.log().contains("serve.broken: the relay of this process ended"), "{}", faulty.log());
    let _whole = site.stack.spawn("whole", "worker");
    let job = api.client().wait_for(&id, "COMPLETED").await;
    assert_eq!(job["done"], json!(6), "{job}");
    site.is_empty().await;
}
