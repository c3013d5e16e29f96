//! A submitter who is no longer to be trusted when their job's turn comes: processes of the built binary that ask a
//! hook, which says yes, no, something else or nothing. What decided is in the audit trail, and nothing runs on doubt.

use serde_json::{Value, json};

use crate::common::{Kind, Process, STEADY, Stack, eventually};
use crate::hook::{Hook, KEY, SECRET, Says};
use crate::on_both;
use crate::people::{AUTH, Person, operator, submitter};

on_both!(who_is_vouched_for_gets_their_rows_and_the_trail_says_by_what);

/// The hook has all the time it needs: an answer that came too late would be asked for again, and be counted.
const RELAXED: &str = "max_age = \"1h\"\ntimeout = \"1m\"";
/// Every attempt asks.
const STRICT: &str = "max_age = 0\ntimeout = \"1m\"";

struct Works {
    stack: Stack,
    server: Process,
    http: reqwest::Client,
    hook: Hook,
}

impl Works {
    async fn start(kind: Kind, recheck: &str, more: &str) -> Self {
        let hook = Hook::start().await;
        let url = if kind == Kind::Embedded { "sqlite:source.db" } else { "{postgres}" };
        let sections = format!(
            "{STEADY}{AUTH}\n{}[sources.warehouse]\nurl = \"{url}\"\n\n\
             [datasets.people]\ndefault = true\nsource = \"warehouse\"\nrow_scope = [\"county\"]\n\
             query = \"select name from people where key = :key and county = :claims.county and :effective_date <> '1999-01-01'\"\n\
             [datasets.everybody]\nsource = \"warehouse\"\n\
             query = \"select name from people where key = :key and :effective_date <> '1999-01-01'\"\n{more}",
            hook.section(recheck)
        );
        let mut stack = Stack::new(kind, &sections).await;
        stack.environment = vec![("HOOK_SECRET", SECRET.to_owned()), ("OUTHAUL_LOG", "trace".to_owned())];
        stack
            .source("create table people (key text, county text, name text); insert into people values ('ABC', 'Kent', 'Kay')")
            .await;
        let server = stack.serve("server", "api,worker,scheduler").await;
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { stack, server, http, hook }
    }

    async fn call(&self, who: &Person, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let call = self.http.request(method.parse().unwrap(), format!("{}{path}", self.server.base));
        let call = call.bearer_auth(who.token());
        let call = if let Some(body) = body { call.json(body) } else { call };
        let answer = call.send().await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.json().await.unwrap_or_default())
    }

    async fn submit(&self, who: &Person, body: &Value) -> String {
        let (status, job) = self.call(who, "POST", "/jobs", Some(body)).await;
        assert_eq!(status, 202, "{job}");
        format!("/jobs/{}", job["jobId"].as_str().unwrap())
    }

    /// Waits until a job has ended, and insists on how.
    async fn ended(&self, job: &str, status: &str) -> Value {
        let seen = std::sync::Mutex::new(Value::Null);
        let ended = eventually("the job ends", || async {
            let (_, now) = self.call(&operator(), "GET", job, None).await;
            let over = !now["completedAt"].is_null();
            *seen.lock().unwrap() = now;
            over
        });
        ended.await.unwrap_or_else(|error| panic!("{error}\n{}", self.server.log()));
        let job = seen.into_inner().unwrap();
        assert_eq!(job["status"], status, "{job}");
        job
    }

    /// What the trail says of a job, the first first.
    async fn trail(&self, job: &str) -> Vec<String> {
        let path = format!("/audit?jobId={}", job.trim_start_matches("/jobs/"));
        let (_, page) = self.call(&operator(), "GET", &path, None).await;
        let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let said = |row: &Value| {
            format!("{} {} {}", text(row, "actor"), text(row, "act"), text(row, "detail")).trim().to_owned()
        };
        page["items"].as_array().unwrap().iter().rev().map(said).collect()
    }

    async fn queue(&self, act: &str) {
        let path = format!("/queues/source:warehouse/{act}");
        assert!(self.call(&operator(), "POST", &path, None).await.0 < 300);
    }

    async fn retry(&self, job: &str) {
        assert_eq!(self.call(&operator(), "POST", &format!("{job}/retry"), None).await.0, 202);
    }

    /// Nobody but the hook saw its secret, and nobody the tokens.
    fn keeps_secrets(&self, who: &[Person]) {
        let log = self.server.log();
        assert!(log.contains("api.answered"), "it is the log");
        let tokens = who.iter().map(|who| who.token().split('.').nth(1).unwrap().to_owned());
        for canary in tokens.chain([SECRET.to_owned(), KEY.to_owned()]) {
            assert!(!log.contains(&canary), "the log has {canary}");
        }
    }
}

