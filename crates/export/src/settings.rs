//! What exports are told at start: sources, datasets and storage, already validated.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use outhaul_core::retry::RetryPolicy;
use outhaul_core::secret::Secret;

/// A database that rows are read from.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Its name in the configuration.
    pub name: String,
    /// Which kind of database, and how to reach it.
    pub url: SourceUrl,
    /// Concurrent exports across all workers.
    pub max_concurrent: u32,
    /// How long one query may run.
    pub statement_timeout: Duration,
    /// How long a query may send nothing.
    pub stall_timeout: Duration,
    /// `limits.max_row_bytes`: a larger row fails its chunk.
    pub max_row_bytes: usize,
}

/// The kinds of databases that rows can be read from.
#[derive(Clone, Debug)]
pub enum SourceUrl {
    /// `postgres://…`, with its password.
    Postgres(Secret),
    /// A SQLite file.
    Sqlite(PathBuf),
}

/// A named query on one source, by key and effective date.
#[derive(Clone, Debug)]
pub struct DatasetSettings {
    /// Its name.
    pub name: String,
    /// Whether requests that name no dataset mean this one.
    pub default: bool,
    /// The source's name.
    pub source: String,
    /// `key = "none"`: the rows are the same for every key on purpose.
    pub keyless: bool,
    /// What it asks its source.
    pub query: QuerySettings,
    /// Where the dataset's files go; `None`: its name and `default` decide.
    pub base_path: Option<String>,
    /// What its rows depend on besides key and date.
    pub scope: ScopeSettings,
    /// How failed chunks are tried again.
    pub retry: RetryPolicy,
    /// How long one attempt may take in all.
    pub timeout: Option<Duration>,
}

/// What a dataset asks its source, with `:key` and `:effective_date`.
#[derive(Clone, Debug, Default)]
pub struct QuerySettings {
    /// `query`, which returns the rows.
    pub rows: String,
    /// `count_query`, which returns how many there will be; no part of what defines the files.
    pub count: Option<String>,
}

impl From<&str> for QuerySettings {
    /// A query without one that counts.
    fn from(rows: &str) -> Self {
        Self { rows: rows.to_owned(), count: None }
    }
}

/// Which claims of a caller the rows of a dataset depend on. Nothing of it set: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeSettings {
    /// `row_scope`: the names of the claims.
    pub row_scope: Vec<String>,
    /// `row_security`: the source's own row-level security decides, and is told of the claims.
    pub row_security: bool,
    /// `role_claim`: the claim that names the role that queries run as.
    pub role_claim: Option<String>,
    /// `roles`: the roles that it may name.
    pub roles: Vec<String>,
    /// `unsecured_tables`: what queries may read without row-level security, as `schema.table`.
    pub unsecured_tables: Vec<String>,
}

/// Where files go.
#[derive(Clone, Debug)]
pub struct StorageSettings {
    /// Which kind of storage.
    pub target: StorageTarget,
    /// Prefix of everything published; ends with `/` or is empty.
    pub base_path: String,
    /// The users of this machine who may read the files of a local storage.
    pub file_access: FileAccess,
}

/// `storage.file_access`: the users of this machine who may read the files and folders of a local storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileAccess {
    /// Only the user that the process runs as.
    #[default]
    Owner,
    /// Also the group of that user.
    Group,
    /// As the umask of the process says.
    Umask,
}

impl FileAccess {
    /// The mode of new folders, before the umask is applied.
    pub fn folder_mode(self) -> u32 {
        match self {
            Self::Owner => 0o700,
            Self::Group => 0o750,
            Self::Umask => 0o777,
        }
    }

    /// The mode of new files, before the umask is applied.
    pub fn file_mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group => 0o640,
            Self::Umask => 0o666,
        }
    }
}

/// The kinds of storage.
#[derive(Clone, Debug)]
pub enum StorageTarget {
    /// A folder of this machine (or a shared mount).
    Local(PathBuf),
    /// `s3://`, `gs://` or `az://` with options such as endpoint, region and keys, as object_store names them.
    Object {
        /// The URL, such as `s3://bucket`.
        url: String,
        /// Options by object_store's names (`aws_endpoint`, `aws_access_key_id`, `aws_allow_http`, …).
        options: BTreeMap<String, Secret>,
    },
}

/// Everything that exports are told.
#[derive(Clone, Debug)]
pub struct ExportSettings {
    /// By name.
    pub sources: BTreeMap<String, SourceSettings>,
    /// By name.
    pub datasets: BTreeMap<String, DatasetSettings>,
    /// Where files go.
    pub storage: StorageSettings,
    /// `reuse.window_days`.
    pub reuse_window_days: u32,
    /// The most chunks one job may have.
    pub max_chunks_per_job: usize,
    /// How long after a caller was verified its jobs may still read rows that depend on it; none: without end.
    pub snapshot_max_age: Option<Duration>,
    /// `[retry]`, for chunks of a dataset that others know and this process does not.
    pub retry: RetryPolicy,
}
