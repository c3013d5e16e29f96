//! The configuration as people write it: one struct per section, with its defaults, nothing judged yet.

use std::path::PathBuf;
use std::time::Duration;

use outhaul::WorkerSettings;
use outhaul_core::secret::Secret;
use outhaul_core::step::MAX_RESULT_BYTES;
use outhaul_delivery::{PARKING_QUEUE, WORK_QUEUE};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Table;

/// A duration: `"90s"`, or the number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(from)? {
            toml::Value::Integer(0) => Ok(Self(Duration::ZERO)),
            toml::Value::String(text) => {
                outhaul_core::duration::parse(&text).map(Self).map_err(D::Error::custom)
            }
            _ => Err(D::Error::custom("is not a duration: write it in quotes, such as \"90s\"")),
        }
    }
}

/// Text that must not be shown, not even when it has the wrong type.
#[derive(Clone)]
pub(super) struct Hidden(pub(super) Secret);

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(from)? {
            toml::Value::String(text) => Ok(Self(Secret::new(text))),
            _ => Err(D::Error::custom("must be text in quotes")),
        }
    }
}

impl Hidden {
    fn into_text(self) -> String {
        self.0.expose().to_owned()
    }
}

/// One text, or a list of them.
#[derive(Clone, Debug)]
pub(super) struct Texts(pub(super) Vec<String>);

impl Texts {
    /// For names, which hold no commas: the environment has no lists.
    pub(super) fn split_commas(&self) -> Vec<String> {
        self.0.iter().flat_map(|text| text.split(',')).map(|text| text.trim().to_owned()).collect()
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Hiddens::deserialize(from).map(|texts| Self(texts.0.into_iter().map(Hidden::into_text).collect()))
    }
}

/// One text that must not be shown, or a list of them.
#[derive(Clone)]
pub(super) struct Hiddens(pub(super) Vec<Hidden>);

