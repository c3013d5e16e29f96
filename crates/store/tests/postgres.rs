//! What is PostgreSQL's own: every statement is valid, migrations are safe to run together, and
//! servers that could lose work are refused. What both stores share is in the conformance suite.

#![expect(clippy::unwrap_used, reason = "whatever fails in a helper fails its test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outhaul_core::secret::Secret;
use outhaul_core::store::{Store, StoreError, StoreSettings};
use outhaul_store::postgres::{PostgresOptions, migrate};
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
        tokio::spawn(async move { migrate(&url, true).await.unwrap() })
    });
    let names: BTreeSet<_> =
        futures::future::join_all(runs).await.into_iter().map(|name| name.unwrap().to_string()).collect();
    assert_eq!(names.len(), 1, "one installation, whoever was first: {names:?}");
    let again = migrate(&url, true).await.unwrap();
    assert!(names.contains(&*again));
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let (database, mut connection) = migrated().await;
    connection.execute("insert into outhaul_migration (version, name) values (999, 'later')").await.unwrap();
    let refused = migrate(&Secret::new(database.url()), true).await;
    assert!(matches!(refused, Err(StoreError::NewerSchema { found: 999, .. })), "{refused:?}");
}

/// Files that were published before base paths were recorded; `totals` has overwritten one of `positions`.
#[tokio::test]
async fn files_of_earlier_versions_tell_whose_base_paths_are() {
    let (database, mut connection) = migrated().await;
    let before = "drop table base_path; alter table job_chunk drop column error_detail;
                  delete from outhaul_migration where version >= 9";
    connection.execute(before).await.unwrap();
    let published = "INSERT INTO file_cache (dataset, scope, key, effective_date, variant, path, rows, bytes, sha256, format,
                                 definition, generation, created_at, last_generated_at, claimed_at, job_id)
         VALUES ('positions', '', 'A', '2025-02-15', '', 'exports/2025/02/15/A_20250215.csv', 1, 1, 'p', 'CSV', 'd', 1, '2026-01-01', '2026-01-01', '2026-01-01', 'J20260101_1'),
                ('positions', '', 'B', '2025-02-15', '', 'exports/2025/02/15/B_20250215.csv', 1, 1, 'p', 'CSV', 'd', 1, '2026-01-01', '2026-01-01', '2026-01-01', 'J20260101_1'),
                ('totals', '', 'A', '2025-02-15', '', 'exports/2025/02/15/A_20250215.csv', 1, 1, 't', 'CSV', 'd', 1, '2026-01-02', '2026-01-02', '2026-01-02', 'J20260101_1'),
                ('parcels', 'ab12', 'C', '2025-02-15', '', 'exports/parcels/scope=ab12/2025/02/15/C_20250215.csv', 1, 1, 'c', 'CSV', 'd', 1, '2026-01-01', '2026-01-01', '2026-01-01', 'J20260101_1'),
                ('waits', '', 'D', '2025-02-15', '', NULL, NULL, NULL, NULL, NULL, NULL, 0, '2026-01-01', NULL, NULL, NULL)";
    connection.execute(published).await.unwrap();
    migrate(&Secret::new(database.url()), true).await.unwrap();
    let owners: Vec<(String, String)> = sqlx::query_as("select path, dataset from base_path order by path")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let expected = [("exports/", "totals"), ("exports/parcels/", "parcels")];
    assert_eq!(owners, expected.map(|(path, dataset)| (path.to_owned(), dataset.to_owned())));
    let kept: Vec<(String, i64, Option<String>)> = sqlx::query_as(
        "select key, generation, sha256 from file_cache where dataset = 'positions' order by key",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(kept, [("A".to_owned(), 2, None), ("B".to_owned(), 1, Some("p".to_owned()))]);
}

#[tokio::test]
async fn an_old_schema_is_refused_unless_migrating() {
    let database = TestDb::create().await;
    let refused = migrate(&Secret::new(database.url()), false).await.unwrap_err();
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
    let refused = migrate(&Secret::new(database.url()), true).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Unsafe(why) if why.contains("synchronous_commit")), "{refused}");
}

#[tokio::test]
async fn a_wrong_url_does_not_show_its_password() {
    for url in ["postgres://user:hunter2@host:notaport/db", "postgres://user:hunter2@127.0.0.1:1/db"] {
        let refused = migrate(&Secret::new(url), true).await.unwrap_err();
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
    let store = outhaul_store::postgres::connect(&through, settings, "here".into(), &options).unwrap();
    store.ready().await.unwrap();
    silence.send_replace(true);
    let vanished = store.ready().await;
    assert!(matches!(vanished, Err(StoreError::Unavailable(_))), "{vanished:?}");
    store.ready().await.expect("a new connection is made");
}
