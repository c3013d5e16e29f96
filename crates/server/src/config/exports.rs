//! Sources and datasets.

use std::collections::BTreeMap;

use outhaul_core::identity::{DEPARTMENT, SUBJECT};
use outhaul_core::retry::{Backoff, LONGEST_WAIT, RetryPolicy};
use outhaul_export::settings::{
    DatasetSettings, ExportSettings, QuerySettings, ScopeSettings, SourceSettings, SourceUrl,
};
use outhaul_export::source::params::Template;
use outhaul_export::{Exports, ExportsError};
use toml::Table;

use super::connect::{Connect, database_url};
use super::problem::Problems;
use super::raw;
use super::reader::Reader;
use super::secrets::{Given, Secrets};
use crate::auth::AuthSettings;

/// The folder of reports, below the base path beside the datasets' own.
const RESERVED: &str = "reports";

pub(super) fn sources(
    raw: BTreeMap<String, raw::Source>,
    max_row_bytes: usize,
    secrets: &Secrets<'_>,
    reader: &mut Reader<'_>,
) -> BTreeMap<String, SourceSettings> {
    let mut sources = BTreeMap::new();
    for (name, source) in raw {
        let path = format!("sources.{name}");
        check_name(&path, &name, reader);
        if source.max_concurrent == 0 {
            reader.problems.add(format!("{path}.max_concurrent"), "must be at least 1");
        }
        for (key, span) in
            [("statement_timeout", source.statement_timeout), ("stall_timeout", source.stall_timeout)]
        {
            if span.0.is_zero() {
                reader.problems.add(format!("{path}.{key}"), "must be longer than nothing, such as \"2m\"");
            }
        }
        let url = Given { text: source.url, file: source.url_file, env: source.url_env };
        let password = Given { text: source.password, file: source.password_file, env: source.password_env };
        let given = url.text.is_some() || url.file.is_some() || url.env.is_some();
        if !given {
            reader
                .problems
                .add(format!("{path}.url"), "is missing; write postgres://user@host/database or sqlite:path");
        }
        let url = secrets.find(&format!("{path}.url"), url, reader.problems);
        let password = secrets.find(&format!("{path}.password"), password, reader.problems);
        let Some(url) = url else { continue };
        let url = match database_url(&url, password.as_ref(), secrets.folder) {
            Ok(Connect::Postgres(url)) => SourceUrl::Postgres(url),
            Ok(Connect::Sqlite(file)) => SourceUrl::Sqlite(file),
            Err(message) => {
                reader.problems.add(format!("{path}.url"), message);
                continue;
            }
        };
        let settings = SourceSettings {
            name: name.clone(),
            url,
            max_concurrent: source.max_concurrent,
            statement_timeout: source.statement_timeout.0,
            stall_timeout: source.stall_timeout.0,
            max_row_bytes,
        };
        sources.insert(name, settings);
    }
    sources
}

pub(super) fn datasets(
    raw: BTreeMap<String, raw::Dataset>,
    source_names: &[String],
    sources: &BTreeMap<String, SourceSettings>,
    retry: &RetryPolicy,
    auth: &AuthSettings,
    reader: &mut Reader<'_>,
) -> BTreeMap<String, DatasetSettings> {
    let defaults: Vec<&str> = raw.iter().filter(|(_, d)| d.default).map(|(name, _)| name.as_str()).collect();
    if defaults.len() > 1 {
        reader
            .problems
            .add("datasets", format!("only one may be the default, not {}", defaults.join(" and ")));
    }
    let mut datasets = BTreeMap::new();
    for (name, dataset) in raw {
        let path = format!("datasets.{name}");
        check_name(&path, &name, reader);
        if name == RESERVED {
            reader.problems.add(&path, "`reports` is reserved; choose another name");
        }
        let source = dataset.source.unwrap_or_default();
        if source.is_empty() {
            reader.problems.add(format!("{path}.source"), "is missing; name one of the [sources]");
        } else if !source_names.contains(&source) {
            reader.problems.add(format!("{path}.source"), no_such_source(&source, source_names));
        }
        if dataset.key.as_deref().is_some_and(|key| key != "none") {
            let right = "must be \"none\" (every key gets the same rows, and that is meant), or be left out";
            reader.problems.add(format!("{path}.key"), right);
        }
        let query = dataset.query.unwrap_or_default();
        if query.trim().is_empty() {
            let right = "is missing; write a query with :key and :effective_date";
            reader.problems.add(format!("{path}.query"), right);
        } else if let Some(source) = sources.get(&source)
            && let Err(problem) = Template::parse(&query, source.url.dialect())
        {
            reader.problems.add(format!("{path}.query"), problem.to_string());
        }
        let count = dataset.count_query;
        if let (Some(count), Some(source)) = (&count, sources.get(&source))
            && let Err(problem) = Template::parse(count, source.url.dialect())
        {
            reader.problems.add(format!("{path}.count_query"), problem.to_string());
        }
        if dataset.timeout.is_some_and(|timeout| timeout.0.is_zero()) {
            reader
                .problems
                .add(format!("{path}.timeout"), "must be longer than nothing; leave it out for no limit");
        }
        let scope = ScopeSettings {
            row_scope: dataset.row_scope.map(|names| names.split_commas()).unwrap_or_default(),
            row_security: dataset.row_security,
            role_claim: dataset.role_claim,
            roles: dataset.roles.map(|names| names.0).unwrap_or_default(),
            unsecured_tables: dataset.unsecured_tables.map(|names| names.0).unwrap_or_default(),
        };
        judge_claims(&path, &scope, auth, reader.problems);
        let retry = match dataset.retry {
            None => retry.clone(),
            Some(table) => retry_policy(&format!("{path}.retry"), table, retry, reader),
        };
        let timeout = dataset.timeout.map(|timeout| timeout.0);
        let (default, base_path) = (dataset.default, dataset.base_path);
        let query = QuerySettings { rows: query, count };
        let keyless = dataset.key.is_some();
        let settings =
            DatasetSettings { name, default, source, keyless, query, base_path, scope, retry, timeout };
        datasets.insert(settings.name.clone(), settings);
    }
    datasets
}

