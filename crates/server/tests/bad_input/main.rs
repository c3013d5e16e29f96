//! Bad input and attacks over HTTP: every problem is named with its place, nothing changes, and no
//! key leaves its folder or meets another's file.

#[path = "../common/mod.rs"]
mod common;
mod custom;
mod schedules;
mod triggers;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use common::sql::{POSITIONS, warehouse};
use common::{Client, Kind, Process, STEADY, Stack};
use custom::{
    custom_jobs_are_judged_as_strictly, dead_letters_and_history_refuse_what_they_do_not_know,
    payloads_are_kept_as_they_are_and_told_to_nobody,
};
use schedules::{definitions_are_bounded, schedules_are_judged_whole};
use serde_json::{Value, json};
use triggers::{cycles_of_triggers_are_refused, triggers_are_judged_whole};

on_both!(
    every_problem_is_named_at_once,
    bodies_that_are_not_json_or_too_much,
    more_problems_than_can_be_listed,
    strange_keys_are_files_of_their_own,
    lists_and_paths_refuse_what_they_do_not_know,
    idempotency_keys_have_a_form,
    a_file_that_was_changed_is_corrupt_and_one_that_was_removed_is_missing,
    custom_jobs_are_judged_as_strictly,
    payloads_are_kept_as_they_are_and_told_to_nobody,
    dead_letters_and_history_refuse_what_they_do_not_know,
    schedules_are_judged_whole,
    definitions_are_bounded,
    triggers_are_judged_whole,
    cycles_of_triggers_are_refused,
);

async fn start(kind: Kind, sections: &str) -> (Stack, Process, Client) {
    let stack = Stack::new(kind, &format!("{STEADY}{sections}{}", warehouse(kind, POSITIONS))).await;
    stack.make_positions(&["ABC"], &["2025-02-15"]).await;
    let server = stack.serve("server", "api,worker,scheduler").await;
    let client = server.client();
    (stack, server, client)
}

/// Places of the problems in an answer that must be a 400.
async fn pointers(client: &Client, body: &Value) -> Vec<String> {
    let (status, answer) = client.post("/jobs", body).await.expect("the API answers");
    assert_eq!(status, 400, "{body} was answered with {answer}");
    let errors = answer["errors"].as_array().expect("errors");
    assert!(
        errors.iter().all(|error| error["message"].as_str().is_some_and(|text| !text.is_empty())),
        "{answer}"
    );
    errors.iter().map(|error| error["pointer"].as_str().expect("a pointer").to_owned()).collect()
}

fn item(key: &str, date: &str) -> Value {
    json!({ "key": key, "effectiveDates": [date] })
}

