//! PostgreSQL as a source, against a real server: what comes out, what hostile values can do, and what
//! is left behind when work stops.

use std::time::Duration;

use crate::common::{HOSTILE, Kept, date, export, never, postgres};
use futures::FutureExt as _;
use outhaul::{Cause, Failed};
use outhaul_export::format::csv::Csv;
use outhaul_export::format::float::float8;
use outhaul_export::settings::{SourceSettings, SourceUrl};
use outhaul_export::source::params::{Template, text_literal};
use outhaul_export::source::{Count, Dialect, PostgresSource, Query, Source as _};
use outhaul_testkit::servers::PrivatePostgres;
use outhaul_testkit::test_db::TestDb;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tokio::sync::oneshot;

fn source(url: &str) -> PostgresSource {
    let settings = postgres(url);
    let outhaul_export::settings::SourceUrl::Postgres(url) = &settings.url else { unreachable!() };
    PostgresSource::new(&settings, url).unwrap()
}

async fn run(source: &PostgresSource, sql: &str, key: &str) -> Result<(String, i64), Failed> {
    export(source, Dialect::Postgres, sql, key, Some("outhaul:test:source:warehouse:0")).await
}

async fn database() -> (TestDb, PgConnection) {
    let db = TestDb::create().await;
    let connection = PgConnection::connect(db.url()).await.unwrap();
    (db, connection)
}

#[tokio::test]
async fn values_leave_in_one_exact_form_whatever_the_role_prefers() {
    let (db, mut admin) = database().await;
    let name: String = sqlx::query_scalar("select current_database()").fetch_one(&mut admin).await.unwrap();
    for setting in [
        "datestyle = 'German'",
        "timezone = 'Asia/Tokyo'",
        "intervalstyle = 'iso_8601'",
        "bytea_output = 'escape'",
        "extra_float_digits = -10",
        "standard_conforming_strings = off",
    ] {
        let sql = format!("alter database {name} set {setting}");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await.unwrap();
    }
    let sql = "select 1.10::numeric(20,10) as \"exact, decimal\", 0.1::float8 + 0.2 as f, 1e20::float8 as g, \
        12345678901234567890123456789012345678.90::numeric as n, timestamptz '2025-02-15 12:00+09' as t, \
        interval '1 day 2 hours' as i, '\\x00ff'::bytea as b, null::text as nothing, '' as empty, \
        :effective_date as d, :key as k, true as yes";
    let (csv, rows) = run(&source(db.url()), sql, r"a\'b").await.unwrap();
    assert_eq!(rows, 1);
    assert_eq!(
        csv,
        "\"exact, decimal\",f,g,n,t,i,b,nothing,empty,d,k,yes\n\
         1.1000000000,0.30000000000000004,1e+20,12345678901234567890123456789012345678.90,\
         2025-02-15 03:00:00+00,1 day 02:00:00,\\x00ff,,\"\",2025-02-15,a\\'b,t\n"
    );
}

#[tokio::test]
async fn cells_of_every_kind_pass_through_and_rows_are_counted_by_row() {
    let (db, _admin) = database().await;
    let source = source(db.url());
    let sql = r#"select * from (values (1, E'a,b'), (2, E'say "hi"'), (3, E'x\r\ny\nz'), (4, U&'\FEFFbom'),
        (5, null), (6, ''), (7, '\.')) as v(n, t) order by n -- the end"#;
    let (csv, rows) = run(&source, sql, "k").await.unwrap();
    assert_eq!(rows, 7, "line breaks inside cells are not rows");
    assert_eq!(
        csv,
        "n,t\n1,\"a,b\"\n2,\"say \"\"hi\"\"\"\n3,\"x\r\ny\nz\"\n4,\u{feff}bom\n5,\n6,\"\"\n7,\\.\n"
    );
    let (csv, rows) = run(&source, "select 1 as a, 2 as b where false;", "k").await.unwrap();
    assert_eq!((csv.as_str(), rows), ("a,b\n", 0), "no rows: the header alone");
    let (csv, rows) = run(&source, "select repeat('x', 10 * 1024 * 1024) as big", "k").await.unwrap();
    assert_eq!((csv.len(), rows), (4 + 10 * 1024 * 1024 + 1, 1));
    let (csv, rows) = run(&source, "select n from generate_series(1, 300000) as n", "k").await.unwrap();
    let expected: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
    assert!(csv == format!("n\n{expected}") && rows == 300_000, "batches join without loss");
}

