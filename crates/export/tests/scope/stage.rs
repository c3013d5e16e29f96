//! A database with rows of several counties, users that may read them, and datasets on it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use outhaul::Failed;
use outhaul_core::identity::Identity;
use outhaul_core::retry::{Backoff, RetryPolicy};
use outhaul_export::rights::{Rights, rights};
use outhaul_export::settings::{
    DatasetSettings, ExportSettings, FileAccess, QuerySettings, ScopeSettings, SourceSettings,
    StorageSettings, StorageTarget,
};
use outhaul_export::source::{Count, Query, Source, open};
use outhaul_export::{Dataset, Exports};
use outhaul_testkit::servers::unique_prefix;
use outhaul_testkit::test_db::TestDb;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::common::{counted, date, postgres, sqlite};

/// One slot for everybody, so that one connection serves all.
pub(crate) const SLOT: &str = "scope:one";

/// A database on the shared server, and a user of its own. Users outlive the database, but not the server.
pub(crate) struct Stage {
    pub(crate) db: TestDb,
    pub(crate) admin: PgConnection,
    /// A prefix for the names of roles, which all databases of the server share.
    pub(crate) prefix: String,
}

impl Stage {
    /// Runs SQL in a new database, with `{p}` for the prefix of roles and a user `{p}reader`.
    pub(crate) async fn new(sql: &str) -> Self {
        let db = TestDb::create().await;
        let admin = PgConnection::connect(db.url()).await.unwrap();
        let mut stage = Self { db, admin, prefix: format!("outhaul_{}_", unique_prefix()) };
        stage.run("create user {p}reader").await;
        stage.run(sql).await;
        stage
    }

    /// Runs SQL as the server's owner.
    pub(crate) async fn run(&mut self, sql: &str) {
        let sql = sql.replace("{p}", &self.prefix);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.admin).await.unwrap();
    }

    /// The source as one of the users sees it; none: as the server's owner.
    pub(crate) fn settings(&self, user: Option<&str>) -> SourceSettings {
        match user {
            None => postgres(self.db.url()),
            Some(user) => {
                let (_, rest) = self.db.url().split_once('@').unwrap();
                postgres(&format!("postgres://{}{user}@{rest}", self.prefix))
            }
        }
    }

    /// The same, ready to be read.
    pub(crate) fn source(&self, user: Option<&str>) -> Arc<dyn Source> {
        open(&self.settings(user)).unwrap()
    }

    /// The backends that serve the slot.
    pub(crate) async fn backends(&mut self) -> Vec<i32> {
        let ask = "select pid from pg_stat_activity \
                   where split_part(application_name, '#', 1) = $1 and datname = current_database() order by pid";
        let ask = sqlx::query_scalar(ask);
        ask.bind(SLOT).fetch_all(&mut self.admin).await.unwrap()
    }
}

/// Row security by these claims.
pub(crate) fn secured(claims: &[&str]) -> ScopeSettings {
    ScopeSettings { row_security: true, ..by(claims) }
}

/// Parameters for these claims.
pub(crate) fn by(claims: &[&str]) -> ScopeSettings {
    let row_scope = claims.iter().map(|claim| (*claim).to_owned()).collect();
    ScopeSettings { row_scope, ..ScopeSettings::default() }
}

/// Settings with one dataset, `positions`, on a source.
pub(crate) fn exports(
    mut source: SourceSettings,
    query: impl Into<QuerySettings>,
    scope: ScopeSettings,
    folder: PathBuf,
) -> ExportSettings {
    source.name = "warehouse".to_owned();
    let dataset = DatasetSettings {
        name: "positions".to_owned(),
        default: true,
        source: source.name.clone(),
        keyless: false,
        query: query.into(),
        base_path: None,
        scope,
        retry: RetryPolicy { max_attempts: 2, backoff: Backoff::Fixed { base: Duration::ZERO } },
        timeout: None,
    };
    ExportSettings {
        sources: BTreeMap::from([(source.name.clone(), source)]),
        datasets: BTreeMap::from([(dataset.name.clone(), dataset)]),
        storage: StorageSettings {
            target: StorageTarget::Local(folder),
            base_path: "exports/".to_owned(),
            file_access: FileAccess::Owner,
        },
        reuse_window_days: 7,
        max_chunks_per_job: 10,
        snapshot_max_age: None,
        retry: RetryPolicy::default(),
    }
}

/// A dataset on PostgreSQL.
pub(crate) fn dataset(query: impl Into<QuerySettings>, scope: ScopeSettings) -> Arc<Dataset> {
    dataset_on(postgres("postgres://nobody@nowhere/nothing"), query, scope)
}

/// A dataset on SQLite.
pub(crate) fn sqlite_dataset(query: &str, scope: ScopeSettings) -> Arc<Dataset> {
    dataset_on(sqlite(PathBuf::from("nowhere.db")), query, scope)
}

/// A dataset on a source like this one.
pub(crate) fn dataset_on(
    source: SourceSettings,
    query: impl Into<QuerySettings>,
    scope: ScopeSettings,
) -> Arc<Dataset> {
    let exports = Exports::new(&exports(source, query, scope, PathBuf::new())).unwrap();
    exports.default_dataset().unwrap().clone()
}

/// Somebody with these claims.
pub(crate) fn caller(claims: &[(&str, Value)]) -> Identity {
    Identity {
        subject: "ann".to_owned(),
        department: None,
        claims: claims.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        verified_at: DateTime::UNIX_EPOCH,
    }
}

/// The rights of a caller with these claims.
pub(crate) fn rights_of(dataset: &Dataset, claims: &[(&str, Value)]) -> Option<Rights> {
    rights(dataset, Some(&caller(claims))).unwrap()
}

/// Exports a key with some rights; the total is counted as the dataset says, and must be that of the rows.
pub(crate) async fn export(
    source: &dyn Source,
    dataset: &Dataset,
    key: &str,
    rights: Option<&Rights>,
) -> Result<String, Failed> {
    let query = Query {
        dataset: &dataset.name,
        template: &dataset.template,
        key,
        effective_date: date(),
        rights,
        count: dataset.count.as_ref().map_or(Count::Estimate, Count::Exact),
        slot: Some(SLOT),
    };
    let kept = counted(source, &query).await?;
    if dataset.count.is_some() {
        assert_eq!(kept.total, Some(outhaul_core::progress::Total::Exact(kept.moved.0)), "counted likewise");
    }
    Ok(String::from_utf8(kept.csv).unwrap())
}

/// CSV of one column `n`.
pub(crate) fn csv(numbers: impl IntoIterator<Item = usize>) -> String {
    numbers.into_iter().fold("n\n".to_owned(), |csv, n| csv + &n.to_string() + "\n")
}
