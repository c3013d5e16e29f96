//! Opening a SQLite database: the lock that keeps a second process out, the schema, the connections.
//!
//! One process serves a database, so whatever runs in it at this moment was left by one that is gone.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outhaul_core::store::{StoreError, StoreResult, StoreSettings};
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection, SqliteConnection, SqlitePool};

use super::{Inner, SqliteStore, private};
use crate::error::from_sqlx;

static MIGRATOR: Migrator = sqlx::migrate!("src/sqlite/migrations");

/// How many reads may run at once, beside the one writer.
const READERS: u32 = 4;

pub(super) async fn open(path: &Path, settings: StoreSettings) -> StoreResult<SqliteStore> {
    let path = settle_path(path).map_err(|error| unavailable(path, error))?;
    let lock = lock(&path)?;
    let options =
        SqliteConnectOptions::new().filename(&path).busy_timeout(Duration::from_secs(5)).foreign_keys(true);
    let writer = pool(1)
        .connect_with(
            options
                .clone()
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full)
                .pragma("cache_size", "-8192"),
        )
        .await
        .map_err(from_sqlx)?;
    let installation = prepare(&writer).await?;
    let reader = pool(READERS).connect_with(options.read_only(true)).await.map_err(from_sqlx)?;
    Ok(SqliteStore { inner: Arc::new(Inner { writer, reader, settings, installation, _lock: lock }) })
}

/// A pool whose connections stay: opening a database again costs more than keeping it open.
fn pool(size: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(size)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .after_release(|connection, _| {
            Box::pin(async move {
                // After a COMMIT that failed (disk full, I/O error) SQLite has rolled back by itself, and
                // sqlx still counts an open transaction: such a connection would refuse every BEGIN.
                connection.ping().await?;
                Ok(!connection.is_in_transaction())
            })
        })
}

/// Checks and migrates the database, gives back what the previous process held, and reads its name.
async fn prepare(writer: &SqlitePool) -> StoreResult<String> {
    let mut connection = writer.acquire().await.map_err(from_sqlx)?;
    check_durable(&mut connection).await?;
    check_schema(&mut connection).await?;
    // The pool has one connection: give it back before the migrator asks for it.
    drop(connection);
    MIGRATOR.run(writer).await.map_err(migration_refused)?;
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(from_sqlx)?;
    for sql in [
        include_str!("sql/open_release_chunks.sql"),
        include_str!("sql/open_release_slots.sql"),
        include_str!("sql/open_forget_workers.sql"),
    ] {
        sqlx::query(sql).execute(&mut *transaction).await.map_err(from_sqlx)?;
    }
    let installation = sqlx::query_scalar(include_str!("sql/installation.sql"))
        .fetch_one(&mut *transaction)
        .await
        .map_err(from_sqlx)?;
    transaction.commit().await.map_err(from_sqlx)?;
    Ok(installation)
}

/// Some file systems quietly refuse WAL; without it readers and the writer would block each other.
async fn check_durable(connection: &mut SqliteConnection) -> StoreResult<()> {
    let mode: String =
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await.map_err(from_sqlx)?;
    let synchronous: i64 =
        sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *connection).await.map_err(from_sqlx)?;
    if mode != "wal" || synchronous < 2 {
        return Err(StoreError::Unsafe(format!(
            "SQLite runs with journal_mode={mode} and synchronous={synchronous} instead of WAL and FULL; \
             put the database on a local disk"
        )));
    }
    Ok(())
}

async fn check_schema(connection: &mut SqliteConnection) -> StoreResult<()> {
    let migrated: bool = sqlx::query_scalar(include_str!("sql/open_is_migrated.sql"))
        .fetch_one(&mut *connection)
        .await
        .map_err(from_sqlx)?;
    if !migrated {
        return Ok(());
    }
    let development: bool = sqlx::query_scalar(include_str!("sql/open_is_development.sql"))
        .fetch_one(&mut *connection)
        .await
        .map_err(from_sqlx)?;
    if development {
        return Err(StoreError::Unsafe(
            "the SQLite database is of an earlier development version of Outhaul, which cannot be upgraded: move the \
             file away, or name another one in database.url"
                .into(),
        ));
    }
    let found: i64 = sqlx::query_scalar(include_str!("sql/open_schema_version.sql"))
        .fetch_one(&mut *connection)
        .await
        .map_err(from_sqlx)?;
    let known = MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0);
    if found > known { Err(StoreError::NewerSchema { found, known }) } else { Ok(()) }
}

fn migration_refused(error: MigrateError) -> StoreError {
    match error {
        MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _) => from_sqlx(cause),
        other => StoreError::Refused(Box::new(other)),
    }
}

/// Makes the folder and the file, and follows links: two names of one database must share one lock.
fn settle_path(path: &Path) -> std::io::Result<PathBuf> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        private::make_folders(folder)?;
    }
    drop(private::open(path)?);
    let path = path.canonicalize()?;
    private::close_companions(&path)?;
    Ok(path)
}

/// Takes `<database>.lock` for the life of the returned handle, leaving our process id in it.
fn lock(database: &Path) -> StoreResult<File> {
    let path = private::beside(database, ".lock");
    let mut file = private::open(&path).map_err(|error| unavailable(&path, error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Who holds it is a help to people; not being able to read it changes nothing.
            let _ = file.read_to_string(&mut holder);
            let holder = if holder.trim().is_empty() { "another process" } else { holder.trim() };
            return Err(StoreError::Unsafe(format!(
                "{holder} already serves {} (it holds {}); stop it first, or use PostgreSQL to run \
                 several processes",
                database.display(),
                path.display()
            )));
        }
        Err(TryLockError::Error(error)) => return Err(unavailable(&path, error)),
    }
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(format!("process {}\n", std::process::id()).as_bytes()));
    written.map_err(|error| unavailable(&path, error))?;
    Ok(file)
}

fn unavailable(path: &Path, error: std::io::Error) -> StoreError {
    StoreError::Unavailable(Box::new(std::io::Error::new(
        error.kind(),
        format!("{}: {error}", path.display()),
    )))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outhaul_core::store::{Store, StoreSettings};
    use outhaul_core::worker::NewWorker;

    use super::super::SqliteStore;

    /// What a COMMIT that fails on a full disk leaves: SQLite has rolled back, sqlx has not noticed.
    #[tokio::test]
    async fn a_transaction_that_sqlite_ended_by_itself_does_not_stop_writes_for_good() {
        let folder = tempfile::tempdir().unwrap();
        let settings = StoreSettings {
            lease: Duration::from_secs(60),
            fairness_step: Duration::ZERO,
            idempotency_window: Duration::ZERO,
            parking: false,
        };
        let store = SqliteStore::open(&folder.path().join("outhaul.db"), settings).await.unwrap();
        let mut transaction = store.inner.writer.begin_with("BEGIN IMMEDIATE").await.unwrap();
        sqlx::query("ROLLBACK").execute(&mut *transaction).await.unwrap();
        drop(transaction);
        let worker = NewWorker { host: "h".into(), roles: "worker".into(), concurrency: 1 };
        store.worker_register(&worker).await.expect("the writer is usable, or a new one is opened");
    }
}