#[tokio::test]
async fn hostile_keys_stay_values() {
    let (db, mut admin) = database().await;
    sqlx::raw_sql("create table t (k text); insert into t values ('plain')")
        .execute(&mut admin)
        .await
        .unwrap();
    let source = source(db.url());
    for key in HOSTILE {
        sqlx::query("insert into t values ($1)").bind(key).execute(&mut admin).await.unwrap();
        let (csv, rows) = run(&source, "select k from t where k = :key", key).await.unwrap();
        let mut expected = Csv::new(1);
        expected.field(Some(key.as_bytes()));
        assert_eq!((rows, csv), (1, format!("k\n{}", String::from_utf8_lossy(&expected.end_row()))), "{key}");
        let sql = "select count(*) from t where k like :key or k = 'it''s ' || :key || $q$:key$q$ -- :key";
        assert!(run(&source, sql, key).await.is_ok() || key.ends_with('\\'), "{key}");
    }
    let Err(Failed::Fatal(cause)) = run(&source, "select :key", "a\0b").await else {
        panic!("NUL was taken")
    };
    assert!(cause.text.contains("NUL"), "{cause}");
}

/// The proof that a literal can mean nothing but its value: thousands of hostile texts go through a real
/// server's lexer, under both settings that change how it reads strings, and come back as they went.
#[tokio::test]
async fn literals_come_back_as_they_went() {
    let (_db, mut connection) = database().await;
    let nasty = prop::sample::select(vec![
        "'", "''", "\\", "\\\\", "\\'", "\"", "$$", "$a$", "--", "/*", "*/", ";", ":key", "E'", "U&'", "\n",
        "\r", "\t", "\u{8}", "x", "0", "x27", "\\x27", "\\047", "\\u0027", "::", "(", ")", "😀", "é",
        "\u{bf5c}", "\u{a5}", "%", "_",
    ]);
    let strategy = prop_oneof![
        3 => prop::collection::vec(nasty, 0..12).prop_map(|parts| parts.concat()),
        1 => "[^\\x00]{0,24}",
    ];
    let mut runner = TestRunner::deterministic();
    for conforming in ["on", "off"] {
        let set = format!("set standard_conforming_strings = {conforming}; set escape_string_warning = off");
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut connection).await.unwrap();
        for _ in 0..50 {
            let values: Vec<String> =
                (0..100).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect();
            let list: Vec<String> = values.iter().map(|value| text_literal(value).unwrap()).collect();
            let sql = format!("select {}", list.join(", "));
            let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut connection).await.unwrap();
            assert_eq!(row.len(), values.len());
            for (i, value) in values.iter().enumerate() {
                assert_eq!(&row.get::<String, _>(i), value);
            }
        }
    }
}

#[tokio::test]
async fn our_csv_is_byte_for_byte_that_of_copy() {
    let (_db, mut connection) = database().await;
    let mut runner = TestRunner::deterministic();
    let nasty =
        prop::sample::select(vec![",", "\"", "\r", "\n", "\\.", "\\", "", " ", "x", "é", "\u{feff}", "\t"]);
    let cell = prop::option::of(prop::collection::vec(nasty, 0..5).prop_map(|parts| parts.concat()));
    for columns in [1_usize, 3] {
        sqlx::raw_sql(AssertSqlSafe(format!(
            "drop table if exists t; create table t (n serial, {})",
            (0..columns).map(|c| format!("\"c,{c}\" text")).collect::<Vec<_>>().join(", ")
        )))
        .execute(&mut connection)
        .await
        .unwrap();
        let mut ours = Csv::new(columns);
        (0..columns).for_each(|c| ours.field(Some(format!("c,{c}").as_bytes())));
        let mut expected = ours.end_row().to_vec();
        let names: Vec<String> = (0..columns).map(|c| format!("\"c,{c}\"")).collect();
        let marks: Vec<String> = (1..=columns).map(|c| format!("${c}")).collect();
        for _ in 0..500 {
            let insert = format!("insert into t ({}) values ({})", names.join(","), marks.join(","));
            let mut insert = sqlx::query(AssertSqlSafe(insert));
            for _ in 0..columns {
                let value = cell.new_tree(&mut runner).unwrap().current();
                ours.field(value.as_deref().map(str::as_bytes));
                insert = insert.bind(value);
            }
            insert.execute(&mut connection).await.unwrap();
            expected.extend_from_slice(&ours.end_row());
        }
        let sql = format!("select {} from t order by n", names.join(","));
        let copied = run(&source(_db.url()), &sql, "k").await.unwrap();
        assert_eq!(copied, (String::from_utf8(expected).unwrap(), 500));
    }
}

