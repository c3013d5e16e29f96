//! SQLite as a source: a read-only connection per chunk, values bound, rows printed as PostgreSQL's
//! COPY would print them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use outhaul::Failed;
use outhaul_core::progress::Total;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _, Decode, Executor as _, Row as _,
    SqlSafeStr as _, Statement as _, TypeInfo as _, ValueRef as _,
};
use tracing::debug;

use super::params::Template;
use super::{
    Count, Outflow, Query, Sink, Source, StopSignal, Words, count_within, does_not_fit, not_available, short,
};
use crate::format::csv::Csv;
use crate::format::float;
use crate::settings::SourceSettings;

/// How many steps of SQLite's machine pass between two looks at the clock and the stop flag.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;
/// Rows in flight from SQLite's thread to ours; few, for each may be large.
const ROWS_IN_FLIGHT: usize = 16;
/// How long to wait for a writer that has the file locked.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// A SQLite file that rows are read from.
#[derive(Debug)]
pub struct SqliteSource {
    name: String,
    path: PathBuf,
    statement_timeout: Duration,
    count_within: Duration,
    max_row_bytes: usize,
}

impl SqliteSource {
    /// Opens nothing yet.
    pub fn new(settings: &SourceSettings, path: &Path) -> Self {
        Self {
            name: settings.name.clone(),
            path: path.to_owned(),
            statement_timeout: settings.statement_timeout,
            count_within: count_within(settings),
            max_row_bytes: settings.max_row_bytes,
        }
    }

    async fn open(&self) -> sqlx::Result<SqliteConnection> {
        SqliteConnectOptions::new()
            .filename(&self.path)
            .read_only(true)
            .busy_timeout(BUSY_TIMEOUT)
            .row_buffer_size(ROWS_IN_FLIGHT)
            .disable_statement_logging()
            .connect()
            .await
    }

    fn failed(&self, query: &Query<'_>, error: &sqlx::Error) -> Failed {
        self.failed_with(query.dataset, error, query.words())
    }

    fn failed_with(&self, dataset: &str, error: &sqlx::Error, words: Words) -> Failed {
        let source = &self.name;
        match error {
            sqlx::Error::Database(answer) => {
                let words = words.of_result(&**answer);
                if is_about_the_query(answer.code().as_deref()) {
                    does_not_fit(dataset, source, &words)
                } else {
                    not_available(source, &short(&words), error)
                }
            }
            _ => not_available(source, "its file cannot be read", error),
        }
    }
}

#[async_trait]
impl Source for SqliteSource {
    async fn stream(
        &self,
        query: &Query<'_>,
        mut stop: StopSignal<'_>,
        sink: &mut dyn Sink,
    ) -> Result<i64, Failed> {
        let mut connection = self.open().await.map_err(|error| self.failed(query, &error))?;
        if let Count::Exact(template) = query.count {
            let counted = tokio::select! {
                biased;
                () = &mut stop => Err(Failed::Stopped),
                counted = self.count(&mut connection, template, query) => Ok(counted),
            };
            match counted {
                Ok(Ok(total)) => sink.expect(Total::Exact(total)),
                Ok(Err(cause)) => {
                    let (dataset, cause) = (query.dataset, short(&cause));
                    debug!(dataset, cause, "dataset {dataset}: how many rows there are is not known");
                }
                Err(stopped) => {
                    // Its query ended with its watch, so that this does not wait for it.
                    drop(connection.close().await);
                    return Err(stopped);
                }
            }
        }
        sink.progress(0, 0);
        let watch = Watch::over(&mut connection, self.statement_timeout)
            .await
            .map_err(|error| self.failed(query, &error))?;
        let mut outflow = Outflow::new(query.dataset, self.max_row_bytes);
        let read = self.read(&mut connection, query, &mut outflow, &mut stop, sink).await;
        let timed_out = watch.has_timed_out();
        // Ends a query that still runs, so that closing does not wait for it.
        drop(watch);
        let closed = connection.close().await;
        match read {
            Err(_) if timed_out => {
                let limit = self.statement_timeout;
                return Err(Failed::Retryable(
                    format!("source `{}` failed: no end within {limit:?}", self.name).into(),
                ));
            }
            Err(failed) => return Err(failed),
            Ok(()) => {}
        }
        if let Err(error) = closed {
            tracing::debug!(source = self.name, error = %error, "a source file was not closed cleanly");
        }
        outflow.flush(&mut stop, sink).await?;
        sink.progress(outflow.rows, outflow.bytes);
        Ok(outflow.rows)
    }

    async fn check(&self) -> Result<(), String> {
        let unavailable = |error: sqlx::Error| match self.failed_with("", &error, Words::Own) {
            Failed::Retryable(cause) | Failed::Fatal(cause) => cause.for_operators().to_owned(),
            stopped @ Failed::Stopped => stopped.to_string(),
        };
        let mut connection = self.open().await.map_err(unavailable)?;
        // Opening reads nothing; this looks at the file's header.
        sqlx::query("select count(*) from sqlite_schema")
            .fetch_one(&mut connection)
            .await
            .map_err(unavailable)?;
        Ok(())
    }
}

