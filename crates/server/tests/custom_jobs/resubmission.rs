//! A failed job that is submitted again with its key: it goes on where it failed, under the same id, and
//! fifty that ask at once start it once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use serde_json::json;

use crate::common::{Kind, STEADY, Stack};
use crate::endpoint::{ALLOW, Call, Endpoint, done, status};
use crate::lock::Lock;

const STEPS: [&str; 3] = ["render", "deliver", "tell"];

#[tokio::test(flavor = "multi_thread")]
async fn fifty_resubmissions_continue_at_the_failed_step_once() {
    fifty_resubmissions(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_resubmissions_continue_at_the_failed_step_once_embedded() {
    fifty_resubmissions(Kind::Embedded).await;
}

async fn fifty_resubmissions(kind: Kind) {
    let repaired = Arc::new(AtomicBool::new(false));
    let is_repaired = repaired.clone();
    let endpoint = Endpoint::start(move |call: Call| {
        let refuse = call.step == "deliver" && !is_repaired.load(Ordering::SeqCst);
        async move { if refuse { status(400) } else { done(&json!(call.step)) } }
    })
    .await;
    let types = endpoint.job_type("PARCEL", &STEPS, "");
    let stack = Stack::new(kind, &format!("{STEADY}{ALLOW}{types}")).await;
    let processes = match kind {
        Kind::Embedded => vec![stack.serve("server", "api,worker,scheduler").await],
        _ => vec![
            stack.serve("api-1", "api,worker").await,
            stack.serve("api-2", "api,worker").await,
            stack.serve("api-3", "api,scheduler").await,
        ],
    };
    let clients: Vec<_> = processes.iter().map(|process| process.client()).collect();
    let body = json!({ "jobType": "PARCEL", "payload": { "n": 1 }, "idempotencyKey": "again" });
    let id = clients[0].submit(&body).await;
    let failed = clients[0].wait_for(&id, "FAILED").await;
    assert_eq!(
        failed["errorMessage"], "Chunk failed after retries: step=deliver: answered 400 Bad Request",
        "{failed}"
    );
    assert_eq!((&failed["failed"], &failed["result"]), (&json!(1), &json!(null)), "{failed}");
    let steps: Vec<_> =
        failed["steps"].as_array().expect("steps").iter().map(|step| &step["status"]).collect();
    assert_eq!(steps, ["DONE", "FAILED", "PENDING"], "{failed}");
    assert_eq!(endpoint.counts(&id, &STEPS), [1, 1, 0], "an answer of 400 is not tried again");

    repaired.store(true, Ordering::SeqCst);
    let fifty = join_all((0..50).map(|n| clients[n % clients.len()].submit(&body)));
    let ids = match kind {
        Kind::Embedded => fifty.await,
        _ => {
            // The job cannot change before many of them have seen it FAILED.
            let sql = format!("select 1 from job where job_id = '{id}' for share");
            let mut lock = Lock::take(&stack, &sql).await;
            let release = async {
                lock.wanted_by(10, &processes[0]).await;
                lock.release().await;
            };
            tokio::join!(fifty, release).0
        }
    };
    assert!(ids.iter().all(|other| *other == id), "{ids:?}");
    let job = clients[0].wait_for(&id, "COMPLETED").await;
    assert_eq!(endpoint.counts(&id, &STEPS), [1, 2, 1], "it goes on at the step that failed");
    assert_eq!((&job["result"], &job["errorMessage"]), (&json!("tell"), &json!(null)), "{job}");
    assert_eq!((&job["failed"], &job["done"]), (&json!(0), &json!(1)), "{job}");
    let history = clients[0].all(&format!("/jobs/{id}/history")).await;
    let redrives = history.iter().filter(|row| row["from"] == "DEAD" && row["to"] == "QUEUED").count();
    assert_eq!(redrives, 1, "{history:?}");

    // It has completed: asking once more starts nothing.
    assert_eq!(clients[0].submit(&body).await, id);
    assert_eq!(clients[0].job(&id).await, job);
    let (refused, _) = clients[0]
        .post("/jobs", &json!({ "jobType": "PARCEL", "payload": { "n": 2 }, "idempotencyKey": "again" }))
        .await
        .expect("the API answers");
    assert_eq!(refused, 422, "another payload under the same key");
    assert_eq!(endpoint.calls().len(), 4);
}
