//! Sessions on a PostgreSQL source. A session is one transaction of one chunk; between chunks its connection is
//! kept under its slot's name. A session that is dropped before [`Session::commit`] ends its transaction on the
//! server, so that no query goes on for a chunk that stopped. `pg_ending.rs` describes how, and what is never ended.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _};
use tokio::task::JoinHandle;

use super::idle::Idle;
use super::pg_ending::{self, crowded, literal, session_name, transaction_name};

/// For round trips that ask the server for next to nothing.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// For ending transactions that an earlier holder of the slot left running.
const EVICT_WITHIN: Duration = Duration::from_secs(30);
/// How long an idle connection is kept: long enough for the gap between two chunks, short enough to free a source that
/// is no longer read. The next holder of a slot does not end idle connections of earlier holders: they also stay this
/// long.
const KEEP_IDLE: Duration = Duration::from_secs(10);
/// If a slot was used less than this ago, no other holder can have left a transaction running on it since: a holder
/// that dies keeps the slot for its lease, which is longer.
const NOBODY_ELSES: Duration = Duration::from_millis(500);
/// The name of sessions without a slot.
const NO_SLOT: &str = "outhaul";

/// Makes sessions on one source. Has no `Debug`: that of the options shows the password.
pub(super) struct Sessions {
    options: PgConnectOptions,
    begin: String,
    idle: Arc<Idle<Link>>,
}

/// A connection, directly to a server or to a pooler.
#[derive(Debug)]
struct Link {
    connection: PgConnection,
    /// Whether the server can notice during a query that we are gone.
    notices_loss: bool,
}

/// Identifies a transaction as long as it lasts.
#[derive(Debug)]
struct Transaction {
    /// The backend that runs it. Behind a pooler the next transaction may have another.
    pid: i32,
    name: String,
}

/// An open read-only transaction.
pub(super) struct Session {
    sessions: Arc<Sessions>,
    slot: Option<String>,
    link: Option<Link>,
    /// `None` before the transaction has begun, and as soon as COMMIT is sent.
    transaction: Option<Transaction>,
}

impl Sessions {
    pub(super) fn new(options: PgConnectOptions, statement_timeout: Duration) -> Arc<Self> {
        let options = options.extra_float_digits(None).disable_statement_logging();
        Arc::new(Self { options, begin: begin_sql(statement_timeout), idle: Idle::new(KEEP_IDLE) })
    }

