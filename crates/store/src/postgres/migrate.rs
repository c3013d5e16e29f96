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
use super::schema::Schema;
use crate::error::{from_sqlx, rolled_back};

/// Versions and their SQL, ascending.
const MIGRATIONS: &[(i64, &str, &str)] = &[(1, "schema", include_str!("migrations/0001_schema.sql"))];

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
pub async fn migrate(url: &Secret, schema: &str, apply: bool) -> StoreResult<Arc<str>> {
    let schema = Schema::new(schema)?;
    let options = connect_options(url, "migrate")?.disable_statement_logging();
    // Spawned, so that a caller who gives up cannot leave half a transaction behind.
    let work = tokio::spawn(async move {
        let mut connection = options.connect().await.map_err(from_sqlx)?;
        refuse_unsafe(&mut connection).await?;
        let mut tries = 0;
        let installation = loop {
            match run(&mut connection, schema, apply).await {
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

async fn run(connection: &mut sqlx::PgConnection, schema: Schema, apply: bool) -> StoreResult<Arc<str>> {
    let mut tx = begin(connection).await.map_err(from_sqlx)?;
    tx.execute(NO_LIMITS).await.map_err(from_sqlx)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *tx).await.map_err(from_sqlx)?;
    tx.execute(WAIT_FOR_TABLES).await.map_err(from_sqlx)?;
    let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
        .bind(format!("{}.migration", schema.name()))
        .fetch_one(&mut *tx)
        .await
        .map_err(from_sqlx)?;
    if !exists {
        refuse_development_version(&mut tx).await?;
    }
    if !exists && apply {
        create_schema(&mut tx, schema).await?;
    }
    let found: i64 = if exists {
        sqlx::query_scalar(schema.sql("SELECT COALESCE(max(version), 0) FROM outhaul.migration"))
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
        tx.execute(sqlx::raw_sql(schema.sql(sql))).await.map_err(from_sqlx)?;
        sqlx::query(schema.sql("INSERT INTO outhaul.migration (version, name) VALUES ($1, $2)"))
            .bind(version)
            .bind(name)
            .execute(&mut *tx)
            .await
            .map_err(from_sqlx)?;
    }
    let installation: String =
        sqlx::query_scalar(schema.sql("SELECT value FROM outhaul.meta WHERE name = 'installation'"))
            .fetch_one(&mut *tx)
            .await
            .map_err(from_sqlx)?;
    tx.commit().await.map_err(from_sqlx)?;
    Ok(installation.into())
}

/// Makes the schema and the table of migrations. A role without the right to create schemas may use one that was made
/// for it.
async fn create_schema(tx: &mut sqlx::PgConnection, schema: Schema) -> StoreResult<()> {
    let missing: bool = sqlx::query_scalar("SELECT to_regnamespace($1) IS NULL")
        .bind(schema.name())
        .fetch_one(&mut *tx)
        .await
        .map_err(from_sqlx)?;
    if missing {
        tx.execute(schema.sql("CREATE SCHEMA outhaul.").trim_end_matches('.')).await.map_err(from_sqlx)?;
    }
    tx.execute(schema.sql(
        "CREATE TABLE outhaul.migration (
             version bigint PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())",
    ))
    .await
    .map_err(from_sqlx)?;
    Ok(())
}

/// Development versions kept their tables in the first schema of the search path, under a table of this name.
async fn refuse_development_version(tx: &mut sqlx::PgConnection) -> StoreResult<()> {
    let found: Option<String> = sqlx::query_scalar(
        "SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.oid = to_regclass('outhaul_migration')",
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(from_sqlx)?;
    match found {
        None => Ok(()),
        Some(found) => Err(StoreError::Unsafe(format!(
            "schema `{found}` of the database holds tables of an earlier development version of Outhaul, which \
             cannot be upgraded: name another database, or drop those tables (the table outhaul_migration is one of \
             them)"
        ))),
    }
}
