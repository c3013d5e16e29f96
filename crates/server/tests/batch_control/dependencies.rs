//! What becomes of a job whose parent comes to a bad end, and of one whose parent is not there.

use chrono::DateTime;
use serde_json::{Value, json};

use crate::common::sql::warehouse;
use crate::common::{Client, Kind, STEADY, Stack};
use crate::site::Site;

/// A dataset whose table is not there yet, and one that works.
fn datasets(kind: Kind) -> String {
    let works = "select abs(1) as n, :key as key";
    let more =
        format!("[datasets.broken]\nsource = \"warehouse\"\nquery = \"{}\"\n\n", "select n from missing");
    warehouse(kind, works) + &more
}

fn export(dataset: &str, key: &str, more: &Value) -> Value {
    let mut body =
        json!({ "dataset": dataset, "items": [{ "key": key, "effectiveDates": ["20200215", "20200216"] }] });
    for (name, value) in more.as_object().expect("options") {
        body[name] = value.clone();
    }
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_end_does_what_the_child_says() {
    a_bad_end_does_what_the_child_says_on(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_end_does_what_the_child_says_embedded() {
    a_bad_end_does_what_the_child_says_on(Kind::Embedded).await;
}

async fn a_bad_end_does_what_the_child_says_on(kind: Kind) {
    let stack = Stack::new(kind, &format!("{STEADY}{}", datasets(kind))).await;
    stack.source("create table other (n bigint)").await;
    let site = Site::start(&stack).await;
    let client = site.client();
    let parent = client.submit(&export("broken", "PARENT", &json!({}))).await;
    let mut children = Vec::new();
    for policy in ["hold", "cancel", "fail", "run"] {
        let options = json!({ "dependsOn": [parent], "onParentFailure": policy });
        children.push(client.submit(&export("positions", policy, &options)).await);
    }
    let default = client.submit(&export("positions", "default", &json!({ "dependsOn": [parent] }))).await;
    let grandchild =
        client.submit(&export("positions", "next", &json!({ "dependsOn": [children[0], parent] }))).await;
    let [hold, cancel, fail, run] = &children[..] else { unreachable!("four policies") };

    let failed = client.wait_for(&parent, "FAILED").await;
    let ran = client.wait_for(run, "COMPLETED").await;
    assert!(at(&failed, "completedAt") <= at(&ran, "startedAt"), "{ran}");
    let cancelled = client.wait_for(cancel, "CANCELLED").await;
    let dead = client.wait_for(fail, "FAILED").await;
    for child in [&cancelled, &dead] {
        let said = child["errorMessage"].as_str().expect("a cause");
        assert!(said.contains(&parent) && said.contains("FAILED"), "{child}");
        assert_eq!((&child["startedAt"], &child["done"]), (&Value::Null, &json!(0)), "{child}");
    }
    assert_eq!((&cancelled["cancelled"], &dead["failed"]), (&json!(2), &json!(2)));
    assert_eq!(
        client.all("/dead-letters").await.iter().filter(|letter| letter["jobId"] == **fail).count(),
        2
    );
    // The same sweeps have seen these, and let them wait.
    for id in [hold, &default, &grandchild] {
        let job = client.job(id).await;
        assert_eq!((&job["status"], &job["pending"]), (&json!("SUBMITTED"), &json!(2)), "{job}");
    }

    // Mended, and tried again.
    stack.source("create table missing (n bigint)").await;
    let filter = json!({ "filter": { "jobId": parent } });
    let (status, did) = client.post("/dead-letters/redrive", &filter).await.expect("the API answers");
    assert_eq!(status, 200, "{did}");
    let mended = client.wait_for(&parent, "COMPLETED").await;
    for id in [hold, &default] {
        let child = client.wait_for(id, "COMPLETED").await;
        assert!(at(&mended, "completedAt") <= at(&child, "startedAt"), "{child}");
        ran_once(&client, id).await;
    }
    let held = client.job(hold).await;
    let next = client.wait_for(&grandchild, "COMPLETED").await;
    assert!(at(&held, "completedAt") <= at(&next, "startedAt"), "{next}");
    ran_once(&client, run).await;
    assert_eq!(client.job(cancel).await, cancelled, "nothing leaves CANCELLED");
    assert_eq!(client.job(fail).await, dead, "it waits for a person");
    let (status, job) =
        client.post(&format!("/jobs/{fail}/retry"), &json!({})).await.expect("the API answers");
    assert_eq!(status, 202, "{job}");
    client.wait_for(fail, "COMPLETED").await;
    assert_eq!(client.all("/dead-letters").await, [Value::Null; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_parent_is_a_bad_end_too() {
    for kind in [Kind::PostgresLocal, Kind::Embedded] {
        let stack = Stack::new(kind, &format!("{STEADY}{}", datasets(kind))).await;
        stack.source("create table other (n bigint)").await;
        let site = Site::start(&stack).await;
        let client = site.client();
        let later = json!({ "runAt": "2999-01-01T00:00:00Z" });
        let parent = client.submit(&export("positions", "PARENT", &later)).await;
        let mut children = Vec::new();
        for policy in ["hold", "cancel", "fail", "run"] {
            let options = json!({ "dependsOn": [parent], "onParentFailure": policy });
            children.push(client.submit(&export("positions", policy, &options)).await);
        }
        cancel(&client, &parent).await;
        for (child, end) in children[1..].iter().zip(["CANCELLED", "FAILED", "COMPLETED"]) {
            let child = client.wait_for(child, end).await;
            let named = child["errorMessage"].as_str().is_some_and(|said| said.contains(&parent));
            assert_eq!(named, end != "COMPLETED", "{child}");
        }
        assert_eq!(client.job(&children[0]).await["status"], "SUBMITTED", "it waits for good");
        cancel(&client, &children[0]).await;
    }
}

async fn cancel(client: &Client, id: &str) {
    let (status, job) =
        client.post(&format!("/jobs/{id}/cancel"), &json!({})).await.expect("the API answers");
    assert_eq!(status, 202, "{job}");
    client.wait_for(id, "CANCELLED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_is_not_there_is_refused_and_nothing_is_stored() {
    for kind in [Kind::PostgresLocal, Kind::Embedded] {
        let stack = Stack::new(kind, &format!("{STEADY}{}", datasets(kind))).await;
        stack.source("create table other (n bigint)").await;
        let site = Site::start(&stack).await;
        let client = site.client();
        let there = client.complete(&export("positions", "THERE", &json!({}))).await;
        let before = client.all("/jobs").await;
        let missing = "J20200101_0123456789ABC";
        for (parents, pointer) in [
            (json!([missing]), "/dependsOn"),
            (json!([there["jobId"], missing]), "/dependsOn"),
            (json!(["nonsense"]), "/dependsOn/0"),
            (json!("nonsense"), "/dependsOn"),
        ] {
            let options = json!({ "dependsOn": parents, "idempotencyKey": "once" });
            let body = export("positions", "CHILD", &options);
            let (status, problem) = client.post("/jobs", &body).await.expect("the API answers");
            assert_eq!((status, &problem["errors"][0]["pointer"]), (400, &json!(pointer)), "{problem}");
            assert_eq!(problem["errors"].as_array().map(Vec::len), Some(1), "{problem}");
        }
        assert_eq!(client.all("/jobs").await, before);
        // Not even the key is taken; and a parent that has ended already holds nobody up.
        let options = json!({ "dependsOn": [there["jobId"]], "idempotencyKey": "once" });
        client.complete(&export("positions", "CHILD", &options)).await;
    }
}

fn at(job: &Value, name: &str) -> DateTime<chrono::FixedOffset> {
    let time = job[name].as_str().unwrap_or_else(|| panic!("{name} in {job}"));
    DateTime::parse_from_rfc3339(time).expect("RFC 3339")
}

/// Insists that each chunk was started and finished once.
async fn ran_once(client: &Client, id: &str) {
    let history = client.all(&format!("/jobs/{id}/history")).await;
    for to in ["QUEUED", "RUNNING", "SUCCESS"] {
        assert_eq!(history.iter().filter(|row| row["to"] == to).count(), 2, "{to}: {history:?}");
    }
}
