//! Raw SQL past the store, so that the suite can compare what a store says with what its rows say.
//! Both schemas use the same names; the few expressions that differ are here.

use std::path::Path;
use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, PgPool, Postgres, SqlitePool, Transaction};

/// A connection to the database below a store.
pub enum Probe {
    /// To a PostgreSQL database.
    Postgres(PgPool),
    /// To a SQLite file.
    Sqlite(SqlitePool),
}

impl Probe {
    /// Looks into the PostgreSQL database at `url`.
    pub fn postgres(url: &str) -> Self {
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy(url);
        Self::Postgres(pool.expect("the URL of a test database"))
    }

    /// Looks into the SQLite file at `path`.
    pub fn sqlite(path: &Path) -> Self {
        let options = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(30));
        Self::Sqlite(SqlitePoolOptions::new().max_connections(1).connect_lazy_with(options))
    }

    /// The one column of all rows, as text.
    pub(super) async fn texts(&self, sql: &str) -> Vec<String> {
        let query = AssertSqlSafe(sql.to_owned());
        let rows = match self {
            Self::Postgres(pool) => sqlx::query_scalar(query).fetch_all(pool).await,
            Self::Sqlite(pool) => sqlx::query_scalar(query).fetch_all(pool).await,
        };
        rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The one number.
    pub(super) async fn number(&self, sql: &str) -> i64 {
        let query = AssertSqlSafe(sql.to_owned());
        let number = match self {
            Self::Postgres(pool) => sqlx::query_scalar(query).fetch_one(pool).await,
            Self::Sqlite(pool) => sqlx::query_scalar(query).fetch_one(pool).await,
        };
        number.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Changes rows behind the store's back; returns how many.
    pub(super) async fn execute(&self, sql: &str) -> u64 {
        let query = AssertSqlSafe(sql.to_owned());
        let changed = match self {
            Self::Postgres(pool) => sqlx::query(query).execute(pool).await.map(|done| done.rows_affected()),
            Self::Sqlite(pool) => sqlx::query(query).execute(pool).await.map(|done| done.rows_affected()),
        };
        changed.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Locks rows until what it returns is dropped. `None`: this database has one writer, and no such locks.
    pub(super) async fn lock(&self, sql: &str) -> Option<Transaction<'static, Postgres>> {
        let Self::Postgres(pool) = self else { return None };
        let mut transaction = pool.begin().await.expect("begin");
        let locked = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(&mut *transaction).await;
        assert!(
            !locked.unwrap_or_else(|error| panic!("{sql}: {error}")).is_empty(),
            "nothing to lock: {sql}"
        );
        Some(transaction)
    }

    /// A time column as microseconds since 1970.
    pub(super) fn micros(&self, column: &str) -> String {
        match self {
            Self::Postgres(_) => format!("cast(round(extract(epoch from {column}) * 1000000) as bigint)"),
            Self::Sqlite(_) => column.to_owned(),
        }
    }

    /// A moment, given as microseconds since 1970, as a time column holds it.
    pub(super) fn moment(&self, micros: i64) -> String {
        match self {
            Self::Postgres(_) => format!("timestamptz 'epoch' + interval '1 microsecond' * {micros}"),
            Self::Sqlite(_) => micros.to_string(),
        }
    }

    /// The database's own present, in microseconds since 1970.
    pub(super) async fn now(&self) -> i64 {
        match self {
            Self::Postgres(_) => self.number(&format!("select {}", self.micros("clock_timestamp()"))).await,
            // The same clock, which is the only one a SQLite store has.
            Self::Sqlite(_) => outhaul_core::clock::now().timestamp_micros(),
        }
    }

    /// A time column, moved an hour into the past.
    pub(super) fn an_hour_before(&self, column: &str) -> String {
        match self {
            Self::Postgres(_) => format!("{column} - interval '1 hour'"),
            Self::Sqlite(_) => format!("{column} - 3600000000"),
        }
    }
}
