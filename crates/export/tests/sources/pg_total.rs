//! How many rows there will be, asked of a real PostgreSQL: what is believed, and that nothing which goes
//! wrong with the question is felt by the rows.

use std::time::Duration;

use crate::common::{Kept, counted, postgres, query};
use futures::FutureExt as _;
use outhaul::Failed;
use outhaul_core::progress::Total;
use outhaul_export::settings::{SourceSettings, SourceUrl};
use outhaul_export::source::params::Template;
use outhaul_export::source::{Count, Dialect, PostgresSource, Query, Source as _};
use outhaul_testkit::test_db::TestDb;
use sqlx::{Connection as _, PgConnection};

fn source(settings: &SourceSettings) -> PostgresSource {
    let SourceUrl::Postgres(url) = &settings.url else { unreachable!() };
    PostgresSource::new(settings, url).unwrap()
}

fn template(sql: &str) -> Template {
    Template::parse(sql, Dialect::Postgres).unwrap()
}

async fn database() -> (TestDb, PgConnection) {
    let db = TestDb::create().await;
    let mut admin = PgConnection::connect(db.url()).await.unwrap();
    let sql = "create table t as select case when n <= 2 then 'a' else 'b' end as k, date '2025-02-15' as d \
               from generate_series(1, 5000) as n; analyze t; \
               create function rows_of(text) returns setof t language plpgsql as \
               $$ begin return query select * from t where k = $1; end $$";
    sqlx::raw_sql(sql).execute(&mut admin).await.unwrap();
    (db, admin)
}

#[tokio::test]
async fn rows_are_counted_and_a_count_that_fails_costs_nothing_but_itself() {
    let (db, _admin) = database().await;
    let source = source(&postgres(db.url()));
    // With a slot, so that one connection lives through it all.
    let rows = template("select k from t where k = :key and current_setting('statement_timeout') = '1min'");
    for (sql, total) in [
        ("select count(*) from t where k = :key and d = :effective_date; -- all", Some(Total::Exact(2))),
        ("with c(n) as (values (7)) select n from c -- all", Some(Total::Exact(7))),
        ("select 0::smallint", Some(Total::Exact(0))),
        ("select 12.0", Some(Total::Exact(12))),
        ("select -1", None),
        ("select null", None),
        ("select 'many'", None),
        ("select 'NaN'::float8", None),
        ("select 1, 2", None),
        ("select 1 from t", None),
        ("select 1 where false", None),
        ("select count(*) from nowhere", None),
        ("select 1 / 0", None),
        ("insert into t values ('a') returning 1", None),
        ("select (set_config('statement_timeout', '1h', false) = '1h')::int", Some(Total::Exact(1))),
    ] {
        let count = template(sql);
        let query = Query { key: "a", count: Count::Exact(&count), slot: Some("total"), ..query(&rows) };
        let kept = counted(&source, &query).await.unwrap();
        assert_eq!((kept.total, kept.moved.0), (total, 2), "{sql}");
    }
}

#[tokio::test]
async fn the_planner_estimates_what_it_can_know() {
    let (db, _admin) = database().await;
    let source = source(&postgres(db.url()));
    for (sql, rows, total) in [
        ("select * from t -- all", 5000, Some(Total::Estimate(5000))),
        ("select * from t where d < :effective_date", 0, Some(Total::Estimate(1))),
        ("select * from rows_of(:key)", 2, None),
        ("select * from rows_of(:key) where d = :effective_date order by k", 2, None),
    ] {
        let template = template(sql);
        let query = Query { key: "a", count: Count::Estimate, ..query(&template) };
        let kept = counted(&source, &query).await.unwrap();
        assert_eq!((kept.total, kept.moved.0), (total, rows), "{sql}");
    }
    let wrong = template("select nothing from t");
    let failed = counted(&source, &Query { count: Count::Estimate, ..query(&wrong) }).await;
    let Err(Failed::Fatal(cause)) = failed else { panic!("a query that does not fit") };
    assert!(cause.text.contains("column \"nothing\" does not exist"), "the rows' own words: {cause}");
}

#[tokio::test]
async fn a_count_without_end_is_given_up_or_stopped() {
    let (db, mut admin) = database().await;
    let (rows, count) =
        (template("select k from t where k = :key"), template("select 1 from pg_sleep(3600)"));
    let query = Query { key: "a", count: Count::Exact(&count), slot: Some("endless"), ..query(&rows) };
    let mut settings = postgres(db.url());
    settings.stall_timeout = Duration::from_millis(100);
    let kept = counted(&source(&settings), &query).await.unwrap();
    assert_eq!((kept.total, kept.moved.0), (None, 2), "the rows come all the same");

    let (source, mut kept) = (source(&postgres(db.url())), Kept::default());
    // Stops it when the server says that it counts.
    let stop = async {
        let sleeping = "select count(*) from pg_stat_activity where application_name like 'endless#%' and wait_event = 'PgSleep'";
        while sqlx::query_scalar::<_, i64>(sleeping).fetch_one(&mut admin).await.unwrap() == 0 {}
    };
    assert_eq!(source.stream(&query, stop.boxed(), &mut kept).await, Err(Failed::Stopped));
    assert!(!kept.begun, "it never came to the rows");
    let left = "select count(*) from pg_stat_activity where application_name like 'endless%'";
    while sqlx::query_scalar::<_, i64>(left).fetch_one(&mut admin).await.unwrap() > 0 {}
}
