//! What clients see of triggers: how they are made, shown and deleted, what they wait for and what they
//! fired.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{LOOKS, OLD, Server, header, one_file, path_of};

const CONFIGURED: &str = r#"
[triggers.follow]
after = ["dataset:positions"]
job = { jobType = "ORDER", payload = { order = "{{parents.0.jobId}}" } }
"#;

fn ship() -> Value {
    json!({"after": ["dataset:positions", "job:ORDER"], "match": "businessDate", "within": "24h",
        "job": {"jobType": "ONCE", "payload": {"order": "{{label.businessDate}}", "card": "canary"},
            "labels": {"from": "{{parents.1.jobId}}"}}})
}

impl Server {
    /// The trigger, once it has fired so often.
    async fn fired(&self, path: &str, count: usize) -> Value {
        for _ in 0..LOOKS {
            let trigger = self.json(path).await;
            let fired = trigger["fired"].as_array().unwrap();
            if fired.iter().filter(|fire| fire["state"] == "fired").count() == count {
                return trigger;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{}", self.json(path).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_is_made_shown_replaced_and_deleted() {
    let server = Server::start().await;
    let call = server.http.put(format!("{}/triggers/ship", server.base)).json(&ship());
    let made = call.send().await.unwrap();
    assert_eq!((made.status().as_u16(), header(&made, "location")), (201, "/triggers/ship"));
    let made: Value = made.json().await.unwrap();
    let shown = server.json("/triggers/ship").await;
    assert_eq!(made, shown);
    for (name, value) in ship().as_object().unwrap() {
        assert_eq!(&shown[name], value, "{name}");
    }
    assert_eq!(
        (&shown["origin"], &shown["waiting"], &shown["fired"]),
        (&json!("api"), &json!([]), &json!([]))
    );
    let mut expected = shown.clone();
    expected["job"] = Value::Null;
    assert_eq!(
        server.json("/triggers").await,
        json!({"items": [expected], "nextCursor": null}),
        "without the job"
    );

    assert_eq!(server.put("/triggers/ship", &ship()).await, (200, shown.clone()), "nothing changed");
    let little = json!({"after": ["job:ORDER"], "job": {"jobType": "ONCE"}});
    let (status, replaced) = server.put("/triggers/ship", &little).await;
    assert_eq!((status, &replaced["match"], &replaced["within"]), (200, &Value::Null, &Value::Null));
    for n in 0..3 {
        assert_eq!(server.put(&format!("/triggers/more.{n}"), &little).await.0, 201);
    }
    let pages = server.pages("/triggers", 2).await;
    let names: Vec<&str> = pages.iter().flatten().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!((pages.len(), names), (2, vec!["more.0", "more.1", "more.2", "ship"]));

    assert_eq!(server.act(Method::DELETE, "/triggers/ship").await, (204, Value::Null));
    for (method, path) in
        [(Method::DELETE, "/triggers/ship"), (Method::GET, "/triggers/ship"), (Method::GET, "/triggers/%00")]
    {
        let (status, problem) = server.act(method, path).await;
        assert_eq!((status, &problem["detail"]), (404, &json!("there is no such trigger")), "{path}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_waits_for_all_and_fires_once() {
    let server = Server::start().await;
    assert_eq!(server.put("/triggers/ship", &ship()).await.0, 201);
    let labels = |date: &str| json!({ "businessDate": date });
    let mut export = one_file();
    export["labels"] = labels(OLD);
    let export = server.complete(&export).await;
    let waits = async || {
        for _ in 0..LOOKS {
            let waiting = server.json("/triggers/ship").await["waiting"].take();
            if !waiting.as_array().unwrap().is_empty() {
                return waiting;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{}", server.json("/triggers/ship").await);
    };
    let waiting = waits().await;
    assert_eq!((&waiting[0]["value"], &waiting[0]["missing"]), (&json!(OLD), &json!(["job:ORDER"])));
    assert_eq!(waiting[0]["arrived"][0]["term"], "dataset:positions");
    assert_eq!(path_of(&waiting[0]["arrived"][0]), export);

    let order = |date: &str| json!({"jobType": "ORDER", "payload": {"order": 1}, "labels": labels(date)});
    server.complete(&order("20250216")).await;
    let order = server.complete(&order(OLD)).await;
    let trigger = server.fired("/triggers/ship", 1).await;
    let fire = &trigger["fired"][0];
    let parents: Vec<String> = fire["parents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| format!("/jobs/{}", id.as_str().unwrap()))
        .collect();
    assert_eq!((&fire["value"], parents), (&json!(OLD), vec![export, order.clone()]));
    let job = server.until(&path_of(fire), |job| job["status"] == "COMPLETED").await;
    assert_eq!((&job["jobType"], &job["result"]["shipped"]), (&json!("ONCE"), &json!(OLD)));
    assert_eq!(job["labels"]["from"], order.trim_start_matches("/jobs/"));
    let missing: Vec<&Value> =
        trigger["waiting"].as_array().unwrap().iter().map(|wait| &wait["missing"]).collect();
    assert_eq!(missing, [&json!(["dataset:positions"])], "the other day waits: {trigger}");
    assert_eq!(server.json("/triggers").await["items"][0]["fired"], trigger["fired"]);
    assert_eq!(server.act(Method::DELETE, "/triggers/ship").await.0, 204);
    server.json(&path_of(fire)).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_of_the_configuration_are_changed_there() {
    let server = Server::start_with(CONFIGURED).await;
    let shown = server.json("/triggers/follow").await;
    assert_eq!(shown["origin"], "config");
    let (status, problem) = server.put("/triggers/follow", &ship()).await;
    assert!(status == 409 && problem["detail"].as_str().unwrap().contains("configuration"), "{problem}");
    assert_eq!(server.act(Method::DELETE, "/triggers/follow").await.0, 409);
    assert_eq!(server.json("/triggers/follow").await, shown, "nothing changed");

    let export = server.complete(&one_file()).await;
    let trigger = server.fired("/triggers/follow", 1).await;
    let job = server.until(&path_of(&trigger["fired"][0]), |job| job["status"] == "COMPLETED").await;
    assert_eq!(job["result"]["shipped"], export.trim_start_matches("/jobs/"));
    server.stop().await;
}
