//! Claims of every kind stay values, whichever way they reach a query.

use outhaul::Failed;
use outhaul_export::rights::rights;
use outhaul_export::source::open;
use serde_json::{Value, json};
use sqlx::{Connection as _, SqliteConnection};

use crate::common::{HOSTILE, sqlite};
use crate::stage::{Stage, by, caller, csv, dataset, export, rights_of, secured, sqlite_dataset};

fn values() -> Vec<(Value, String)> {
    let texts = HOSTILE.iter().map(|text| (*text).to_owned());
    let texts = texts.chain(["x".repeat(4000), "'".repeat(2000), "e\u{301}".into(), "é".into()]);
    // White space alone says nothing about anybody, and is refused.
    let texts = texts.filter(|text| !text.trim().is_empty()).map(|text| (json!(text), text));
    let others = [
        (json!(42), "42"),
        (json!(-0.5), "-0.5"),
        (json!(true), "true"),
        (json!(["a", "b'"]), r#"["a","b'"]"#),
        (json!({"b": 1, "a": "\\"}), r#"{"a":"\\","b":1}"#),
        (json!("42"), "42"),
    ];
    texts.chain(others.map(|(value, text)| (value, text.to_owned()))).collect()
}

#[tokio::test]
async fn claims_stay_values_on_postgresql() {
    let mut stage = Stage::new(
        "create table t (n int, c text); alter table t enable row level security; grant select on t to {p}reader;
         create policy c on t using (c = current_setting('request.jwt.claims')::json ->> 'county');
         create view everything as table t; grant select on everything to {p}reader",
    )
    .await;
    let source = stage.source(Some("reader"));
    let parameters = dataset("select n from everything where c = :claims.county order by n", by(&["county"]));
    let security = dataset("select n from t order by n", secured(&["county"]));
    let values = values();
    for (n, (_, text)) in values.iter().enumerate() {
        let insert = sqlx::query("insert into t values ($1, $2)").bind(n as i32).bind(text);
        insert.execute(&mut stage.admin).await.unwrap();
    }
    for (value, text) in &values {
        let same = values.iter().enumerate().filter(|(_, (_, other))| other == text);
        let expected = csv(same.map(|(n, _)| n));
        for dataset in [&parameters, &security] {
            let rights = rights_of(dataset, &[("county", value.clone())]);
            let exported = export(&*source, dataset, "k", rights.as_ref()).await;
            assert_eq!(exported.as_ref(), Ok(&expected), "{value}");
        }
    }
    let left: i64 = sqlx::query_scalar("select count(*) from t").fetch_one(&mut stage.admin).await.unwrap();
    assert_eq!(left, values.len() as i64, "nothing was dropped");
}

#[tokio::test]
async fn claims_stay_values_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("source.db");
    let mut admin = SqliteConnection::connect(&format!("sqlite:{}?mode=rwc", path.display())).await.unwrap();
    sqlx::raw_sql("create table t (n int, c text)").execute(&mut admin).await.unwrap();
    let source = open(&sqlite(path)).unwrap();
    let dataset = sqlite_dataset("select n from t where c = :claims.county order by n", by(&["county"]));
    let values = values();
    for (n, (_, text)) in values.iter().enumerate() {
        let insert = sqlx::query("insert into t values (?, ?)").bind(n as i32).bind(text);
        insert.execute(&mut admin).await.unwrap();
    }
    for (value, text) in &values {
        let same = values.iter().enumerate().filter(|(_, (_, other))| other == text);
        let rights = rights_of(&dataset, &[("county", value.clone())]);
        let exported = export(&*source, &dataset, "k", rights.as_ref()).await;
        assert_eq!(exported, Ok(csv(same.map(|(n, _)| n))), "{value}");
    }
    admin.close().await.unwrap();
}

#[tokio::test]
async fn what_goes_wrong_with_a_claim_does_not_show_it() {
    let stage =
        Stage::new("create table t (n int); insert into t values (1); grant select on t to {p}reader").await;
    let source = stage.source(Some("reader"));
    for (number, value) in [
        (":claims.county::int", json!("canary-kent")),
        ("(:claims.county::json ->> 1)::int", json!([1, "canary-kent"])),
        ("(:claims.county::json -> 0)::text::int", json!(["canary \"kent\""])),
        ("(:claims.county::json #>> '{in,of}')::int", json!({"in": {"of": "canary-kent"}})),
        ("(select min(k) from json_object_keys(:claims.county::json) as k)::int", json!({"canary-kent": 1})),
    ] {
        let number = dataset(format!("select n from t where n = {number}").as_str(), by(&["county"]));
        let rights = rights_of(&number, &[("county", value)]);
        not_shown(export(&*source, &number, "k", rights.as_ref()).await);
    }
}

#[tokio::test]
async fn what_goes_wrong_with_a_claim_on_sqlite_does_not_show_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("source.db");
    let url = format!("sqlite:{}?mode=rwc", path.display());
    let mut admin = SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("create table t (n int)").execute(&mut admin).await.unwrap();
    admin.close().await.unwrap();
    let source = open(&sqlite(path)).unwrap();
    for (path, value) in [
        (":claims.county", json!("canary-kent")),
        ("json_extract(:claims.county, '$[1]')", json!([1, "canary-kent"])),
        ("json_extract(:claims.county, '$.in.of')", json!({"in": {"of": "canary-kent"}})),
    ] {
        let path = sqlite_dataset(&format!("select json_extract('{{}}', {path}) as n"), by(&["county"]));
        let rights = rights_of(&path, &[("county", value)]);
        not_shown(export(&*source, &path, "k", rights.as_ref()).await);
    }
}

fn not_shown(exported: Result<String, Failed>) {
    let Err(Failed::Fatal(cause)) = exported else { panic!("it fits: {exported:?}") };
    assert!(cause.text.contains("the database's own words are not shown"), "{cause}");
    assert!(!cause.text.contains("canary"), "{cause}");
}

#[tokio::test]
async fn a_query_that_needs_a_claim_is_never_run_without() {
    let stage = Stage::new("create table t (n int, c text); grant select on t to {p}reader").await;
    let source = stage.source(Some("reader"));
    let by_county = dataset("select n from t where c is not distinct from :claims.county", by(&["county"]));
    let Err(Failed::Fatal(cause)) = export(&*source, &by_county, "k", None).await else { panic!("it ran") };
    assert!(cause.text.contains("needs claim `county`"), "{cause}");
    for nothing in [json!(null), json!(""), json!("a\0b")] {
        assert!(rights(&by_county, Some(&caller(&[("county", nothing)]))).is_err());
    }
}
