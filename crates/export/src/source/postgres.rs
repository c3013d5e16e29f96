//! PostgreSQL as a source: rows leave by `COPY (…) TO STDOUT` and pass through as bytes, never parsed.

use std::fmt;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul::{Cause, Failed};
use outhaul_core::secret::Secret;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tracing::Dispatch;
use tracing::instrument::WithSubscriber as _;

use super::pg_errors::{
    READ_ONLY, cause, is_about_the_data, is_about_the_query, is_about_the_server, is_lost,
};
use super::pg_session::{Scope, Session, Sessions};
use super::{
    Count, Outflow, Query, RowSecurityProblem, Sink, Source, StopSignal, Words, count_within, does_not_fit,
    insecure, not_available, pg_rights, pg_row_security, pg_total, short,
};
use crate::dataset::Dataset;
use crate::rights::Rights;
use crate::settings::SourceSettings;

/// A PostgreSQL database that rows are read from.
pub struct PostgresSource {
    name: String,
    sessions: Arc<Sessions>,
    count_within: Duration,
    max_row_bytes: usize,
}

impl fmt::Debug for PostgresSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSource").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PostgresSource {
    /// Reads the URL; connects to nothing.
    pub fn new(settings: &SourceSettings, url: &Secret) -> Result<Self, String> {
        // The parser's own words may quote the URL, and so the password.
        let options = PgConnectOptions::from_str(url.expose())
            .map_err(|_| format!("source `{}`: its URL is not one of PostgreSQL", settings.name))?;
        Ok(Self {
            name: settings.name.clone(),
            sessions: Sessions::new(options, settings.statement_timeout),
            count_within: count_within(settings),
            max_row_bytes: settings.max_row_bytes,
        })
    }

    fn failed(&self, query: &Query<'_>, error: &sqlx::Error) -> Failed {
        self.failed_with(query.dataset, error, query.words())
    }

    fn insecure(&self, query: &Query<'_>, problem: &str) -> Failed {
        let problem = format!("dataset `{}` on source `{}`: {}", query.dataset, self.name, short(problem));
        insecure(query.dataset, &problem, true)
    }

    fn failed_with(&self, dataset: &str, error: &sqlx::Error, words: Words) -> Failed {
        let source = &self.name;
        match error {
            sqlx::Error::Database(answer) => {
                let code = answer.code().unwrap_or_default();
                let hint = super::words::hint(&**answer).filter(|_| words == Words::Own);
                let words = words.of_state(&**answer);
                if code == READ_ONLY {
                    does_not_fit(dataset, source, "the query writes; it must only read")
                } else if is_about_the_data(&code) {
                    let cause = format!(
                        "the query of dataset `{dataset}` failed over the data of source `{source}`: {}",
                        short(&words)
                    );
                    Failed::Fatal(cause.into())
                } else if is_about_the_query(&code) {
                    match (does_not_fit(dataset, source, &words), hint) {
                        (Failed::Fatal(cause), Some(hint)) => {
                            let detail = format!("{} ({})", cause.text, short(hint));
                            Failed::Fatal(Cause { detail: Some(detail), ..cause })
                        }
                        (failed, _) => failed,
                    }
                } else if is_about_the_server(&code) {
                    not_available(source, &short(&words), error)
                } else {
                    Failed::Retryable(format!("source `{source}` failed: {}", short(&words)).into())
                }
            }
            other => not_available(source, &cause(other), other),
        }
    }
}

