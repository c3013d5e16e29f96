//! What was not done is not in the audit trail as if it had been: what could not be done leaves no entry, and what
//! turned out to be impossible after it was recorded leaves a second one that says so.

use serde_json::{Value, json};

use crate::people::{operator, submitter};
use crate::server::{At, Server, later, positions};

/// Who did what to which job, and its detail, the first first.
async fn trail(olga: &At<'_>) -> Vec<Value> {
    let rows = olga.items("/audit?limit=200").await;
    rows.iter().rev().map(|row| json!([row["actor"], row["act"], row["jobId"], row["detail"]])).collect()
}

fn id(job: &str) -> Value {
    json!(job.trim_start_matches("/jobs/"))
}

const NIGHTLY: &str = "[auth.identities.nightly]\n";
/// A rule of each kind that the API may not change.
const CONFIGURED: &str = "[auth.identities.nightly]\n\
    [schedules.fixed]\ncron = \"0 6 29 2 *\"\nrun_as = \"nightly\"\ncatch_up = \"none\"\n\
    job = { items = [{ key = \"ABC\", effectiveDates = [\"20250215\"] }] }\n\
    [triggers.fixed]\nafter = [\"job:SINGLE\"]\nrun_as = \"nightly\"\n\
    job = { items = [{ key = \"ABC\", effectiveDates = [\"20250215\"] }] }\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_no_act() {
    let server = Server::start(CONFIGURED).await;
    let (ann, olga) = (server.at(submitter("ann")), server.at(operator()));
    let (done, waiting) = (ann.complete(&positions()).await, ann.submit(&later()).await);
    let file = ann.file(&done).await["url"].as_str().unwrap().to_owned();
    let cancelled = ann.submit(&later()).await;
    ann.act("POST", &format!("{cancelled}/cancel")).await;
    let before = trail(&olga).await;

    assert_eq!(ann.act("POST", &format!("{cancelled}/cancel")).await.status, 202, "as it was");
    std::fs::remove_dir_all(server.folder().join("data/files/exports")).unwrap();
    let priority = json!({"priority": 9});
    let schedule = json!({"cron": "@yearly", "job": later(), "runAs": "nightly"});
    let trigger = json!({"after": ["job:SINGLE"], "job": later(), "runAs": "nightly"});
    for (method, path, body, status) in [
        ("POST", &*format!("{done}/cancel"), None, 409),
        ("POST", &*format!("{done}/retry"), None, 409),
        ("POST", &*format!("{waiting}/retry"), None, 409),
        ("POST", &*format!("{cancelled}/retry"), None, 409),
        ("POST", &*format!("{done}/priority"), Some(&priority), 409),
        ("GET", &*file, None, 404),
        ("POST", "/queues/source:nowhere/pause", None, 404),
        ("POST", "/queues/source:nowhere/resume", None, 404),
        ("DELETE", "/schedules/none", None, 404),
        ("POST", "/schedules/none/pause", None, 404),
        ("POST", "/schedules/none/resume", None, 404),
        ("POST", "/schedules/none/run", None, 404),
        ("PUT", "/schedules/fixed", Some(&schedule), 409),
        ("DELETE", "/schedules/fixed", None, 409),
        ("DELETE", "/triggers/none", None, 404),
        ("PUT", "/triggers/fixed", Some(&trigger), 409),
        ("DELETE", "/triggers/fixed", None, 409),
    ] {
        let answer = server.call(Some(&olga.token), method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.json());
    }
    assert_eq!(trail(&olga).await, before);
    server.stop().await;
}

/// Whatever is recorded, somebody else is faster by a moment.
const FASTER: &str = "create function faster() returns trigger language plpgsql as $$ begin \
    if new.act in ('cancel', 'prioritise') then \
        update job set status = 'COMPLETED', completed_at = now() where job_id = new.job_id; \
    end if; \
    if new.act = 'operate' then delete from schedule where name = 'yearly'; end if; \
    return new; end $$; \
    create trigger faster before insert on audit for each row execute function faster()";

