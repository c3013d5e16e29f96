//! Opening a database by its URL: migrated, checked, with connections kept apart by purpose.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use outhaul_core::secret::Secret;
use outhaul_core::store::{Store, StoreError, StoreResult, StoreSettings};

use crate::postgres::{self, PostgresOptions};
use crate::sqlite::SqliteStore;

/// Longer than any statement may run on the server.
const PATIENCE: Duration = Duration::from_secs(75);

/// How a process uses the database.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Whether to listen for hints of other processes.
    pub listen: bool,
    /// The schema that holds the tables, on PostgreSQL.
    pub schema: String,
    /// Whether to bring the schema up to date; otherwise an old one is refused.
    pub migrate: bool,
    /// Connections for the API.
    pub api_connections: u32,
    /// Connections for claims, finishes and sweeps.
    pub engine_connections: u32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            listen: true,
            schema: postgres::DEFAULT_SCHEMA.to_owned(),
            migrate: true,
            api_connections: 10,
            engine_connections: 8,
        }
    }
}

/// One database, three sets of connections: slow exports can starve neither heartbeats nor the API.
#[derive(Clone)]
pub struct Opened {
    /// For the API.
    pub api: Arc<dyn Store>,
    /// For claims, finishes and sweeps.
    pub engine: Arc<dyn Store>,
    /// For heartbeats, on a runtime of their own.
    pub keeper: Arc<dyn Store>,
}

/// Opens `postgres://…` or `sqlite:<path>`. Boxed, so that callers need not prove what sqlx's
/// futures borrow.
pub fn open(
    url: &Secret,
    settings: StoreSettings,
    options: OpenOptions,
) -> BoxFuture<'_, StoreResult<Opened>> {
    Box::pin(open_by_scheme(url, settings, options))
}

async fn open_by_scheme(url: &Secret, settings: StoreSettings, options: OpenOptions) -> StoreResult<Opened> {
    if let Some(path) = url.expose().strip_prefix("sqlite:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        // SQLite has one writer anyway: everyone shares it.
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(Path::new(path), settings).await?);
        return Ok(Opened { api: store.clone(), engine: store.clone(), keeper: store });
    }
    if !["postgres://", "postgresql://"].iter().any(|scheme| url.expose().starts_with(scheme)) {
        return Err(StoreError::Unsafe("database.url must start with postgres:// or sqlite:".into()));
    }
    let installation = postgres::migrate(url, &options.schema, options.migrate).await?;
    // A heartbeat must have time for another try before the lease ends.
    let heartbeat = (settings.lease / 4).clamp(Duration::from_millis(500), PATIENCE);
    let schema = options.schema;
    let connect = |purpose, max_connections, is_api: bool, patience| -> StoreResult<Arc<dyn Store>> {
        let options = PostgresOptions {
            max_connections,
            listen: options.listen,
            test_before_use: is_api,
            fixed_plans: !is_api,
            patience,
            purpose,
        };
        Ok(Arc::new(postgres::connect(url, &schema, settings, installation.clone(), &options)?))
    };
    Ok(Opened {
        api: connect("api", options.api_connections, true, PATIENCE)?,
        engine: connect("engine", options.engine_connections, false, PATIENCE)?,
        keeper: connect("keeper", 2, false, heartbeat)?,
    })
}
