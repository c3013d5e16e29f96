//! `outhaul check`: connects to everything the configuration names and lists all that is wrong.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use outhaul::Registry;
use outhaul_core::clock;
use outhaul_core::file::BasePathOwner;
use outhaul_core::store::StoreError;
use outhaul_delivery::broker::BrokerError;
use outhaul_export::settings::SourceUrl;
use outhaul_export::source::Source;
use outhaul_export::storage::Storage;
use outhaul_export::{Dataset, Exports, ExportsError, source};
use outhaul_store::postgres;
use serde_json::{Value, json};
use sqlx::postgres::PgDatabaseError;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _};

use super::ConfigFlag;
use super::failure::{Failure, with_causes};
use super::table::{self, say};
use crate::auth::{Auth as _, Tokens};
use crate::config::{BrokerConfig, Config, Environment};
use crate::log;
use crate::planning::RequestPlanner;
use crate::serve::{self, StartError};
use crate::steps::Client;
use crate::warnings::{self, Warning};

/// How long anything may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What to check.
#[derive(Args, Debug)]
pub(crate) struct Check {
    #[command(flatten)]
    config: ConfigFlag,
    /// Accept that other machines are let in without tokens.
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
    let (database, Database { base_paths, installation, .. }) = match within(database(&config)).await {
        Ok(mut database) => (Ok(database.remark.take()), database),
        Err(problem) => (Err(problem), Database::default()),
    };
    let mut findings = vec![
        Finding { what: "configuration".into(), result: Ok(Some(from)) },
        Finding { what: "database".into(), result: database },
        Finding { what: "delivery".into(), result: within(delivery(config.broker.as_ref())).await },
    ];
    findings.extend(auth(&config).await);
    let storage = Storage::open(&config.export.storage);
    match &storage {
        Err(error) => findings.push(Finding { what: "storage".into(), result: Err(with_causes(error)) }),
        Ok(storage) => {
            let place = storage.display_url(storage.base_path());
            let checked = async {
                let ours = match &installation {
                    Installation::Named(name) => storage.check_owner(Some(name)),
                    Installation::New => storage.check_owner(None),
                    Installation::Unknown => Ok(()),
                };
                let checked = match ours.and_then(|()| storage.check_bases(&serve::base_paths(&config))) {
                    Ok(()) => storage.check().await,
                    refused => refused,
                };
                checked.map(|()| Some(place)).map_err(|error| with_causes(&error))
            };
            findings.push(Finding { what: "storage".into(), result: within(checked).await });
        }
    }
    let exports = exports(&config, &mut findings).await;
    let mut warnings = warnings::of(&config, exports.as_ref());
    warnings.extend(session_settings(&config).await);
    for foreign in exports.iter().flat_map(|exports| exports.foreign_base_paths(&base_paths)) {
        let what = format!("base path of {}", foreign.dataset);
        findings.push(Finding { what, result: Err(foreign.to_string()) });
    }
    let registry = serve::job_types::complete(&config, registry).map_err(|errors| errors.to_string());
    let planner = match (exports, &registry, storage) {
        (Some(exports), Ok(registry), Ok(storage)) => {
            let planner = RequestPlanner::new(Arc::new(exports), registry.clone(), storage);
            Some(planner.with_auth(Arc::new(config.auth.clone()), config.limits.max_open_chunks))
        }
        _ => None,
    };
    let job_types = registry.and_then(|registry| job_types(&config, &registry));
    findings.push(Finding { what: "job types".into(), result: job_types });
    let result = definitions(&config, planner.as_ref());
    findings.push(Finding { what: "schedules and triggers".into(), result });
    Ok(report(&findings, &warnings, args.json))
}

