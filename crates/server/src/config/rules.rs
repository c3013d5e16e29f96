//! The judgement of the whole configuration: every section, and what sections mean to each other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outhaul::WorkerSettings;
use outhaul_core::retry::RetryPolicy;
use outhaul_core::secret::Secret;
use outhaul_core::store::StoreSettings;
use outhaul_export::settings::ExportSettings;
use toml::{Table, Value};

use super::connect::{Connect, database_url};
use super::problem::Problems;
use super::reader::{Reader, unknown};
use super::secrets::{Given, Secrets};
use super::{
    Config, DatabaseConfig, Environment, Limits, Load, NOT_YET, address, auth, definitions, delivery,
    exports, job_types, raw, storage,
};

const SECTIONS: [&str; 19] = [
    "data_dir",
    "server",
    "database",
    "storage",
    "delivery",
    "queue",
    "worker",
    "retry",
    "limits",
    "reuse",
    "idempotency",
    "retention",
    "auth",
    "sources",
    "datasets",
    "job_types",
    "http",
    "schedules",
    "triggers",
];

pub(super) fn judge(mut table: Table, folder: &Path, load: &Load, mut reader: Reader<'_>) -> Config {
    let secrets = Secrets { folder, environment: &load.environment };
    let data_dir = folder.join(data_dir(&mut table, &mut reader));

    let server: raw::Server = reader.section(&mut table, "server");
    let database: raw::Database = reader.section(&mut table, "database");
    let files: raw::Storage = reader.section(&mut table, "storage");
    let delivery: raw::Delivery = reader.section(&mut table, "delivery");
    let queue: raw::Queue = reader.section(&mut table, "queue");
    let worker: raw::Worker = reader.section(&mut table, "worker");
    let retry: Table = reader.section(&mut table, "retry");
    let limits: raw::Limits = reader.section(&mut table, "limits");
    let reuse: raw::Reuse = reader.section(&mut table, "reuse");
    let idempotency: raw::Idempotency = reader.section(&mut table, "idempotency");
    let retention: raw::Retention = reader.section(&mut table, "retention");
    let auth = auth::judge(&mut table, &secrets, &mut reader);
    let sources: BTreeMap<String, raw::Source> = reader.sections(&mut table, "sources");
    let datasets = reader.sections(&mut table, "datasets");
    let job_types = reader.sections(&mut table, "job_types");
    let http: raw::Http = reader.section(&mut table, "http");
    let schedules = reader.sections(&mut table, "schedules");
    let triggers = reader.sections(&mut table, "triggers");
    what_is_left(&table, reader.problems);

    let broker = delivery::judge(delivery, &secrets, reader.problems);
    let listen = judge_listen(&server.listen, load.insecure || auth.jwt().is_some(), reader.problems);
    let health_listen = server.health_listen.as_deref().and_then(|text| {
        address(text).map_err(|message| reader.problems.add("server.health_listen", message)).ok()
    });
    let database = judge_database(database, &data_dir, &secrets, reader.problems);
    let worker = judge_worker(&worker, reader.problems);
    let max_row_bytes = limits.max_row_bytes;
    let limits = judge_limits(&limits, reader.problems);
    if retention.files != "never" {
        let message = "only \"never\" is available: files are kept until someone removes them";
        reader.problems.add("retention.files", message);
    }
    if retention.jobs.0 < idempotency.window.0 {
        let message = "must not be shorter than idempotency.window: a job is forgotten with its key";
        reader.problems.add("retention.jobs", message);
    }
    if retention.audit.0.is_zero() {
        reader.problems.add("retention.audit", "must be longer than nothing, such as \"365d\"");
    }
    if reuse.window_days > 36_500 {
        reader.problems.add("reuse.window_days", "must be at most 36500");
    }
    if queue.fairness_step.0 > Duration::from_secs(3600) {
        reader.problems.add("queue.fairness_step", "must be at most \"1h\"");
    }
    let retry = exports::retry_policy("retry", retry, &RetryPolicy::default(), &mut reader);
    // Datasets are checked against all named sources, so that a broken source is reported once.
    let source_names: Vec<String> = sources.keys().cloned().collect();
    let sources = exports::sources(sources, max_row_bytes, &secrets, &mut reader);
    let datasets = exports::datasets(datasets, &source_names, &sources, &retry, &auth, &mut reader);
    let storage = storage::judge(files, &data_dir, &secrets, reader.problems);
    let job_types = job_types::job_types(job_types, &secrets, &retry, &mut reader);
    let http = job_types::http(http, &mut reader);
    let schedules = definitions::schedules(schedules, limits.min_schedule_interval, &auth, &mut reader);
    let triggers = definitions::triggers(triggers, &auth, &mut reader);
    let export = ExportSettings {
        sources,
        datasets,
        storage,
        reuse_window_days: reuse.window_days,
        max_chunks_per_job: limits.max_chunks_per_job,
        snapshot_max_age: auth.jwt().map(|jwt| jwt.snapshot_max_age),
        retry: retry.clone(),
    };
    exports::judge_scopes(&export, reader.problems);

    Config {
        file: None,
        data_dir,
        listen,
        health_listen,
        database,
        store: StoreSettings {
            lease: worker.lease,
            fairness_step: queue.fairness_step.0,
            idempotency_window: idempotency.window.0,
            parking: broker.is_some(),
        },
        broker,
        worker,
        auth,
        limits,
        idempotency_required: idempotency.required,
        retain_jobs: retention.jobs.0,
        retain_audit: retention.audit.0,
        retry,
        export,
        job_types,
        http,
        schedules,
        triggers,
        host: host(&load.environment),
    }
}

