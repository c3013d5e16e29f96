//! A database quotes rows in its errors. Whoever may see a job but not its rows hears nothing of them, and neither
//! does whoever reads the log.

use serde_json::{Value, json};

use crate::common::{Kind, STEADY, Stack, eventually};
use crate::people::{AUTH, operator, submitter};

const CANARY: &str = "canary-of-a-row";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_source_says_of_rows_is_shown_to_nobody() {
    let config = format!(
        "{STEADY}{AUTH}\n[sources.warehouse]\nurl = \"{{postgres}}\"\n\n\
         [datasets.people]\ndefault = true\nsource = \"warehouse\"\nrow_scope = [\"county\"]\n\
         query = \"select tell(name)::int from people where county = :claims.county and key = :key and :effective_date <> '1999-01-01'\"\n\
         count_query = \"select tell(name)::int from people where county = :claims.county and key = :key and :effective_date <> '1999-01-01'\"\n"
    );
    let mut stack = Stack::new(Kind::PostgresLocal, &config).await;
    stack.environment.push(("OUTHAUL_LOG", "trace".to_owned()));
    stack
        .source(
            "create table people (key text, county text, name text); insert into people values ('ABC', 'Kent', 'canary-of-a-row'); \
             create function tell(t text) returns text language plpgsql as $$ begin raise warning 'this is %', t; return t; end $$",
        )
        .await;
    let mut server = stack.serve("server", "api,worker,scheduler").await;
    let http = reqwest::Client::new();
    let (ann, olga) = (submitter("ann").county("Kent").token(), operator().token());
    let call = |token: &str, method: &str, path: &str| {
        http.request(method.parse().unwrap(), format!("{}{path}", server.base)).bearer_auth(token)
    };
    let body = json!({"items": [{"key": "ABC", "effectiveDates": ["20250215"]}]});
    let job: Value = call(&ann, "POST", "/jobs").json(&body).send().await.unwrap().json().await.unwrap();
    let job = format!("/jobs/{}", job["jobId"].as_str().unwrap_or_else(|| panic!("{job}")));
    let failed = eventually("the job fails", || async {
        let now: Value = call(&olga, "GET", &job).send().await.unwrap().json().await.unwrap();
        now["status"] == "FAILED" && !now["completedAt"].is_null()
    });
    failed.await.unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
    for who in [&ann, &olga] {
        for path in [job.clone(), format!("{job}/chunks"), "/jobs".to_owned()] {
            let shown = call(who, "GET", &path).send().await.unwrap().text().await.unwrap();
            assert!(!shown.contains(CANARY), "{path}: {shown}");
        }
    }
    let shown = call(&ann, "GET", &job).send().await.unwrap().text().await.unwrap();
    assert!(shown.contains("data exception (SQLSTATE 22P02)"), "{shown}");
    for path in [format!("{job}/history"), "/dead-letters".to_owned(), format!("{job}/events")] {
        let shown = call(&olga, "GET", &path).send().await.unwrap().text().await.unwrap();
        assert!(shown.contains("22P02") && !shown.contains(CANARY), "{path}: {shown}");
    }
    assert!(server.terminate());
    let log = server.log();
    assert!(log.contains("SQLSTATE 22P02"), "the log speaks of it");
    assert!(!log.contains(CANARY), "{log}");
}