#[async_trait]
impl Source for PostgresSource {
    async fn stream(
        &self,
        query: &Query<'_>,
        mut stop: StopSignal<'_>,
        sink: &mut dyn Sink,
    ) -> Result<i64, Failed> {
        let copy =
            copy_sql(query).map_err(|error| does_not_fit(query.dataset, &self.name, &error.to_string()))?;
        let scope = scope(query);
        let mut session = tokio::select! {
            biased;
            () = &mut stop => return Err(Failed::Stopped),
            session = self.sessions.begin(query.slot, scope) =>
                session.map_err(|error| self.failed(query, &error))?,
        };
        let mut outflow = Outflow::new(query.dataset, self.max_row_bytes);
        loop {
            let error = match self.read(&mut session, query, &copy, &mut outflow, &mut stop, sink).await {
                Ok(()) => {
                    session.commit().await.map_err(|error| self.failed(query, &error))?;
                    break;
                }
                Err(Broken::Source(error)) => error,
                Err(Broken::Here(failed)) => {
                    session.kill().await;
                    return Err(failed);
                }
            };
            if !session.has_answered() && outflow.bytes == 0 && is_lost(&error) {
                tracing::debug!(error = %error, "a kept source connection no longer answers");
                session.discard();
                session = tokio::select! {
                    biased;
                    () = &mut stop => return Err(Failed::Stopped),
                    session = self.sessions.begin_anew(query.slot, scope) =>
                        session.map_err(|error| self.failed(query, &error))?,
                };
                continue;
            }
            match error {
                sqlx::Error::Database(_) => session.discard(),
                _ => drop(session),
            }
            return Err(self.failed(query, &error));
        }
        // After the commit: a slow sink must not keep a transaction open on the source.
        outflow.flush(&mut stop, sink).await?;
        sink.progress(outflow.rows, outflow.bytes);
        Ok(outflow.rows)
    }

    async fn check(&self) -> Result<(), String> {
        match self.sessions.connect("outhaul:check").await {
            Ok(_) => Ok(()),
            Err(sqlx::Error::Database(answer)) => {
                Err(format!("source `{}` refuses: {}", self.name, short(answer.message())))
            }
            Err(error) => Err(format!("source `{}` is not available: {}", self.name, cause(&error))),
        }
    }

    async fn check_row_security(&self, dataset: &Dataset) -> Vec<RowSecurityProblem> {
        let Some(security) = dataset.scope.as_ref().and_then(|scope| scope.security()) else {
            return Vec::new();
        };
        let roles: Vec<Option<&str>> = match &security.role {
            Some(rule) => rule.allowed.iter().map(|role| Some(role.as_str())).collect(),
            None => vec![None],
        };
        let failed = |error: &sqlx::Error| self.failed_with(&dataset.name, error, Words::OfPlanning);
        let (mut problems, mut seen) = (Vec::new(), Vec::new());
        for role in roles {
            match pg_row_security::look(&self.sessions, dataset, security, role, &failed).await {
                Ok(mut found) => {
                    for said in std::mem::take(&mut found.problems) {
                        // What is wrong with whoever signs in is wrong for all roles, and said once.
                        if !problems.contains(&(said.clone(), true)) {
                            problems.push((said, true));
                        }
                    }
                    seen.push(found);
                }
                Err(failed) => {
                    let whose = role.map(|role| format!("role `{role}`: ")).unwrap_or_default();
                    let is_certain = matches!(failed, Failed::Fatal(_));
                    let why = match &failed {
                        Failed::Retryable(cause) | Failed::Fatal(cause) => cause.for_operators().to_owned(),
                        Failed::Stopped => failed.to_string(),
                    };
                    problems.push((format!("{whose}{why}"), is_certain));
                }
            }
        }
        // Only when all roles are known: what one role's policies do not read, those of another may.
        if problems.is_empty() {
            problems.extend(pg_row_security::stale(security, &seen).map(|said| (said, true)));
        }
        let problem =
            |(problem, is_certain)| RowSecurityProblem { dataset: dataset.name.clone(), problem, is_certain };
        problems.into_iter().map(problem).collect()
    }
}