fn data_dir(table: &mut Table, reader: &mut Reader<'_>) -> PathBuf {
    let text = match (table.remove("data_dir"), reader.texts.get("data_dir")) {
        (_, Some(text)) => text.clone(),
        (None, None) => "outhaul-data".into(),
        (Some(Value::String(text)), None) => text,
        (Some(_), None) => {
            reader.problems.add("data_dir", "must be a folder's name in quotes");
            String::new()
        }
    };
    PathBuf::from(text)
}

fn what_is_left(table: &Table, problems: &mut Problems) {
    for name in table.keys() {
        if NOT_YET.contains(&name.as_str()) {
            problems.add(name, "is not available yet");
        } else {
            problems.add(name, unknown(name, &SECTIONS));
        }
    }
}

fn judge_listen(text: &str, is_safe: bool, problems: &mut Problems) -> SocketAddr {
    let listen = match address(text) {
        Ok(listen) => listen,
        Err(message) => {
            problems.add("server.listen", message);
            return SocketAddr::from(([127, 0, 0, 1], 8080));
        }
    };
    if !listen.ip().is_loopback() && !is_safe {
        let message = "lets other machines in without tokens: set auth.mode = \"jwt\", listen on 127.0.0.1, \
                       or start with --insecure";
        problems.add("server.listen", message);
    }
    listen
}

fn judge_database(
    raw: raw::Database,
    data_dir: &Path,
    secrets: &Secrets<'_>,
    problems: &mut Problems,
) -> DatabaseConfig {
    let embedded = || Secret::new(format!("sqlite:{}", data_dir.join("outhaul.db").display()));
    let has_url = raw.url.is_some() || raw.url_file.is_some() || raw.url_env.is_some();
    let lone = [
        ("database.password", raw.password.is_some()),
        ("database.password_file", raw.password_file.is_some()),
        ("database.password_env", raw.password_env.is_some()),
    ];
    for (path, _) in lone.into_iter().filter(|(_, given)| *given && !has_url) {
        problems.add(path, "is of no use without database.url: the embedded database has no password");
    }
    let given = Given { text: raw.url, file: raw.url_file, env: raw.url_env };
    let password = Given { text: raw.password, file: raw.password_file, env: raw.password_env };
    let password = secrets.find("database.password", password, problems);
    let url = match secrets.find("database.url", given, problems) {
        None => embedded(),
        Some(url) => match database_url(&url, password.as_ref(), secrets.folder) {
            Ok(Connect::Postgres(url)) => url,
            Ok(Connect::Sqlite(file)) => Secret::new(format!("sqlite:{}", file.display())),
            Err(message) => {
                problems.add("database.url", message);
                embedded()
            }
        },
    };
    let connections =
        [("api_connections", raw.api_connections), ("engine_connections", raw.engine_connections)];
    for (name, count) in connections {
        if !(1..=1000).contains(&count) {
            problems.add(format!("database.{name}"), "must be between 1 and 1000");
        }
    }
    if let Err(problem) = outhaul_store::postgres::check_schema(&raw.schema) {
        problems.add("database.schema", problem);
    }
    DatabaseConfig {
        url,
        schema: raw.schema,
        listen: raw.listen,
        api_connections: raw.api_connections,
        engine_connections: raw.engine_connections,
    }
}

