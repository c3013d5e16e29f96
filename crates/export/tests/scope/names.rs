//! Claims under the names that identity providers give them, which are no words of SQL.

use std::path::Path;

use outhaul_export::settings::QuerySettings;
use outhaul_export::source::open;
use serde_json::json;
use sqlx::{Connection as _, SqliteConnection};

use crate::common::sqlite;
use crate::stage::{Stage, by, csv, dataset, dataset_on, export, rights_of, secured};

const NAMES: [&str; 6] =
    ["https://ex.com/county", "custom:county", "home-county", "realm.county", "a\"b' --", "länder/(1)"];

/// Rows and their count by a claim of this name.
fn queries(name: &str) -> QuerySettings {
    let filter = format!("where c = :claims.\"{}\" and k = :key", name.replace('"', "\"\""));
    QuerySettings {
        rows: format!("select n from t {filter} order by n"),
        count: Some(format!("select count(*) from t {filter}")),
    }
}

#[tokio::test]
async fn quoted_claims_are_bound_on_postgresql() {
    let stage = Stage::new(
        "create table t (n int, k text, c text); grant select on t to {p}reader;
         insert into t values (1, 'k', 'kent'), (2, 'k', 'essex'), (3, 'x', 'kent'), (4, 'k', 'kent')",
    )
    .await;
    let source = stage.source(Some("reader"));
    for name in NAMES {
        let dataset = dataset(queries(name), by(&[name]));
        for (county, expected) in [("kent", csv([1, 4])), ("essex", csv([2])), ("' or true --", csv([]))] {
            let rights = rights_of(&dataset, &[(name, json!(county))]);
            assert_eq!(export(&*source, &dataset, "k", rights.as_ref()).await, Ok(expected), "{name}");
        }
    }
}

#[tokio::test]
async fn policies_read_claims_of_every_name() {
    let mut stage = Stage::new(
        "create table t (n int, c text); grant select on t to {p}reader;
         insert into t values (1, 'kent'), (2, 'essex'); alter table t enable row level security",
    )
    .await;
    let source = stage.source(Some("reader"));
    for name in NAMES {
        let text = name.replace('\'', "''");
        let policy = format!(
            "drop policy if exists c on t; create policy c on t \
             using (c = current_setting('request.jwt.claims', true)::json ->> '{text}')"
        );
        stage.run(&policy).await;
        // Both ways at once: the query may ask for what the policy reads.
        let query = format!("select n from t where :claims.\"{}\" = c", name.replace('"', "\"\""));
        let dataset = dataset(query.as_str(), secured(&[name]));
        assert_eq!(source.check_row_security(&dataset).await, []);
        let rights = rights_of(&dataset, &[(name, json!("kent"))]);
        assert_eq!(export(&*source, &dataset, "k", rights.as_ref()).await, Ok(csv([1])), "{name}");
    }
}

#[tokio::test]
async fn quoted_claims_are_bound_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("source.db");
    let mut admin = SqliteConnection::connect(&format!("sqlite:{}?mode=rwc", path.display())).await.unwrap();
    let rows = "create table t (n int, k text, c text); \
        insert into t values (1, 'k', 'kent'), (2, 'k', 'essex'), (3, 'x', 'kent'), (4, 'k', 'kent')";
    sqlx::raw_sql(rows).execute(&mut admin).await.unwrap();
    admin.close().await.unwrap();
    let source = open(&sqlite(path)).unwrap();
    for name in NAMES {
        let dataset = dataset_on(sqlite(Path::new("nowhere.db").into()), queries(name), by(&[name]));
        for (county, expected) in [("kent", csv([1, 4])), ("essex", csv([2])), ("' or true --", csv([]))] {
            let rights = rights_of(&dataset, &[(name, json!(county))]);
            assert_eq!(export(&*source, &dataset, "k", rights.as_ref()).await, Ok(expected), "{name}");
        }
    }
}
