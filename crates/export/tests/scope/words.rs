//! A database quotes rows in its errors. Of a dataset whose rows depend on who asks, none of that is told: whoever
//! reads a job's error need not be one who may see its rows.

use outhaul::{Cause, Failed};
use outhaul_export::Dataset;
use outhaul_export::rights::Rights;
use outhaul_export::settings::{QuerySettings, ScopeSettings};
use outhaul_export::source::{Source, open};
use serde_json::json;
use sqlx::{Connection as _, SqliteConnection};

use crate::common::sqlite;
use crate::stage::{Stage, by, dataset, export, rights_of, secured, sqlite_dataset};

const CANARY: &str = "canary-of-a-row";

async fn stage() -> Stage {
    Stage::new(
        "create table t (c text, county text); insert into t values ('canary-of-a-row', 'kent');
         alter table t enable row level security;
         create policy c on t using (county = current_setting('request.jwt.claims')::json ->> 'county');
         create view everything as table t;
         create function tell(c text) returns int language plpgsql as $$ begin
           raise exception 'this is %', c using errcode = '42P01'; end $$;
         create function later(c text) returns int language plpgsql as $$ begin
           raise exception 'this is %', c using errcode = '53000'; end $$;
         grant select on t, everything to {p}reader",
    )
    .await
}

async fn failure(source: &dyn Source, dataset: &Dataset, rights: Option<&Rights>) -> (bool, String) {
    // Operators, who are told more, are not told of rows either.
    let all = |cause: Cause| format!("{}; {}", cause.text, cause.detail.unwrap_or_default());
    match export(source, dataset, "k", rights).await {
        Err(Failed::Fatal(cause)) => (true, all(cause)),
        Err(Failed::Retryable(cause)) => (false, all(cause)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn rows_in_postgresqls_errors_are_not_told() {
    let stage = stage().await;
    let source = stage.source(Some("reader"));
    for (wrong, fatal, code) in [
        ("c::int", true, "data exception (SQLSTATE 22P02)"),
        ("c::date", true, "data exception (SQLSTATE 22007)"),
        ("tell(c)", true, "syntax error or access rule violation (SQLSTATE 42P01)"),
        ("later(c)", false, "insufficient resources (SQLSTATE 53000)"),
    ] {
        let own = format!("select {wrong} as n from t");
        let filtered = format!("select {wrong} as n from everything where county = :claims.county");
        for dataset in
            [dataset(own.as_str(), secured(&["county"])), dataset(filtered.as_str(), by(&["county"]))]
        {
            let kent = rights_of(&dataset, &[("county", json!("kent"))]);
            let (is_fatal, cause) = failure(&*source, &dataset, kent.as_ref()).await;
            assert!(cause.contains(code), "{cause}");
            assert!(!cause.contains("canary"), "{cause}");
            assert_eq!(is_fatal, fatal, "what may help is decided as ever: {cause}");
        }
    }
    // Where rows are the same for everybody, the database may say what it likes.
    let open = dataset("select c::int as n from everything", ScopeSettings::default());
    let (_, cause) = failure(&*source, &open, None).await;
    assert!(cause.contains(CANARY), "{cause}");
}

#[tokio::test]
async fn nothing_is_told_of_what_a_count_stumbles_over() {
    let stage = stage().await;
    let source = stage.source(Some("reader"));
    let query = QuerySettings {
        rows: "select 1 / length(c) as n, c::int from t".into(),
        count: Some("select c::int from t".into()),
    };
    let dataset = dataset(query, secured(&["county"]));
    let kent = rights_of(&dataset, &[("county", json!("kent"))]);
    let (_, cause) = failure(&*source, &dataset, kent.as_ref()).await;
    assert!(cause.contains("SQLSTATE 22P02") && !cause.contains("canary"), "{cause}");
}

#[tokio::test]
async fn nothing_of_a_row_is_told_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("source.db");
    let url = format!("sqlite:{}?mode=rwc", path.display());
    let mut admin = SqliteConnection::connect(&url).await.unwrap();
    let rows = "create table t (c text, county text); insert into t values ('canary-of-a-row', 'kent')";
    sqlx::raw_sql(rows).execute(&mut admin).await.unwrap();
    admin.close().await.unwrap();
    let source = open(&sqlite(path)).unwrap();
    // A path that is none is quoted in the error.
    let wrong = "select json_extract('{}', c) as n from t where county = ";
    let scoped = sqlite_dataset(&format!("{wrong}:claims.county"), by(&["county"]));
    let kent = rights_of(&scoped, &[("county", json!("kent"))]);
    let (fatal, cause) = failure(&*source, &scoped, kent.as_ref()).await;
    assert!(fatal && cause.contains("result code 1") && !cause.contains("canary"), "{cause}");
    let open = sqlite_dataset(&format!("{wrong}'kent'"), ScopeSettings::default());
    let (_, cause) = failure(&*source, &open, None).await;
    assert!(cause.contains(CANARY), "{cause}");
}
