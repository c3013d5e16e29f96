//! Bad input of triggers: every problem is named with its place, cycles are refused with their way round,
//! and nothing changes.

use serde_json::{Value, json};

use super::common::Kind;
use super::schedules::{put, with};
use super::start;

const TYPES: &str = "[job_types.MAIL]\nretry = { max_attempts = 1 }\nsteps = [{ name = \"call\", http = \"http://127.0.0.1:9/\" }]\n\n\
     [job_types.BILL]\nretry = { max_attempts = 1 }\nsteps = [{ name = \"call\", http = \"http://127.0.0.1:9/\" }]\n\n";

fn good() -> Value {
    json!({ "after": ["dataset:positions"], "job": { "jobType": "MAIL", "payload": "canary" } })
}

fn from_to(after: &str, job: &str) -> Value {
    json!({ "after": [after], "job": { "jobType": job } })
}

pub(super) async fn triggers_are_judged_whole(kind: Kind) {
    let (stack, _server, client) = start(kind, TYPES).await;
    assert_eq!(put(&client, "/triggers/there", &good()).await.0, 201);
    let before =
        (client.all("/triggers").await, client.get("/triggers/there").await.expect("the API answers"));
    for (changes, places) in [
        (json!({ "after": null }), vec!["/after"]),
        (json!({ "after": [] }), vec!["/after"]),
        (json!({ "after": "dataset:positions" }), vec!["/after"]),
        (json!({ "after": vec!["job:MAIL"; 11] }), vec!["/after"]),
        (json!({ "after": ["job:EXPORT"] }), vec!["/after/0"]),
        (json!({ "after": ["dataset:nope"] }), vec!["/after/0"]),
        (json!({ "after": ["job:mail"] }), vec!["/after/0"]),
        (json!({ "after": ["report:x", 5, ""], "match": "d" }), vec!["/after/0", "/after/1", "/after/2"]),
        (json!({ "after": ["job:BILL", "job:BILL"], "match": "d" }), vec!["/after/1"]),
        (json!({ "after": ["job:BILL", "dataset:positions"] }), vec!["/match"]),
        (json!({ "match": "" }), vec!["/match"]),
        (json!({ "match": "a\u{0}" }), vec!["/match"]),
        (json!({ "match": "x".repeat(65) }), vec!["/match"]),
        (json!({ "match": ["d"] }), vec!["/match"]),
        (json!({ "within": "0s" }), vec!["/within"]),
        (json!({ "within": "forever" }), vec!["/within"]),
        (json!({ "within": 5 }), vec!["/within"]),
        (json!({ "within": "18446744073709551615ms" }), vec!["/within"]),
        (json!({ "job": null }), vec!["/job"]),
        (json!({ "job": [] }), vec!["/job"]),
        (json!({ "job": { "jobType": "NOPE" } }), vec!["/job/jobType"]),
        (json!({ "job": { "jobType": "{{label.type}}" } }), vec!["/job/jobType"]),
        (json!({ "job": { "jobType": "MAIL", "payload": "canary {{slot}}" } }), vec!["/job/payload"]),
        (json!({ "job": { "jobType": "MAIL", "payload": "{{parents.1.jobId}}" } }), vec!["/job/payload"]),
        (json!({ "job": { "jobType": "MAIL", "payload": "{{label.}}" } }), vec!["/job/payload"]),
        (
            json!({ "job": { "dataset": "{{label.d}}", "items": [{ "key": "A", "effectiveDates": ["20250215"] }] } }),
            vec!["/job/dataset"],
        ),
        (
            json!({ "job": { "items": [{ "key": "A", "effectiveDates": ["x{{label.d}}"] }] } }),
            vec!["/job/items/0/effectiveDates/0"],
        ),
        (json!({ "wihtin": "1h", "waiting": [] }), vec!["/waiting", "/wihtin"]),
        (
            json!({ "after": [1], "match": 1, "within": 1, "job": { "jobType": 1, "labels": 1 } }),
            vec!["/after/0", "/job/jobType", "/job/labels", "/match", "/within"],
        ),
    ] {
        for name in ["there", "new"] {
            let judged = put(&client, &format!("/triggers/{name}"), &with(good(), changes.clone())).await;
            assert_eq!(judged, (400, places.iter().map(|place| (*place).to_owned()).collect()), "{changes}");
        }
    }
    assert_eq!(put(&client, "/triggers/a%20b", &good()).await, (400, vec!["{name}".to_owned()]));
    for body in [json!(null), json!([]), json!("x")] {
        assert_eq!(put(&client, "/triggers/new", &body).await, (400, vec![String::new()]));
    }
    let after =
        (client.all("/triggers").await, client.get("/triggers/there").await.expect("the API answers"));
    assert_eq!(after, before, "nothing changed");
    for (path, query) in [("/triggers", "limit=0"), ("/schedules", "cursor=00"), ("/triggers/there", "x=1")] {
        let (status, _) = client.get(&format!("{path}?{query}")).await.expect("the API answers");
        assert_eq!(status, 400, "{path}?{query}");
    }
    assert_eq!(stack.recorded("select count(*) from job").await, [[0]]);
}

pub(super) async fn cycles_of_triggers_are_refused(kind: Kind) {
    let (_stack, _server, client) = start(kind, TYPES).await;
    let refused = (400, vec!["/after".to_owned()]);
    assert_eq!(put(&client, "/triggers/self", &from_to("job:MAIL", "MAIL")).await, refused);
    let export = json!({ "after": ["dataset:positions"], "job": { "items": [{ "key": "A", "effectiveDates": ["20250215"] }] } });
    assert_eq!(put(&client, "/triggers/self", &export).await, refused, "the default dataset is a dataset");

    assert_eq!(put(&client, "/triggers/one", &from_to("job:MAIL", "BILL")).await.0, 201);
    let back = from_to("job:BILL", "MAIL");
    assert_eq!(put(&client, "/triggers/two", &back).await, refused);
    let call = client.http.put(format!("{}/triggers/two", client.base)).json(&back);
    let problem: Value = call.send().await.expect("the API answers").json().await.expect("JSON");
    let message = problem["errors"][0]["message"].as_str().expect("a message");
    assert!(message.contains("one") && message.contains("two") && message.contains("→"), "{message}");
    assert_eq!(client.get("/triggers/two").await.expect("the API answers").0, 404, "nothing was stored");

    assert_eq!(put(&client, "/triggers/two", &from_to("dataset:positions", "MAIL")).await.0, 201);
    assert_eq!(put(&client, "/triggers/two", &back).await, refused, "nor when it was there");
    let (_, two) = client.get("/triggers/two").await.expect("the API answers");
    assert_eq!(two["after"], json!(["dataset:positions"]), "it says what it said");
    assert_eq!(put(&client, "/triggers/one", &from_to("dataset:positions", "BILL")).await.0, 200);
    assert_eq!(put(&client, "/triggers/two", &back).await.0, 200, "what is no cycle any more is taken");
}
