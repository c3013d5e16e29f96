//! Embedded migrations. Any number of processes may run them at once: one applies, the others wait
//! on a lock that lives inside the transaction (so it works behind a transaction-mode pooler too).
//!
//! The transaction has settings of its own. A process that waited for the lock must see what the previous holder
//! committed (READ COMMITTED), and no time limit of the role may end the wait. A change that waits for a table blocks
//! all others from that table, so such waits are short, and the migration is tried again.

use std::sync::Arc;
use std::time::Duration;

use outhaul_core::retry::Backoff;
use outhaul_core::secret::Secret;
use outhaul_core::store::{StoreError, StoreResult};
use sqlx::{ConnectOptions, Connection, Executor};

use super::connect::{connect_options, refuse_unsafe};
use super::pool::begin;
use crate::error::{from_sqlx, rolled_back};

/// Versions and their SQL, ascending.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "engine", include_str!("migrations/0001_engine.sql")),
    (2, "custom_jobs", include_str!("migrations/0002_custom_jobs.sql")),
    (3, "progress", include_str!("migrations/0003_progress.sql")),
    (4, "dependencies", include_str!("migrations/0004_dependencies.sql")),
    (5, "schedules", include_str!("migrations/0005_schedules.sql")),
    (6, "identity", include_str!("migrations/0006_identity.sql")),
    (7, "delivery", include_str!("migrations/0007_delivery.sql")),
    (8, "shown_version", include_str!("migrations/0008_shown_version.sql")),
    (9, "base_paths", include_str!("migrations/0009_base_paths.sql")),
    (10, "error_detail", include_str!("migrations/0010_error_detail.sql")),
];

/// The key of the lock under which migrations run.
const LOCK: i64 = 0x6f75_7468_6175_6c01;

/// Time limits that a database or a role may have. `transaction_timeout` is known from PostgreSQL 17 on.
const NO_LIMITS: &str = "SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN
    ('lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')";

/// How long a change waits for a table that others use.
const WAIT_FOR_TABLES: &str = "SET LOCAL lock_timeout = '5s'";

/// How often a migration that conflicted with other transactions is tried again.
const AGAIN: u32 = 30;

/// The waits in between, in which the other transactions can finish.
const WAIT: Backoff =
    Backoff::Exponential { base: Duration::from_millis(100), max: Duration::from_secs(5), jitter: true };

/// Brings the schema up to date (or, with `apply` off, only checks it) and returns the
/// installation's name. Refuses a schema that is newer than this binary.
pub async fn migrate(url: &Secret, apply: bool) -> StoreResult<Arc<str>> {
    let options = connect_options(url, "migrate")?.disable_statement_logging();
    // Spawned, so that a caller who gives up cannot leave half a transaction behind.
    let work = tokio::spawn(async move {
        let mut connection = options.connect().await.map_err(from_sqlx)?;
        refuse_unsafe(&mut connection).await?;
        let mut tries = 0;
        let installation = loop {
            match run(&mut connection, apply).await {
                Err(error) if tries < AGAIN && rolled_back(&error) => tries += 1,
                done => break done?,
            }
            tokio::time::sleep(WAIT.wait(tries, rand::random())).await;
        };
        connection.close().await.map_err(from_sqlx)?;
        Ok(installation)
    });
    work.await.map_err(|error| StoreError::Refused(error.into()))?
}

async fn run(connection: &mut sqlx::PgConnection, apply: bool) -> StoreResult<Arc<str>> {
    let mut tx = begin(connection).await.map_err(from_sqlx)?;
    tx.execute(NO_LIMITS).await.map_err(from_sqlx)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *tx).await.map_err(from_sqlx)?;
    tx.execute(WAIT_FOR_TABLES).await.map_err(from_sqlx)?;
    let exists: bool = sqlx::query_scalar("SELECT to_regclass('outhaul_migration') IS NOT NULL")
        .fetch_one(&mut *tx)
        .await
        .map_err(from_sqlx)?;
    if !exists && apply {
        tx.execute(
            "CREATE TABLE outhaul_migration (
                 version bigint PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())",
        )
        .await
        .map_err(from_sqlx)?;
    }
    let found: i64 = if exists {
        sqlx::query_scalar("SELECT COALESCE(max(version), 0) FROM outhaul_migration")
            .fetch_one(&mut *tx)
            .await
            .map_err(from_sqlx)?
    } else {
        0
    };
    let known = MIGRATIONS.iter().map(|migration| migration.0).max().unwrap_or(0);
    if found > known {
        return Err(StoreError::NewerSchema { found, known });
    }
    if found < known && !apply {
        return Err(StoreError::Unsafe(format!(
            "the database has schema version {found}, this binary needs {known}: run `outhaul migrate`"
        )));
    }
    for (version, name, sql) in MIGRATIONS.iter().filter(|migration| migration.0 > found) {
        tx.execute(sqlx::raw_sql(*sql)).await.map_err(from_sqlx)?;
        sqlx::query("INSERT INTO outhaul_migration (version, name) VALUES ($1, $2)")
            .bind(version)
            .bind(name)
            .execute(&mut *tx)
            .await
            .map_err(from_sqlx)?;
    }
    let installation: String = sqlx::query_scalar("SELECT value FROM meta WHERE name = 'installation'")
        .fetch_one(&mut *tx)
        .await
        .map_err(from_sqlx)?;
    tx.commit().await.map_err(from_sqlx)?;
    Ok(installation.into())
}
