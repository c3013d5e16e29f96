//! Bad input of custom jobs and of the lists that go with them. Payloads are kept as they are and told to
//! nobody.

use serde_json::{Value, json};

use super::common::Kind;
use super::{item, pointers, start};

/// A job type that cannot succeed: nobody may call this machine.
const NOWHERE: &str = "[job_types.NOWHERE]\nretry = { max_attempts = 1 }\n\
     steps = [{ name = \"call\", http = \"http://127.0.0.1:9/\" }]\n\n";

pub(super) async fn custom_jobs_are_judged_as_strictly(kind: Kind) {
    let (stack, _server, client) = start(kind, NOWHERE).await;
    let good = item("ABC", "20250215");
    for (body, places) in [
        (json!({ "jobType": "NOPE" }), vec!["/jobType"]),
        (json!({ "jobType": "nowhere", "payload": {} }), vec!["/jobType"]),
        (json!({ "jobType": "EXPORT" }), vec!["/jobType"]),
        (json!({ "jobType": "" }), vec!["/jobType"]),
        (json!({ "jobType": "a\u{0}b" }), vec!["/jobType"]),
        (json!({ "jobType": null }), vec!["/jobType"]),
        (json!({ "jobType": ["NOWHERE"] }), vec!["/jobType"]),
        (json!({ "payload": {} }), vec!["", "/payload"]),
        (json!({ "items": [good], "payload": {} }), vec!["/payload"]),
        (json!({ "items": [good], "jobType": "NOWHERE" }), vec![""]),
        (json!({ "jobType": "NOWHERE", "report": "x" }), vec!["", "/report"]),
        (json!({ "jobType": "NOWHERE", "dataset": "positions", "output": {} }), vec!["/dataset", "/output"]),
        (json!({ "jobType": "NOWHERE", "dependsOn": ["J20260102_0123456789ABC"] }), vec!["/dependsOn"]),
        (
            json!({ "jobType": "NOWHERE", "dependsOn": [1, "x"], "onParentFailure": "wait" }),
            vec!["/dependsOn/0", "/dependsOn/1", "/onParentFailure"],
        ),
        (
            json!({ "jobType": "NOWHERE", "payload": { "$serde_json::private::RawValue": "[1]" } }),
            vec!["/payload/$serde_json::private::RawValue"],
        ),
        (
            json!({ "jobType": "NOPE", "Payload": 1, "priority": 10, "labels": 5, "runAt": 5, "idempotencyKey": "" }),
            vec!["/Payload", "/idempotencyKey", "/jobType", "/labels", "/priority", "/runAt"],
        ),
    ] {
        let mut found = pointers(&client, &body).await;
        found.sort();
        assert_eq!(found, places, "{body}");
        let (status, _) = client.post("/jobs?dryRun=true", &body).await.expect("the API answers");
        assert_eq!(status, 400, "a dry run judges the same: {body}");
    }
    let (_, answer) = client.post("/jobs", &json!({ "jobType": "NOPE" })).await.expect("the API answers");
    let message = answer["errors"][0]["message"].as_str().expect("a message");
    assert!(message.contains("known: NOWHERE, EXPORT, which is submitted with `items`"), "{message}");
    assert_eq!(stack.recorded("select count(*) from job").await, [[0]]);
}