    /// Begins a transaction, on the slot's kept connection if it still answers. Transactions that earlier
    /// holders of the slot left running have ended when this returns.
    pub(super) async fn begin(self: &Arc<Self>, slot: Option<&str>) -> sqlx::Result<Session> {
        let name = slot.map(session_name);
        let (session, crowded) = self.begun(name).await?;
        if let (true, Some(slot), Some(transaction)) = (crowded, &session.slot, &session.transaction) {
            let evicted = async {
                let mut spare = self.connect("outhaul:evict").await?;
                pg_ending::evict(&mut spare, slot, transaction.pid).await
            };
            match tokio::time::timeout(EVICT_WITHIN, evicted).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    session.discard();
                    return Err(error);
                }
                Err(_) => {
                    session.discard();
                    return Err(io::Error::other("an earlier export on the same slot does not end").into());
                }
            }
        }
        Ok(session)
    }

    /// The begun transaction, and whether others of the slot's name run.
    async fn begun(self: &Arc<Self>, slot: Option<String>) -> sqlx::Result<(Session, bool)> {
        let session =
            |link| Session { sessions: Arc::clone(self), slot: slot.clone(), link, transaction: None };
        if let Some((kept, idle)) = slot.as_deref().and_then(|name| self.idle.take(name)) {
            let mut session = session(Some(kept));
            match session.start(idle >= NOBODY_ELSES).await {
                Ok(crowded) => return Ok((session, crowded)),
                // The server or the pooler was restarted, or closes what is idle.
                Err(error) => {
                    tracing::debug!(error = %error, "a kept source connection no longer answers");
                    session.discard();
                }
            }
        }
        let mut session = session(Some(self.open(slot.as_deref()).await?));
        let crowded = session.start(true).await?;
        Ok((session, crowded))
    }

    /// Connects and signs in, and does nothing else.
    pub(super) async fn connect(&self, name: &str) -> sqlx::Result<PgConnection> {
        within(ANSWER_WITHIN, self.options.clone().application_name(name).connect()).await
    }

    async fn open(&self, name: Option<&str>) -> sqlx::Result<Link> {
        let mut connection = self.connect(name.unwrap_or(NO_SLOT)).await?;
        let version = connection.server_version_num().unwrap_or(0);
        // Not every platform has it, and only asking tells.
        let probe = "begin read only; set local client_connection_check_interval = '1s'; rollback";
        let notices_loss = version >= 140_000
            && within(ANSWER_WITHIN, sqlx::raw_sql(probe).execute(&mut connection)).await.is_ok();
        if !notices_loss {
            within(ANSWER_WITHIN, sqlx::raw_sql("rollback").execute(&mut connection)).await?;
        }
        Ok(Link { connection, notices_loss })
    }

    /// Ends a transaction from a connection of its own, in the background.
    fn end(self: Arc<Self>, Transaction { pid, name }: Transaction) -> Option<JoinHandle<()>> {
        let task = async move {
            let ended = async {
                let mut spare = self.connect("outhaul:stop").await?;
                pg_ending::end(&mut spare, pid, &name).await
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
    /// notices, which functions may raise with values of rows and the driver would log. With `look`, answers whether
    /// other transactions of the slot's name run.
    async fn start(&mut self, look: bool) -> sqlx::Result<bool> {
        let link = self.link.as_mut().expect("a session has its connection until it ends");
        let name = transaction_name(self.slot.as_deref().unwrap_or(NO_SLOT));
        let mut begin = format!("{}; set local application_name = {}", self.sessions.begin, literal(&name));
        if link.notices_loss {
            begin.push_str("; set local client_connection_check_interval = '1s'");
        }
        let crowded = self.slot.as_deref().filter(|_| look).map_or("false".to_owned(), crowded);
        begin.push_str(&format!("; select pg_catalog.pg_backend_pid(), {crowded}"));
        let begin = sqlx::raw_sql(AssertSqlSafe(begin)).fetch_all(&mut link.connection);
        let rows = within(ANSWER_WITHIN, begin).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        self.transaction = Some(Transaction { pid: row.try_get(0)?, name });
        row.try_get(1)
    }

    /// The connection, inside its transaction.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.link.as_mut().expect("a session has its connection until it ends").connection
    }

    /// Ends the transaction and keeps the connection for the slot's next chunk.
    pub(super) async fn commit(mut self) -> sqlx::Result<()> {
        // From here on a pooler may hand the backend on at any time.
        self.transaction = None;
        within(ANSWER_WITHIN, sqlx::raw_sql("commit").execute(self.connection())).await?;
        if let (Some(link), Some(slot)) = (self.link.take(), self.slot.take()) {
            self.sessions.idle.keep(slot, link);
        }
        Ok(())
    }

    /// Closes the connection. For sessions that run no query: the server notices at once.
    pub(super) fn discard(mut self) {
        (self.link, self.transaction) = (None, None);
    }

    /// Closes the connection hard and waits until its query was told to end.
    pub(super) async fn kill(mut self) {
        if let Some(ending) = self.end() {
            // A panic in there has been reported by its task.
            let _ = ending.await;
        }
    }

    fn end(&mut self) -> Option<JoinHandle<()>> {
        // The connection goes first: a pooler hands no backend on whose client left it in a transaction.
        drop(self.link.take());
        Arc::clone(&self.sessions).end(self.transaction.take()?)
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
    fn a_timeout_of_nothing_is_not_no_timeout() {
        assert!(begin_sql(Duration::ZERO).contains("statement_timeout = 1;"));
        assert!(begin_sql(Duration::MAX).contains("statement_timeout = 2147483647;"));
    }
}
