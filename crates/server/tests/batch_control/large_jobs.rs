//! Who is next when thousands of chunks wait: the urgent, at once, and then two large jobs in equal
//! parts.

use outhaul_testkit::size::size;
use serde_json::{Value, json};

use crate::common::{Kind, STEADY, Stack, dates, eventually};
use crate::gates::{Gates, SMALL};
use crate::site::Site;

/// Exports that run at once, in all workers together.
const AT_ONCE: usize = 8;
/// Chunks of the urgent one.
const URGENT: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn the_urgent_passes_thousands_and_two_large_jobs_share() {
    // Chunks of each large job, and chunks of both after which the test has seen enough.
    let (many, enough) = size((3_000, 1_500), (10_000, 3_000));
    let kind = Kind::PostgresLocal;
    let mut gates = Gates::new().await;
    // A step so long that the time between two submissions makes no difference.
    let fairness = "[queue]\nfairness_step = \"10s\"\n\n";
    let source = gates.source("wide", &format!("max_concurrent = {AT_ONCE}"));
    let stack = Stack::new(kind, &format!("{STEADY}{fairness}{source}")).await;
    let site = Site::start(&stack).await;
    let _second = stack.spawn("second-worker", "worker");
    let client = site.client();
    gates.shut(SMALL).await;
    let before = client.submit(&export("BEFORE", AT_ONCE, 5)).await;
    let busy = eventually("all that may run at once runs", || async {
        client.job(&before).await["running"] == json!(AT_ONCE)
    });
    busy.await.unwrap_or_else(|error| panic!("{error}\n{}", site.worker().log()));
    let one = client.submit(&export("ONE", many, 5)).await;
    let two = client.submit(&export("TWO", many, 5)).await;
    let urgent = client.submit(&export("URGENT", URGENT, 9)).await;
    let (_, queues) = client.get("/queues").await.expect("the API answers");
    assert_eq!(queues["items"][0]["depth"], json!(2 * many + URGENT), "{queues}");

    gates.open(SMALL).await;
    client.wait_for(&urgent, "COMPLETED").await;
    let going = eventually("both are well under way", || async {
        let [one, two] = [client.job(&one).await, client.job(&two).await];
        one["done"].as_u64().max(two["done"].as_u64()) >= Some(enough as u64 / 2)
    });
    going.await.unwrap_or_else(|error| panic!("{error}\n{}", site.worker().log()));
    for id in [&one, &two] {
        let (status, job) =
            client.post(&format!("/jobs/{id}/cancel"), &json!({})).await.expect("the API answers");
        assert_eq!(status, 202, "{job}");
    }
    for id in [&one, &two] {
        client.wait_for(id, "CANCELLED").await;
    }
    let [before, one, two, urgent] = numbers(&stack, [&before, &one, &two, &urgent]).await;
    let starts: Vec<i64> = stack
        .recorded("select job_id from job_chunk where started_at is not null order by started_at, id")
        .await
        .into_iter()
        .map(|row| row[0])
        .collect();
    let (first, rest) = starts.split_at(AT_ONCE);
    assert_eq!(first, [before; AT_ONCE]);
    // Two workers claim at the same time, and what they claim together is no more than runs at once.
    let last = rest.iter().rposition(|job| *job == urgent).expect("it ran");
    assert!(last < AT_ONCE, "{last} chunks began before the urgent had: {:?}", &rest[..=last]);

    let shared: Vec<i64> = rest.iter().copied().filter(|job| *job != urgent).collect();
    for point in (enough / 10..=shared.len()).step_by(enough / 20) {
        let of = |wanted: i64| shared[..point].iter().filter(|job| **job == wanted).count();
        let [of_one, of_two] = [of(one), of(two)];
        assert!(of_one.abs_diff(of_two) <= point / 10, "{of_one} and {of_two} of the first {point}");
    }
}

fn export(key: &str, chunks: usize, priority: u8) -> Value {
    let dates = dates(u32::try_from(chunks).expect("small"));
    let items: Vec<Value> = dates
        .chunks(1000)
        .enumerate()
        .map(|(n, dates)| json!({ "key": format!("{key}{n}"), "effectiveDates": dates }))
        .collect();
    json!({ "dataset": "wide_small", "priority": priority, "items": items })
}

/// The jobs' keys in the database.
async fn numbers<const N: usize>(stack: &Stack, jobs: [&String; N]) -> [i64; N] {
    let mut numbers = [0; N];
    for (number, id) in numbers.iter_mut().zip(jobs) {
        *number = stack.recorded(&format!("select id from job where job_id = '{id}'")).await[0][0];
    }
    numbers
}