async fn every_problem_is_named_at_once(kind: Kind) {
    let (stack, _server, client) = start(kind, "[limits]\nmax_chunks_per_job = 3\n\n").await;
    let good = item("ABC", "20250215");
    let long = "x".repeat(129);
    let emoji = "😀".repeat(100);
    for (body, places) in [
        (json!({ "items": [] }), vec!["/items"]),
        (json!({}), vec![""]),
        (json!([]), vec![""]),
        (json!(null), vec![""]),
        (json!({ "items": {} }), vec!["/items"]),
        (json!({ "items": [good], "dateset": "positions" }), vec!["/dateset"]),
        (
            json!({ "items": [{ "key": "ABC", "effectiveDates": ["20250215"], "more": 1 }] }),
            vec!["/items/0/more"],
        ),
        (
            json!({ "items": [{ "key": 7, "effectiveDates": "20250215" }] }),
            vec!["/items/0/effectiveDates", "/items/0/key"],
        ),
        (
            json!({ "items": [{ "key": null, "effectiveDates": [20250215] }] }),
            vec!["/items/0/effectiveDates/0", "/items/0/key"],
        ),
        (
            json!({ "items": [{ "key": "ABC" }, { "effectiveDates": ["20250215"] }] }),
            vec!["/items/0/effectiveDates", "/items/1/key"],
        ),
        (json!({ "items": [{ "key": "ABC", "effectiveDates": [] }] }), vec!["/items/0/effectiveDates"]),
        (
            json!({ "items": [item("ABC", "20250230"), item("ABC", "2025-02-15"), item("ABC", ""), item("ABC", " 20250215")] }),
            vec![
                "/items/0/effectiveDates/0",
                "/items/1/effectiveDates/0",
                "/items/2/effectiveDates/0",
                "/items/3/effectiveDates/0",
            ],
        ),
        (
            json!({ "items": [item("ABC", "00000101"), item("ABC", "20251301"), item("ABC", "２０２５０２１５")] }),
            vec!["/items/0/effectiveDates/0", "/items/1/effectiveDates/0", "/items/2/effectiveDates/0"],
        ),
        (
            json!({ "items": [item("", "20250215"), item("   ", "20250215"), item("\t\n", "20250215")] }),
            vec!["/items/0/key", "/items/1/key", "/items/2/key"],
        ),
        (
            json!({ "items": [item(&long, "20250215"), item("a\u{0}b", "20250215"), item("a\nb", "20250215")] }),
            vec!["/items/0/key", "/items/1/key", "/items/2/key"],
        ),
        (
            json!({ "items": [item(&emoji, "20250215"), item("a\u{7f}b", "20250215"), item("a\u{85}b", "20250215")] }),
            vec!["/items/0/key", "/items/1/key", "/items/2/key"],
        ),
        (
            json!({ "items": [{ "key": "ABC", "effectiveDates": ["20250101", "20250102", "20250103", "20250104"] }] }),
            vec!["/items"],
        ),
        (json!({ "items": [good], "dataset": "positionz" }), vec!["/dataset"]),
        (json!({ "items": [good], "dataset": "' OR 1=1 --" }), vec!["/dataset"]),
        (json!({ "items": [good], "dataset": 5 }), vec!["/dataset"]),
        (json!({ "items": [good], "output": { "format": "PARQUET" } }), vec!["/output/format"]),
        (
            json!({ "items": [good], "output": { "format": "CSV", "force": "yes", "delimiter": ";" } }),
            vec!["/output/delimiter", "/output/force"],
        ),
        (json!({ "items": [good], "output": [] }), vec!["/output"]),
        (
            json!({ "items": [good], "priority": 10, "runAt": "tomorrow", "onFailure": "ignore", "labels": { "a": 1 } }),
            vec!["/labels/a", "/onFailure", "/priority", "/runAt"],
        ),
        (json!({ "items": [good], "jobType": "EXPORT" }), vec!["", "/jobType"]),
        (
            json!({ "items": [{ "key": "", "effectiveDates": ["x"] }], "output": { "format": "XML" }, "dataset": "no", "zzz": 1 }),
            vec!["/dataset", "/items/0/effectiveDates/0", "/items/0/key", "/output/format", "/zzz"],
        ),
    ] {
        let mut found = pointers(&client, &body).await;
        found.sort();
        assert_eq!(found, places, "{body}");
        let (status, _) = client.post("/jobs?dryRun=true", &body).await.expect("the API answers");
        assert_eq!(status, 400, "a dry run judges the same: {body}");
    }
    // As many as allowed will do, and equal pairs count once.
    let most = json!({ "items": [{ "key": "ABC", "effectiveDates": ["20250101", "20250102", "20250103", "20250101"] }, item(" ABC", "20250102")] });
    assert_eq!(client.post("/jobs?dryRun=true", &most).await.expect("the API answers").1["total"], 3);
    assert_eq!(client.all("/jobs").await, [Value::Null; 0], "nothing was stored");
    assert_eq!(stack.recorded("select count(*) from job").await, [[0]]);
    assert_eq!(stack.published(), [""; 0]);
}

