//! The configuration: file and environment become raw sections, and those a [`Config`] that has been
//! judged as a whole. Every problem is listed at once, and nothing reads the environment afterwards.

mod auth;
mod connect;
pub(crate) mod definitions;
mod delivery;
mod env;
mod exports;
mod job_types;
mod problem;
mod raw;
mod reader;
mod rules;
mod secrets;
mod storage;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outhaul::{EngineSettings, WorkerSettings};
use outhaul_core::retry::RetryPolicy;
use outhaul_core::secret::Secret;
use outhaul_core::store::StoreSettings;
use outhaul_export::settings::ExportSettings;
use toml::Table;

pub use self::definitions::Definition;
pub use self::delivery::BrokerConfig;
pub use self::env::Environment;
pub use self::job_types::{HttpConfig, JobType, Step};
pub use self::problem::{Problem, Problems};
use self::reader::Reader;
use crate::auth::AuthSettings;
use crate::roles::Roles;

/// The file that is read when none is named.
pub const DEFAULT_FILE: &str = "outhaul.toml";

/// Sections that a later version will know; naming them now must not look like a typing error.
const NOT_YET: [&str; 2] = ["reports", "merge"];

/// A configuration that has been judged as a whole. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it came from, if there was one.
    pub file: Option<PathBuf>,
    /// Where embedded parts keep their data.
    pub data_dir: PathBuf,
    /// Where the API listens.
    pub listen: SocketAddr,
    /// Where processes without the API answer for their health, if anywhere.
    pub health_listen: Option<SocketAddr>,
    /// The engine's database.
    pub database: DatabaseConfig,
    /// The broker that hands chunks to workers; `None`: the database does.
    pub broker: Option<BrokerConfig>,
    /// How the store behaves.
    pub store: StoreSettings,
    /// How this process runs chunks.
    pub worker: WorkerSettings,
    /// Who is let in, and who schedules and triggers run as.
    pub auth: AuthSettings,
    /// What requests may ask for.
    pub limits: Limits,
    /// Whether every submission must carry an idempotency key.
    pub idempotency_required: bool,
    /// How long finished jobs are kept.
    pub retain_jobs: Duration,
    /// How long it is kept who did what.
    pub retain_audit: Duration,
    /// How often and how fast failed chunks are tried again, where nothing else is said.
    pub retry: RetryPolicy,
    /// Sources, datasets and storage.
    pub export: ExportSettings,
    /// Job types whose steps are HTTP calls, by name.
    pub job_types: BTreeMap<String, JobType>,
    /// What those steps may call.
    pub http: HttpConfig,
    /// Jobs that are submitted again and again, by name.
    pub schedules: BTreeMap<String, Definition>,
    /// Jobs that are submitted when others have completed, by name.
    pub triggers: BTreeMap<String, Definition>,
    /// This machine's name, for people.
    pub host: String,
}

/// How to reach the engine's database.
#[derive(Clone, Debug)]
pub struct DatabaseConfig {
    /// `postgres://…` or `sqlite:<absolute path>`.
    pub url: Secret,
    /// The schema that holds the tables, on PostgreSQL.
    pub schema: String,
    /// Whether to use LISTEN for wake-ups.
    pub listen: bool,
    /// Connections for the API.
    pub api_connections: u32,
    /// Connections for claims, finishes and sweeps.
    pub engine_connections: u32,
}

/// What requests may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Chunks in one job.
    pub max_chunks_per_job: usize,
    /// Bytes in one request body.
    pub max_body_bytes: usize,
    /// How long a request may take before it is given up.
    pub request_timeout: Duration,
    /// How close together a schedule's times may be.
    pub min_schedule_interval: Duration,
    /// Requests of one caller, on average; `None`: as many as they like.
    pub requests_per_second: Option<u32>,
    /// Requests of one caller at once, where there is such a limit.
    pub burst: u32,
    /// Chunks of one caller that have not ended; `None`: as many as they like.
    pub max_open_chunks: Option<u64>,
    /// The highest priority that callers other than operators may give a job.
    pub max_priority: u8,
}

/// What is known before the file is read.
pub struct Load {
    /// `--config`; else `OUTHAUL_CONFIG`, else `./outhaul.toml` if it is there.
    pub file: Option<PathBuf>,
    /// Whether the API may listen on other than loopback addresses without `[auth]`.
    pub insecure: bool,
    /// The environment.
    pub environment: Environment,
}

impl Config {
    /// Reads file and environment and judges them; the error lists everything that is wrong.
    pub fn load(load: &Load) -> Result<Self, Problems> {
        let named = load.file.clone().or_else(|| load.environment.get("OUTHAUL_CONFIG").map(PathBuf::from));
        let file = named.or_else(|| Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists()));
        let mut problems = Problems::default();
        let text = match &file {
            None => String::new(),
            Some(file) => std::fs::read_to_string(file).map_err(|error| {
                problems.add("", format!("{} cannot be read: {error}", file.display()));
                problems
            })?,
        };
        let folder = file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let folder = std::path::absolute(if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
        let folder = folder.map_err(|error| {
            let mut problems = Problems::default();
            problems.add("", format!("the current folder is not known: {error}"));
            problems
        })?;
        let mut config = Self::parse(&text, &folder, load)?;
        config.file = file;
        Ok(config)
    }

    /// Judges a text as if it were a file in `folder`.
    pub fn parse(text: &str, folder: &Path, load: &Load) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut table: Table = text.parse().unwrap_or_else(|error: toml::de::Error| {
            problems.add("", syntax(text, &error));
            Table::new()
        });
        // The rest of a file that cannot be read would only repeat itself as missing settings.
        if !problems.is_empty() {
            return Err(problems);
        }
        let texts = load.environment.lay_over(&mut table, &mut problems);
        let reader = Reader { texts: &texts, problems: &mut problems };
        let config = rules::judge(table, folder, load, reader);
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    /// What the engine is told.
    pub fn engine(&self, roles: Roles) -> EngineSettings {
        EngineSettings {
            worker_role: roles.worker,
            scheduler_role: roles.scheduler,
            host: self.host.clone(),
            roles: roles.to_string(),
            worker: self.worker.clone(),
            retain_jobs: self.retain_jobs,
            retain_audit: self.retain_audit,
        }
    }
}

/// Reads where to listen: an address and a port.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let read = text.trim().replace("localhost:", "127.0.0.1:").parse();
    read.map_err(|_| format!("`{text}` is not an address and a port, such as \"127.0.0.1:8080\""))
}

/// Where TOML could not be read, without the line itself: it may hold a password.
pub(crate) fn syntax(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let place =
        before.map(|before| format!("line {}: ", before.matches('\n').count() + 1)).unwrap_or_default();
    format!("{place}the file is not TOML: {}", error.message().lines().next().unwrap_or("cannot be read"))
}
