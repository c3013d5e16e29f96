//! Who is next with a broker: what was announced before comes first, so priority and turns hold to within
//! the window.

use outhaul_testkit::servers::BrokerKind;
use serde_json::{Value, json};

use crate::common::gate::Gate;
use crate::common::{Client, STEADY, dates};
use crate::site::{SOURCES, Site};
use crate::with_both;

with_both!(priority_and_turns_hold_to_within_the_window);

const WINDOW: usize = 20;
/// As many as [`STEADY`] lets a worker run at once.
const CONCURRENCY: usize = 4;

async fn priority_and_turns_hold_to_within_the_window(kind: BrokerKind) {
    // A step so long that the time between two submissions makes no difference.
    let fairness = "[queue]\nfairness_step = \"10s\"\n\n";
    let site =
        Site::shared(kind, &format!("window = {WINDOW}\n"), &format!("{STEADY}{fairness}{SOURCES}")).await;
    let api = site.stack.serve("api", "api").await;
    // With one relay; of several, one may publish its batch before another that marked its own earlier.
    let _worker = site.stack.spawn("worker", "worker");
    let client = api.client();
    let mut gate = Gate::shut(&site.stack).await;
    let large = client.submit(&export("LARGE", 200, 5)).await;
    gate.reached_by(CONCURRENCY as i64).await;
    site.announced(WINDOW as i64).await;
    let small = client.submit(&export("SMALL", 5, 5)).await;
    let urgent = client.submit(&export("URGENT", 10, 9)).await;

    gate.open().await;
    for id in [&large, &small, &urgent] {
        client.wait_for(id, "COMPLETED").await;
    }
    let large = starts(&client, &large).await;
    for (name, id) in [("urgent", &urgent), ("small", &small)] {
        let last = starts(&client, id).await.into_iter().max().expect("it ran");
        let before = large.iter().filter(|start| **start < last).count();
        // Those that ran and those that were announced; what was claimed together started together.
        assert!(
            before <= CONCURRENCY + WINDOW,
            "{before} of the large job before the last of the {name} one"
        );
    }
    site.is_empty().await;
}

fn export(key: &str, chunks: u32, priority: u8) -> Value {
    json!({ "priority": priority, "items": [{ "key": key, "effectiveDates": dates(chunks) }] })
}

/// When each chunk of a job first ran.
async fn starts(client: &Client, id: &str) -> Vec<chrono::DateTime<chrono::FixedOffset>> {
    let chunks = client.all(&format!("/jobs/{id}/chunks")).await;
    let started = chunks.iter().map(|chunk| chunk["startedAt"].as_str().expect("a time"));
    started.map(|at| chrono::DateTime::parse_from_rfc3339(at).expect("RFC 3339")).collect()
}