async fn bodies_that_are_not_json_or_too_much(kind: Kind) {
    let (stack, _server, client) = start(kind, "[limits]\nmax_body_bytes = 5000\n\n").await;
    let good = json!({ "items": [item("ABC", "20250215")] }).to_string();
    let send = |media: &'static str, body: Vec<u8>| {
        let call = client.http.post(format!("{}/jobs", client.base)).header("content-type", media).body(body);
        async move {
            let answer = call.send().await.expect("the API answers");
            let kind = answer.headers()["content-type"].to_str().expect("text").to_owned();
            assert_eq!(kind, "application/problem+json");
            answer.status().as_u16()
        }
    };
    let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
    let twice = r#"{"items":[],"items":[{"key":"ABC","effectiveDates":["20250215"]}]}"#;
    for text in [
        "",
        "{",
        "nonsense",
        "{\"items\":[{]}",
        "[1,]",
        &deep,
        twice,
        "\u{feff}{}",
        "{} {}",
        "'x'",
        "1e999",
        "\"\\ud800\"",
    ] {
        assert_eq!(send("application/json", text.as_bytes().to_vec()).await, 400, "{text}");
    }
    assert_eq!(send("application/json", b"{\"items\":\"\xff\"}".to_vec()).await, 400, "not UTF-8");
    assert_eq!(send("application/json", vec![b' '; 5001]).await, 413);
    assert_eq!(send("application/json", vec![b'['; 1_000_000]).await, 413);
    for media in ["text/plain", "application/x-www-form-urlencoded", "application/xml"] {
        assert_eq!(send(media, good.clone().into_bytes()).await, 415);
    }
    // Without a length that is announced, the limit holds all the same.
    let pieces = futures::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1000])));
    let call = client.http.post(format!("{}/jobs", client.base)).header("content-type", "application/json");
    match call.body(reqwest::Body::wrap_stream(pieces)).send().await {
        Ok(answer) => assert_eq!(answer.status(), 413),
        // The connection may be closed while the rest is still being sent.
        Err(error) => assert!(error.is_request() || error.is_body(), "{error}"),
    }
    for _ in 0..5 {
        let base = client.base.clone();
        let answer = tokio::task::spawn_blocking(move || sends_all_then_reads(&base, 3_000_000));
        let answer = answer.await.expect("no panic");
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("max_body_bytes"), "{answer}");
    }
    assert_eq!(stack.recorded("select count(*) from job").await, [[0]]);
    assert_eq!(client.get("/healthz").await.expect("the API answers").0, 200);
}

