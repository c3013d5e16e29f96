//! `outhaul check`: connects to everything the configuration names and lists all that is wrong.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use outhaul::Registry;
use outhaul_core::clock;
use outhaul_core::store::StoreError;
use outhaul_export::settings::SourceUrl;
use outhaul_export::storage::Storage;
use outhaul_export::{Dataset, Exports, ExportsError, source};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _};

use super::ConfigFlag;
use super::failure::{Failure, with_causes};
use super::table::{self, say};
use crate::config::{Config, Environment};
use crate::log;
use crate::serve::{self, StartError};
use crate::steps::Client;

/// How long anything may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What to check.
#[derive(Args, Debug)]
pub(crate) struct Check {
    #[command(flatten)]
    config: ConfigFlag,
    /// Accept that other machines are let in without [auth].
    #[arg(long)]
    insecure: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One part, and what is wrong with it (or a remark, where it is fine).
struct Finding {
    what: String,
    result: Result<Option<String>, String>,
}

pub(crate) async fn run(args: Check, registry: Registry) -> Result<ExitCode, Failure> {
    let environment = Environment::of_process();
    log::start(&environment, "error");
    let config = args.config.load(environment, args.insecure)?;
    let from =
        config.file.as_deref().map_or("defaults and environment".to_owned(), |f| f.display().to_string());
    let mut findings = vec![
        Finding { what: "configuration".into(), result: Ok(Some(from)) },
        Finding { what: "database".into(), result: within(database(&config)).await },
    ];
    match Storage::open(&config.export.storage) {
        Err(error) => findings.push(Finding { what: "storage".into(), result: Err(with_causes(&error)) }),
        Ok(storage) => {
            let place = storage.display_url(storage.base_path());
            let checked = async { storage.check().await.map(|()| Some(place)).map_err(|e| with_causes(&e)) };
            findings.push(Finding { what: "storage".into(), result: within(checked).await });
        }
    }
    exports(&config, &mut findings).await;
    findings.push(Finding { what: "job types".into(), result: job_types(&config, registry) });
    Ok(report(&findings, args.json))
}

fn report(findings: &[Finding], as_json: bool) -> ExitCode {
    let wrong = findings.iter().filter(|finding| finding.result.is_err()).count();
    if as_json {
        let items: Vec<Value> = findings
            .iter()
            .map(|Finding { what, result }| match result {
                Ok(remark) => json!({ "what": what, "ok": true, "remark": remark }),
                Err(problem) => json!({ "what": what, "ok": false, "problem": problem }),
            })
            .collect();
        table::json(&json!({ "ok": wrong == 0, "items": items }));
    } else {
        for Finding { what, result } in findings {
            match result {
                Ok(None) => say(format!("ok      {what}")),
                Ok(Some(remark)) => say(format!("ok      {what}: {}", table::plain(remark))),
                Err(problem) => say(format!("WRONG   {what}: {}", table::plain(problem))),
            }
        }
        say(if wrong == 0 {
            "everything is fine".to_owned()
        } else {
            format!("{wrong} of {} wrong", findings.len())
        });
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn within<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
}

async fn database(config: &Config) -> Result<Option<String>, String> {
    if let Some(path) = config.database.url.expose().strip_prefix("sqlite:")
        && !Path::new(path).exists()
    {
        return Ok(Some(format!("{path} will be made at the first start")));
    }
    match serve::open_database(config, false).await {
        Ok(opened) => opened.api.ready().await.map(|()| None).map_err(|error| with_causes(&error)),
        // A server that has the embedded database in use is the best proof that it works.
        Err(StartError::Database(StoreError::Unsafe(text))) if text.contains("already serves") => {
            Ok(Some("in use by a running server".into()))
        }
        Err(StartError::Database(error)) => Err(with_causes(&error)),
        Err(error) => Err(with_causes(&error)),
    }
}

/// Which custom jobs could be submitted.
fn job_types(config: &Config, registry: Registry) -> Result<Option<String>, String> {
    let all = serve::job_types::complete(config, registry).map_err(|errors| errors.to_string())?;
    let client = Client::new(config.http.allow.clone()).map_err(|error| with_causes(&error))?;
    let mut unreachable = Vec::new();
    for (name, job_type) in &config.job_types {
        for step in &job_type.steps {
            if let Some(problem) = client.refusal(&step.url) {
                unreachable.push(format!("step {} of {name}: {problem}", step.name));
            }
        }
    }
    if !unreachable.is_empty() {
        return Err(unreachable.join("; "));
    }
    let names: Vec<&str> = all.job_types().collect();
    Ok(Some(if names.is_empty() { "none beside exports".to_owned() } else { names.join(", ") }))
}

async fn exports(config: &Config, findings: &mut Vec<Finding>) {
    let mut down = Vec::new();
    for (name, settings) in &config.export.sources {
        let result = match source::open(settings) {
            Ok(source) => within(source.check()).await.map(|()| None),
            Err(problem) => Err(problem),
        };
        if result.is_err() {
            down.push(name);
        }
        findings.push(Finding { what: format!("source {name}"), result });
    }
    let exports = match Exports::new(&config.export) {
        Ok(exports) => exports,
        Err(ExportsError(problems)) => {
            let wrong = |problem| Finding { what: "datasets".into(), result: Err(problem) };
            return findings.extend(problems.into_iter().map(wrong));
        }
    };
    for dataset in exports.datasets() {
        let result = match config.export.sources.get(&dataset.source) {
            Some(source) if !down.contains(&&dataset.source) => {
                within(prepare(dataset, &source.url)).await.map(|()| None)
            }
            _ => Err(format!("its source {} cannot be used", dataset.source)),
        };
        findings.push(Finding { what: format!("dataset {}", dataset.name), result });
    }
}

/// Lets the source plan the query, with values as they would be, without running it.
async fn prepare(dataset: &Dataset, url: &SourceUrl) -> Result<(), String> {
    let words = |error: sqlx::Error| match error {
        sqlx::Error::Database(answer) => format!("its query does not fit the source: {}", answer.message()),
        _ => "its source went away".to_owned(),
    };
    match url {
        SourceUrl::Postgres(url) => {
            let options: sqlx::postgres::PgConnectOptions =
                url.expose().parse().map_err(|_| "its source's url cannot be read".to_owned())?;
            let mut connection = options.disable_statement_logging().connect().await.map_err(words)?;
            let query = dataset.template.with_literals("outhaul-check", clock::now().date_naive());
            let query = query.map_err(|error| error.to_string())?;
            connection.execute("BEGIN READ ONLY").await.map_err(words)?;
            let explain = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN {query}")));
            explain.execute(&mut connection).await.map(drop).map_err(words)
        }
        SourceUrl::Sqlite(path) => {
            let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).read_only(true);
            let mut connection = options.disable_statement_logging().connect().await.map_err(words)?;
            let query = AssertSqlSafe(format!("EXPLAIN {}", dataset.template.with_numbers()));
            sqlx::raw_sql(query).execute(&mut connection).await.map(drop).map_err(words)
        }
    }
}
