//! Sessions on a PostgreSQL source. A session belongs to one chunk; between chunks its connection is
//! kept under its slot's name. A session that is dropped before [`Session::commit`] takes its backend
//! with it, so that no query goes on for a chunk that stopped.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _};
use tokio::task::JoinHandle;

use super::idle::Idle;

/// For round trips that ask the server for next to nothing.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// For ending what a predecessor left, which the server itself limits to 5 s for each.
const EVICT_WITHIN: Duration = Duration::from_secs(30);
/// Spans the gap between two chunks; frees a source that is no longer read.
const KEEP_IDLE: Duration = Duration::from_secs(30);
/// PostgreSQL cuts longer names, and two cut names could meet.
const MAX_NAME_BYTES: usize = 63;

/// Ends sessions of this name other than our own: whoever held the slot before is no longer its holder.
/// Says of each whether it ended, and whether it did anything. Before version 14 the function takes no time to wait.
const EVICT: &str = "select pg_terminate_backend(pid, 5000), state is distinct from 'idle' from pg_stat_activity \
    where application_name = $1 and usename = current_user and pid <> pg_backend_pid()";
const EVICT_BEFORE_14: &str = "select pg_terminate_backend(pid), state is distinct from 'idle' from pg_stat_activity \
    where application_name = $1 and usename = current_user and pid <> pg_backend_pid()";

/// Ends one backend; its start tells it from a later one with the same pid.
const END: &str =
    "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and backend_start = $2";

/// Makes sessions on one source. Has no `Debug`: that of the options shows the password.
pub(super) struct Sessions {
    options: PgConnectOptions,
    begin: String,
    idle: Arc<Idle<Backend>>,
}

/// A connection and who serves it.
#[derive(Debug)]
struct Backend {
    connection: PgConnection,
    pid: i32,
    started: DateTime<Utc>,
    /// Whether the server can notice during a query that we are gone.
    notices_loss: bool,
}

/// An open read-only transaction.
pub(super) struct Session {
    sessions: Arc<Sessions>,
    slot: Option<String>,
    backend: Option<Backend>,
}

impl Sessions {
    pub(super) fn new(options: PgConnectOptions, statement_timeout: Duration) -> Arc<Self> {
        let options = options.extra_float_digits(None).disable_statement_logging();
        Arc::new(Self { options, begin: begin_sql(statement_timeout), idle: Idle::new(KEEP_IDLE) })
    }

    /// Begins a transaction, on the slot's kept connection if it still answers.
    pub(super) async fn begin(self: &Arc<Self>, slot: Option<&str>) -> sqlx::Result<Session> {
        let name = slot.map(session_name);
        let kept = name.as_deref().and_then(|name| self.idle.take(name));
        if let Some(backend) = kept {
            let mut session =
                Session { sessions: Arc::clone(self), slot: name.clone(), backend: Some(backend) };
            match session.start().await {
                Ok(()) => return Ok(session),
                // Another process held the slot meanwhile and ended it, or the server restarted.
                Err(error) => {
                    tracing::debug!(error = %error, "a kept source connection no longer answers");
                    session.discard();
                }
            }
        }
        let backend = self.open(name.as_deref()).await?;
        let mut session = Session { sessions: Arc::clone(self), slot: name, backend: Some(backend) };
        session.start().await?;
        Ok(session)
    }

    /// Connects and signs in, and does nothing else.
    pub(super) async fn connect(&self, name: &str) -> sqlx::Result<PgConnection> {
        within(ANSWER_WITHIN, self.options.clone().application_name(name).connect()).await
    }

    async fn open(&self, name: Option<&str>) -> sqlx::Result<Backend> {
        let mut connection = self.connect(name.unwrap_or("outhaul")).await?;
        let version = connection.server_version_num().unwrap_or(0);
        if let Some(name) = name {
            within(EVICT_WITHIN, evict(&mut connection, name, version >= 140_000)).await?;
        }
        let ask = sqlx::query("select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()");
        let row = within(ANSWER_WITHIN, ask.persistent(false).fetch_one(&mut connection)).await?;
        let (pid, started) = (row.try_get(0)?, row.try_get(1)?);
        // Not every platform has it, and only asking tells.
        let probe = "begin read only; set local client_connection_check_interval = '1s'; rollback";
        let notices_loss = version >= 140_000
            && within(ANSWER_WITHIN, sqlx::raw_sql(probe).execute(&mut connection)).await.is_ok();
        if !notices_loss {
            within(ANSWER_WITHIN, sqlx::raw_sql("rollback").execute(&mut connection)).await?;
        }
        Ok(Backend { connection, pid, started, notices_loss })
    }

    /// Ends a backend from a connection of its own, in the background.
    fn end(self: Arc<Self>, pid: i32, started: DateTime<Utc>) -> Option<JoinHandle<()>> {
        let task = async move {
            let ended = async {
                let mut spare = self.connect("outhaul:stop").await?;
                sqlx::query(END).persistent(false).bind(pid).bind(started).fetch_all(&mut spare).await
            };
            if let Err(error) = within(ANSWER_WITHIN, ended).await {
                tracing::warn!(error = %error, "a source query that must stop could not be ended from outside");
            }
        };
        // Without a runtime the process is ending; the server notices the closed socket.
        tokio::runtime::Handle::try_current().ok().map(|runtime| runtime.spawn(task))
    }
}