fn judge_worker(raw: &raw::Worker, problems: &mut Problems) -> WorkerSettings {
    if !(1..=1000).contains(&raw.concurrency) {
        problems.add("worker.concurrency", "must be between 1 and 1000");
    }
    if raw.claim_limit == Some(0) {
        problems.add("worker.claim_limit", "must be at least 1; leave it out for no limit");
    }
    if raw.lease.0 < Duration::from_secs(1) {
        problems.add("worker.lease", "must be at least \"1s\"");
    }
    if raw.heartbeat.0.is_zero() {
        problems.add("worker.heartbeat", "must be longer than nothing, such as \"15s\"");
    } else if raw.heartbeat.0 >= raw.lease.0 / 2 {
        let message = "must be shorter than half of worker.lease, so that one lost renewal does no harm";
        problems.add("worker.heartbeat", message);
    }
    if raw.poll_interval.0.is_zero() {
        problems.add("worker.poll_interval", "must be longer than nothing, such as \"1s\"");
    }
    WorkerSettings {
        concurrency: raw.concurrency,
        claim_limit: raw.claim_limit,
        lease: raw.lease.0,
        heartbeat: raw.heartbeat.0,
        poll_interval: raw.poll_interval.0,
        shutdown_grace: raw.shutdown_grace.0,
    }
}

fn judge_limits(raw: &raw::Limits, problems: &mut Problems) -> Limits {
    if !(1..=1_000_000).contains(&raw.max_chunks_per_job) {
        problems.add("limits.max_chunks_per_job", "must be between 1 and 1000000");
    }
    if raw.max_body_bytes == 0 {
        problems.add("limits.max_body_bytes", "must be at least 1");
    }
    if raw.max_row_bytes == 0 {
        problems.add("limits.max_row_bytes", "must be at least 1");
    }
    if raw.request_timeout.0.is_zero() {
        problems.add("limits.request_timeout", "must be longer than nothing, such as \"30s\"");
    }
    if raw.min_schedule_interval.0 < Duration::from_secs(1) {
        problems.add("limits.min_schedule_interval", "must be at least \"1s\"");
    }
    if raw.requests_per_second.is_some_and(|rate| !(1..=1_000_000).contains(&rate)) {
        let message = "must be between 1 and 1000000; leave it out for no limit";
        problems.add("limits.requests_per_second", message);
    }
    if raw.burst == Some(0) {
        problems.add("limits.burst", "must be at least 1");
    }
    if raw.burst.is_some() && raw.requests_per_second.is_none() {
        problems.add("limits.burst", "is of no use without limits.requests_per_second");
    }
    if raw.max_open_chunks == Some(0) {
        problems.add("limits.max_open_chunks", "must be at least 1; leave it out for no limit");
    }
    if raw.max_priority > 9 {
        problems.add("limits.max_priority", "must be between 0 and 9");
    }
    let usual_burst = raw.requests_per_second.unwrap_or(0).saturating_mul(2).max(10);
    Limits {
        max_chunks_per_job: raw.max_chunks_per_job,
        max_body_bytes: raw.max_body_bytes,
        request_timeout: raw.request_timeout.0,
        min_schedule_interval: raw.min_schedule_interval.0,
        requests_per_second: raw.requests_per_second,
        burst: raw.burst.unwrap_or(usual_burst),
        max_open_chunks: raw.max_open_chunks,
        max_priority: raw.max_priority,
    }
}

fn host(environment: &Environment) -> String {
    let kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = environment.get("HOSTNAME").map(str::to_owned).or_else(kernel).unwrap_or_default();
    if name.trim().is_empty() { "unknown".into() } else { name.trim().to_owned() }
}