fn ann() -> Person {
    submitter("ann").department("sales").county("Kent")
}

fn people(dates: &[&str]) -> Value {
    json!({"items": [{"key": "ABC", "effectiveDates": dates}]})
}

async fn who_is_vouched_for_gets_their_rows_and_the_trail_says_by_what(kind: Kind) {
    let works = Works::start(kind, STRICT, "").await;
    let job = works.submit(&ann(), &people(&["20250215", "20250216", "20250217"])).await;
    works.ended(&job, "COMPLETED").await;
    let asked = works.hook.asked();
    assert_eq!(asked.len(), 3, "every chunk asked");
    for one in &asked {
        one.verify();
        let body = &one.body;
        assert_eq!(
            (&body["jobId"], &body["subject"]),
            (&json!(job.trim_start_matches("/jobs/")), &json!("ann"))
        );
        assert_eq!((&body["department"], &body["claims"]), (&json!("sales"), &json!({"county": "Kent"})));
        let names: Vec<&String> = body.as_object().unwrap().keys().collect();
        assert_eq!(names.len(), 5, "nothing else goes there: {names:?}");
    }
    assert_eq!(works.trail(&job).await, ["ann submit", "ann verified hook"], "once for the job");
    // Rows that depend on nobody are asked about as well: the job is somebody's.
    let plain =
        works.submit(&ann(), &json!({"dataset": "everybody", "items": people(&["20250215"])["items"]})).await;
    works.ended(&plain, "COMPLETED").await;
    assert_eq!(works.trail(&plain).await, ["ann submit", "ann verified hook"]);
    assert_eq!(works.hook.asked().len(), 4);
    works.keeps_secrets(&[ann(), operator()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_disabled_before_their_job_ran_gets_nothing_whoever_redrives_it() {
    let works = Works::start(Kind::Embedded, STRICT, "").await;
    works.queue("pause").await;
    let job = works.submit(&ann(), &people(&["20250215"])).await;
    works.hook.says(&[Says::Status(403)]);
    works.queue("resume").await;
    let failed = works.ended(&job, "FAILED").await;
    let said = failed["errorMessage"].as_str().unwrap();
    assert!(said.contains("the identity provider no longer vouches for its submitter"), "{said}");
    assert_eq!(works.hook.asked().len(), 1, "no further attempt can help");
    assert!(works.stack.published().is_empty());

    // An operator redrives it: it is still about ann, and still no.
    works.hook.says(&[Says::Status(410)]);
    works.retry(&job).await;
    eventually("it was asked again", || async { works.hook.asked().len() == 2 }).await.unwrap();
    works.ended(&job, "FAILED").await;
    assert!(works.hook.asked().iter().all(|asked| asked.body["subject"] == "ann"));
    assert!(works.stack.published().is_empty());
    assert_eq!(works.trail(&job).await, ["ann submit", "ann refused hook", "olga redrive"]);

    // Ann is let in again, and gets ann's rows.
    works.hook.says(&[Says::Status(204)]);
    works.retry(&job).await;
    eventually("it is published", || async { !works.stack.published().is_empty() }).await.unwrap();
    works.ended(&job, "COMPLETED").await;
    let said = ["ann submit", "ann refused hook", "olga redrive", "olga redrive", "ann verified hook"];
    assert_eq!(works.trail(&job).await, said);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_answer_is_asked_again_and_nothing_runs_on_doubt() {
    let works = Works::start(Kind::Embedded, STRICT, "").await;
    works.hook.says(&[Says::Status(500), Says::Elsewhere, Says::Status(200)]);
    let job = works.submit(&ann(), &people(&["20250215"])).await;
    works.ended(&job, "COMPLETED").await;
    assert_eq!(works.hook.asked().len(), 3);
    assert_eq!(works.trail(&job).await, ["ann submit", "ann verified hook"]);

    works.hook.says(&[Says::Status(401)]);
    let job = works.submit(&ann(), &people(&["20250216"])).await;
    let failed = works.ended(&job, "FAILED").await;
    let said = failed["errorMessage"].as_str().unwrap();
    assert!(said.contains("nobody can vouch for its submitter now: answered 401"), "{said}");
    assert_eq!(works.hook.asked().len(), 6, "as often as anything is tried");
    assert_eq!(works.stack.published().len(), 1, "the first job's");
    assert_eq!(works.trail(&job).await, ["ann submit"], "nothing was decided");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_never_answers_lets_nothing_run() {
    let works = Works::start(Kind::Embedded, &STRICT.replace("1m", "1s"), "").await;
    works.hook.says(&[Says::Nothing]);
    let job = works.submit(&ann(), &people(&["20250215"])).await;
    let failed = works.ended(&job, "FAILED").await;
    assert!(failed["errorMessage"].as_str().unwrap().contains("no answer within 1s"), "{failed}");
    assert!(works.stack.published().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_jobs_are_asked_about_and_those_of_the_configuration_are_not() {
    // The step is at an address where nobody listens: it would fail otherwise than by the hook.
    let more = "[auth.identities.nightly]\nclaims = { county = \"Kent\" }\n\n[job_types.SEND]\n\
                steps = [{ name = \"send\", http = \"http://127.0.0.1:1/\" }]\n";
    let works = Works::start(Kind::Embedded, RELAXED, more).await;
    works.hook.says(&[Says::Status(404)]);
    let job = works.submit(&ann(), &json!({"jobType": "SEND", "payload": {"canary": KEY}})).await;
    let failed = works.ended(&job, "FAILED").await;
    assert!(
        failed["errorMessage"].as_str().unwrap().contains("no longer vouches for its submitter"),
        "{failed}"
    );
    assert_eq!(works.trail(&job).await, ["ann submit", "ann refused hook"]);
    assert_eq!(works.hook.asked().len(), 1);

    let schedule = json!({"cron": "@yearly", "job": people(&["20250215"]), "runAs": "nightly"});
    assert_eq!(works.call(&operator(), "PUT", "/schedules/yearly", Some(&schedule)).await.0, 201);
    let (_, run) = works.call(&operator(), "POST", "/schedules/yearly/run", None).await;
    let job = format!("/jobs/{}", run["jobId"].as_str().unwrap());
    works.ended(&job, "COMPLETED").await;
    let said = ["identity:nightly submit schedule yearly", "identity:nightly verified snapshot"];
    assert_eq!(works.trail(&job).await, said);
    assert_eq!(works.hook.asked().len(), 1, "nobody knows them but the configuration");
    works.keeps_secrets(&[ann(), operator()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_is_believed_for_as_long_as_it_is_said_to_be() {
    let works = Works::start(Kind::Embedded, RELAXED, "").await;
    for day in ["20250215", "20250216", "20250217"] {
        let job = works.submit(&ann(), &people(&[day])).await;
        works.ended(&job, "COMPLETED").await;
        assert_eq!(works.trail(&job).await, ["ann submit", "ann verified hook"]);
    }
    assert_eq!(works.hook.asked().len(), 1);
    // Of somebody else, or of ann in another place, nothing was said yet.
    works.hook.says(&[Says::Status(403)]);
    for (other, asked) in
        [(submitter("bob").department("sales").county("Kent"), 2), (ann().county("Essex"), 3)]
    {
        let job = works.submit(&other, &people(&["20250215"])).await;
        works.ended(&job, "FAILED").await;
        assert_eq!(works.hook.asked().len(), asked);
    }
}
