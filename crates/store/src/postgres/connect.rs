//! Connecting: pools by purpose, and a refusal of servers that could lose acknowledged work.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use outhaul_core::secret::Secret;
use outhaul_core::store::{StoreError, StoreResult, StoreSettings};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection};

use super::PostgresStore;
use super::connections::Connections;
use super::pool::Pool;
use super::schema::Schema;
use crate::error::from_sqlx;

/// How long a job's transaction waits for a connection before it asks again.
const TRANSACTION_WAIT: Duration = Duration::from_secs(5);
/// The oldest server whose SQL we use.
const OLDEST_SERVER: i32 = 150_000;

/// Session settings, where no pooler stands between (`database.listen` is on). Compiling our short
/// statements costs hundreds of milliseconds once the chunk table is large, for nothing; and no
/// statement or forgotten transaction of ours may hold locks for minutes. The isolation level is the one that
/// every statement is written for, whatever the database or the role has as its default.
const SESSION: [(&str, &str); 5] = [
    ("default_transaction_isolation", "read committed"),
    ("jit", "off"),
    ("statement_timeout", "60s"),
    ("lock_timeout", "30s"),
    ("idle_in_transaction_session_timeout", "60s"),
];

/// For the engine's few statements: plan each once, by its indexes. They are written so that one plan
/// fits any number of rows; planning them anew would cost more than running them, and a plan made while
/// the tables were empty must not be a scan.
const FIXED_PLANS: [(&str, &str); 2] = [("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off")];

/// For the API's statements with optional filters: the plan depends on which filters are given.
const NEW_PLANS: [(&str, &str); 1] = [("plan_cache_mode", "force_custom_plan")];

/// The settings of `SESSION` that a connection to `url` does not have by itself. Behind a transaction-mode pooler
/// they cannot be sent, and must be set for the role. Any time limit is as good as ours.
pub async fn missing_session_settings(url: &Secret) -> StoreResult<Vec<(&'static str, &'static str)>> {
    let mut connection = connect_options(url, "check")?.connect().await.map_err(from_sqlx)?;
    let names = SESSION.map(|(name, _)| name);
    let found: Vec<String> =
        sqlx::query_scalar("SELECT current_setting(name) FROM unnest($1::text[]) WITH ORDINALITY AS n (name, place) ORDER BY place")
            .bind(names.as_slice())
            .fetch_all(&mut connection)
            .await
            .map_err(from_sqlx)?;
    connection.close().await.map_err(from_sqlx)?;
    let is_there = |name: &str, wanted: &str, found: &str| match name.ends_with("_timeout") {
        true => found != "0",
        false => found == wanted,
    };
    let missing =
        SESSION.into_iter().zip(&found).filter(|((name, wanted), found)| !is_there(name, wanted, found));
    Ok(missing.map(|(setting, _)| setting).collect())
}

/// How one purpose connects.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// The most connections of this pool.
    pub max_connections: u32,
    /// Whether to listen for hints of other processes.
    pub listen: bool,
    /// Whether a pooled connection is tried before it is used: kinder to callers that do not retry,
    /// one round trip dearer for those that do.
    pub test_before_use: bool,
    /// How long a verb may take before its connection is given up as dead.
    pub patience: Duration,
    /// Whether statements are planned once: right for the engine's, wrong for the API's optional filters.
    pub fixed_plans: bool,
    /// What the connection is for, as `application_name` shows it.
    pub purpose: &'static str,
}

/// Opens a store on a migrated database. Connections are made when they are first needed, on the
/// runtime that needs them; call it on a runtime.
pub fn connect(
    url: &Secret,
    schema: &str,
    settings: StoreSettings,
    installation: Arc<str>,
    options: &PostgresOptions,
) -> StoreResult<PostgresStore> {
    let mut connect = connect_options(url, options.purpose)?;
    if options.listen {
        connect = connect.options(SESSION);
        connect = if options.fixed_plans { connect.options(FIXED_PLANS) } else { connect.options(NEW_PLANS) };
    }
    let transactions = PgPoolOptions::new()
        .max_connections(options.max_connections)
        .min_connections(0)
        // A caller that has to wait longer asks again, as long as its lease lives.
        .acquire_timeout(TRANSACTION_WAIT)
        .idle_timeout(Duration::from_secs(60))
        .connect_lazy_with(connect_options(url, "transaction")?);
    let connections = Connections::new(connect.clone(), options);
    let listen = options.listen.then(|| Arc::new(connect));
    Ok(PostgresStore {
        connections,
        transactions,
        settings,
        installation,
        schema: Schema::new(schema)?,
        repaired: Arc::default(),
        listen,
        queue_keys: Arc::default(),
    })
}

/// Reads the URL without ever showing it: an error of the parser may quote the password.
pub(super) fn connect_options(url: &Secret, purpose: &str) -> StoreResult<PgConnectOptions> {
    let options = PgConnectOptions::from_str(url.expose()).map_err(|_| {
        StoreError::Unsafe("database.url is not a PostgreSQL URL: postgres://user:password@host/db".into())
    })?;
    Ok(options.application_name(&format!("outhaul {purpose}")))
}

/// Refuses servers that are too old, or that acknowledge commits before they are durable.
pub(super) async fn refuse_unsafe(connection: &mut sqlx::PgConnection) -> StoreResult<()> {
    let (version, fsync, commit): (i32, String, String) = sqlx::query_as(
        "SELECT current_setting('server_version_num')::integer, current_setting('fsync'),
                current_setting('synchronous_commit')",
    )
    .fetch_one(connection)
    .await
    .map_err(from_sqlx)?;
    if version < OLDEST_SERVER {
        return Err(StoreError::Unsafe(format!(
            "PostgreSQL 15 or later is needed, this server is {}",
            version / 10_000
        )));
    }
    for (name, value) in [("fsync", fsync), ("synchronous_commit", commit)] {
        if value == "off" {
            return Err(StoreError::Unsafe(format!(
                "the server has {name} = off, so it may lose what it acknowledged: turn it on"
            )));
        }
    }
    Ok(())
}

/// Whether the database answers and takes writes.
pub(super) async fn ready(pool: Pool) -> StoreResult<()> {
    let read_only: bool =
        sqlx::query_scalar("SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean")
            .fetch_one(&pool)
            .await
            .map_err(from_sqlx)?;
    if read_only {
        return Err(StoreError::Unavailable("the database is read-only".into()));
    }
    Ok(())
}
