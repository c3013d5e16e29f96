//! For generated data, callers and parameters: what a caller exports is the full export filtered by what it
//! may see, whichever way rows are filtered, with one connection used by A, then B, then A.

use outhaul_export::settings::{QuerySettings, ScopeSettings};
use outhaul_export::source::{Source, open};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};

use crate::common::sqlite;
use crate::stage::{Stage, by, csv, dataset, export, rights_of, secured, sqlite_dataset};

const CASES: usize = 40;
const KEYS: [&str; 3] = ["k1", "k'2", "%"];
const COUNTIES: [&str; 5] = ["kent", "Kent", "k'ent\\", "東京", "' or true --"];
/// Names of roles, less their prefix: also what a careless `SET ROLE` would stumble over.
const ROLES: [&str; 3] = ["north", "So\"uth; reset role", "east 'x'"];

/// A key, a county and a role for each row.
type Data = Vec<(usize, usize, usize)>;

fn data() -> impl Strategy<Value = Data> {
    prop::collection::vec((0..KEYS.len(), 0..COUNTIES.len(), 0..ROLES.len()), 0..40)
}

/// Two callers, each with a county and a role, and the key that all ask for.
fn callers() -> impl Strategy<Value = ([(usize, usize); 2], usize)> {
    ([(0..COUNTIES.len(), 0..ROLES.len()), (0..COUNTIES.len(), 0..ROLES.len())], 0..KEYS.len())
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn insert(data: &Data, prefix: &str) -> String {
    let row = |(n, &(key, county, role)): (usize, &(usize, usize, usize))| {
        let role = format!("{prefix}{}", ROLES[role]);
        format!("({n}, {}, {}, {})", quoted(KEYS[key]), quoted(COUNTIES[county]), quoted(&role))
    };
    let rows: Vec<String> = data.iter().enumerate().map(row).collect();
    if rows.is_empty() { String::new() } else { format!("insert into t values {}", rows.join(", ")) }
}

fn with_count(rows: &str) -> QuerySettings {
    let count = rows.replace("select n ", "select count(*) ").replace(" order by n", "");
    QuerySettings { rows: rows.to_owned(), count: Some(count) }
}

fn roles(stage: &Stage) -> Vec<String> {
    ROLES.iter().map(|role| format!("{}{role}", stage.prefix)).collect()
}

/// `t` is open to the reader; `by_county` and `by_role` are guarded by row-level security.
async fn stage() -> Stage {
    let mut stage = Stage::new(
        "create table t (n int, k text, county text, owner text); grant select on t to {p}reader;
         create table by_county (n int, k text, county text, owner text);
         create table by_role (like by_county);
         alter table by_county enable row level security;
         alter table by_role enable row level security;
         create policy county on by_county
           using (county = current_setting('request.jwt.claims')::json ->> 'county');
         create policy role on by_role using (owner = current_user
           and county = current_setting('request.jwt.claims')::json ->> 'county');
         grant select on by_county, by_role to {p}reader",
    )
    .await;
    for role in roles(&stage) {
        let role = role.replace('"', "\"\"");
        let sql = format!(
            "create role \"{role}\"; grant select on by_role to \"{role}\"; grant \"{role}\" to {{p}}reader"
        );
        stage.run(&sql).await;
    }
    stage
}

#[tokio::test]
async fn an_export_is_the_full_one_filtered_by_the_caller_on_postgresql() {
    let mut stage = stage().await;
    let (reader, owner) = (stage.source(Some("reader")), stage.source(None));
    let full = dataset("select n from t where k = :key order by n", ScopeSettings::default());
    let parameters = dataset(
        with_count("select n from t where k = :key and county = :claims.county order by n"),
        by(&["county"]),
    );
    let rows_of = |table: &str| with_count(&format!("select n from {table} where k = :key order by n"));
    let by_county = dataset(rows_of("by_county"), secured(&["county"]));
    let by_role = dataset(
        rows_of("by_role"),
        ScopeSettings { role_claim: Some("db_role".into()), roles: roles(&stage), ..secured(&["county"]) },
    );
    // Without a count_query the planner is asked, with the caller's rights too.
    let estimated = dataset("select n from by_county where k = :key order by n", secured(&["county"]));
    let who = dataset(
        "select current_user as user, current_setting('request.jwt.claims', true) as claims",
        ScopeSettings::default(),
    );
    for dataset in [&by_county, &by_role, &estimated] {
        assert_eq!(reader.check_row_security(dataset).await, []);
    }
    let mut runner = TestRunner::deterministic();
    let (mut backend, mut seen) = (None, 0);
    for _ in 0..CASES {
        let data = data().new_tree(&mut runner).unwrap().current();
        let ([a, b], key) = callers().new_tree(&mut runner).unwrap().current();
        let sql = format!(
            "truncate t, by_county, by_role; {}; insert into by_county table t; insert into by_role table t",
            insert(&data, &stage.prefix)
        );
        stage.run(&sql).await;
        let of_key = |(_, row): &(usize, &(usize, usize, usize))| row.0 == key;
        let all: Vec<_> = data.iter().enumerate().filter(of_key).collect();
        let exported = export(&*owner, &full, KEYS[key], None).await.unwrap();
        assert_eq!(exported, csv(all.iter().map(|(n, _)| *n)), "everything, for whoever may see it");
        for (county, role) in [a, b, a] {
            let role_name = format!("{}{}", stage.prefix, ROLES[role]);
            let claims = [("county", json!(COUNTIES[county])), ("db_role", json!(role_name))];
            let mine = |same_role: bool| {
                let mine = all.iter().filter(|(_, row)| row.1 == county && (!same_role || row.2 == role));
                csv(mine.map(|(n, _)| *n))
            };
            for (dataset, expected) in [
                (&parameters, mine(false)),
                (&by_county, mine(false)),
                (&by_role, mine(true)),
                (&estimated, mine(false)),
            ] {
                let rights = rights_of(dataset, &claims);
                let exported = export(&*reader, dataset, KEYS[key], rights.as_ref()).await.unwrap();
                assert_eq!(exported, expected, "{data:?} as {claims:?}");
                seen += expected.len() - "n\n".len();
            }
            // Between two callers nobody is anybody.
            let left = export(&*reader, &who, "k", None).await.unwrap();
            let nobody = format!("user,claims\n{}reader,\"\"\n", stage.prefix);
            assert_eq!(left, nobody);
            let now = stage.backends().await;
            // The owner's source has a connection under the same name; neither ends the other's.
            assert_eq!(now.len(), 2, "one connection for all of them");
            assert_eq!(*backend.get_or_insert(now.clone()), now);
        }
    }
    assert!(seen > 1000, "there was something to see: {seen}");
}

#[tokio::test]
async fn an_export_is_the_full_one_filtered_by_the_caller_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("source.db");
    let mut admin = SqliteConnection::connect(&format!("sqlite:{}?mode=rwc", path.display())).await.unwrap();
    let create = "create table t (n int, k text, county text, owner text)";
    sqlx::raw_sql(create).execute(&mut admin).await.unwrap();
    let source: std::sync::Arc<dyn Source> = open(&sqlite(path)).unwrap();
    let full = sqlite_dataset("select n from t where k = :key order by n", ScopeSettings::default());
    let one = "select n from t where :claims.county = county and k = :key order by n";
    let two =
        "select n from t where county = :claims.county and :claims.db_role = owner and k = :key order by n";
    let (one, two) = (sqlite_dataset(one, by(&["county"])), sqlite_dataset(two, by(&["db_role", "county"])));
    let mut runner = TestRunner::deterministic();
    let mut seen = 0;
    for _ in 0..CASES {
        let data = data().new_tree(&mut runner).unwrap().current();
        let ([a, b], key) = callers().new_tree(&mut runner).unwrap().current();
        let sql = format!("delete from t; {}", insert(&data, ""));
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await.unwrap();
        let all: Vec<_> = data.iter().enumerate().filter(|(_, row)| row.0 == key).collect();
        let exported = export(&*source, &full, KEYS[key], None).await.unwrap();
        assert_eq!(exported, csv(all.iter().map(|(n, _)| *n)));
        for (county, role) in [a, b, a] {
            let claims = [("county", json!(COUNTIES[county])), ("db_role", json!(ROLES[role]))];
            for (dataset, same_role) in [(&one, false), (&two, true)] {
                let mine = all.iter().filter(|(_, row)| row.1 == county && (!same_role || row.2 == role));
                let expected = csv(mine.map(|(n, _)| *n));
                let rights = rights_of(dataset, &claims);
                let exported = export(&*source, dataset, KEYS[key], rights.as_ref()).await.unwrap();
                assert_eq!(exported, expected, "{data:?} as {claims:?}");
                seen += expected.len() - "n\n".len();
            }
        }
    }
    assert!(seen > 200, "there was something to see: {seen}");
    admin.close().await.unwrap();
}