/// What a client is told that sends so many bytes to the end before it reads, as most simple ones do.
fn sends_all_then_reads(base: &str, length: usize) -> String {
    let address = base.strip_prefix("http://").expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let head = format!(
        "POST /jobs HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("the head is taken");
    stream.write_all(&vec![b' '; length]).expect("the whole body is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the answer comes whole");
    answer
}

async fn more_problems_than_can_be_listed(kind: Kind) {
    let (_stack, _server, client) = start(kind, "[limits]\nmax_chunks_per_job = 100000\n\n").await;
    let dates =
        |date: Value, count| json!({ "items": [{ "key": "A", "effectiveDates": vec![date; count] }] });
    for body in [dates(json!(0), 200_000), dates(json!("x"), 200_000), json!({ "items": vec![0; 200_000] })] {
        let (status, answer) = client.post("/jobs", &body).await.expect("the API answers");
        assert_eq!((status, answer["errors"].as_array().map(Vec::len)), (400, Some(1000)));
        let detail = answer["detail"].as_str().expect("a sentence");
        assert_eq!(detail, "the request has more than 1000 problems; 1000 are listed");
    }
    // Ten times more dates than files is more than anybody means.
    assert_eq!(pointers(&client, &dates(json!(0), 1_000_001)).await, ["/items"]);
    assert_eq!(client.get("/healthz").await.expect("the API answers").0, 200);
}

async fn strange_keys_are_files_of_their_own(kind: Kind) {
    let (stack, _server, client) = start(kind, "").await;
    let keys = [
        "../x",
        "..",
        ".",
        "/abs",
        "a//b",
        "a/./b",
        "a/b/",
        "C:\\x",
        "%2e%2e%2f",
        "%",
        "a%2Fb",
        "a/b",
        "a'b",
        "a\"b",
        "'; drop table positions --",
        "😀",
        "ключ",
        "é",
        "e\u{301}",
        "a b",
        "a+b",
        "A",
        "a",
        ".staging",
        "a:b",
        "*",
        "~",
        "-rf",
        "$(x)",
        "<img onerror=x>",
        "CON",
        "x.csv",
        "\u{202e}x",
    ];
    for key in keys {
        let literal = key.replace('\'', "''");
        stack.source(&format!("insert into positions values ('{literal}', '2025-02-15', 1, 'mine')")).await;
    }
    let items: Vec<Value> = keys.iter().map(|key| item(key, "20250215")).collect();
    let job = client.complete(&json!({ "items": items })).await;
    assert_eq!(job["done"], keys.len(), "{job}");
    let files = client.files(job["jobId"].as_str().expect("an id")).await;
    let mut paths = BTreeSet::new();
    for file in &files {
        let (key, path) = (file["key"].as_str().expect("a key"), file["path"].as_str().expect("a path"));
        let name = path
            .strip_prefix(&stack.path("2025/02/15/"))
            .unwrap_or_else(|| panic!("{path} is in its folder"));
        assert!(!name.contains('/') && !name.starts_with('.') && name.ends_with("_20250215.csv"), "{path}");
        assert!(paths.insert(path.to_owned()), "{path} is {key}'s alone");
        assert_eq!(file["rows"], 1, "{key}: {file}");
        let bytes = client.download(file["url"].as_str().expect("a URL")).await;
        let text = String::from_utf8_lossy(&bytes).replace("\"\"", "\"");
        assert!(text.contains(key), "{key} has its own rows: {text}");
    }
    let found: BTreeSet<String> = stack.published().into_iter().collect();
    assert_eq!(found, paths, "and nothing anywhere else");
}

async fn lists_and_paths_refuse_what_they_do_not_know(kind: Kind) {
    let (_stack, _server, client) = start(kind, "").await;
    let id = client.complete(&json!({ "items": [item("ABC", "20250215")] })).await["jobId"]
        .as_str()
        .expect("an id")
        .to_owned();
    let second = client.complete(&json!({ "items": [item("ABC", "20250215")] })).await;
    assert_eq!(second["filesReused"], 1);
    let (_, page) = client.get("/jobs?limit=1").await.expect("the API answers");
    let cursor = page["nextCursor"].as_str().expect("there is more");
    let (status, next) =
        client.get(&format!("/jobs?limit=1&cursor={cursor}")).await.expect("the API answers");
    assert_eq!((status, &next["items"][0]["jobId"]), (200, &json!(id)));

    let changed = format!("{}0", &cursor[..cursor.len() - 1]);
    let changed = if changed == cursor { format!("{}1", &cursor[..cursor.len() - 1]) } else { changed };
    for query in [
        "limit=0",
        "limit=201",
        "limit=-1",
        "limit=x",
        "limit=",
        "limit=1&limit=2",
        "limit=99999999999999999999",
        "cursor=1",
        "cursor=",
        "cursor=%00",
        "cursor=%27%20OR%201=1",
        "nope=1",
        "status=DONE",
        "status=completed",
        "createdAfter=yesterday",
        "jobType=%00",
        &format!("cursor={changed}"),
    ] {
        let (status, answer) = client.get(&format!("/jobs?{query}")).await.expect("the API answers");
        assert_eq!(status, 400, "{query}: {answer}");
        let name = query.split('=').next().expect("a name");
        assert_eq!(answer["errors"][0]["pointer"], format!("?{name}"), "{answer}");
    }
    for list in ["chunks", "files"] {
        for query in ["limit=0", "limit=201", &format!("cursor={cursor}"), "nope=1"] {
            let (status, answer) =
                client.get(&format!("/jobs/{id}/{list}?{query}")).await.expect("the API answers");
            assert_eq!(status, 400, "{list} {query}: {answer}");
        }
    }
    assert_eq!(client.get(&format!("/jobs/{id}/chunks?status=NOPE")).await.expect("the API answers").0, 400);
    assert_eq!(
        client
            .post("/jobs?dryRun=maybe", &json!({ "items": [item("ABC", "20250215")] }))
            .await
            .expect("the API answers")
            .0,
        400
    );
    assert_eq!(
        client
            .post("/jobs?dryrun=true", &json!({ "items": [item("ABC", "20250215")] }))
            .await
            .expect("the API answers")
            .0,
        400
    );

    let (_, unknown) = client.get("/jobs/J20250101_0000000000000").await.expect("the API answers");
    for path in [
        "/jobs/J20250101_0000000000000",
        "/jobs/x",
        "/jobs/%00",
        "/jobs/%ff",
        "/jobs/%2e%2e%2f",
        "/jobs/'",
        "/nowhere",
        "/jobs/x/files/f1",
        "/jobs//",
        "/jobs/J20250101_0000000000000/chunks",
        "/jobs/J20250101_0000000000000/files",
        "/jobs/J20250101_0000000000000/files/f1",
    ] {
        let (status, answer) = client.get(path).await.expect("the API answers");
        assert_eq!((status, answer["status"].as_u64()), (404, Some(404)), "{path}: {answer}");
        if path.starts_with("/jobs/J") && !path.contains("files/") {
            assert_eq!(answer["detail"], unknown["detail"], "{path}");
        }
    }
    for file in ["f0", "f999999", "x", "f-1", "f01", "f1%00", "..", "f99999999999999999999"] {
        let (status, _) = client.get(&format!("/jobs/{id}/files/{file}")).await.expect("the API answers");
        assert_eq!(status, 404, "{file}");
    }
    for (method, path) in [
        ("PUT", "/jobs"),
        ("DELETE", &*format!("/jobs/{id}")),
        ("GET", &*format!("/jobs/{id}/cancel")),
        ("POST", "/healthz"),
    ] {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let answer = client
            .http
            .request(method.clone(), format!("{}{path}", client.base))
            .send()
            .await
            .expect("the API answers");
        assert_eq!(answer.status(), 405, "{method} {path}");
        assert!(answer.headers().contains_key("allow"), "{method} {path}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
    }
    assert_eq!(client.all("/jobs").await.len(), 2, "nothing was stored, and nothing lost");
}

async fn idempotency_keys_have_a_form(kind: Kind) {
    let (_stack, _server, client) = start(kind, "[idempotency]\nrequired = true\n\n").await;
    let body = json!({ "items": [item("ABC", "20250215")] });
    assert_eq!(pointers(&client, &body).await, ["/idempotencyKey"]);
    let long = "x".repeat(256);
    for key in [json!(""), json!(long), json!("a\u{0}b"), json!("a\nb"), json!("ключ"), json!(5), json!(null)]
    {
        let mut body = body.clone();
        body["idempotencyKey"] = key;
        assert_eq!(pointers(&client, &body).await, ["/idempotencyKey"], "{body}");
    }
    let call = || client.http.post(format!("{}/jobs", client.base)).json(&body);
    for refused in [
        call().header("Idempotency-Key", ""),
        call().header("Idempotency-Key", &long),
        call().header("Idempotency-Key", "ключ"),
        call().header("Idempotency-Key", "a").header("Idempotency-Key", "b"),
    ] {
        assert_eq!(refused.send().await.expect("the API answers").status(), 400);
    }
    let mut both = body.clone();
    both["idempotencyKey"] = json!("a");
    let differing =
        client.http.post(format!("{}/jobs", client.base)).header("Idempotency-Key", "b").json(&both);
    assert_eq!(differing.send().await.expect("the API answers").status(), 400);
    assert_eq!(client.all("/jobs").await.len(), 0);
    both["idempotencyKey"] = json!("x".repeat(255));
    client.complete(&both).await;
}

async fn a_file_that_was_changed_is_corrupt_and_one_that_was_removed_is_missing(kind: Kind) {
    let (stack, server, client) = start(kind, "").await;
    let job = client.complete(&json!({ "items": [item("ABC", "20250215")] })).await;
    let id = job["jobId"].as_str().expect("an id");
    let file = client.files(id).await.remove(0);
    let (path, url) = (file["path"].as_str().expect("a path"), file["url"].as_str().expect("a URL"));
    let verified = || {
        let verify = ["verify", id, "--json", "--server", &server.base];
        let done = Command::new(env!("CARGO_BIN_EXE_outhaul")).args(verify).output().expect("run it");
        let report: Value = serde_json::from_slice(&done.stdout).expect("a report");
        (done.status.code(), report["files"][0]["state"].as_str().expect("a state").to_owned())
    };
    assert_eq!(verified(), (Some(0), "ok".to_owned()));
    match kind {
        // With nothing in it.
        Kind::PostgresS3 => drop(common::s3::call("PUT", &format!("/{path}"))),
        _ => std::fs::write(stack.files().join(path), "").expect("it is there"),
    }
    let (status, answer) = client.get(url).await.expect("the API answers");
    assert_eq!(status, 409, "{answer}");
    assert_eq!(verified(), (Some(1), "corrupt".to_owned()));
    stack.remove(path);
    let (status, answer) = client.get(url).await.expect("the API answers");
    assert_eq!(status, 404, "{answer}");
    assert_eq!(verified(), (Some(1), "missing".to_owned()));
}
