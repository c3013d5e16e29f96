//! What is PostgreSQL's own: every statement is valid, migrations are safe to run together, and
//! servers that could lose work are refused. What both stores share is in the conformance suite.

#![expect(clippy::unwrap_used, reason = "whatever fails in a helper fails its test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outhaul_core::secret::Secret;
use outhaul_core::store::{Store, StoreError, StoreSettings};
use outhaul_store::postgres::{DEFAULT_SCHEMA, PostgresOptions, migrate};
use outhaul_testkit::test_db::TestDb;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqlSafeStr};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/postgres")
}

fn names(folder: &Path, extension: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|found| found == extension));
    files.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

async fn migrated() -> (TestDb, PgConnection) {
    let database = TestDb::migrated().await;
    let connection = PgConnection::connect(database.url()).await.unwrap();
    (database, connection)
}

#[tokio::test]
async fn every_statement_is_valid() {
    let (_database, mut connection) = migrated().await;
    // A statement that does not name the schema finds nothing.
    connection.execute("set search_path = ''").await.unwrap();
    let sql = folder().join("sql");
    let mut wrong = Vec::new();
    for name in names(&sql, "sql") {
        let text = std::fs::read_to_string(sql.join(&name)).unwrap();
        if let Err(error) = connection.prepare(AssertSqlSafe(text).into_sql_str()).await {
            wrong.push(format!("{name}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_may_run_together_and_again() {
    let database = TestDb::create().await;
    let url = Secret::new(database.url());
    let runs = (0..8).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { migrate(&url, DEFAULT_SCHEMA, true).await.unwrap() })
    });
    let names: BTreeSet<_> =
        futures::future::join_all(runs).await.into_iter().map(|name| name.unwrap().to_string()).collect();
    assert_eq!(names.len(), 1, "one installation, whoever was first: {names:?}");
    let again = migrate(&url, DEFAULT_SCHEMA, true).await.unwrap();
    assert!(names.contains(&*again));
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let (database, mut connection) = migrated().await;
    connection.execute("insert into outhaul.migration (version, name) values (999, 'later')").await.unwrap();
    let refused = migrate(&Secret::new(database.url()), DEFAULT_SCHEMA, true).await;
    assert!(matches!(refused, Err(StoreError::NewerSchema { found: 999, .. })), "{refused:?}");
}

#[tokio::test]
async fn a_database_of_a_development_version_is_refused() {
    let database = TestDb::create().await;
    let mut connection = PgConnection::connect(database.url()).await.unwrap();
    connection.execute("create table outhaul_migration (version bigint)").await.unwrap();
    let refused = migrate(&Secret::new(database.url()), DEFAULT_SCHEMA, true).await.unwrap_err().to_string();
    assert!(refused.contains("earlier development version") && refused.contains("`public`"), "{refused}");
    let made: bool = sqlx::query_scalar("select to_regnamespace('outhaul') is not null")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(!made, "nothing is changed");
}

#[tokio::test]
async fn an_old_schema_is_refused_unless_migrating() {
    let database = TestDb::create().await;
    let refused = migrate(&Secret::new(database.url()), DEFAULT_SCHEMA, false).await.unwrap_err();
    assert!(refused.to_string().contains("outhaul migrate"), "{refused}");
}

#[tokio::test]
async fn a_server_that_may_lose_commits_is_refused() {
    let (database, mut connection) = migrated().await;
    connection
        .execute(
            "do $$ begin execute format('alter database %I set synchronous_commit = off', current_database()); end $$",
        )
        .await
        .unwrap();
    let refused = migrate(&Secret::new(database.url()), DEFAULT_SCHEMA, true).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Unsafe(why) if why.contains("synchronous_commit")), "{refused}");
}

#[tokio::test]
async fn a_wrong_url_does_not_show_its_password() {
    for url in ["postgres://user:hunter2@host:notaport/db", "postgres://user:hunter2@127.0.0.1:1/db"] {
        let refused = migrate(&Secret::new(url), DEFAULT_SCHEMA, true).await.unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("hunter2"), "{refused:?}");
    }
}

/// A proxy that can go silent: connections made before stay open and answer nothing.
async fn proxy(to: String) -> (u16, tokio::sync::watch::Sender<bool>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (silence, silent) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let (to, mut silent) = (to.clone(), silent.clone());
            silent.mark_unchanged();
            tokio::spawn(async move {
                let mut server = tokio::net::TcpStream::connect(to).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    // Silent for good, with both ends open.
                    _ = silent.changed() => std::future::pending().await,
                }
            });
        }
    });
    (port, silence)
}

#[tokio::test]
async fn a_server_that_vanishes_without_a_word_is_found_again() {
    let (database, _) = migrated().await;
    let url = url::Url::parse(database.url()).unwrap();
    let (port, silence) = proxy(format!("127.0.0.1:{}", url.port().unwrap())).await;
    let through =
        Secret::new(database.url().replace(&format!(":{}", url.port().unwrap()), &format!(":{port}")));
    let settings = StoreSettings {
        lease: Duration::from_secs(60),
        fairness_step: Duration::ZERO,
        idempotency_window: Duration::ZERO,
        parking: false,
    };
    let options = PostgresOptions {
        max_connections: 1,
        listen: false,
        test_before_use: false,
        fixed_plans: true,
        patience: Duration::from_secs(1),
        purpose: "test",
    };
    let store = outhaul_store::postgres::connect(&through, DEFAULT_SCHEMA, settings, "here".into(), &options)
        .unwrap();
    store.ready().await.unwrap();
    silence.send_replace(true);
    let vanished = store.ready().await;
    assert!(matches!(vanished, Err(StoreError::Unavailable(_))), "{vanished:?}");
    store.ready().await.expect("a new connection is made");
}