#[tokio::test]
async fn our_floats_are_digit_for_digit_those_of_postgresql() {
    let (_db, mut connection) = database().await;
    sqlx::raw_sql("set extra_float_digits = 1").execute(&mut connection).await.unwrap();
    let mut runner = TestRunner::deterministic();
    let bits = any::<u64>().prop_map(f64::from_bits);
    let round =
        (any::<i32>(), -30..30_i32).prop_map(|(digits, power)| f64::from(digits) * 10_f64.powi(power));
    let powers = (-1074..1024_i32).prop_map(|power| 2_f64.powi(power));
    let halves = (0..1_u64 << 50).prop_map(|eighths| eighths as f64 / 8.0);
    let strategy = prop_oneof![bits, round, powers, halves];
    let mut numbers =
        vec![1e23, 9007199254740993.0, 1e15, 1e-4, 1e-5, 5e-324, f64::MAX, f64::MIN_POSITIVE, -0.0];
    numbers.extend((-1074..1024).map(|power| 2_f64.powi(power)));
    numbers.extend((0..50_000).map(|_| strategy.new_tree(&mut runner).unwrap().current()));
    let texts: Vec<String> =
        sqlx::query_scalar("select x::text from unnest($1::float8[]) with ordinality as u(x, n) order by n")
            .bind(&numbers)
            .fetch_all(&mut connection)
            .await
            .unwrap();
    for (number, text) in numbers.into_iter().zip(texts) {
        assert_eq!(float8(number), text);
    }
}

#[tokio::test]
async fn queries_that_do_not_fit_are_fatal_and_say_so() {
    let (db, mut admin) = database().await;
    sqlx::raw_sql("create table t (n int, quantity int)").execute(&mut admin).await.unwrap();
    let source = source(db.url());
    let no_cast =
        "No operator matches the given name and argument types. You might need to add explicit type casts";
    for (sql, cause, hint) in [
        ("select x from t", "column \"x\" does not exist", ""),
        (
            "select quantty from t",
            "column \"quantty\" does not exist",
            "Perhaps you meant to reference the column \"t.quantity\"",
        ),
        ("select * from nowhere", "relation \"nowhere\" does not exist", ""),
        ("select 1 fom t where", "syntax error at or near \"t\"", ""),
        ("select * from t where n = :key", "operator does not exist: integer = text", no_cast),
    ] {
        let text = format!("dataset `positions` does not fit source `warehouse`: {cause}");
        // What the server suggests is for operators.
        let detail = (!hint.is_empty()).then(|| format!("{text} ({hint})"));
        let expected = Cause { detail, ..Cause::from(text) };
        assert_eq!(run(&source, sql, "ABC").await, Err(Failed::Fatal(expected)), "{sql}");
    }
    for (sql, cause) in [
        ("select :key::int", "invalid input syntax for type integer: \"ABC\""),
        ("select 1 / (n - n) from (values (1)) as v(n)", "division by zero"),
        (
            "select (select n from (values (1), (2)) as v(n))",
            "more than one row returned by a subquery used as an expression",
        ),
    ] {
        let expected =
            format!("the query of dataset `positions` failed over the data of source `warehouse`: {cause}");
        assert_eq!(run(&source, sql, "ABC").await, Err(Failed::Fatal(expected.into())), "{sql}");
    }
    // A connection that saw an error is not used again.
    assert_eq!(run(&source, "select 1 as one", "ABC").await.unwrap().0, "one\n1\n");
}

