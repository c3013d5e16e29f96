//! Sources and datasets.

use std::collections::BTreeMap;

use outhaul_core::retry::{Backoff, RetryPolicy};
use outhaul_export::settings::{DatasetSettings, QuerySettings, SourceSettings, SourceUrl};
use outhaul_export::source::params::Template;
use toml::Table;

use super::connect::{Connect, database_url};
use super::raw;
use super::reader::Reader;
use super::secrets::{Given, Secrets};

/// The folder of reports, below the base path beside the datasets' own.
const RESERVED: &str = "reports";

pub(super) fn sources(
    raw: BTreeMap<String, raw::Source>,
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
        let retry = match dataset.retry {
            None => retry.clone(),
            Some(table) => retry_policy(&format!("{path}.retry"), table, retry, reader),
        };
        let timeout = dataset.timeout.map(|timeout| timeout.0);
        let default = dataset.default;
        let query = QuerySettings { rows: query, count };
        datasets.insert(name.clone(), DatasetSettings { name, default, source, query, retry, timeout });
    }
    datasets
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
