//! What one caller sends costs nobody else anything: neither many submissions, nor many streams, nor odd claims.

use outhaul_core::clock;
use outhaul_core::secret::Secret;
use outhaul_server::auth::{JwtSettings, Keys, Wanted, issue};
use serde_json::{Map, json};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::Mutex;

use crate::common::eventually;
use crate::people::{AUDIENCE, ISSUER, SECRET, submitter};
use crate::server::{Server, later};

/// How many of the API's connections wait for the lock under which a caller's quota is counted.
async fn waiting(db: &mut PgConnection) -> i64 {
    let sql = "select count(*) from pg_stat_activity where datname = current_database() \
        and application_name = 'outhaul api' and wait_event = 'advisory'";
    sqlx::query_scalar(sql).fetch_one(db).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn submissions_that_wait_for_each_other_keep_nobody_from_anything() {
    let limits = "[limits]\nmax_open_chunks = 1000\nrequest_timeout = \"10m\"\n";
    let server = Server::start_on_postgres(limits).await;
    let (ann, bob) = (server.at(submitter("ann")), server.at(submitter("bob")));
    let mut db = PgConnection::connect(server.engine_url()).await.unwrap();
    // Of the session: in a transaction the looks below would all see what the first saw.
    let lock = "select pg_advisory_lock(hashtextextended('outhaul quota ann', 0))";
    sqlx::raw_sql(lock).execute(&mut db).await.unwrap();
    let calls = (0..40).map(|_| {
        let call = server.http.post(format!("{}/jobs", server.base)).bearer_auth(&ann.token).json(&later());
        tokio::spawn(async move { call.send().await.unwrap().status().as_u16() })
    });
    let calls: Vec<_> = calls.collect();
    let db = Mutex::new(db);
    eventually("two wait", || async { waiting(&mut *db.lock().await).await >= 2 }).await.unwrap();
    let mut db = db.into_inner();
    assert_eq!(bob.get("/jobs").await.status, 200);
    assert_eq!(bob.send("POST", "/jobs", &later()).await.status, 202);
    assert_eq!(ann.get("/jobs").await.status, 200, "nor ann herself");
    assert_eq!(waiting(&mut db).await, 2, "two of ten connections, however many ask");
    sqlx::raw_sql("select pg_advisory_unlock_all()").execute(&mut db).await.unwrap();
    for call in calls {
        assert_eq!(call.await.unwrap(), 202, "all had their turn");
    }
    assert_eq!(ann.items("/jobs?limit=200").await.len(), 40);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_stream_too_many_is_the_callers_own_fault() {
    let server = Server::start("").await;
    let (ann, bob) = (server.at(submitter("ann")), server.at(submitter("bob")));
    let (anns, bobs) = (ann.submit(&later()).await, bob.submit(&later()).await);
    let open = async |token: &str, job: &str| {
        let call = server.http.get(format!("{}{job}/events", server.base)).bearer_auth(token);
        call.send().await.unwrap()
    };
    let mut streams = Vec::new();
    for _ in 0..50 {
        let stream = open(&ann.token, &anns).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    let refused = ann.get(&format!("{anns}/events")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("5")));
    let said = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(said.starts_with("you watch as many jobs here as one caller may"), "{said}");
    assert_eq!(open(&bob.token, &bobs).await.status(), 200);
    drop(streams);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_too_deep_to_be_kept_is_the_tokens_fault() {
    let server = Server::start("").await;
    let nested = (0..126).fold(json!("Kent"), |value, _| json!([value]));
    let wanted =
        Wanted { claims: Map::from_iter([("county".to_owned(), nested)]), ..submitter("ann").wanted() };
    let settings = JwtSettings::new(ISSUER, vec![AUDIENCE.into()], Keys::Secret(Secret::new(SECRET)));
    let token = issue(&settings, None, &wanted, clock::now()).unwrap();
    let answer = server.call(Some(&token), "POST", "/jobs", Some(&later())).await;
    assert_eq!(answer.status, 401, "{}", answer.json());
    assert!(answer.header("www-authenticate").unwrap().contains("a claim cannot be kept"));
    server.stop().await;
}