impl SqliteSource {
    /// Counts the rows; the error says why it could not.
    async fn count(
        &self,
        connection: &mut SqliteConnection,
        template: &Template,
        query: &Query<'_>,
    ) -> Result<i64, String> {
        let words = |error: sqlx::Error| match &error {
            sqlx::Error::Database(answer) => query.words().of_result(&**answer),
            other => query.words().of_other(other),
        };
        let values = template.arguments(query.key, query.effective_date, query.claims());
        let values = values.map_err(|error| error.to_string())?;
        let _watch = Watch::over(connection, self.count_within).await.map_err(words)?;
        // Two rows are enough to know that there are too many.
        let sql = format!("select * from (\n{}\n) limit 2", template.with_numbers());
        let ask = values.into_iter().fold(sqlx::query(AssertSqlSafe(sql)), |ask, value| ask.bind(value));
        let rows = ask.fetch_all(connection).await.map_err(words)?;
        match rows.as_slice() {
            [row] if row.columns().len() == 1 => match row.try_get(0).map_err(words)? {
                Some(count @ 0..) => Ok(count),
                _ => Err("the count is not a number of rows".to_owned()),
            },
            _ => Err("the answer is not one row with one column".to_owned()),
        }
    }

    async fn read(
        &self,
        connection: &mut SqliteConnection,
        query: &Query<'_>,
        outflow: &mut Outflow<'_>,
        stop: &mut StopSignal<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Failed> {
        let failed = |error: sqlx::Error| self.failed(query, &error);
        let values = query.template.arguments(query.key, query.effective_date, query.claims());
        let values = values.map_err(|error| does_not_fit(query.dataset, &self.name, &error.to_string()))?;
        let sql = query.template.with_numbers();
        // Prepared first: the header is due even if no row comes.
        let statement =
            connection.prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await.map_err(failed)?;
        let columns = statement.columns().len();
        let mut csv = Csv::new(columns);
        for column in statement.columns() {
            csv.field(Some(column.name().as_bytes()));
        }
        outflow.push(csv.end_row(), stop, sink).await?;

        let rows = values.into_iter().fold(sqlx::query(AssertSqlSafe(sql)), |rows, value| rows.bind(value));
        let mut rows = rows.fetch(connection);
        while let Some(row) = outflow.next(&mut rows, stop, sink).await? {
            let row = row.map_err(failed)?;
            outflow.rows += 1;
            // Checked before the row is copied.
            outflow.admit(value_bytes(&row))?;
            print_row(&row, &mut csv).map_err(|column| {
                let cause = format!("column `{column}` holds text that is not UTF-8");
                does_not_fit(query.dataset, &self.name, &cause)
            })?;
            outflow.push(csv.end_row(), stop, sink).await?;
        }
        Ok(())
    }
}

/// How many bytes the texts and blobs of a row have. Numbers do not count: they are small.
fn value_bytes(row: &SqliteRow) -> usize {
    let bytes = |column: &sqlx::sqlite::SqliteColumn| {
        let value = row.try_get_raw(column.ordinal()).ok().filter(|value| !value.is_null())?;
        if !matches!(value.type_info().name(), "TEXT" | "BLOB") {
            return None;
        }
        <&[u8] as Decode<sqlx::Sqlite>>::decode(value).ok().map(<[u8]>::len)
    };
    row.columns().iter().filter_map(bytes).sum()
}

/// Prints a row in PostgreSQL's text form; the error is the column that cannot be printed.
fn print_row(row: &SqliteRow, csv: &mut Csv) -> Result<(), String> {
    for column in row.columns() {
        let wrong = |_| column.name().to_owned();
        let value = row.try_get_raw(column.ordinal()).map_err(|_| column.name().to_owned())?;
        if value.is_null() {
            csv.field(None);
            continue;
        }
        // The value's own type: SQLite's columns have none that binds.
        let kind = value.type_info().name().to_owned();
        match kind.as_str() {
            "INTEGER" => {
                let number = <i64 as Decode<sqlx::Sqlite>>::decode(value).map_err(wrong)?;
                csv.field(Some(number.to_string().as_bytes()));
            }
            "REAL" => {
                let number = <f64 as Decode<sqlx::Sqlite>>::decode(value).map_err(wrong)?;
                csv.field(Some(float::float8(number).as_bytes()));
            }
            "BLOB" => {
                let bytes = <&[u8] as Decode<sqlx::Sqlite>>::decode(value).map_err(wrong)?;
                csv.hex(bytes);
            }
            _ => {
                let text = <&str as Decode<sqlx::Sqlite>>::decode(value).map_err(wrong)?;
                csv.field(Some(text.as_bytes()));
            }
        }
    }
    Ok(())
}

/// Ends a connection's query when its time is up, or when this is dropped.
struct Watch {
    over: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Watch {
    async fn over(connection: &mut SqliteConnection, limit: Duration) -> sqlx::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let deadline = Instant::now().checked_add(limit);
        let flag = Arc::clone(&over);
        connection.lock_handle().await?.set_progress_handler(STEPS_BETWEEN_LOOKS, move || {
            !flag.load(Ordering::Relaxed) && deadline.is_none_or(|deadline| Instant::now() < deadline)
        });
        Ok(Self { over, deadline })
    }

    fn has_timed_out(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Primary result codes that blame the query or its rights: ERROR, PERM, READONLY, TOOBIG, MISMATCH,
/// AUTH, RANGE.
fn is_about_the_query(code: Option<&str>) -> bool {
    let code: Option<i32> = code.and_then(|code| code.parse().ok());
    // The low byte is the primary code; the rest only refines it.
    code.is_some_and(|code| matches!(code & 0xff, 1 | 3 | 8 | 18 | 20 | 23 | 25))
}
