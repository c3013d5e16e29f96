//! Who submitted, cancelled, redrove, prioritised and downloaded what, and what operators did.

use serde_json::{Value, json};

use crate::people::{operator, submitter};
use crate::server::{Server, later, positions};

#[tokio::test(flavor = "multi_thread")]
async fn the_trail_says_who_did_what() {
    let server = Server::start("[auth.identities.nightly]\n").await;
    let (ann, olga) = (server.at(submitter("ann")), server.at(operator()));
    let (waiting, done) = (ann.submit(&later()).await, ann.complete(&positions()).await);
    let path = ann.file(&done).await["path"].clone();
    ann.text(&done).await;
    let failing =
        ann.submit(&json!({"jobType": "NEEDS", "payload": {"file": server.folder().join("no")}})).await;
    ann.until(&failing, "FAILED").await;
    olga.send("POST", &format!("{waiting}/priority"), &json!({"priority": 9})).await;
    ann.act("POST", &format!("{waiting}/cancel")).await;
    olga.act("POST", &format!("{failing}/retry")).await;
    ann.until(&failing, "FAILED").await;
    let filter = json!({"filter": {"jobType": "NEEDS"}, "limit": 7});
    olga.send("POST", "/dead-letters/redrive", &json!({"filter": {}, "dryRun": true})).await;
    olga.send("POST", "/dead-letters/redrive", &filter).await;
    ann.until(&failing, "FAILED").await;
    let schedule = json!({"cron": "@yearly", "job": later(), "runAs": "nightly"});
    let trigger = json!({"after": ["job:SINGLE"], "job": later(), "runAs": "nightly"});
    for (method, path, body) in [
        ("POST", "/queues/source:warehouse/pause", None),
        ("POST", "/queues/source:warehouse/resume", None),
        ("PUT", "/schedules/yearly", Some(&schedule)),
        ("POST", "/schedules/yearly/pause", None),
        ("POST", "/schedules/yearly/resume", None),
        ("POST", "/schedules/yearly/run", None),
        ("DELETE", "/schedules/yearly", None),
        ("PUT", "/triggers/next", Some(&trigger)),
        ("DELETE", "/triggers/next", None),
    ] {
        let answer = server.call(Some(&olga.token), method, path, body).await;
        assert!(answer.status < 300, "{method} {path}: {}", answer.json());
    }
    // What is refused is no act, and looking is none.
    let bob = server.at(submitter("bob"));
    for path in
        [format!("{done}/cancel"), format!("{done}/retry"), "/queues/source:warehouse/pause".to_owned()]
    {
        assert!(bob.act("POST", &path).await.status >= 400);
    }
    bob.get("/jobs").await;

    let all = olga.items("/audit?limit=200").await;
    let id = |job: &str| json!(job.trim_start_matches("/jobs/"));
    let said: Vec<Value> =
        all.iter().rev().map(|row| json!([row["actor"], row["act"], row["jobId"], row["detail"]])).collect();
    let operated = |detail: &str| json!(["olga", "operate", null, detail]);
    let of_schedule =
        said.iter().find(|row| row[0] == "identity:nightly").cloned().unwrap_or_else(|| panic!("{said:?}"));
    let expected = [
        json!(["ann", "submit", id(&waiting), null]),
        json!(["ann", "submit", id(&done), null]),
        json!(["ann", "download", id(&done), path]),
        json!(["ann", "submit", id(&failing), null]),
        json!(["olga", "prioritise", id(&waiting), "9"]),
        json!(["ann", "cancel", id(&waiting), null]),
        json!(["olga", "redrive", id(&failing), null]),
        json!(["olga", "redrive", null, "at most 7 dead letters of {\"jobType\":\"NEEDS\"}"]),
        operated("pause queue source:warehouse"),
        operated("resume queue source:warehouse"),
        operated("put schedule yearly, which runs as identity:nightly"),
        operated("pause schedule yearly"),
        operated("resume schedule yearly"),
        operated("run schedule yearly"),
        of_schedule.clone(),
        operated("delete schedule yearly"),
        operated("put trigger next, which runs as identity:nightly"),
        operated("delete trigger next"),
    ];
    assert_eq!(said, expected);
    assert_eq!(of_schedule[1], "submit");

    assert_eq!(olga.items("/audit?actor=ann&act=submit").await.len(), 3);
    assert_eq!(olga.items(&format!("/audit?jobId={}", id(&failing).as_str().unwrap())).await.len(), 2);
    for wrong in ["act=look", "jobId=x", "who=ann"] {
        assert_eq!(olga.get(&format!("/audit?{wrong}")).await.status, 400, "{wrong}");
    }
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = olga.json(&format!("/audit?limit=5{cursor}")).await;
        paged.extend(page["items"].as_array().unwrap().clone());
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(paged, all);
    assert_eq!(ann.get("/audit").await.status, 403);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_is_known_nothing_is_recorded_and_everything_allowed() {
    let server = Server::start_open().await;
    let job = server.call(None, "POST", "/jobs", Some(&later())).await;
    assert_eq!((job.status, &job.json()["owner"]), (202, &json!("anonymous")));
    let job = format!("/jobs/{}", job.json()["jobId"].as_str().unwrap());
    assert_eq!(server.call(None, "POST", &format!("{job}/cancel"), None).await.status, 202);
    let trail = server.call(None, "GET", "/audit", None).await;
    assert_eq!((trail.status, trail.json()), (200, json!({"items": [], "nextCursor": null})));
    let kept = server
        .recorded("select coalesce(identity, 'none') || scope || coalesce(department, '') from job")
        .await;
    assert_eq!(kept, "none");
    server.stop().await;
}