impl Session {
    /// One round trip: read-only, with every setting pinned that shapes the output or limits the query, and without
    /// notices, which functions may raise with values of rows and the driver would log.
    async fn start(&mut self) -> sqlx::Result<()> {
        let mut begin = self.sessions.begin.clone();
        let backend = self.backend.as_mut().expect("a session has its backend until it ends");
        if backend.notices_loss {
            begin.push_str("; set local client_connection_check_interval = '1s'");
        }
        let begin = sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut backend.connection);
        within(ANSWER_WITHIN, begin).await.map(drop)
    }

    /// The connection, inside its transaction.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.backend.as_mut().expect("a session has its backend until it ends").connection
    }

    /// Ends the transaction and keeps the connection for the slot's next chunk.
    pub(super) async fn commit(mut self) -> sqlx::Result<()> {
        within(ANSWER_WITHIN, sqlx::raw_sql("commit").execute(self.connection())).await?;
        if let (Some(backend), Some(slot)) = (self.backend.take(), self.slot.take()) {
            self.sessions.idle.keep(slot, backend);
        }
        Ok(())
    }

    /// Closes the connection. For sessions that run no query: the server notices at once.
    pub(super) fn discard(mut self) {
        self.backend = None;
    }

    /// Closes the connection hard and waits until its query was told to end.
    pub(super) async fn kill(mut self) {
        if let Some(ending) = self.end() {
            // A panic in there has been reported by its task.
            let _ = ending.await;
        }
    }

    fn end(&mut self) -> Option<JoinHandle<()>> {
        let Backend { connection, pid, started, .. } = self.backend.take()?;
        drop(connection);
        Arc::clone(&self.sessions).end(pid, started)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// Runs a statement that asks the server for next to nothing.
pub(super) async fn answer<T>(statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    within(ANSWER_WITHIN, statement).await
}

/// Ends namesakes until none is left. A `false` means that one would not end, or had just gone.
async fn evict(connection: &mut PgConnection, name: &str, waits: bool) -> sqlx::Result<()> {
    for _ in 0..3 {
        let query = sqlx::query_as::<_, (bool, bool)>(if waits { EVICT } else { EVICT_BEFORE_14 });
        let ended = query.persistent(false).bind(name).fetch_all(&mut *connection).await?;
        let busy = ended.iter().filter(|(_, busy)| *busy).count();
        if busy > 0 {
            tracing::warn!(
                slot = name,
                count = busy,
                "ended sessions that an earlier holder of slot {name} left at work"
            );
        } else if !ended.is_empty() {
            // It keeps its connection for a while after it gave the slot back.
            tracing::debug!(slot = name, "ended the idle session of an earlier holder of slot {name}");
        }
        if ended.into_iter().all(|(ended, _)| ended) {
            return Ok(());
        }
    }
    Err(io::Error::other("an earlier export on the same slot does not end").into())
}

fn begin_sql(statement_timeout: Duration) -> String {
    // Zero would mean no limit at all.
    let statement = statement_timeout.as_millis().clamp(1, i32::MAX as u128);
    format!(
        "begin read only; \
         set local statement_timeout = {statement}; \
         set local lock_timeout = {lock}; \
         set local idle_in_transaction_session_timeout = '60s'; \
         set local client_min_messages = 'error'; \
         set local standard_conforming_strings = on; \
         set local client_encoding = 'UTF8'; \
         set local datestyle = 'ISO, MDY'; \
         set local intervalstyle = 'postgres'; \
         set local timezone = 'UTC'; \
         set local bytea_output = 'hex'; \
         set local extra_float_digits = 1",
        lock = statement.min(30_000),
    )
}

/// A slot's name as `application_name` takes it: ASCII, and not so long that it would be cut.
fn session_name(slot: &str) -> String {
    if slot.len() <= MAX_NAME_BYTES && slot.bytes().all(|byte| byte.is_ascii_graphic()) {
        return slot.to_owned();
    }
    let hash = Sha256::digest(slot.as_bytes());
    let hash: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    let readable = slot.chars().filter(char::is_ascii_graphic).take(MAX_NAME_BYTES - 1 - hash.len());
    format!("{}~{hash}", readable.collect::<String>())
}

async fn within<T>(limit: Duration, work: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_never_meet() {
        assert_eq!(session_name("outhaul:1a2b:source:warehouse:3"), "outhaul:1a2b:source:warehouse:3");
        let long = |end| session_name(&format!("outhaul:1a2b:source:{}:{end}", "x".repeat(80)));
        assert!(long(1).len() <= MAX_NAME_BYTES && long(1).is_ascii());
        assert_ne!(long(1), long(2));
        assert_ne!(session_name("outhaul:grün:1"), session_name("outhaul:grn:1"));
    }

    #[test]
    fn a_timeout_of_nothing_is_not_no_timeout() {
        assert!(begin_sql(Duration::ZERO).contains("statement_timeout = 1;"));
        assert!(begin_sql(Duration::MAX).contains("statement_timeout = 2147483647;"));
    }
}
