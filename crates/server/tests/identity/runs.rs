//! Whose rights a job runs with: its submitter's, whoever redrives it; those of an identity of the configuration,
//! where nobody is there to ask; and not for ever.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use outhaul_core::clock;
use outhaul_server::auth::Role;
use serde_json::{Value, json};

use crate::common::{PATIENCE, eventually};
use crate::people::{Person, operator, submitter};
use crate::server::{At, Server, people, positions};

const KENT: &str = "name,county\nKay,Kent\n";
const ESSEX: &str = "name,county\nEsther,Essex\n";
const NIGHTLY: &str = "[auth.identities.nightly]\ndepartment = \"sales\"\nclaims = { county = \"Kent\" }\n";

fn kent(subject: &'static str) -> Person {
    submitter(subject).county("Kent")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_an_operator_redrives_sees_what_its_submitter_may_see() {
    let server = Server::start("").await;
    server.source("alter table people rename to away").await;
    let ann = server.at(kent("ann"));
    let jobs = [ann.submit(&people()).await, ann.submit(&people()).await];
    for job in &jobs {
        ann.until(job, "FAILED").await;
    }
    let kept = async || {
        let params = "select group_concat(params || identity || scope, ';') from job";
        server.recorded(params).await
    };
    let before = kept().await;
    assert!(before.contains("Kent"), "{before}");
    server.source("alter table away rename to people").await;
    // One by its name, the other as a dead letter; by somebody of another county.
    let olga = server.at(operator().county("Essex"));
    assert_eq!(olga.act("POST", &format!("{}/retry", jobs[0])).await.status, 202);
    ann.until(&jobs[0], "COMPLETED").await;
    let redriven =
        olga.send("POST", "/dead-letters/redrive", &json!({"filter": {"dataset": "people"}})).await;
    assert_eq!(redriven.json(), json!({"matched": 1, "redriven": 1}));
    ann.until(&jobs[1], "COMPLETED").await;
    for job in &jobs {
        assert_eq!(ann.text(job).await, KENT);
        assert_eq!(olga.get(&format!("{job}/files")).await.status, 404);
        assert_eq!(olga.json(job).await["owner"], "ann");
    }
    assert_eq!(kept().await, before, "what was stored of the submitter");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_kept_of_a_token_is_not_used_for_ever() {
    let short = crate::people::AUTH.replace("keep =", "snapshot_max_age = \"1s\"\nkeep =");
    let server = Server::start_with_auth(&short).await;
    let ann = server.at(kent("ann"));
    let mut body = people();
    body["runAt"] = json!((clock::now() + TimeDelta::seconds(3)).to_rfc3339());
    let job = ann.submit(&body).await;
    let failed = ann.until(&job, "FAILED").await;
    assert!(failed["errorMessage"].as_str().unwrap().contains("older than 1s; submit it again"), "{failed}");
    assert_eq!(decided(&server, &job).await, [json!(["ann", "refused", "snapshot"])]);
    // Rows that depend on nobody are read all the same.
    let mut body = positions();
    body["runAt"] = json!((clock::now() + TimeDelta::seconds(3)).to_rfc3339());
    let job = ann.submit(&body).await;
    ann.until(&job, "COMPLETED").await;
    assert!(decided(&server, &job).await.is_empty(), "nothing had to be decided");
    server.stop().await;
}

/// Who was verified or refused for a job, and what decided.
async fn decided(server: &Server, job: &str) -> Vec<Value> {
    let path = format!("/audit?jobId={}", job.trim_start_matches("/jobs/"));
    let rows = server.at(operator()).items(&path).await;
    let of = |act: &str| rows.iter().filter(|row| row["act"] == act).cloned().collect::<Vec<Value>>();
    let said = |row: Value| json!([row["actor"], row["act"], row["detail"]]);
    of("verified").into_iter().chain(of("refused")).map(said).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_expires_while_its_job_waits_does_not_stop_it() {
    let strict = crate::people::AUTH.replace("keep =", "leeway = \"0s\"\nkeep =");
    let server = Server::start_with_auth(&strict).await;
    let olga = server.at(operator());
    assert!(olga.act("POST", "/queues/source:warehouse/pause").await.status < 300);
    // Long enough to be good for one call, also on a busy machine.
    let token = kent("ann").token_for(Duration::from_secs(15));
    let submitted = server.call(Some(&token), "POST", "/jobs", Some(&people())).await;
    assert_eq!(submitted.status, 202, "{}", submitted.json());
    let job = format!("/jobs/{}", submitted.json()["jobId"].as_str().unwrap());
    let expired = eventually("the token has expired", || async {
        server.call(Some(&token), "GET", &job, None).await.status == 401
    });
    expired.await.unwrap_or_else(|error| panic!("{error}"));
    let ann = server.at(kent("ann"));
    assert_eq!(ann.json(&job).await["status"], "SUBMITTED", "it has waited");
    assert!(olga.act("POST", "/queues/source:warehouse/resume").await.status < 300);
    ann.until(&job, "COMPLETED").await;
    assert_eq!(ann.text(&job).await, KENT);
    assert_eq!(decided(&server, &job).await, [json!(["ann", "verified", "snapshot"])]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_and_a_county_that_were_taken_away_meanwhile_change_nothing_about_a_job_that_waits() {
    let server = Server::start("").await;
    let olga = server.at(operator());
    assert!(olga.act("POST", "/queues/source:warehouse/pause").await.status < 300);
    let job = server.at(kent("ann")).submit(&people()).await;
    // From here on ann is nobody, of another county.
    let now = server.at(Person { roles: vec![], ..kent("ann") }.county("Essex"));
    assert_eq!(now.get(&job).await.status, 403);
    assert_eq!(now.send("POST", "/jobs", &people()).await.status, 403);
    assert!(olga.act("POST", "/queues/source:warehouse/resume").await.status < 300);
    olga.until(&job, "COMPLETED").await;
    assert_eq!(server.at(kent("ann")).text(&job).await, KENT, "the rows of whoever submitted it");
    assert_eq!(server.at(submitter("ann").county("Essex")).get(&format!("{job}/files")).await.status, 404);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_run_as_identities_of_the_configuration() {
    let server = Server::start(NIGHTLY).await;
    let olga = server.at(operator());
    let schedule = |run_as: Value| json!({"cron": "@yearly", "job": people(), "runAs": run_as});
    for (run_as, message) in [
        (Value::Null, "is required"),
        (json!("nigtly"), "is no identity; there are: nightly"),
        (json!("identity:nightly"), "is no identity"),
        (json!("ann"), "is no identity"),
    ] {
        let refused = olga.send("PUT", "/schedules/yearly", &schedule(run_as)).await;
        let said = refused.json();
        let about = said["errors"].as_array().unwrap().iter().find(|error| error["pointer"] == "/runAs");
        assert_eq!(refused.status, 400, "{said}");
        assert!(about.unwrap()["message"].as_str().unwrap().contains(message), "{said}");
    }
    let made = olga.send("PUT", "/schedules/yearly", &schedule(json!("nightly"))).await;
    assert_eq!((made.status, &made.json()["runAs"]), (201, &json!("nightly")));
    let run = olga.act("POST", "/schedules/yearly/run").await;
    assert_eq!((run.status, &run.json()["owner"]), (202, &json!("identity:nightly")));
    let job = format!("/jobs/{}", run.json()["jobId"].as_str().unwrap());
    olga.until(&job, "COMPLETED").await;
    // It is its department's, and its rows are those of its county.
    let viewer = Person { roles: vec![Role::Viewer], ..kent("vic") }.department("sales");
    assert_eq!(server.at(viewer.clone()).text(&job).await, KENT);
    assert_eq!(server.at(viewer.county("Essex")).get(&format!("{job}/files")).await.status, 404);
    assert_eq!(server.at(kent("ann")).get(&job).await.status, 404);
    assert_eq!(olga.get(&format!("{job}/files")).await.status, 404, "an operator of no county");

    // An identity that is gone runs nothing.
    let server = server.restart("").await;
    let olga = server.at(operator());
    let refused = olga.act("POST", "/schedules/yearly/run").await;
    assert_eq!(refused.status, 409, "{}", refused.json());
    assert!(refused.json()["detail"].as_str().unwrap().contains("[auth.identities]"), "{}", refused.json());
    server.stop().await;
}

/// The last firing of the trigger `next`, once there are so many.
async fn fired(olga: &At<'_>, firings: usize) -> Value {
    let start = Instant::now();
    loop {
        let fired = olga.json("/triggers/next").await["fired"].as_array().unwrap().clone();
        if fired.len() >= firings && fired[0]["state"] != "due" {
            return fired[0].clone();
        }
        assert!(start.elapsed() < PATIENCE, "it did not fire: {fired:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn triggers_run_as_an_identity_or_as_whoever_owns_their_parents() {
    let server = Server::start(NIGHTLY).await;
    let olga = server.at(operator());
    let mut trigger = json!({"after": ["dataset:positions"], "job": people(), "runAs": "nightly"});
    let made = olga.send("PUT", "/triggers/next", &trigger).await;
    assert_eq!((made.status, &made.json()["runAs"]), (201, &json!("nightly")));
    let ann = server.at(kent("ann").department("audit"));
    ann.complete(&positions()).await;
    let path =
        |fired: &Value| format!("/jobs/{}", fired["jobId"].as_str().unwrap_or_else(|| panic!("{fired}")));
    let job = path(&fired(&olga, 1).await);
    assert_eq!(olga.until(&job, "COMPLETED").await["owner"], "identity:nightly");
    assert_eq!(ann.get(&job).await.status, 404, "it is not ann's");

    // Without one it is the job of whoever owns the parents, with what was kept of them.
    trigger["runAs"] = Value::Null;
    let made = olga.send("PUT", "/triggers/next", &trigger).await;
    assert_eq!((made.status, &made.json()["runAs"]), (200, &Value::Null));
    let essex = server.at(submitter("bob").county("Essex"));
    essex.complete(&positions()).await;
    let job = path(&fired(&olga, 2).await);
    assert_eq!(essex.until(&job, "COMPLETED").await["owner"], "bob");
    assert_eq!(essex.text(&job).await, ESSEX);
    assert_eq!(ann.get(&job).await.status, 404);
    let viewer = Person { roles: vec![Role::Viewer], ..kent("vic") }.department("audit");
    ann.complete(&positions()).await;
    let job = path(&fired(&olga, 3).await);
    ann.until(&job, "COMPLETED").await;
    assert_eq!(server.at(viewer).text(&job).await, KENT, "the owner's department came along");

    // Whoever could not have asked for it gets nothing.
    server.at(submitter("dan")).complete(&positions()).await;
    let refused = fired(&olga, 4).await;
    assert_eq!((&refused["state"], &refused["jobId"]), (&json!("refused"), &Value::Null));
    assert!(refused["detail"].as_str().unwrap().contains("`county` is missing"), "{refused}");
    server.stop().await;
}