impl<'de> Deserialize<'de> for Hiddens {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let texts = match toml::Value::deserialize(from)? {
            toml::Value::Array(values) => values,
            value => vec![value],
        };
        let hidden = |value| match value {
            toml::Value::String(text) => Ok(Hidden(Secret::new(text))),
            _ => Err(D::Error::custom("must be text in quotes, or a list of such")),
        };
        texts.into_iter().map(hidden).collect::<Result<_, _>>().map(Self)
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Server {
    pub(super) listen: String,
    pub(super) health_listen: Option<String>,
}

impl Default for Server {
    fn default() -> Self {
        Self { listen: "127.0.0.1:8080".into(), health_listen: None }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Database {
    pub(super) url: Option<Hidden>,
    pub(super) url_file: Option<PathBuf>,
    pub(super) url_env: Option<String>,
    pub(super) password: Option<Hidden>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) password_env: Option<String>,
    pub(super) schema: String,
    pub(super) listen: bool,
    pub(super) api_connections: u32,
    pub(super) engine_connections: u32,
}

impl Default for Database {
    fn default() -> Self {
        Self {
            url: None,
            url_file: None,
            url_env: None,
            password: None,
            password_file: None,
            password_env: None,
            schema: outhaul_store::postgres::DEFAULT_SCHEMA.to_owned(),
            listen: true,
            api_connections: 10,
            engine_connections: 8,
        }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Storage {
    pub(super) url: Option<String>,
    pub(super) base_path: String,
    pub(super) file_access: Option<String>,
    pub(super) endpoint: Option<String>,
    pub(super) region: Option<String>,
    pub(super) allow_http: Option<bool>,
    pub(super) access_key_id: Option<Hidden>,
    pub(super) access_key_id_file: Option<PathBuf>,
    pub(super) access_key_id_env: Option<String>,
    pub(super) secret_access_key: Option<Hidden>,
    pub(super) secret_access_key_file: Option<PathBuf>,
    pub(super) secret_access_key_env: Option<String>,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            url: None,
            base_path: "exports/".into(),
            file_access: None,
            endpoint: None,
            region: None,
            allow_http: None,
            access_key_id: None,
            access_key_id_file: None,
            access_key_id_env: None,
            secret_access_key: None,
            secret_access_key_file: None,
            secret_access_key_env: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Delivery {
    pub(super) kind: String,
    pub(super) url: Option<Hidden>,
    pub(super) url_file: Option<PathBuf>,
    pub(super) url_env: Option<String>,
    pub(super) user: Option<String>,
    pub(super) password: Option<Hidden>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) password_env: Option<String>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) client_cert_file: Option<PathBuf>,
    pub(super) client_key_file: Option<PathBuf>,
    pub(super) work_queue: String,
    pub(super) parking_queue: String,
    pub(super) window: u32,
    pub(super) heartbeat: Option<Span>,
    pub(super) expiry: Span,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            kind: "database".into(),
            url: None,
            url_file: None,
            url_env: None,
            user: None,
            password: None,
            password_file: None,
            password_env: None,
            ca_file: None,
            client_cert_file: None,
            client_key_file: None,
            work_queue: WORK_QUEUE.into(),
            parking_queue: PARKING_QUEUE.into(),
            window: 1000,
            heartbeat: None,
            expiry: Span(Duration::from_secs(120)),
        }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Queue {
    pub(super) fairness_step: Span,
}

impl Default for Queue {
    fn default() -> Self {
        Self { fairness_step: Span(Duration::from_millis(100)) }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Worker {
    pub(super) concurrency: u32,
    pub(super) claim_limit: Option<u32>,
    pub(super) lease: Span,
    pub(super) heartbeat: Span,
    pub(super) poll_interval: Span,
    pub(super) shutdown_grace: Span,
}

impl Default for Worker {
    fn default() -> Self {
        let worker = WorkerSettings::default();
        Self {
            concurrency: worker.concurrency,
            claim_limit: worker.claim_limit,
            lease: Span(worker.lease),
            heartbeat: Span(worker.heartbeat),
            poll_interval: Span(worker.poll_interval),
            shutdown_grace: Span(worker.shutdown_grace),
        }
    }
}

/// `[retry]`, or the `retry` of a dataset: what is left out is inherited.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Retry {
    pub(super) max_attempts: Option<u32>,
    pub(super) backoff: Option<Table>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Backoff {
    pub(super) kind: Option<String>,
    pub(super) base: Option<Span>,
    pub(super) max: Option<Span>,
    pub(super) jitter: Option<bool>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) max_chunks_per_job: usize,
    pub(super) max_body_bytes: usize,
    pub(super) max_row_bytes: usize,
    pub(super) request_timeout: Span,
    pub(super) min_schedule_interval: Span,
    pub(super) requests_per_second: Option<u32>,
    pub(super) burst: Option<u32>,
    pub(super) max_open_chunks: Option<u64>,
    pub(super) max_priority: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_chunks_per_job: 10_000,
            max_body_bytes: 2_097_152,
            max_row_bytes: 64 << 20,
            request_timeout: Span(Duration::from_secs(30)),
            min_schedule_interval: Span(Duration::from_secs(60)),
            requests_per_second: None,
            burst: None,
            max_open_chunks: None,
            max_priority: 9,
        }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Reuse {
    pub(super) window_days: u32,
}

impl Default for Reuse {
    fn default() -> Self {
        Self { window_days: 7 }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Idempotency {
    pub(super) window: Span,
    pub(super) required: bool,
}

impl Default for Idempotency {
    fn default() -> Self {
        Self { window: Span(Duration::from_secs(24 * 3600)), required: false }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Retention {
    pub(super) jobs: Span,
    pub(super) audit: Span,
    pub(super) files: String,
}

impl Default for Retention {
    fn default() -> Self {
        let days = |days: u64| Span(Duration::from_secs(days * 86_400));
        Self { jobs: days(30), audit: days(365), files: "never".into() }
    }
}

/// What is left out has the defaults of the settings themselves.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Auth {
    pub(super) mode: Option<String>,
    pub(super) issuer: Option<String>,
    pub(super) audience: Option<Texts>,
    pub(super) algorithms: Option<Texts>,
    /// Its query may hold a key.
    pub(super) jwks_url: Option<Hidden>,
    pub(super) public_key_file: Option<PathBuf>,
    pub(super) secret: Option<Hidden>,
    pub(super) secret_file: Option<PathBuf>,
    pub(super) secret_env: Option<String>,
    pub(super) claims: Option<toml::Value>,
    pub(super) keep: Option<Texts>,
    pub(super) leeway: Option<Span>,
    pub(super) jwks_refresh: Option<Span>,
    pub(super) jwks_cooldown: Option<Span>,
    pub(super) jwks_max_age: Option<Span>,
    pub(super) snapshot_max_age: Option<Span>,
    pub(super) recheck: Option<toml::Value>,
    pub(super) roles: Option<toml::Value>,
    pub(super) identities: Option<toml::Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthClaims {
    pub(super) subject: Option<String>,
    pub(super) roles: Option<String>,
    pub(super) department: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthRecheck {
    /// Its query may hold a key.
    pub(super) url: Option<Hidden>,
    pub(super) secret: Option<Hiddens>,
    pub(super) secret_file: Option<Texts>,
    pub(super) secret_env: Option<Texts>,
    pub(super) max_age: Option<Span>,
    pub(super) timeout: Option<Span>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthRoles {
    pub(super) submitter: Option<Texts>,
    pub(super) viewer: Option<Texts>,
    pub(super) operator: Option<Texts>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthIdentity {
    pub(super) department: Option<String>,
    pub(super) claims: Table,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Source {
    pub(super) url: Option<Hidden>,
    pub(super) url_file: Option<PathBuf>,
    pub(super) url_env: Option<String>,
    pub(super) password: Option<Hidden>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) password_env: Option<String>,
    pub(super) max_concurrent: u32,
    pub(super) statement_timeout: Span,
    pub(super) stall_timeout: Span,
}

impl Default for Source {
    fn default() -> Self {
        Self {
            url: None,
            url_file: None,
            url_env: None,
            password: None,
            password_file: None,
            password_env: None,
            max_concurrent: 4,
            statement_timeout: Span(Duration::from_secs(600)),
            stall_timeout: Span(Duration::from_secs(120)),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Dataset {
    pub(super) default: bool,
    pub(super) source: Option<String>,
    pub(super) key: Option<String>,
    pub(super) query: Option<String>,
    pub(super) count_query: Option<String>,
    pub(super) base_path: Option<String>,
    pub(super) row_scope: Option<Texts>,
    pub(super) row_security: bool,
    pub(super) role_claim: Option<String>,
    pub(super) roles: Option<Texts>,
    pub(super) unsecured_tables: Option<Texts>,
    pub(super) retry: Option<Table>,
    pub(super) timeout: Option<Span>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Http {
    pub(super) allow: Option<Texts>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JobType {
    pub(super) steps: Vec<toml::Value>,
    pub(super) retry: Option<Table>,
    pub(super) timeout: Span,
    pub(super) max_concurrent: Option<u32>,
    pub(super) secret: Option<Hiddens>,
    pub(super) secret_file: Option<Texts>,
    pub(super) secret_env: Option<Texts>,
    pub(super) max_response_bytes: usize,
}

impl Default for JobType {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            retry: None,
            timeout: Span(Duration::from_secs(900)),
            max_concurrent: None,
            secret: None,
            secret_file: None,
            secret_env: None,
            max_response_bytes: MAX_RESULT_BYTES,
        }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Step {
    pub(super) name: Option<String>,
    pub(super) http: Option<Hidden>,
    pub(super) timeout: Span,
    pub(super) needs: Option<Vec<String>>,
}

impl Default for Step {
    fn default() -> Self {
        Self { name: None, http: None, timeout: Span(Duration::from_secs(30)), needs: None }
    }
}

/// A schedule; what a job may say is not known here.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Schedule {
    pub(super) cron: Option<String>,
    pub(super) timezone: Option<String>,
    pub(super) job: Option<toml::Value>,
    pub(super) overlap: Option<String>,
    pub(super) catch_up: Option<String>,
    pub(super) catch_up_limit: Option<u32>,
    pub(super) jitter: Option<Span>,
    pub(super) run_as: Option<String>,
}

/// A trigger; what a job may say is not known here.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Trigger {
    pub(super) after: Option<Texts>,
    #[serde(rename = "match")]
    pub(super) match_label: Option<String>,
    pub(super) within: Option<Span>,
    pub(super) job: Option<toml::Value>,
    pub(super) run_as: Option<String>,
}
