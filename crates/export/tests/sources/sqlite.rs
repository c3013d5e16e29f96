//! SQLite as a source: the same forms as PostgreSQL prints, bound values, and queries that can be ended.

use std::time::Duration;

use crate::common::{HOSTILE, Kept, counted, export, never, query, sqlite};
use futures::FutureExt as _;
use outhaul::{Cause, Failed};
use outhaul_core::progress::Total;
use outhaul_export::format::csv::Csv;
use outhaul_export::settings::{SourceSettings, SourceUrl};
use outhaul_export::source::params::Template;
use outhaul_export::source::{Count, Dialect, Query, Source as _, SqliteSource};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;
use tokio::sync::oneshot;

async fn database(sql: &'static str) -> (TempDir, SqliteSource, SqliteConnection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("source.db");
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let mut admin = options.connect().await.unwrap();
    sqlx::raw_sql(sql).execute(&mut admin).await.unwrap();
    let source = SqliteSource::new(&sqlite(path.clone()), &path);
    (folder, source, admin)
}

async fn run(source: &SqliteSource, sql: &str, key: &str) -> Result<(String, i64), Failed> {
    export(source, Dialect::Sqlite, sql, key, None).await
}

#[tokio::test]
async fn values_are_printed_as_postgresql_prints_them() {
    let (_folder, source, _admin) = database(
        "create table t (i integer, r real, x text, b blob, anything);
         insert into t values (9223372036854775807, 1e20, 'a,b', x'00ff', null), (-1, 0.1, '', x'', 'text'),
                              (null, 1.0, 'say \"hi\"' || char(13, 10), null, 2.5), (0, 9e999, 'é', x'7f', -9e999)",
    )
    .await;
    let (csv, rows) = run(&source, "select i, r, x, b, anything as \"any,thing\" from t", "k").await.unwrap();
    assert_eq!(rows, 4);
    assert_eq!(
        csv,
        "i,r,x,b,\"any,thing\"\n9223372036854775807,1e+20,\"a,b\",\\x00ff,\n-1,0.1,\"\",\\x,text\n\
         ,1,\"say \"\"hi\"\"\r\n\",,2.5\n0,Infinity,é,\\x7f,-Infinity\n"
    );
}

#[tokio::test]
async fn hostile_keys_stay_values_and_the_date_is_text() {
    let (_folder, source, mut admin) = database("create table t (k text, d text)").await;
    for key in HOSTILE {
        sqlx::query("insert into t values (?, '2025-02-15')").bind(key).execute(&mut admin).await.unwrap();
        let sql = "select k from t where d = :effective_date and k = :key and k <> ':key' || :key;";
        let (csv, rows) = run(&source, sql, key).await.unwrap();
        let mut expected = Csv::new(1);
        expected.field(Some(key.as_bytes()));
        assert_eq!((rows, csv), (1, format!("k\n{}", String::from_utf8_lossy(&expected.end_row()))), "{key}");
    }
    assert_eq!(run(&source, "select :effective_date as d", "k").await.unwrap().0, "d\n2025-02-15\n");
}

#[tokio::test]
async fn no_rows_many_rows_and_large_cells() {
    let (_folder, source, _admin) = database("create table t (a, b)").await;
    assert_eq!(run(&source, "select a, b from t", "k").await.unwrap(), ("a,b\n".into(), 0));
    let count =
        "with recursive c(n) as (select 1 union all select n + 1 from c where n < 100000) select n from c";
    let (csv, rows) = run(&source, count, "k").await.unwrap();
    let expected: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    assert!(csv == format!("n\n{expected}") && rows == 100_000);
    let (csv, _) =
        run(&source, "select replace(hex(zeroblob(5242880)), '0', 'x') as big", "k").await.unwrap();
    assert_eq!(csv.len(), 4 + 10 * 1024 * 1024 + 1);
}

#[tokio::test]
async fn queries_that_do_not_fit_are_fatal_and_say_so() {
    let (_folder, source, _admin) =
        database("create table t (n); insert into t values (cast(x'ff' as text))").await;
    for (sql, cause) in [
        ("select x from t", "no such column: x"),
        ("select * from nowhere", "no such table: nowhere"),
        ("select 1 fom t where", "near \"t\": syntax error"),
        ("select n from t", "column `n` holds text that is not UTF-8"),
        ("insert into t values (1) returning n", "attempt to write a readonly database"),
    ] {
        let expected = format!("dataset `positions` does not fit source `warehouse`: {cause}");
        assert_eq!(run(&source, sql, "k").await, Err(Failed::Fatal(expected.into())), "{sql}");
    }
}

#[tokio::test]
async fn a_missing_file_is_worth_another_attempt_and_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent.db");
    let source = SqliteSource::new(&sqlite(path.clone()), &path);
    let failed = run(&source, "select 1", "k").await.unwrap_err();
    let cause = "source `warehouse` is not available: unable to open database file";
    assert_eq!(failed, Failed::Retryable(Cause::with_detail("source `warehouse` is not available", cause)));
    assert_eq!(source.check().await.unwrap_err(), cause);
    assert!(!path.exists());
    std::fs::write(&path, "this is not a database, not at all, but long enough to be looked at by SQLite")
        .unwrap();
    assert!(matches!(run(&source, "select * from t", "k").await, Err(Failed::Retryable(_))));
}