#[tokio::test]
async fn nothing_can_be_written() {
    let (db, mut admin) = database().await;
    sqlx::raw_sql("create table t (n int); create sequence s").execute(&mut admin).await.unwrap();
    sqlx::raw_sql("create function w() returns int language sql as 'insert into t values (1) returning n'")
        .execute(&mut admin)
        .await
        .unwrap();
    let why = "dataset `positions` does not fit source `warehouse`: the query writes; it must only read";
    for sql in ["insert into t values (1) returning n", "select w()", "select nextval('s')"] {
        assert_eq!(run(&source(db.url()), sql, "k").await, Err(Failed::Fatal(why.into())), "{sql}");
    }
    let rows: i64 = sqlx::query_scalar("select count(*) from t").fetch_one(&mut admin).await.unwrap();
    assert_eq!(rows, 0);
}

/// The failure of a source whose server does not answer.
fn away() -> Failed {
    let detail = "source `warehouse` is not available: connection refused";
    Failed::Retryable(Cause::with_detail("source `warehouse` is not available", detail))
}

#[tokio::test]
async fn an_absent_source_is_worth_another_attempt_and_keeps_its_password() {
    let source = source("postgres://user:hunter2@127.0.0.1:1/db");
    let failed = run(&source, "select 1", "k").await.unwrap_err();
    assert_eq!(failed, away());
    assert!(!format!("{source:?}").contains("hunter2"));
    assert!(source.check().await.unwrap_err().contains("connection refused"));
}

#[tokio::test]
async fn a_query_past_its_time_is_ended_by_the_server() {
    let (db, _admin) = database().await;
    let mut settings = postgres(db.url());
    settings.statement_timeout = Duration::from_millis(50);
    let outhaul_export::settings::SourceUrl::Postgres(url) = settings.url.clone() else { unreachable!() };
    let source = PostgresSource::new(&settings, &url).unwrap();
    let failed = run(&source, "select pg_sleep(600)", "k").await.unwrap_err();
    let cause = "source `warehouse` failed: canceling statement due to statement timeout";
    assert_eq!(failed, Failed::Retryable(cause.into()));
}

/// The backends that serve a slot, in a transaction of it or between two.
async fn backends(admin: &mut PgConnection, name: &str) -> Vec<i32> {
    let ask = "select pid from pg_stat_activity \
               where split_part(application_name, '#', 1) = $1 and datname = current_database()";
    sqlx::query_scalar(ask).bind(name).fetch_all(admin).await.unwrap()
}