/// Rows can only depend on what is kept of a token.
fn judge_claims(path: &str, scope: &ScopeSettings, auth: &AuthSettings, problems: &mut Problems) {
    let names = scope.row_scope.iter().map(|name| ("row_scope", name));
    let names: Vec<(&str, &String)> =
        names.chain(scope.role_claim.iter().map(|name| ("role_claim", name))).collect();
    let Some(jwt) = auth.jwt() else {
        let first = names.first().map(|(setting, _)| *setting);
        if let Some(setting) = first.or_else(|| scope.row_security.then_some("row_security")) {
            let message = "needs [auth] with mode = \"jwt\": without it nobody knows who asks";
            problems.add(format!("{path}.{setting}"), message);
        }
        return;
    };
    let is_kept = |name: &str| {
        [SUBJECT, DEPARTMENT].contains(&name) || jwt.keep.iter().any(|claim| claim.as_str() == name)
    };
    for (setting, name) in names.into_iter().filter(|(_, name)| !is_kept(name)) {
        let message =
            format!("`{name}` is not kept of tokens: add it to auth.keep, or use `sub` or `department`");
        problems.add(format!("{path}.{setting}"), message);
    }
}

/// Checks that need the queries and the storage: the queries must use every claim of `row_scope`, and a base path must
/// not be in a folder for other files, such as reports. The export crate decides, one dataset at a time, so that each
/// problem names its dataset.
pub(super) fn judge_scopes(settings: &ExportSettings, problems: &mut Problems) {
    for (name, dataset) in &settings.datasets {
        let path = format!("datasets.{name}");
        let broken =
            [&path, &format!("{path}.source"), &format!("{path}.query"), &format!("{path}.count_query")];
        let Some(source) = settings.sources.get(&dataset.source) else { continue };
        if problems.iter().any(|problem| broken.contains(&&problem.path)) {
            continue;
        }
        let alone = ExportSettings {
            sources: BTreeMap::from([(source.name.clone(), source.clone())]),
            datasets: BTreeMap::from([(name.clone(), dataset.clone())]),
            storage: settings.storage.clone(),
            retry: settings.retry.clone(),
            ..*settings
        };
        let Err(ExportsError(found)) = Exports::new(&alone) else { continue };
        let said = format!("dataset `{name}`: ");
        for problem in found {
            problems.add(&path, problem.strip_prefix(&said).unwrap_or(&problem));
        }
    }
}

/// `[retry]` or a dataset's own: what it leaves out comes from `inherited`.
pub(super) fn retry_policy(
    path: &str,
    table: Table,
    inherited: &RetryPolicy,
    reader: &mut Reader<'_>,
) -> RetryPolicy {
    let raw: raw::Retry = reader.table(path, table);
    let max_attempts = raw.max_attempts.unwrap_or(inherited.max_attempts);
    if max_attempts == 0 || max_attempts > 1000 {
        reader.problems.add(format!("{path}.max_attempts"), "must be between 1 and 1000");
    }
    let backoff = match raw.backoff {
        None => inherited.backoff.clone(),
        Some(table) => backoff(&format!("{path}.backoff"), table, reader),
    };
    RetryPolicy { max_attempts, backoff }
}

fn backoff(path: &str, table: Table, reader: &mut Reader<'_>) -> Backoff {
    let raw: raw::Backoff = reader.table(path, table);
    let Backoff::Exponential { base, max, jitter } = RetryPolicy::default().backoff else {
        unreachable!("the default backoff is exponential")
    };
    let kind = raw.kind.as_deref().unwrap_or("exponential");
    let base = raw.base.map_or(base, |base| base.0);
    // Only a limit that was written can be too small: a long base alone raises it.
    let written = raw.max.map(|max| max.0);
    if written.is_some_and(|max| max < base) {
        reader.problems.add(format!("{path}.max"), "must not be shorter than base");
    }
    for (name, wait) in [("base", Some(base)), ("max", written)] {
        if wait.is_some_and(|wait| wait > LONGEST_WAIT) {
            reader.problems.add(format!("{path}.{name}"), "must be at most \"365d\"");
        }
    }
    let max = written.unwrap_or(max.max(base));
    match kind {
        "exponential" => Backoff::Exponential { base, max, jitter: raw.jitter.unwrap_or(jitter) },
        "linear" => Backoff::Linear { base, max },
        "fixed" => Backoff::Fixed { base },
        _ => {
            reader.problems.add(format!("{path}.kind"), "must be exponential, linear or fixed");
            Backoff::Fixed { base }
        }
    }
}

fn no_such_source(name: &str, known: &[String]) -> String {
    if known.is_empty() {
        return format!("there is no source `{name}`; add [sources.{name}]");
    }
    format!("there is no source `{name}`; there are: {}", known.join(", "))
}

/// Names become parts of paths and queue names.
fn check_name(path: &str, name: &str, reader: &mut Reader<'_>) {
    let first = name.starts_with(|c: char| c.is_ascii_lowercase());
    let rest = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if !first || !rest || name.len() > 63 {
        let right = "is not a name: begin with a-z, go on with a-z, 0-9 and _, at most 63 characters";
        reader.problems.add(path, right);
    }
}
