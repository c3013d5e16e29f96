//! Bad input of schedules: every problem is named with its place, and nothing changes.

use serde_json::{Map, Value, json};

use super::common::{Client, Kind};
use super::start;

const MAIL: &str = "[job_types.MAIL]\nretry = { max_attempts = 1 }\n\
     steps = [{ name = \"call\", http = \"http://127.0.0.1:9/\" }]\n\n";

/// Sends a definition; the status, and the places of the problems.
pub(super) async fn put(client: &Client, path: &str, body: &Value) -> (u16, Vec<String>) {
    let call = client.http.put(format!("{}{path}", client.base)).json(body);
    let answer = call.send().await.expect("the API answers");
    let status = answer.status().as_u16();
    let answer: Value = answer.json().await.expect("JSON");
    let errors = answer["errors"].as_array().cloned().unwrap_or_default();
    assert!(status < 400 || !answer.to_string().contains("canary"), "no payload is told: {answer}");
    let mut places: Vec<String> =
        errors.iter().map(|error| error["pointer"].as_str().expect("a pointer").to_owned()).collect();
    places.sort();
    (status, places)
}

/// A definition with some of its members changed; null takes one out.
pub(super) fn with(mut body: Value, changes: Value) -> Value {
    let members = body.as_object_mut().expect("an object");
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => drop(members.remove(name)),
            _ => drop(members.insert(name.clone(), value.clone())),
        }
    }
    body
}

/// One that does not fire while a test runs.
fn good() -> Value {
    json!({ "cron": "0 2 29 2 *", "job": { "jobType": "MAIL", "payload": "canary" } })
}

pub(super) async fn schedules_are_judged_whole(kind: Kind) {
    let (stack, _server, client) = start(kind, MAIL).await;
    assert_eq!(put(&client, "/schedules/there", &good()).await.0, 201);
    let before =
        (client.all("/schedules").await, client.get("/schedules/there").await.expect("the API answers"));
    let items = |key: &str, date: &str| json!({ "items": [{ "key": key, "effectiveDates": [date] }] });
    let keys = (0..101).map(|n| json!({ "key": format!("K{n}"), "effectiveDates": ["{{slot}}"] }));
    let many = json!({ "items": keys.collect::<Vec<_>>() });
    for (changes, places) in [
        (json!({ "cron": "nonsense" }), vec!["/cron"]),
        (json!({ "cron": "" }), vec!["/cron"]),
        (json!({ "cron": "* * * * * *" }), vec!["/cron"]),
        (json!({ "cron": "*/30 * * * * *" }), vec!["/cron"]),
        (json!({ "cron": "0 2 31 2 *" }), vec!["/cron"]),
        (json!({ "cron": "0 2 * * \u{0}" }), vec!["/cron"]),
        (json!({ "cron": "0 25 * * *" }), vec!["/cron"]),
        (json!({ "cron": "0 2 * * *".repeat(1000) }), vec!["/cron"]),
        (json!({ "cron": ["0 2 * * *"] }), vec!["/cron"]),
        (json!({ "cron": null }), vec!["/cron"]),
        (json!({ "timezone": "Mars/Olympus" }), vec!["/timezone"]),
        (json!({ "timezone": "" }), vec!["/timezone"]),
        (json!({ "timezone": "x".repeat(100_000) }), vec!["/timezone"]),
        (json!({ "timezone": 1 }), vec!["/timezone"]),
        (json!({ "overlap": "wait", "catchUp": "ALL" }), vec!["/catchUp", "/overlap"]),
        (json!({ "catchUpLimit": 0 }), vec!["/catchUpLimit"]),
        (json!({ "catchUpLimit": 1001 }), vec!["/catchUpLimit"]),
        (json!({ "catch_up_limit": 1e300 }), vec!["/catchUpLimit"]),
        (json!({ "catchUp": "all", "catch_up": "none" }), vec!["/catch_up"]),
        (json!({ "catchUp": "all", "catchUpLimit": 1000, "job": many }), vec!["/catchUpLimit"]),
        (json!({ "cron": "0 2 * * *", "jitter": "24h" }), vec!["/jitter"]),
        (json!({ "jitter": "soon" }), vec!["/jitter"]),
        (json!({ "jitter": 30 }), vec!["/jitter"]),
        (json!({ "job": null }), vec!["/job"]),
        (json!({ "job": "0 2 * * *" }), vec!["/job"]),
        (json!({ "job": {} }), vec!["/job"]),
        (json!({ "job": { "jobType": "NOPE", "payload": "canary" } }), vec!["/job/jobType"]),
        (json!({ "job": { "jobType": "MAIL", "payload": "canary {{slto}}" } }), vec!["/job/payload"]),
        (
            json!({ "job": { "jobType": "MAIL", "payload": ["{{slot - 1y}}", "{{slot | dd.MMM}}"] } }),
            vec!["/job/payload/0", "/job/payload/1"],
        ),
        (json!({ "job": { "jobType": "MAIL", "payload": "{{slot" } }), vec!["/job/payload"]),
        (json!({ "job": { "jobType": "MAIL", "payload": "{{label.day}}" } }), vec!["/job/payload"]),
        (json!({ "job": items("ABC", "{{slot | yyyy-MM-dd}}") }), vec!["/job/items/0/effectiveDates/0"]),
        (json!({ "job": items("", "20250230") }), vec!["/job/items/0/effectiveDates/0", "/job/items/0/key"]),
        (
            json!({ "job": { "jobType": "MAIL", "items": [], "priority": 10 } }),
            vec!["/job", "/job/items", "/job/priority"],
        ),
        (
            json!({ "job": { "jobType": "MAIL", "dependsOn": ["x"], "runAt": "{{slot}}" } }),
            vec!["/job/dependsOn", "/job/dependsOn/0", "/job/runAt"],
        ),
        (json!({ "schedule": 1, "paused": true, "a/b": 1 }), vec!["/a~1b", "/paused", "/schedule"]),
        (
            json!({ "cron": "x", "timezone": "x", "overlap": 1, "catchUp": 1, "catchUpLimit": 0, "jitter": "x", "job": [] }),
            vec!["/catchUp", "/catchUpLimit", "/cron", "/jitter", "/job", "/overlap", "/timezone"],
        ),
    ] {
        for name in ["there", "new"] {
            let judged = put(&client, &format!("/schedules/{name}"), &with(good(), changes.clone())).await;
            assert_eq!(judged, (400, places.iter().map(|place| (*place).to_owned()).collect()), "{changes}");
        }
    }
    for name in ["-a", "a%20b", "a%2Fb", "%C3%A4", "%00", "%FF", &"x".repeat(65)] {
        let (status, places) = put(&client, &format!("/schedules/{name}"), &good()).await;
        assert_eq!((status, places), (400, vec!["{name}".to_owned()]), "{name}");
    }
    let both = put(&client, "/schedules/a%20b", &json!({ "cron": "x", "job": good()["job"] })).await;
    assert_eq!(both, (400, vec!["/cron".to_owned(), "{name}".to_owned()]), "the name and the rest at once");
    for body in [json!(null), json!([]), json!("x"), json!(5)] {
        assert_eq!(put(&client, "/schedules/new", &body).await, (400, vec![String::new()]));
    }
    assert_eq!(put(&client, "/schedules/new?dryRun=true", &good()).await, (400, vec!["?dryRun".to_owned()]));
    let after =
        (client.all("/schedules").await, client.get("/schedules/there").await.expect("the API answers"));
    assert_eq!(after, before, "nothing changed");
    assert_eq!(stack.recorded("select count(*) from job").await, [[0]]);
}

