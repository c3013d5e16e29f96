//! Sources: databases that rows are read from. A source streams one query's rows as CSV into a sink
//! and knows nothing of chunks, leases or storage.

mod idle;
mod lexer;
mod outflow;
pub mod params;
mod pg_direct;
mod pg_ending;
mod pg_errors;
mod pg_rights;
mod pg_row_security;
mod pg_session;
mod pg_settings;
mod pg_total;
mod postgres;
mod sqlite;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::NaiveDate;
use futures::future::BoxFuture;
use outhaul::{Cause, Failed};
use outhaul_core::progress::Total;

use crate::dataset::Dataset;
use crate::rights::Rights;
use crate::settings::{SourceSettings, SourceUrl};
pub use lexer::Dialect;
use outflow::Outflow;
use params::Template;
pub use postgres::PostgresSource;
pub use sqlite::SqliteSource;
use words::Words;

/// One run of a dataset's query.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The dataset's name, for messages.
    pub dataset: &'a str,
    /// The query.
    pub template: &'a Template,
    /// The value of `:key`.
    pub key: &'a str,
    /// The value of `:effective_date`.
    pub effective_date: NaiveDate,
    /// What it may know of the caller, where its rows depend on it.
    pub rights: Option<&'a Rights>,
    /// How to find out how many rows there will be.
    pub count: Count<'a>,
    /// A name for the session that is the same for whoever holds this budget slot next.
    pub slot: Option<&'a str>,
}

impl Query<'_> {
    /// The claims it may use, by name.
    fn claims(&self) -> Option<&BTreeMap<String, String>> {
        self.rights.map(Rights::texts)
    }

    /// Whose words are used for what goes wrong with it.
    fn words(&self) -> Words {
        Words::for_rows(self.rights.is_some())
    }
}

/// How to find out how many rows a query will have. Whatever comes of it, the rows are read.
#[derive(Clone, Copy, Debug)]
pub enum Count<'a> {
    /// Not at all.
    No,
    /// As the source estimates, if it does.
    Estimate,
    /// By this query: one row, one whole number.
    Exact(&'a Template),
}

/// Fires when the work must end.
pub type StopSignal<'a> = BoxFuture<'a, ()>;

/// Where CSV goes.
#[async_trait]
pub trait Sink: Send {
    /// Takes the next bytes. May be dropped half-way when the work must stop.
    async fn write(&mut self, csv: Bytes) -> Result<(), Failed>;

    /// Hears how many rows there will be, at most once and before them.
    fn expect(&mut self, total: Total);

    /// Hears that the query begins (with nothing read yet), and of rows and bytes read so far, at least whenever the source makes us wait.
    fn progress(&mut self, rows: i64, bytes: i64);
}

/// A database that rows can be read from.
#[async_trait]
pub trait Source: Send + Sync {
    /// Streams the query's rows into the sink as CSV with a header, and returns how many there were.
    /// When this returns (or is dropped), no query of it holds the source any longer than it takes to end it.
    async fn stream(
        &self,
        query: &Query<'_>,
        stop: StopSignal<'_>,
        sink: &mut dyn Sink,
    ) -> Result<i64, Failed>;

    /// Whether the source answers; the error is a short cause for people.
    async fn check(&self) -> Result<(), String>;

    /// Whether the source's row-level security holds for whoever a dataset's queries run as; every reason why
    /// it does not, or why that is not known. Nothing, for datasets that do not rely on it.
    async fn check_row_security(&self, dataset: &Dataset) -> Vec<RowSecurityProblem> {
        let problem = RowSecurityProblem {
            dataset: dataset.name.clone(),
            problem: format!("its source `{}` has no row-level security", dataset.source),
            is_certain: true,
        };
        dataset.relies_on_row_security().then_some(problem).into_iter().collect()
    }
}

/// Why a dataset must not rely on its source's row-level security.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("dataset `{dataset}`: {problem}")]
pub struct RowSecurityProblem {
    /// The dataset.
    pub dataset: String,
    /// What is wrong and what to do, for people.
    pub problem: String,
    /// Whether it is so; else it could not be found out now, and is looked at again before the dataset is used.
    pub is_certain: bool,
}

/// Makes a source ready; connects to nothing.
pub fn open(settings: &SourceSettings) -> Result<Arc<dyn Source>, String> {
    Ok(match &settings.url {
        SourceUrl::Postgres(url) => Arc::new(PostgresSource::new(settings, url)?),
        SourceUrl::Sqlite(path) => Arc::new(SqliteSource::new(settings, path)),
    })
}

impl SourceUrl {
    /// Whose lexical rules a query on this source follows.
    pub fn dialect(&self) -> Dialect {
        match self {
            Self::Postgres(_) => Dialect::Postgres,
            Self::Sqlite(_) => Dialect::Sqlite,
        }
    }
}

/// How long counting may take: no longer than the query itself, and not so long that a source which answers
/// would be taken for stalled.
fn count_within(settings: &SourceSettings) -> Duration {
    settings.statement_timeout.min(settings.stall_timeout / 2)
}

/// A database's own words, short enough for a job's error message.
fn short(message: &str) -> String {
    const MOST: usize = 300;
    let line = message.lines().next().unwrap_or_default().trim();
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// The failure of a source that cannot be reached or read now. The cause may name addresses, users and settings, so
/// only operators see it.
fn not_available(source: &str, why: &str, error: &sqlx::Error) -> Failed {
    let text = format!("source `{source}` is not available");
    let detail = format!("{text}: {why}");
    Failed::Retryable(Cause::with_detail(text, detail).of(error))
}

/// The failure of a dataset whose rows might be shown to callers who may not see them. The cause and the remedy name
/// users, tables and settings, so only operators see them.
pub(crate) fn insecure(dataset: &str, problem: &str, is_certain: bool) -> Failed {
    let holds = if is_certain { "does not hold" } else { "cannot be looked at now" };
    let cause = Cause::with_detail(format!("row-level security of dataset `{dataset}` {holds}"), problem);
    if is_certain { Failed::Fatal(cause) } else { Failed::Retryable(cause) }
}

/// The failure of a query that no further attempt can help.
fn does_not_fit(dataset: &str, source: &str, cause: &str) -> Failed {
    Failed::Fatal(format!("dataset `{dataset}` does not fit source `{source}`: {}", short(cause)).into())
}
