//! Sessions on a PostgreSQL source. A session is one transaction of one chunk; between chunks its connection is
//! kept under its slot's name. A session that is dropped before [`Session::commit`] ends its transaction on the
//! server, so that no query goes on for a chunk that stopped. `pg_ending.rs` describes how, and what is never ended.
//! `pg_direct.rs` describes connections that spare a chunk the round trips of BEGIN and COMMIT.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _};
use tokio::task::JoinHandle;

use super::idle::Idle;
use super::pg_direct::{self, Direct};
use super::pg_ending::{self, crowded, literal, session_name, transaction_name};
use super::pg_settings::Settings;

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
    settings: Settings,
    /// Whether a pooler was found between us and the server, which refuses or ignores startup settings.
    is_pooled: AtomicBool,
    idle: Arc<Idle<Link>>,
}

/// What a session is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// One statement. It needs no BEGIN where the session has the settings.
    Statement,
    /// Several statements, or settings that only this transaction has.
    Transaction,
}

/// A connection, directly to a server or to a pooler.
#[derive(Debug)]
struct Link {
    connection: PgConnection,
    /// Set if the connection is a direct session.
    direct: Option<Direct>,
    /// Whether the server can notice during a query of an explicit transaction that we are gone.
    notices_loss: bool,
}

impl Link {
    /// Sends the statement that undoes what queries have set, and does not wait for the answer: the driver reads it
    /// before the next statement. `false`: the connection is of no more use.
    fn send_reset(&mut self) -> bool {
        let Some(direct) = &self.direct else { return true };
        let reset = sqlx::raw_sql(AssertSqlSafe(direct.reset.clone()));
        !matches!(reset.execute(&mut self.connection).now_or_never(), Some(Err(_)))
    }
}

/// Identifies a transaction as long as it lasts.
#[derive(Debug)]
struct Transaction {
    /// The backend that runs it. Behind a pooler the next transaction may have another.
    pid: i32,
    name: String,
    /// Whether it has to be committed. If not, it ends with its one statement.
    is_explicit: bool,
}

/// An open read-only transaction.
pub(super) struct Session {
    sessions: Arc<Sessions>,
    slot: Option<String>,
    link: Option<Link>,
    /// `None` before the transaction has begun, and as soon as COMMIT is sent.
    transaction: Option<Transaction>,
    /// Whether the server has answered since the connection was taken.
    has_answered: bool,
}

impl Sessions {
    pub(super) fn new(options: PgConnectOptions, statement_timeout: Duration) -> Arc<Self> {
        let options = options.extra_float_digits(None).disable_statement_logging();
        let (settings, is_pooled) = (Settings::new(statement_timeout), AtomicBool::new(false));
        Arc::new(Self { options, settings, is_pooled, idle: Idle::new(KEEP_IDLE) })
    }