impl PostgresSource {
    /// Reads the rows of a query in its session.
    async fn read(
        &self,
        session: &mut Session,
        query: &Query<'_>,
        copy: &str,
        outflow: &mut Outflow<'_>,
        stop: &mut StopSignal<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Broken> {
        let connection = session.connection();
        self.assume(connection, query, stop).await?;
        count(connection, query, self.count_within, stop, sink).await?;
        copy_out(connection, copy, outflow, stop, sink).await
    }

    /// Takes on the caller's rights, where the dataset relies on row-level security.
    async fn assume(
        &self,
        connection: &mut PgConnection,
        query: &Query<'_>,
        stop: &mut StopSignal<'_>,
    ) -> Result<(), Broken> {
        let Some(assumed) = query.rights.and_then(Rights::security) else { return Ok(()) };
        let acting = tokio::select! {
            biased;
            () = &mut *stop => return Err(Failed::Stopped.into()),
            acting = pg_rights::assume(connection, assumed) => acting.map_err(Broken::Source)?,
        };
        // Looked at before the dataset is first used, too; but rights can be given, and row-level security
        // taken away, while a worker runs.
        if let Some(name) = &acting.unbound {
            let problem = format!("row-level security is nothing to `{name}`");
            return Err(self.insecure(query, &problem).into());
        }
        let problems = tokio::select! {
            biased;
            () = stop => return Err(Failed::Stopped.into()),
            problems = pg_row_security::look_now(connection, &acting, &assumed.unsecured, query) =>
                problems.map_err(Broken::Source)?,
        };
        match problems.first() {
            Some(problem) => Err(self.insecure(query, problem).into()),
            None => Ok(()),
        }
    }
}

/// Rights that are taken on and rows that are counted take statements of their own, in the transaction of the query.
fn scope(query: &Query<'_>) -> Scope {
    match (query.rights.and_then(Rights::security), query.count) {
        (None, Count::No) => Scope::Statement,
        _ => Scope::Transaction,
    }
}

/// Which side ended a stream too early.
enum Broken {
    Source(sqlx::Error),
    Here(Failed),
}

impl From<Failed> for Broken {
    fn from(failed: Failed) -> Self {
        Self::Here(failed)
    }
}

/// Tells the sink how many rows there will be, if that can be found out.
async fn count(
    connection: &mut PgConnection,
    query: &Query<'_>,
    limit: Duration,
    stop: &mut StopSignal<'_>,
    sink: &mut dyn Sink,
) -> Result<(), Broken> {
    let total = tokio::select! {
        biased;
        () = stop => return Err(Failed::Stopped.into()),
        total = pg_total::total(connection, query, limit) => total.map_err(Broken::Source)?,
    };
    if let Some(total) = total {
        sink.expect(total);
    }
    Ok(())
}

async fn copy_out(
    connection: &mut PgConnection,
    copy: &str,
    outflow: &mut Outflow<'_>,
    stop: &mut StopSignal<'_>,
    sink: &mut dyn Sink,
) -> Result<(), Broken> {
    sink.progress(0, 0);
    // The driver's stream enters the span that is current now for every row, which costs more than the row. So no
    // subscriber is there while the stream is made.
    let begun = connection.copy_out_raw(copy).with_subscriber(Dispatch::none());
    let mut stream = tokio::select! {
        biased;
        () = &mut *stop => return Err(Failed::Stopped.into()),
        stream = begun => stream.map_err(Broken::Source)?,
    };
    // The server sends one message per row, the first for the header. Counting lines would be wrong:
    // there are line breaks inside quotes.
    if let Some(header) = outflow.next(&mut stream, stop, sink).await? {
        outflow.push(header.map_err(Broken::Source)?, stop, sink).await?;
    }
    while let Some(row) = outflow.next_row(&mut stream, stop, sink).await? {
        let row = row.map_err(Broken::Source)?;
        outflow.rows += 1;
        outflow.push(row, stop, sink).await?;
    }
    Ok(())
}

/// The line breaks keep a comment at the query's end from taking the parenthesis with it.
fn copy_sql(query: &Query<'_>) -> Result<String, super::params::LiteralError> {
    let sql = query.template.with_claims(query.key, query.effective_date, query.claims())?;
    Ok(format!("COPY (\n{sql}\n) TO STDOUT (FORMAT csv, HEADER)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_cannot_be_read_is_not_shown() {
        let settings = SourceSettings {
            name: "warehouse".into(),
            url: crate::settings::SourceUrl::Postgres(Secret::default()),
            max_concurrent: 1,
            statement_timeout: std::time::Duration::from_secs(1),
            stall_timeout: std::time::Duration::from_secs(1),
            max_row_bytes: 1,
        };
        let url = Secret::new("postgres://user:hunter2@host:notaport/db");
        let error = PostgresSource::new(&settings, &url).unwrap_err();
        assert!(error.contains("warehouse") && !error.contains("hunter2"), "{error}");
    }
}