/// Works on for ever without a row.
const BUSY: &str =
    "with recursive c(n) as (select 1 union all select n + 1 from c) select n from c where n < 0";

#[tokio::test]
async fn a_query_past_its_time_is_ended() {
    let (folder, _source, _admin) = database("create table t (n)").await;
    let path = folder.path().join("source.db");
    let mut settings = sqlite(path.clone());
    settings.statement_timeout = Duration::from_millis(50);
    let failed = run(&SqliteSource::new(&settings, &path), BUSY, "k").await.unwrap_err();
    assert_eq!(failed, Failed::Retryable("source `warehouse` failed: no end within 50ms".into()));
}

#[tokio::test]
async fn a_stop_ends_the_query() {
    let (_folder, source, admin) = database("create table t (n)").await;
    let (first, begun) = oneshot::channel();
    let mut kept = Kept { first: Some(first), ..Kept::default() };
    let template = Template::parse(BUSY, Dialect::Sqlite).unwrap();
    let stopped = source.stream(&query(&template), begun.map(drop).boxed(), &mut kept).await;
    assert_eq!(stopped, Err(Failed::Stopped));
    admin.close().await.unwrap();
}

#[tokio::test]
async fn rows_are_counted_and_a_count_that_fails_costs_nothing_but_itself() {
    let (_folder, source, _admin) =
        database("create table t (k, d); insert into t values ('a', '2025-02-15'), ('a', '2025-02-15')")
            .await;
    let rows = Template::parse("select k from t", Dialect::Sqlite).unwrap();
    for (sql, total) in [
        ("select count(*) from t where k = :key and d = :effective_date; -- all", Some(Total::Exact(2))),
        ("with c(n) as (values (7)) select n from c", Some(Total::Exact(7))),
        ("select 0", Some(Total::Exact(0))),
        ("select -1", None),
        ("select null", None),
        ("select 'many'", None),
        ("select 1.5", None),
        ("select 1, 2", None),
        ("select k from t", None),
        ("select 1 where false", None),
        ("select count(*) from nowhere", None),
        ("select abs(-9223372036854775808)", None),
        ("insert into t values (1, 2) returning 1", None),
    ] {
        let count = Template::parse(sql, Dialect::Sqlite).unwrap();
        let query = Query { key: "a", count: Count::Exact(&count), ..query(&rows) };
        let kept = counted(&source, &query).await.unwrap();
        assert_eq!((kept.total, kept.moved.0), (total, 2), "{sql}");
    }
    let kept = counted(&source, &Query { count: Count::Estimate, ..query(&rows) }).await.unwrap();
    assert_eq!((kept.total, kept.moved.0), (None, 2), "SQLite does not estimate");
}

#[tokio::test]
async fn a_count_without_end_is_given_up_or_stopped() {
    let (folder, source, admin) = database("create table t (n); insert into t values (1)").await;
    let (rows, busy) = (Template::parse("select n from t", Dialect::Sqlite).unwrap(), BUSY);
    let count = Template::parse(busy, Dialect::Sqlite).unwrap();
    let query = Query { count: Count::Exact(&count), ..query(&rows) };
    let path = folder.path().join("source.db");
    let mut settings = sqlite(path.clone());
    settings.stall_timeout = Duration::from_millis(20);
    let kept = counted(&SqliteSource::new(&settings, &path), &query).await.unwrap();
    assert_eq!((kept.total, kept.moved.0), (None, 1), "the rows come all the same");

    let (mut kept, stop) = (Kept::default(), futures::future::ready(()));
    assert_eq!(source.stream(&query, stop.boxed(), &mut kept).await, Err(Failed::Stopped));
    let dropped = tokio::time::timeout(Duration::from_millis(20), source.stream(&query, never(), &mut kept));
    assert!(dropped.await.is_err() && !kept.begun, "still counting");
    admin.close().await.unwrap();
}

#[tokio::test]
async fn a_row_that_is_too_large_ends_the_export_at_once() {
    let (folder, _, _admin) = database("create table t (n int)").await;
    let settings = SourceSettings { max_row_bytes: 1000, ..sqlite(folder.path().join("source.db")) };
    let SourceUrl::Sqlite(path) = &settings.url else { unreachable!() };
    let source = SqliteSource::new(&settings, path);
    let numbers = "with recursive s(n) as (select 1 union all select n + 1 from s where n < 5) ";
    // Its line break counts.
    let fits = format!("{numbers} select printf('%.*c', 999, 'x') as x from s");
    assert_eq!(run(&source, &fits, "k").await.unwrap().1, 5);
    let text = "row 3 of dataset `positions` is larger than 1000 bytes";
    let cause = Cause::with_detail(text, format!("{text} (limits.max_row_bytes)"));
    for value in ["printf('%.*c', 1001, 'x')", "zeroblob(1001)", "printf('%.*c', 999, '\"')", "zeroblob(999)"]
    {
        let large = format!("{numbers} select case n when 3 then {value} end as x from s");
        assert_eq!(run(&source, &large, "k").await, Err(Failed::Fatal(cause.clone())), "{value}");
    }
}