    /// Begins a transaction, on the slot's kept connection if it still answers. Transactions that earlier
    /// holders of the slot left running have ended when this returns.
    pub(super) async fn begin(self: &Arc<Self>, slot: Option<&str>, scope: Scope) -> sqlx::Result<Session> {
        let name = slot.map(session_name);
        let (session, crowded) = self.begun(name, scope).await?;
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

    /// Begins a transaction on a new connection, after the kept connection was lost before it answered. It may have
    /// been lost to the next holder of the slot, so transactions of others are a failure here and are not ended.
    pub(super) async fn begin_anew(
        self: &Arc<Self>,
        slot: Option<&str>,
        scope: Scope,
    ) -> sqlx::Result<Session> {
        let (session, crowded) = self.begun_anew(slot.map(session_name), scope).await?;
        if crowded {
            session.discard();
            return Err(io::Error::other("another export runs on the same slot").into());
        }
        Ok(session)
    }

    /// The begun transaction, and whether others of the slot's name run.
    async fn begun(self: &Arc<Self>, slot: Option<String>, scope: Scope) -> sqlx::Result<(Session, bool)> {
        if let Some((kept, idle)) = slot.as_deref().and_then(|name| self.idle.take(name)) {
            let mut session = self.session(slot.clone(), kept);
            match session.start(scope, idle >= NOBODY_ELSES).await {
                Ok(crowded) => return Ok((session, crowded)),
                // The server or the pooler was restarted, or closes what is idle.
                Err(error) => {
                    tracing::debug!(error = %error, "a kept source connection no longer answers");
                    session.discard();
                }
            }
        }
        self.begun_anew(slot, scope).await
    }

    async fn begun_anew(
        self: &Arc<Self>,
        slot: Option<String>,
        scope: Scope,
    ) -> sqlx::Result<(Session, bool)> {
        let link = self.open(slot.as_deref().unwrap_or(NO_SLOT)).await?;
        let mut session = self.session(slot, link);
        session.has_answered = true;
        let crowded = session.start(scope, true).await?;
        Ok((session, crowded))
    }

    fn session(self: &Arc<Self>, slot: Option<String>, link: Link) -> Session {
        let (sessions, link) = (Arc::clone(self), Some(link));
        Session { sessions, slot, link, transaction: None, has_answered: false }
    }

    /// Connects and signs in, and does nothing else.
    pub(super) async fn connect(&self, name: &str) -> sqlx::Result<PgConnection> {
        within(ANSWER_WITHIN, self.options.clone().application_name(name).connect()).await
    }

    /// Opens a connection that is a direct session if it can be one.
    async fn open(&self, name: &str) -> sqlx::Result<Link> {
        let mut is_pooled = false;
        if !self.is_pooled.load(Ordering::Relaxed) {
            match self.open_direct(name).await {
                Ok(Some(link)) => return Ok(link),
                Ok(None) => is_pooled = true,
                Err(error) if pg_direct::may_blame_settings(&error) => {
                    tracing::debug!(error = %error, "connecting to the source without startup settings");
                    is_pooled = matches!(error, sqlx::Error::Database(_));
                }
                Err(error) => return Err(error),
            }
        }
        let link = self.open_pooled(name).await?;
        if is_pooled {
            self.is_pooled.store(true, Ordering::Relaxed);
        }
        Ok(link)
    }

    /// `None`: the connection goes through a pooler.
    async fn open_direct(&self, name: &str) -> sqlx::Result<Option<Link>> {
        let (options, mark) = pg_direct::options(self.options.clone().application_name(name), &self.settings);
        let mut connection = within(ANSWER_WITHIN, options.connect()).await?;
        let direct = pg_direct::prove(&mut connection, &mark, name).await?;
        // The session's own setting lets the server notice.
        Ok(direct.map(|direct| Link { connection, direct: Some(direct), notices_loss: false }))
    }

    async fn open_pooled(&self, name: &str) -> sqlx::Result<Link> {
        let mut connection = self.connect(name).await?;
        let version = connection.server_version_num().unwrap_or(0);
        // Not every platform has it, and only asking tells.
        let probe = "begin read only; set local client_connection_check_interval = '1s'; rollback";
        let notices_loss = version >= 140_000
            && within(ANSWER_WITHIN, sqlx::raw_sql(probe).execute(&mut connection)).await.is_ok();
        if !notices_loss {
            within(ANSWER_WITHIN, sqlx::raw_sql("rollback").execute(&mut connection)).await?;
        }
        Ok(Link { connection, direct: None, notices_loss })
    }

    /// Ends a transaction from a connection of its own, in the background.
    fn end(self: Arc<Self>, Transaction { pid, name, .. }: Transaction) -> Option<JoinHandle<()>> {
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
    /// One round trip: read-only, with every setting pinned. A statement of a direct session needs no round trip,
    /// unless there is something to `look` at: whether other transactions of the slot's name run is the answer.
    async fn start(&mut self, scope: Scope, look: bool) -> sqlx::Result<bool> {
        let link = self.link.as_mut().expect("a session has its connection until it ends");
        let crowded = self.slot.as_deref().filter(|_| look).map(crowded);
        if let (Scope::Statement, Some(direct)) = (scope, &link.direct) {
            self.transaction =
                Some(Transaction { pid: direct.pid, name: direct.name.clone(), is_explicit: false });
            let Some(crowded) = crowded else { return Ok(false) };
            let ask =
                sqlx::raw_sql(AssertSqlSafe(format!("select {crowded}"))).fetch_one(&mut link.connection);
            let row = within(ANSWER_WITHIN, ask).await?;
            self.has_answered = true;
            return row.try_get(0);
        }
        let name = transaction_name(self.slot.as_deref().unwrap_or(NO_SLOT));
        let mut begin =
            format!("{}; set local application_name = {}", self.sessions.settings.begin(), literal(&name));
        if link.notices_loss {
            begin.push_str("; set local client_connection_check_interval = '1s'");
        }
        let crowded = crowded.unwrap_or_else(|| "false".to_owned());
        begin.push_str(&format!("; select pg_catalog.pg_backend_pid(), {crowded}"));
        let begin = sqlx::raw_sql(AssertSqlSafe(begin)).fetch_all(&mut link.connection);
        let rows = within(ANSWER_WITHIN, begin).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        self.transaction = Some(Transaction { pid: row.try_get(0)?, name, is_explicit: true });
        self.has_answered = true;
        row.try_get(1)
    }

    /// Whether the server has answered since the connection was taken. If it has not and the connection is lost, the
    /// connection may have been lost while nobody used it.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// The connection, inside its transaction.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.link.as_mut().expect("a session has its connection until it ends").connection
    }

    /// Ends the transaction and keeps the connection for the slot's next chunk.
    pub(super) async fn commit(mut self) -> sqlx::Result<()> {
        // From here on a pooler may hand the backend on at any time.
        if self.transaction.take().is_some_and(|transaction| transaction.is_explicit) {
            within(ANSWER_WITHIN, sqlx::raw_sql("commit").execute(self.connection())).await?;
        }
        if let (Some(mut link), Some(slot)) = (self.link.take(), self.slot.take())
            && link.send_reset()
        {
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

async fn within<T>(limit: Duration, work: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}")).into()),
    }
}