async fn until_none(admin: &mut PgConnection, name: &str) {
    let gone = async {
        while !backends(admin, name).await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the backend ends");
}

/// A query that sends some rows (more than the server gathers before it sends any) and then works on.
const SLOW: &str = "select n, repeat('x', 1000), case when n = 100 then pg_sleep(600)::text end \
    from generate_series(1, 100) as n";
/// A query that sends without end.
const ENDLESS: &str = "select generate_series(1, 1000000000), repeat('x', 1000)";

#[tokio::test]
async fn a_stop_ends_the_query_on_the_server() {
    let (db, mut admin) = database().await;
    let source = source(db.url());
    for (slot, sql) in [("stop:slow", SLOW), ("stop:endless", ENDLESS)] {
        let (first, begun) = oneshot::channel();
        let mut kept = Kept { first: Some(first), ..Kept::default() };
        let template = Template::parse(sql, Dialect::Postgres).unwrap();
        let query = Query {
            dataset: "d",
            template: &template,
            key: "k",
            effective_date: date(),
            rights: None,
            count: Count::No,
            slot: Some(slot),
        };
        let stop = begun.map(drop).boxed();
        assert_eq!(source.stream(&query, stop, &mut kept).await, Err(Failed::Stopped));
        until_none(&mut admin, slot).await;
    }
}

#[tokio::test]
async fn a_dropped_stream_and_a_full_sink_end_the_query_too() {
    let (db, mut admin) = database().await;
    let source = source(db.url());
    let template = Template::parse(SLOW, Dialect::Postgres).unwrap();
    let query = Query {
        dataset: "d",
        template: &template,
        key: "k",
        effective_date: date(),
        rights: None,
        count: Count::No,
        slot: Some("dropped"),
    };
    let (first, begun) = oneshot::channel();
    let mut kept = Kept { first: Some(first), ..Kept::default() };
    tokio::select! {
        _ = source.stream(&query, never(), &mut kept) => panic!("it sleeps"),
        _ = begun => {}
    }
    until_none(&mut admin, "dropped").await;

    let template = Template::parse(ENDLESS, Dialect::Postgres).unwrap();
    let query = Query { template: &template, slot: Some("full"), ..query };
    let mut full = Kept { fail: true, ..Kept::default() };
    let failed = source.stream(&query, never(), &mut full).await;
    assert_eq!(failed, Err(Failed::Retryable("the sink is full".into())));
    until_none(&mut admin, "full").await;
}

#[tokio::test]
async fn connections_are_kept_by_slot_and_the_next_holder_ends_what_is_left_at_work() {
    let (db, _admin) = database().await;
    let (one, two) = (source(db.url()), source(db.url()));
    let pid = "select pg_backend_pid() as pid";
    let slot = "outhaul:test:source:warehouse:0";
    let first = run(&one, pid, "k").await.unwrap();
    assert_eq!(run(&one, pid, "k").await.unwrap(), first, "kept between chunks");
    let other = export(&one, Dialect::Postgres, pid, "k", Some("another slot")).await.unwrap();
    assert_ne!(other, first, "a slot has its own");

    // Another process takes the slot over, and back. Connections that do nothing are left alone.
    let second = run(&two, pid, "k").await.unwrap();
    assert_ne!(second, first);
    assert_eq!(run(&one, pid, "k").await.unwrap(), first);

    // What the other is in the middle of ends before the first query, also on a kept connection.
    let template = Template::parse(SLOW, Dialect::Postgres).unwrap();
    let query = Query {
        dataset: "d",
        template: &template,
        key: "k",
        effective_date: date(),
        rights: None,
        count: Count::No,
        slot: Some(slot),
    };
    let (sender, begun) = oneshot::channel();
    let mut kept = Kept { first: Some(sender), ..Kept::default() };
    let (stale, fresh) = tokio::join!(one.stream(&query, never(), &mut kept), async {
        begun.await.unwrap();
        // The shortest time in which a slot of a dead holder becomes free.
        tokio::time::sleep(Duration::from_secs(1)).await;
        run(&two, pid, "k").await
    });
    assert!(matches!(stale, Err(Failed::Retryable(_))), "{stale:?}");
    assert_eq!(fresh.unwrap(), second, "the one that it kept");
}

#[tokio::test]
async fn a_restarted_server_costs_nothing_but_the_kept_connection() {
    let server = PrivatePostgres::start();
    let source = source(server.url());
    run(&source, "select 1", "k").await.unwrap();
    server.restart_immediate();
    assert_eq!(run(&source, "select 1 as one", "k").await.unwrap().0, "one\n1\n");
    server.kill9();
    let failed = run(&source, "select 1", "k").await.unwrap_err();
    assert_eq!(failed, away());
}

#[tokio::test]
async fn a_row_that_is_too_large_ends_the_export_at_once() {
    let (db, mut admin) = database().await;
    let settings = SourceSettings { max_row_bytes: 1000, ..postgres(db.url()) };
    let SourceUrl::Postgres(url) = &settings.url else { unreachable!() };
    let source = PostgresSource::new(&settings, url).unwrap();
    // Its line break counts.
    let fits = "select repeat('x', 999) as x from generate_series(1, 3)";
    assert_eq!(run(&source, fits, "k").await.unwrap().1, 3);
    // The query sends more than the server buffers, and then goes on working.
    let large = "select repeat('x', case n when 3 then 1000 else 900 end), case n when 100 then pg_sleep(600) end \
                 from generate_series(1, 100) as n";
    let text = "row 3 of dataset `positions` is larger than 1000 bytes";
    let cause = Cause::with_detail(text, format!("{text} (limits.max_row_bytes)"));
    assert_eq!(run(&source, large, "k").await, Err(Failed::Fatal(cause)));
    until_none(&mut admin, "outhaul:test:source:warehouse:0").await;
}
