//! Who is next in a queue that runs one chunk at a time: priority first, then turns, so that large jobs
//! share.

use serde_json::{Value, json};

use crate::common::{Client, Kind, STEADY, Stack, dates};
use crate::gates::{Gates, SMALL};
use crate::site::Site;

/// Chunks of each large job.
const MANY: u32 = 120;

#[tokio::test(flavor = "multi_thread")]
async fn the_urgent_comes_next_and_large_jobs_share() {
    the_urgent_comes_next_and_large_jobs_share_on(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_urgent_comes_next_and_large_jobs_share_embedded() {
    the_urgent_comes_next_and_large_jobs_share_on(Kind::Embedded).await;
}

async fn the_urgent_comes_next_and_large_jobs_share_on(kind: Kind) {
    let mut gates = Gates::new().await;
    // A step so long that the time between two submissions makes no difference.
    let fairness = "[queue]\nfairness_step = \"10s\"\n\n";
    let narrow = gates.source("narrow", "max_concurrent = 1");
    let stack = Stack::new(kind, &format!("{STEADY}{fairness}{narrow}")).await;
    let site = Site::start(&stack).await;
    let _second = (kind != Kind::Embedded).then(|| stack.spawn("second-worker", "worker"));
    let client = site.client();
    gates.shut(SMALL).await;
    let before = client.submit(&export("BEFORE", 1, 5)).await;
    gates.reached(SMALL).await;
    let one = client.submit(&export("ONE", MANY, 5)).await;
    let two = client.submit(&export("TWO", MANY, 5)).await;
    let raised = client.submit(&export("RAISED", 3, 0)).await;
    let last = client.submit(&export("LAST", 1, 0)).await;
    let urgent = client.submit(&export("URGENT", 3, 9)).await;
    let path = format!("/jobs/{raised}/priority");
    let (status, job) = client.post(&path, &json!({ "priority": 8 })).await.expect("the API answers");
    assert_eq!((status, &job["priority"]), (202, &json!(8)), "{job}");
    let (_, queues) = client.get("/queues").await.expect("the API answers");
    let queue = &queues["items"][0];
    assert_eq!(
        ["name", "depth", "running", "maxConcurrent"].map(|name| &queue[name]),
        [&json!("source:narrow"), &json!(2 * MANY + 7), &json!(1), &json!(1)],
        "{queues}"
    );

    gates.open(SMALL).await;
    let jobs = [&before, &urgent, &raised, &one, &two, &last];
    for id in jobs {
        client.wait_for(id, "COMPLETED").await;
    }
    let starts = starts(&client, &jobs).await;
    let expected = [[&before].as_slice(), &[&urgent; 3], &[&raised; 3]].concat();
    assert_eq!(starts[..7].iter().collect::<Vec<_>>(), expected, "the urgent first, whoever came before");
    assert_eq!(starts.last(), Some(&last), "what nobody raised");

    let shared = &starts[7..starts.len() - 1];
    for (job, other) in [(&one, &two), (&two, &one)] {
        let over = shared.iter().rposition(|start| start == job).expect("it ran");
        let others = shared[..over].iter().filter(|start| *start == other).count();
        assert!(others >= MANY as usize / 3, "{others} of the other when all of one had started: {shared:?}");
    }
}

fn export(key: &str, chunks: u32, priority: u8) -> Value {
    json!({
        "dataset": "narrow_small", "priority": priority,
        "items": [{ "key": key, "effectiveDates": dates(chunks) }]
    })
}

/// The job of every chunk, in the order of their starts.
async fn starts(client: &Client, jobs: &[&String]) -> Vec<String> {
    let mut starts = Vec::new();
    for id in jobs {
        for chunk in client.all(&format!("/jobs/{id}/chunks")).await {
            let at = chunk["startedAt"].as_str().expect("a time");
            starts.push((chrono::DateTime::parse_from_rfc3339(at).expect("RFC 3339"), (*id).clone()));
        }
    }
    starts.sort_by_key(|(at, _)| *at);
    starts.into_iter().map(|(_, id)| id).collect()
}
