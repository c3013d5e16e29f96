//! Embedded migrations. Any number of processes may run them at once: one applies, the others wait
//! on a lock that lives inside the transaction (so it works behind a transaction-mode pooler too).

use std::sync::Arc;

use outhaul_core::secret::Secret;
use outhaul_core::store::{StoreError, StoreResult};
use sqlx::{ConnectOptions, Connection, Executor};

use super::connect::{connect_options, refuse_unsafe};
use crate::error::from_sqlx;

/// Versions and their SQL, ascending.
const MIGRATIONS: [(i64, &str, &str); 7] = [
    (1, "engine", include_str!("migrations/0001_engine.sql")),
    (2, "custom_jobs", include_str!("migrations/0002_custom_jobs.sql")),
    (3, "progress", include_str!("migrations/0003_progress.sql")),
    (4, "dependencies", include_str!("migrations/0004_dependencies.sql")),
    (5, "schedules", include_str!("migrations/0005_schedules.sql")),
    (6, "identity", include_str!("migrations/0006_identity.sql")),
    (7, "delivery", include_str!("migrations/0007_delivery.sql")),
];

/// The key of the lock under which migrations run.
const LOCK: i64 = 0x6f75_7468_6175_6c01;

/// Brings the schema up to date (or, with `apply` off, only checks it) and returns the
/// installation's name. Refuses a schema that is newer than this binary.
pub async fn migrate(url: &Secret, apply: bool) -> StoreResult<Arc<str>> {
    let options = connect_options(url, "migrate")?.disable_statement_logging();
    // Spawned, so that a caller who gives up cannot leave half a transaction behind.
    let work = tokio::spawn(async move {
        let mut connection = options.connect().await.map_err(from_sqlx)?;
        refuse_unsafe(&mut connection).await?;
        let installation = run(&mut connection, apply).await?;
        connection.close().await.map_err(from_sqlx)?;
        Ok(installation)
    });
    work.await.map_err(|error| StoreError::Refused(error.into()))?
}

async fn run(connection: &mut sqlx::PgConnection, apply: bool) -> StoreResult<Arc<str>> {
    let mut tx = connection.begin().await.map_err(from_sqlx)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *tx).await.map_err(from_sqlx)?;
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
