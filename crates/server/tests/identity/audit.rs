//! Who submitted, cancelled, redrove, prioritised and downloaded what, and what operators did.

use serde_json::{Value, json};

use crate::common::{Kind, STEADY, Stack};
use crate::people::{AUTH, operator, submitter};
use crate::server::{At, Server, later, people, positions};

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
        json!(["olga", "redrive", id(&failing), "of the dead letters of {\"jobType\":\"NEEDS\"}"]),
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
    assert_eq!(olga.items(&format!("/audit?jobId={}", id(&failing).as_str().unwrap())).await.len(), 3);
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

async fn redriven_jobs(server: Server) {
    let (ann, olga) = (server.at(submitter("ann")), server.at(operator()));
    let needs = |name: &str| json!({"jobType": "NEEDS", "payload": {"file": server.folder().join(name)}});
    let mut failed = Vec::new();
    for _ in 0..3 {
        let job = ann.submit(&needs("no")).await;
        ann.until(&job, "FAILED").await;
        failed.push(job.trim_start_matches("/jobs/").to_owned());
    }
    for filter in [json!({"dataset": "positions"}), json!({"text": "nothing like it"})] {
        let answer = olga.send("POST", "/dead-letters/redrive", &json!({ "filter": filter })).await;
        assert_eq!((answer.status, answer.json()["redriven"].as_u64()), (200, Some(0)));
    }
    let entries = async || {
        let rows = olga.items("/audit?act=redrive").await;
        rows.iter().map(|row| json!([row["actor"], row["jobId"], row["detail"]])).collect::<Vec<_>>()
    };
    assert!(entries().await.is_empty(), "nothing was redriven");
    let body = json!({"filter": {"jobType": "NEEDS"}, "limit": 2});
    let answer = olga.send("POST", "/dead-letters/redrive", &body).await;
    assert_eq!(answer.json(), json!({"matched": 3, "redriven": 2}));
    let entry = |job: &String| json!(["olga", job, "of the dead letters of {\"jobType\":\"NEEDS\"}"]);
    assert_eq!(entries().await, [entry(&failed[1]), entry(&failed[0])], "each that was, and no other");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_job_whose_dead_letters_are_redriven_is_on_record_on_sqlite() {
    redriven_jobs(Server::start("").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_job_whose_dead_letters_are_redriven_is_on_record_on_postgres() {
    redriven_jobs(Server::start_on_postgres("").await).await;
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

/// What is said of downloads, the first first.
async fn downloads(olga: &At<'_>) -> Vec<String> {
    let rows = olga.items("/audit?act=download").await;
    rows.iter().rev().map(|row| row["detail"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_hands_out_no_bytes_is_no_download_and_every_part_is_one() {
    let server = Server::start("").await;
    let (ann, olga) = (server.at(submitter("ann")), server.at(operator()));
    let job = ann.complete(&positions()).await;
    let file = ann.file(&job).await;
    let (url, path) = (file["url"].as_str().unwrap(), file["path"].as_str().unwrap());
    let bytes = file["bytes"].as_u64().unwrap();
    let head = ann.act("HEAD", url).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some(bytes.to_string().as_str()));
    assert_eq!(head.header("accept-ranges"), Some("bytes"));
    let tag = head.header("etag").unwrap().to_owned();
    assert_eq!(tag, format!("\"{}\"", file["sha256"].as_str().unwrap()));
    let with = async |name: &str, value: &str| {
        let call =
            server.http.get(format!("{}{url}", server.base)).bearer_auth(&ann.token).header(name, value);
        let answer = call.send().await.unwrap();
        (answer.status().as_u16(), answer.bytes().await.unwrap().len() as u64)
    };
    assert_eq!(with("if-none-match", &tag).await, (304, 0));
    assert_eq!(with("range", &format!("bytes={bytes}-")).await.0, 416);
    assert!(downloads(&olga).await.is_empty(), "nothing was handed out");
    // One byte less than the whole is as good as the whole.
    assert_eq!(with("range", "bytes=1-").await, (206, bytes - 1));
    assert_eq!(with("range", "bytes=0-0").await, (206, 1));
    assert_eq!(ann.get(url).await.status, 200);
    let last = bytes - 1;
    let said = [
        format!("{path} (bytes 1-{last} of {bytes})"),
        format!("{path} (bytes 0-0 of {bytes})"),
        path.to_owned(),
    ];
    assert_eq!(downloads(&olga).await, said);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_a_file_in_an_object_store_gives_no_link() {
    let config = format!(
        "{STEADY}{AUTH}\n[sources.warehouse]\nurl = \"{{postgres}}\"\n\n[datasets.positions]\ndefault = true\n\
         source = \"warehouse\"\nquery = \"select :key::text as key, :effective_date::date as day\"\n"
    );
    let stack = Stack::new(Kind::PostgresS3, &config).await;
    let process = stack.serve("server", "api,worker,scheduler").await;
    let server = Server::of(&process.base);
    let (ann, olga) = (server.at(submitter("ann")), server.at(operator()));
    let job = ann.complete(&positions()).await;
    let file = ann.file(&job).await;
    let url = file["url"].as_str().unwrap();
    let head = ann.act("HEAD", url).await;
    assert_eq!((head.status, head.header("location")), (200, None));
    assert_eq!(head.header("content-length"), Some(file["bytes"].to_string().as_str()));
    assert!(downloads(&olga).await.is_empty());
    let got = ann.get(url).await;
    assert_eq!(got.status, 307);
    assert!(got.header("location").is_some());
    assert_eq!(downloads(&olga).await, [file["path"].as_str().unwrap()]);
    stack.remove(file["path"].as_str().unwrap());
    assert_eq!((ann.act("HEAD", url).await.status, ann.get(url).await.status), (404, 404));
    assert_eq!(downloads(&olga).await.len(), 1, "what is not there is not downloaded");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_does_not_run() {
    let server = Server::start_on_postgres("").await;
    let (ann, olga) = (server.at(submitter("ann").county("Kent")), server.at(operator()));
    server.engine("alter table audit add constraint none_verified check (act <> 'verified')").await;
    let job = ann.submit(&people()).await;
    let failed = ann.until(&job, "FAILED").await;
    assert!(
        failed["errorMessage"].as_str().unwrap().contains("the engine's database refused a call"),
        "{failed}"
    );
    assert!(ann.items(&format!("{job}/files")).await.is_empty());
    server.engine("alter table audit drop constraint none_verified").await;
    assert_eq!(olga.act("POST", &format!("{job}/retry")).await.status, 202);
    ann.until(&job, "COMPLETED").await;
    let verified = olga.items("/audit?act=verified").await;
    assert_eq!(
        (verified.len(), &verified[0]["actor"], &verified[0]["detail"]),
        (1, &json!("ann"), &json!("snapshot"))
    );
    server.stop().await;
}
