//! A job that is cancelled in the middle of its files leaves none, nor what it had staged of them:
//! whoever owns its chunks stops, also inside a query that hangs, and if the owner is dead others clear up.

use serde_json::{Value, json};

use crate::common::{BRISK, Client, Kind, Stack, dates, eventually};
use crate::gates::{Gates, ON_THE_WAY, ROWS};
use crate::site::Site;

/// Chunks that run at once: the concurrency of [`BRISK`].
const RUNNING: usize = 4;
/// All chunks.
const TOTAL: u32 = 6;
/// Far enough in each file that it does not fit into memory, or into one request to S3.
const MIDDLE: i64 = ON_THE_WAY[1];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_on_sqlite_and_local_files() {
    nothing_is_left(Kind::Embedded, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_on_postgres_and_local_files() {
    nothing_is_left(Kind::PostgresLocal, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_on_postgres_and_s3() {
    nothing_is_left(Kind::PostgresS3, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_dead_worker_on_sqlite_and_local_files() {
    nothing_is_left(Kind::Embedded, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_dead_worker_on_postgres_and_local_files() {
    nothing_is_left(Kind::PostgresLocal, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_dead_worker_on_postgres_and_s3() {
    nothing_is_left(Kind::PostgresS3, true).await;
}

async fn nothing_is_left(kind: Kind, owner_dies: bool) {
    let mut gates = Gates::new().await;
    // Nobody may lose a lease but by a kill. An embedded server knows at its start that the last one is dead.
    let lease = if owner_dies && kind != Kind::Embedded { "lease = \"6s\"" } else { "lease = \"60s\"" };
    let brisk = BRISK.replace("lease = \"3s\"", lease);
    let stack = Stack::new(kind, &format!("{brisk}{}", gates.source("warehouse", ""))).await;
    let mut site = Site::start(&stack).await;
    gates.shut(MIDDLE).await;
    let id = site.client().submit(&export(TOTAL)).await;
    are_in_the_middle(&stack, &site, &id).await;
    assert_eq!(stack.published(), [""; 0]);

    if owner_dies {
        site.kill_worker();
        // Where it was the API too, the next one is both, and it may not own the chunks before they are
        // cancelled: whoever comes finds them at a gate that is shut.
        if kind == Kind::Embedded {
            site.replace_api().await;
        }
    }
    let client = site.client();
    let (status, job) =
        client.post(&format!("/jobs/{id}/cancel"), &json!({})).await.expect("the API answers");
    assert_eq!((status, &job["status"]), (202, &json!("CANCELLED")), "{job}");
    if owner_dies && kind != Kind::Embedded {
        site.replace_worker().await;
    }
    // The gate is shut all along: nobody comes to the end of a query.
    let job = client.wait_for(&id, "CANCELLED").await;
    assert_eq!(
        ["total", "cancelled", "pending", "running", "done", "failed"].map(|name| &job[name]),
        [&json!(TOTAL), &json!(TOTAL), &json!(0), &json!(0), &json!(0), &json!(0)],
        "{job}"
    );
    if owner_dies {
        // What the dead have left is removed by a sweep; one comes with every start.
        site.replace_worker().await;
        let clean = eventually("nothing is staged", || async { stack.staged().is_empty() });
        clean.await.unwrap_or_else(|error| panic!("{error}\n{}", site.worker().log()));
    }
    let client = site.client();
    leaves_nothing(&stack, &client, &id).await;
    gates.nobody_waits(MIDDLE).await;

    // Nothing stands in the way of the same files, and nothing of the old job comes with them.
    gates.open(MIDDLE).await;
    let next = client.complete(&export(1)).await;
    assert_eq!((&next["rows"], &next["filesGenerated"]), (&json!(ROWS), &json!(1)), "{next}");
    assert_eq!((stack.published().len(), stack.staged()), (1, vec![]));
    assert_eq!(client.job(&id).await, job);
}

fn export(dates_of: u32) -> Value {
    json!({ "dataset": "warehouse_counted", "items": [{ "key": "ABC", "effectiveDates": dates(dates_of) }] })
}

/// Waits until each running chunk has written half of its file, and none of it may be seen.
async fn are_in_the_middle(stack: &Stack, site: &Site<'_>, id: &str) {
    let client = site.client();
    let half = i64::try_from(RUNNING).expect("small") * (MIDDLE - 20);
    let written = eventually("all are in the middle of their files", || async {
        let job = client.job(id).await;
        job["rows"].as_i64() >= Some(half) && stack.staged().len() == RUNNING
    });
    written.await.unwrap_or_else(|error| panic!("{error}: {:?}\n{}", stack.staged(), site.worker().log()));
    let job = client.job(id).await;
    assert_eq!((&job["running"], &job["done"]), (&json!(RUNNING), &json!(0)), "{job}");
    assert!(job["bytes"].as_i64() >= Some(4 * 9 * 1024 * 1024), "{job}");
}

/// Insists that of a cancelled job there is neither a file nor a part of one, and that its chunks say so.
async fn leaves_nothing(stack: &Stack, client: &Client, id: &str) {
    assert_eq!((stack.published(), stack.staged()), (vec![], vec![]));
    assert_eq!(client.files(id).await, [Value::Null; 0]);
    let chunks = client.all(&format!("/jobs/{id}/chunks")).await;
    let states: Vec<&Value> = chunks.iter().map(|chunk| &chunk["status"]).collect();
    assert_eq!(states, [&json!("CANCELLED"); TOTAL as usize]);
    let recorded: Vec<bool> = stack.chunks(id, "CANCELLED").await.into_iter().map(|(_, _, is)| is).collect();
    assert_eq!(recorded, [true; TOTAL as usize]);
    assert_eq!(stack.recorded("select count(*) from file_cache where generation > 0").await, [[0]]);
    let history = client.all(&format!("/jobs/{id}/history")).await;
    let ends = history.iter().filter(|row| row["to"] == "CANCELLED").count();
    assert_eq!(ends, TOTAL as usize, "once each: {history:?}");
}