#[tokio::test(flavor = "multi_thread")]
async fn what_was_recorded_and_came_too_late_is_taken_back_by_a_second_entry() {
    let server = Server::start_on_postgres(NIGHTLY).await;
    let (ann, olga) = (server.at(submitter("ann")), server.at(operator()));
    let (one, two) = (ann.submit(&later()).await, ann.submit(&later()).await);
    let schedule = json!({"cron": "@yearly", "job": later(), "runAs": "nightly"});
    assert_eq!(olga.send("PUT", "/schedules/yearly", &schedule).await.status, 201);
    let before = trail(&olga).await.len();
    server.engine(FASTER).await;
    assert_eq!(ann.act("POST", &format!("{one}/cancel")).await.status, 409);
    assert_eq!(ann.send("POST", &format!("{two}/priority"), &json!({"priority": 9})).await.status, 409);
    assert_eq!(olga.act("POST", "/schedules/yearly/pause").await.status, 404);
    let said = &trail(&olga).await[before..];
    let expected = [
        json!(["ann", "cancel", id(&one), null]),
        json!(["ann", "cancel", id(&one), "not done: the job is COMPLETED and cannot be cancelled"]),
        json!(["ann", "prioritise", id(&two), "9"]),
        json!([
            "ann",
            "prioritise",
            id(&two),
            "not done: 9: the job is COMPLETED: its priority means nothing now"
        ]),
        json!(["olga", "operate", null, "pause schedule yearly"]),
        json!(["olga", "operate", null, "not done: pause schedule yearly: there is no such schedule"]),
    ];
    assert_eq!(said, expected);
    server.stop().await;
}

/// Whatever cancellation is recorded, another one is faster by a moment.
const CANCELLED_BEFORE: &str = "create function before() returns trigger language plpgsql as $$ begin \
    update job set status = 'CANCELLED' where job_id = new.job_id and new.act = 'cancel'; \
    return new; end $$; \
    create trigger before before insert on audit for each row execute function before()";

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_that_came_second_is_taken_back() {
    let server = Server::start_on_postgres("").await;
    let (ann, olga) = (server.at(submitter("ann")), server.at(operator()));
    let job = ann.submit(&later()).await;
    server.engine(CANCELLED_BEFORE).await;
    let answer = ann.act("POST", &format!("{job}/cancel")).await;
    assert_eq!((answer.status, &answer.json()["status"]), (202, &json!("CANCELLED")));
    let expected = [
        json!(["ann", "submit", id(&job), null]),
        json!(["ann", "cancel", id(&job), null]),
        json!(["ann", "cancel", id(&job), "not done: it was cancelled already"]),
    ];
    assert_eq!(trail(&olga).await, expected);
    server.stop().await;
}

async fn cancellations(server: Server) {
    let (ann, olga) = (server.at(submitter("ann")), server.at(operator()));
    for _ in 0..5 {
        let job = ann.submit(&later()).await;
        let path = format!("{job}/cancel");
        for answer in futures::future::join_all((0..6).map(|_| ann.act("POST", &path))).await {
            assert_eq!((answer.status, &answer.json()["status"]), (202, &json!("CANCELLED")));
        }
        let rows = olga.items(&format!("/audit?act=cancel&jobId={}", id(&job).as_str().unwrap())).await;
        let (begun, taken_back): (Vec<&Value>, Vec<&Value>) =
            rows.iter().map(|row| &row["detail"]).partition(|detail| detail.is_null());
        assert_eq!(begun.len(), taken_back.len() + 1, "one stands: {rows:?}");
        assert!(taken_back.iter().all(|detail| **detail == "not done: it was cancelled already"), "{rows:?}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_cancellations_one_stands_on_sqlite() {
    cancellations(Server::start("").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_cancellations_one_stands_on_postgres() {
    cancellations(Server::start_on_postgres("").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_resubmissions_one_is_a_redrive() {
    let server = Server::start_on_postgres("").await;
    let (ann, olga) = (server.at(submitter("ann")), server.at(operator()));
    let file = server.folder().join("needed");
    let body = json!({"jobType": "NEEDS", "payload": {"file": file}, "idempotencyKey": "once"});
    let job = ann.submit(&body).await;
    ann.until(&job, "FAILED").await;
    std::fs::write(&file, "").unwrap();
    let calls = (0..20).map(|_| ann.send("POST", "/jobs", &body));
    for answer in futures::future::join_all(calls).await {
        assert_eq!(answer.status, 202);
    }
    ann.until(&job, "COMPLETED").await;
    let rows = olga.items("/audit?act=redrive&limit=200").await;
    let (taken_back, begun): (Vec<&Value>, Vec<&Value>) =
        rows.iter().map(|row| &row["detail"]).partition(|detail| !detail.is_null());
    assert_eq!(begun.len(), taken_back.len() + 1, "{rows:?}");
    assert!(taken_back.iter().all(|detail| **detail == "not done: somebody else was faster"), "{rows:?}");
    server.stop().await;
}