pub(super) async fn definitions_are_bounded(kind: Kind) {
    let (_stack, _server, client) =
        start(kind, &format!("[limits]\nmax_body_bytes = 200000\n\n{MAIL}")).await;
    let send = |body: String, media: &'static str| {
        let call = client.http.put(format!("{}/schedules/new", client.base)).body(body);
        async move { call.header("content-type", media).send().await.expect("the API answers").status().as_u16() }
    };
    let payload = |payload: &str| {
        format!("{{\"cron\": \"0 2 * * *\", \"job\": {{\"jobType\": \"MAIL\", \"payload\": {payload}}}}}")
    };
    let deep = |levels: usize| payload(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
    let json = "application/json";
    assert_eq!(send(payload(&format!("\"{}\"", "x".repeat(200_000))), json).await, 413);
    assert_eq!(send(payload("1"), "text/plain").await, 415);
    for body in [
        deep(125),
        deep(50_000),
        payload("canary"),
        payload("1, \"payload\": 2"),
        String::new(),
        "{".to_owned(),
    ] {
        assert_eq!(send(body.clone(), json).await, 400, "{:.100}", body);
    }
    // Many problems below a long name are no longer answer than they were a question.
    let long: Map<String, Value> = [("x".repeat(50_000), json!(vec!["{{x}}"; 10_000]))].into_iter().collect();
    let body = json!({ "cron": "0 2 * * *", "job": { "jobType": "MAIL", "payload": long } });
    let call = client.http.put(format!("{}/schedules/new", client.base)).json(&body);
    let answer = call.send().await.expect("the API answers");
    assert_eq!(answer.status(), 400);
    assert!(answer.bytes().await.expect("the whole answer").len() < 1_000_000);
    assert_eq!(client.all("/schedules").await, [Value::Null; 0]);

    // What a database would rather not have comes back as it was sent.
    for sent in
        [deep(100), payload(r#"{"\u0000": "a\u0000b", "": "😀", "n": [1e308, -0.0, 18446744073709551615]}"#)]
    {
        assert!([200, 201].contains(&send(sent.clone(), json).await));
        let (_, shown) = client.get("/schedules/new").await.expect("the API answers");
        let sent: Value = serde_json::from_str(&sent).expect("JSON");
        assert_eq!(shown["job"], sent["job"]);
    }
}