pub(super) async fn payloads_are_kept_as_they_are_and_told_to_nobody(kind: Kind) {
    let (_stack, server, client) = start(kind, NOWHERE).await;
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let send = |payload: String, key: Option<&str>| {
        let key = key.map(|key| format!(", \"idempotencyKey\": \"{key}\"")).unwrap_or_default();
        let body = format!("{{\"jobType\": \"NOWHERE\", \"payload\": {payload}{key}}}");
        let call = client.http.post(format!("{}/jobs", client.base)).body(body);
        let call = call.header("content-type", "application/json");
        async move {
            let answer = call.send().await.expect("the API answers");
            (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
        }
    };
    // Whatever is JSON: what a database would rather not have (NUL, lone halves are not JSON), and
    // what is near the ends of numbers and depth.
    let secret = r#"{"card": "canary-4111", "canary-member": ["canary"]}"#;
    let mut ids = Vec::new();
    for payload in [
        secret,
        "null",
        "0",
        "-0.0",
        "1e308",
        "18446744073709551615",
        "\"\"",
        r#""a\u0000b""#,
        r#"{"\u0000": "\ud83d\ude00", "": {"": []}}"#,
        &deep(120),
        &format!("\"{}\"", "x".repeat(500_000)),
    ] {
        let (status, job) = send(payload.to_owned(), None).await;
        assert_eq!(status, 202, "{job}");
        ids.push(job["jobId"].as_str().expect("an id").to_owned());
    }
    for payload in [deep(200).as_str(), r#"{"card": "canary", "card": 1}"#, "canary", "1e999", r#""\ud800""#]
    {
        let (status, problem) = send(payload.to_owned(), None).await;
        assert_eq!(status, 400);
        assert!(!problem.to_string().contains("canary"), "{problem}");
    }
    let (_, twice) = send(r#"{"card": 1, "card": 1}"#.to_owned(), None).await;
    assert_eq!(twice["errors"][0]["pointer"], "/payload/card");

    let (_, first) = send(r#"{"a": 1, "b": [1.0, {"c": 2, "d": 3}]}"#.to_owned(), Some("k")).await;
    let (status, same) = send(r#"{"b":[1,{"d":3,"c":2}],"a":1}"#.to_owned(), Some("k")).await;
    assert_eq!((status, &same["jobId"]), (202, &first["jobId"]));
    for other in [r#"{"a": 1, "b": [{"c": 2, "d": 3}, 1]}"#, "null", r#"{"a":"1","b":[1,{"c":2,"d":3}]}"#] {
        assert_eq!(send(other.to_owned(), Some("k")).await.0, 422, "{other}");
    }

    // Digits that a 64-bit float does not have are digits all the same.
    let (_, first) = send(r#"{"account": 123456789012345678901234567890}"#.to_owned(), Some("l")).await;
    let again = send(r#"{"account":123456789012345678901234567890}"#.to_owned(), Some("l")).await;
    assert_eq!((again.0, &again.1["jobId"]), (202, &first["jobId"]));
    for other in [r#"{"account": 123456789012345678901234567891}"#, r#"{"account": 1.2345678901234568e29}"#] {
        assert_eq!(send(other.to_owned(), Some("l")).await.0, 422, "{other}");
    }

    for id in &ids {
        let job = client.wait_for(id, "FAILED").await;
        assert_eq!(
            job["steps"],
            json!([{ "name": "call", "status": "FAILED", "completedAt": null }]),
            "{job}"
        );
    }
    let told = [
        json!(client.all("/jobs").await).to_string(),
        json!(client.all("/dead-letters").await).to_string(),
        json!(client.all(&format!("/jobs/{}/history", ids[0])).await).to_string(),
        client.job(&ids[0]).await.to_string(),
        server.log(),
    ];
    for text in told {
        assert!(!text.contains("canary"), "{text}");
    }
}

pub(super) async fn dead_letters_and_history_refuse_what_they_do_not_know(kind: Kind) {
    let (_stack, _server, client) = start(kind, NOWHERE).await;
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(client.submit(&json!({ "jobType": "NOWHERE", "payload": n })).await);
    }
    for id in &ids {
        client.wait_for(id, "FAILED").await;
    }
    let (_, page) = client.get("/dead-letters?limit=2").await.expect("the API answers");
    let cursor = page["nextCursor"].as_str().expect("there is more");
    let history = format!("/jobs/{}/history", ids[0]);
    let (_, page) = client.get(&format!("{history}?limit=1")).await.expect("the API answers");
    let other_list = page["nextCursor"].as_str().expect("there is more");
    for (path, query) in [
        ("/dead-letters", "limit=0"),
        ("/dead-letters", "limit=201"),
        ("/dead-letters", &*format!("cursor={other_list}")),
        ("/dead-letters", &*format!("cursor={}", &cursor[2..])),
        ("/dead-letters", "cursor=1"),
        ("/dead-letters", "jobId=x"),
        ("/dead-letters", "jobType=%00"),
        ("/dead-letters", "text="),
        ("/dead-letters", "after=yesterday"),
        ("/dead-letters", "status=DEAD"),
        (&*history, "limit=x"),
        (&*history, &*format!("cursor={cursor}")),
        (&*history, "chunkKey=%00"),
        (&*history, "status=DEAD"),
    ] {
        let (status, answer) = client.get(&format!("{path}?{query}")).await.expect("the API answers");
        assert_eq!(status, 400, "{path}?{query}: {answer}");
        let name = query.split('=').next().expect("a name");
        assert_eq!(answer["errors"][0]["pointer"], format!("?{name}"), "{answer}");
    }
    for path in ["/jobs/J20250101_0000000000000/history", "/jobs/x/history", "/dead-letters/x"] {
        assert_eq!(client.get(path).await.expect("the API answers").0, 404, "{path}");
    }
    for (body, places) in [
        (json!(null), vec![""]),
        (json!({}), vec!["/filter"]),
        (json!({ "filter": null }), vec!["/filter"]),
        (json!({ "filter": "all" }), vec!["/filter"]),
        (json!({ "filter": {}, "limit": 0 }), vec!["/limit"]),
        (json!({ "filter": {}, "limit": 1001 }), vec!["/limit"]),
        (
            json!({ "limit": "x", "dryRun": 1, "all": true, "filter": { "jobType": "", "dataset": 5, "text": "a\u{0}",
                "after": "x", "before": null, "jobId": "J1", "chunkKey": "main" } }),
            vec![
                "/all",
                "/dryRun",
                "/filter/after",
                "/filter/before",
                "/filter/chunkKey",
                "/filter/dataset",
                "/filter/jobId",
                "/filter/jobType",
                "/filter/text",
                "/limit",
            ],
        ),
    ] {
        let (status, answer) = client.post("/dead-letters/redrive", &body).await.expect("the API answers");
        assert_eq!(status, 400, "{body}: {answer}");
        let errors = answer["errors"].as_array().expect("errors");
        let mut found: Vec<&str> =
            errors.iter().map(|error| error["pointer"].as_str().expect("a pointer")).collect();
        found.sort_unstable();
        assert_eq!(found, places, "{body}");
    }
    let (status, _) = client
        .post("/dead-letters/redrive?dryRun=true", &json!({ "filter": {} }))
        .await
        .expect("the API answers");
    assert_eq!(status, 400, "it belongs into the body, and must not be overlooked");
    assert_eq!(client.all("/dead-letters").await.len(), 3, "nothing was redriven");
}
