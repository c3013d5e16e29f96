//! A job of 100,000 chunks: submitted in one transaction, and no obstacle for a job of one chunk that
//! comes behind it.

mod common;

use common::sql::warehouse;
use common::{Kind, STEADY, Stack, dates, eventually};
use serde_json::{Value, json};

const KEYS: usize = 100;
const DAYS: u32 = 1000;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_one_chunk_does_not_wait_behind_one_of_100_000() {
    let kind = Kind::PostgresLocal;
    let query = "select 1 as n where :key <> '' and :effective_date is not null";
    // As long as it takes to write that many.
    let limits =
        "[limits]\nmax_chunks_per_job = 100000\nmax_body_bytes = 10000000\nrequest_timeout = \"10m\"\n\n";
    let stack = Stack::new(kind, &format!("{STEADY}{limits}{}", warehouse(kind, query))).await;
    let api = stack.serve("api", "api").await;
    let client = api.client();
    let dates = dates(DAYS);
    let items: Vec<Value> =
        (0..KEYS).map(|key| json!({ "key": format!("K{key}"), "effectiveDates": dates })).collect();
    let large = client.submit(&json!({ "items": items })).await;

    let rows = stack
        .recorded(
            "select count(*), count(distinct c.xmin::text), min((j.xmin::text = c.xmin::text)::int)::bigint \
             from job_chunk c join job j on j.id = c.job_id",
        )
        .await;
    assert_eq!(rows, [[100_000, 1, 1]], "one transaction wrote the job and all its chunks");
    let job = client.job(&large).await;
    assert_eq!(
        (&job["status"], &job["total"], &job["pending"]),
        (&json!("SUBMITTED"), &json!(100_000), &json!(100_000))
    );

    let worker = stack.spawn("worker", "worker,scheduler");
    let started = eventually("the large one has begun", || async {
        client.job(&large).await["done"].as_i64() > Some(0)
    });
    started.await.unwrap_or_else(|error| panic!("{error}\n{}", worker.log()));
    let small =
        client.submit(&json!({ "items": [{ "key": "SMALL", "effectiveDates": ["20250215"] }] })).await;
    client.wait_for(&small, "COMPLETED").await;
    let before = stack
        .recorded(&format!(
            "select count(*) from job_chunk c join job j on j.id = c.job_id, \
             (select s.created_at, k.started_at from job s join job_chunk k on k.job_id = s.id \
              where s.job_id = '{small}') small \
             where j.job_id = '{large}' and c.started_at > small.created_at and c.started_at < small.started_at"
        ))
        .await;
    assert!(before[0][0] < 2000, "it waited behind {before:?} chunks");

    // One more than is allowed is refused, and changes nothing.
    let more: Vec<Value> =
        items.iter().cloned().chain([json!({ "key": "ONE", "effectiveDates": ["20250215"] })]).collect();
    let (status, answer) = client.post("/jobs", &json!({ "items": more })).await.expect("the API answers");
    assert_eq!((status, &answer["errors"][0]["pointer"]), (400, &json!("/items")), "{answer}");

    let (status, _) =
        client.post(&format!("/jobs/{large}/cancel"), &json!({})).await.expect("the API answers");
    assert_eq!(status, 202);
    let job = client.wait_for(&large, "CANCELLED").await;
    let (done, cancelled) =
        (job["done"].as_u64().expect("done"), job["cancelled"].as_u64().expect("cancelled"));
    assert_eq!(
        (done + cancelled, &job["pending"], &job["running"]),
        (100_000, &json!(0), &json!(0)),
        "{job}"
    );
    assert_eq!(stack.published().len() as u64, done + 1);
}