/// Problems decide the exit code; warnings are only said.
fn report(findings: &[Finding], warnings: &[Warning], as_json: bool) -> ExitCode {
    let wrong = findings.iter().filter(|finding| finding.result.is_err()).count();
    if as_json {
        let items: Vec<Value> = findings
            .iter()
            .map(|Finding { what, result }| match result {
                Ok(remark) => json!({ "what": what, "ok": true, "remark": remark }),
                Err(problem) => json!({ "what": what, "ok": false, "problem": problem }),
            })
            .collect();
        let warned: Vec<Value> =
            warnings.iter().map(|Warning { what, text }| json!({ "what": what, "warning": text })).collect();
        table::json(&json!({ "ok": wrong == 0, "items": items, "warnings": warned }));
    } else {
        for Finding { what, result } in findings {
            match result {
                Ok(None) => say(format!("ok      {what}")),
                Ok(Some(remark)) => say(format!("ok      {what}: {}", table::plain(remark))),
                Err(problem) => say(format!("WRONG   {what}: {}", table::plain(problem))),
            }
        }
        for Warning { what, text } in warnings {
            say(format!("WARN    {what}: {}", table::plain(text)));
        }
        say(match (wrong, warnings.len()) {
            (0, 0) => "everything is fine".to_owned(),
            (0, 1) => "nothing is wrong; 1 warning".to_owned(),
            (0, warned) => format!("nothing is wrong; {warned} warnings"),
            (wrong, _) => format!("{wrong} of {} wrong", findings.len()),
        });
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn within<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
}

/// The engine's database, where it can be used.
#[derive(Default)]
struct Database {
    remark: Option<String>,
    /// The base paths with their owners, if they could be read.
    base_paths: Vec<BasePathOwner>,
    installation: Installation,
}

/// The installation that the configuration belongs to, as far as its database tells.
#[derive(Default)]
enum Installation {
    Named(String),
    /// The database will be made at the first start.
    New,
    /// The database cannot be asked, or a running server is using it.
    #[default]
    Unknown,
}

async fn database(config: &Config) -> Result<Database, String> {
    if let Some(path) = config.database.url.expose().strip_prefix("sqlite:")
        && !Path::new(path).exists()
    {
        let remark = Some(format!("{path} will be made at the first start"));
        return Ok(Database { remark, installation: Installation::New, ..Database::default() });
    }
    match serve::open_database(config, false).await {
        Ok(opened) => {
            let read = async {
                opened.api.ready().await?;
                opened.api.base_paths().await
            };
            let base_paths = read.await.map_err(|error| with_causes(&error))?;
            let installation = Installation::Named(opened.api.installation().to_owned());
            Ok(Database { remark: None, base_paths, installation })
        }
        // A server that has the embedded database in use is the best proof that it works.
        Err(StartError::Database(StoreError::Unsafe(text))) if text.contains("already serves") => {
            let remark = "in use by a running server, which knows whose the base paths are";
            Ok(Database { remark: Some(remark.to_owned()), ..Database::default() })
        }
        Err(StartError::Database(error)) => Err(with_causes(&error)),
        Err(error) => Err(with_causes(&error)),
    }
}

/// The session settings that the role lacks. They are not sent when LISTEN is off. A database that does not answer is
/// already reported as a problem.
async fn session_settings(config: &Config) -> Option<Warning> {
    let database = &config.database;
    if database.listen || database.url.expose().starts_with("sqlite:") {
        return None;
    }
    let asked = postgres::missing_session_settings(&database.url);
    let missing = within(async { asked.await.map_err(|error| with_causes(&error)) }).await.ok()?;
    if missing.is_empty() {
        return None;
    }
    let set = |(name, value): &(&str, &str)| format!("ALTER ROLE CURRENT_USER SET {name} = '{value}';");
    let text = format!(
        "with database.listen = false no session settings are sent, and the role lacks some; as that role run: {}",
        missing.iter().map(set).collect::<Vec<_>>().join(" ")
    );
    Some(Warning { what: "database".into(), text })
}

/// Whether the broker lets us in and has its queues, or can make them.
async fn delivery(configured: Option<&BrokerConfig>) -> Result<Option<String>, String> {
    let Some(configured) = configured else { return Ok(Some("database".to_owned())) };
    let place = format!("{} at {}", configured.kind(), configured.settings.describe());
    let checked = async {
        let broker = serve::delivery::broker(&configured.settings)?;
        let mut publisher = broker.publisher().await?;
        publisher.probe().await?;
        publisher.close().await;
        Ok::<_, BrokerError>(())
    };
    match checked.await {
        Ok(()) => Ok(Some(place)),
        Err(error) => Err(format!("{place}: {}", with_causes(&error))),
    }
}

/// Whether tokens can be verified; nothing to say where nobody is asked for one.
async fn auth(config: &Config) -> Option<Finding> {
    let jwt = config.auth.jwt()?;
    let keys = async {
        if let Some(recheck) = &jwt.recheck {
            let client = Client::new(config.http.allow.clone()).map_err(|error| with_causes(&error))?;
            if let Some(problem) = client.refusal(&recheck.url) {
                return Err(format!("nobody can be asked about submitters: {problem}"));
            }
        }
        let tokens = Tokens::new(jwt.clone()).map_err(|error| with_causes(&error))?;
        let now = clock::now();
        tokens.refresh(now).await;
        tokens.ready(now).map(|()| Some(format!("tokens of {}", jwt.issuer)))
    };
    Some(Finding { what: "auth".into(), result: within(keys).await })
}

/// Which custom jobs could be submitted.
fn job_types(config: &Config, all: &Registry) -> Result<Option<String>, String> {
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

/// Whether the jobs of schedules and triggers would be taken.
fn definitions(config: &Config, planner: Option<&RequestPlanner>) -> Result<Option<String>, String> {
    let names: Vec<&str> =
        config.schedules.keys().chain(config.triggers.keys()).map(String::as_str).collect();
    if names.is_empty() {
        return Ok(Some("none".to_owned()));
    }
    let planner = planner.ok_or("cannot be judged before the storage, datasets and job types are right")?;
    match serve::configured::judge(config, planner) {
        Ok(_) => Ok(Some(names.join(", "))),
        Err(problems) => Err(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    }
}

async fn exports(config: &Config, findings: &mut Vec<Finding>) -> Option<Exports> {
    let mut usable = BTreeMap::new();
    for (name, settings) in &config.export.sources {
        let result = match source::open(settings) {
            Ok(source) => {
                let checked = within(source.check()).await.map(|()| None);
                if checked.is_ok() {
                    usable.insert(name, (source, &settings.url));
                }
                checked
            }
            Err(problem) => Err(problem),
        };
        findings.push(Finding { what: format!("source {name}"), result });
    }
    let exports = match Exports::new(&config.export) {
        Ok(exports) => exports,
        Err(ExportsError(problems)) => {
            let wrong = |problem| Finding { what: "datasets".into(), result: Err(problem) };
            findings.extend(problems.into_iter().map(wrong));
            return None;
        }
    };
    for dataset in exports.datasets() {
        let result = match usable.get(&dataset.source) {
            // Its queries are planned as whoever they will run as.
            Some((source, _)) if dataset.relies_on_row_security() => {
                within(row_security(source.as_ref(), dataset)).await.map(|()| None)
            }
            Some((_, url)) => within(prepare(dataset, url)).await.map(|()| None),
            None => Err(format!("its source {} cannot be used", dataset.source)),
        };
        findings.push(Finding { what: format!("dataset {}", dataset.name), result });
    }
    Some(exports)
}

async fn row_security(source: &dyn Source, dataset: &Dataset) -> Result<(), String> {
    let problems = source.check_row_security(dataset).await;
    let all: Vec<String> = problems.into_iter().map(|found| found.problem).collect();
    if all.is_empty() { Ok(()) } else { Err(all.join("; ")) }
}

/// Lets the source plan the query, with values as they would be, without running it.
async fn prepare(dataset: &Dataset, url: &SourceUrl) -> Result<(), String> {
    let words = |error: sqlx::Error| match error {
        sqlx::Error::Database(answer) => {
            let hint = answer.try_downcast_ref::<PgDatabaseError>().and_then(PgDatabaseError::hint);
            let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("its query does not fit the source: {}{hint}", answer.message())
        }
        _ => "its source went away".to_owned(),
    };
    let writes = |error: sqlx::Error| match error {
        sqlx::Error::Database(_) => "its query writes; it must only read".to_owned(),
        gone => words(gone),
    };
    match url {
        SourceUrl::Postgres(url) => {
            let options: sqlx::postgres::PgConnectOptions =
                url.expose().parse().map_err(|_| "its source's url cannot be read".to_owned())?;
            let mut connection = options.disable_statement_logging().connect().await.map_err(words)?;
            // No claim is like another, so that none can be made up for a query that asks for some.
            let query = match dataset.template.claims() {
                [] => dataset.template.with_literals("outhaul-check", clock::now().date_naive()),
                _ => Ok(dataset.template.with_nulls()),
            };
            let query = query.map_err(|error| error.to_string())?;
            connection.execute("BEGIN READ ONLY").await.map_err(words)?;
            let explain = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN {query}")));
            explain.execute(&mut connection).await.map_err(words)?;
            // EXPLAIN also accepts statements that write. DECLARE CURSOR accepts only queries, and does not run them.
            let cursor = format!("DECLARE outhaul_check NO SCROLL CURSOR FOR\n{query}");
            sqlx::raw_sql(AssertSqlSafe(cursor)).execute(&mut connection).await.map(drop).map_err(writes)
        }
        SourceUrl::Sqlite(path) => {
            let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).read_only(true);
            let mut connection = options.disable_statement_logging().connect().await.map_err(words)?;
            let query = dataset.template.with_numbers();
            let explain = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN {query}")));
            explain.execute(&mut connection).await.map_err(words)?;
            // EXPLAIN also accepts statements that write, but a subquery must be a query.
            let select = format!("EXPLAIN SELECT * FROM (\n{query}\n)");
            sqlx::raw_sql(AssertSqlSafe(select)).execute(&mut connection).await.map(drop).map_err(writes)
        }
    }
}

#[cfg(test)]
mod tests {
    use outhaul_testkit::servers;

    use super::*;
    use crate::config::Load;

    fn judged(text: &str) -> Result<Option<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let load = Load { file: None, insecure: false, environment: Environment::default() };
        let config = Config::parse(text, folder.path(), &load).unwrap();
        let registry = serve::job_types::complete(&config, Registry::new()).unwrap();
        let storage = Storage::open(&config.export.storage).unwrap();
        let exports = Arc::new(Exports::new(&config.export).unwrap());
        definitions(&config, Some(&RequestPlanner::new(exports, registry, storage)))
    }

    /// What is said of a broker, with queues of the test's own.
    async fn checked(kind: &str, url: &str, more: &str) -> Result<Option<String>, String> {
        let queue = servers::unique_prefix();
        let text = format!(
            "[delivery]\nkind = \"{kind}\"\nurl = \"{url}\"\nwork_queue = \"{queue}.work\"\n\
             parking_queue = \"{queue}.parking\"\n{more}"
        );
        let load = Load { file: None, insecure: false, environment: Environment::default() };
        delivery(Config::parse(&text, Path::new("/srv"), &load).unwrap().broker.as_ref()).await
    }

    #[tokio::test]
    async fn a_broker_that_lets_nobody_in_is_named_without_its_password() {
        assert_eq!(delivery(None).await, Ok(Some("database".to_owned())));
        for (kind, scheme) in [("activemq", "stomp"), ("rabbitmq", "amqp")] {
            // Bound, and not listening.
            let taken = tokio::net::TcpSocket::new_v4().unwrap();
            taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let away = taken.local_addr().unwrap();
            let url = format!("{scheme}://zoe:hunter2@{away}");
            let said = checked(kind, &url, "").await.unwrap_err();
            assert!(said.starts_with(&format!("{kind} at {scheme}://{away}")), "{said}");
            assert!(!said.contains("hunter2") && !said.contains("zoe"), "{said}");
        }
    }

    #[tokio::test]
    async fn a_broker_is_signed_in_to() {
        for (kind, url) in [("activemq", servers::activemq_url()), ("rabbitmq", servers::rabbitmq_url())] {
            let said = checked(kind, &url, "").await.unwrap().unwrap();
            assert!(said.starts_with(&format!("{kind} at ")) && !said.contains('@'), "{said}");
            let said = checked(kind, &url, "user = \"zoe\"\npassword = \"hunter2\"").await.unwrap_err();
            assert!(said.starts_with(&format!("{kind} at ")) && !said.contains("hunter2"), "{said}");
            // No TLS is spoken there.
            let tls = url.replacen("amqp:", "amqps:", 1).replacen("stomp:", "stomps:", 1);
            let said = checked(kind, &tls, "").await.unwrap_err();
            assert!(said.contains("TLS"), "{said}");
        }
    }

    const JOB_TYPES: &str = "[job_types.A]\nsteps = [{ name = \"a\", http = \"https://host/a\" }]\n\
        [job_types.B]\nsteps = [{ name = \"b\", http = \"https://host/b\" }]\n";

    #[test]
    fn schedules_and_triggers_must_fit_what_there_is() {
        assert_eq!(judged(""), Ok(Some("none".to_owned())));
        let good = "[schedules.daily]\ncron = \"@daily\"\njob = { jobType = \"A\" }\n\
                    [triggers.next]\nafter = \"job:A\"\njob = { jobType = \"B\" }";
        assert_eq!(judged(&format!("{JOB_TYPES}{good}")), Ok(Some("daily, next".to_owned())));
        let said = judged(good).unwrap_err();
        for place in
            ["schedules.daily.job.jobType: ", "triggers.next.after.0: ", "triggers.next.job.jobType: "]
        {
            assert!(said.contains(place), "{place} in {said}");
        }
    }

    #[test]
    fn triggers_must_not_trigger_each_other() {
        let round = "[triggers.there]\nafter = \"job:A\"\njob = { jobType = \"B\" }\n\
                     [triggers.back]\nafter = \"job:B\"\njob = { jobType = \"A\" }";
        let said = judged(&format!("{JOB_TYPES}{round}")).unwrap_err();
        assert!(
            said.starts_with("triggers: would trigger each other without end: back → there → back"),
            "{said}"
        );
    }
}
