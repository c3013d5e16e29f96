//! A pool that asks a [`Gate`] before it connects. Statements run on `&Pool` as they do on sqlx's own pool.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{
    ConnectOptions, Connection, Either, Error, Execute, Executor, PgConnection, PgPool, Postgres, SqlStr,
    Transaction,
};

use super::gate::{Entry, Gate};

/// How long a caller waits for a connection.
pub(super) const ACQUIRE: Duration = Duration::from_secs(10);

/// `too_many_connections`.
const TOO_MANY: &str = "53300";

/// sqlx goes on dialling a server that refuses connections until its caller's time is over, and tells nobody.
/// A connection that is not there after this time is therefore tried once more on the side.
const SUSPICION: Duration = Duration::from_millis(200);

/// How long one attempt to connect may take.
const DIAL: Duration = Duration::from_secs(5);

/// The statements of a transaction must see what others committed while it waited for a lock, whatever the
/// database or the role has as its default.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Connections of one purpose, made one at a time.
#[derive(Clone)]
pub(super) struct Pool {
    pub(super) pool: PgPool,
    pub(super) gate: Arc<Gate>,
    /// Whether a pooled connection is tried before it is used.
    pub(super) test_before_use: bool,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("size", &self.pool.size()).finish_non_exhaustive()
    }
}

/// Begins a transaction at the isolation level that every statement of ours is written for.
pub(super) async fn begin(connection: &mut PgConnection) -> Result<Transaction<'_, Postgres>, Error> {
    connection.begin_with(BEGIN).await
}

impl Pool {
    /// A connection: an idle one, or a new one if the database was there when it was last tried.
    pub(super) async fn acquire(&self) -> Result<PoolConnection<Postgres>, Error> {
        if let Some(idle) = self.idle().await {
            return Ok(idle);
        }
        tokio::time::timeout(ACQUIRE, self.wait_or_connect()).await.unwrap_or(Err(Error::PoolTimedOut))
    }

    async fn idle(&self) -> Option<PoolConnection<Postgres>> {
        while let Some(mut idle) = self.pool.try_acquire() {
            if !self.test_before_use || idle.ping().await.is_ok() {
                return Some(idle);
            }
            // Dead: there is nobody to take leave of.
            drop(idle.detach());
        }
        None
    }

    async fn wait_or_connect(&self) -> Result<PoolConnection<Postgres>, Error> {
        let _turn = match self.gate.entry() {
            Entry::Open => self.gate.turn.lock().await,
            Entry::Due => self.gate.turn.try_lock().map_err(|_| away("another caller is trying"))?,
            Entry::Shut(cause) => return Err(away(&cause)),
        };
        // Whoever had the turn before may have found that the database is away.
        if let Entry::Shut(cause) = self.gate.entry() {
            return Err(away(&cause));
        }
        if let Some(idle) = self.idle().await {
            return Ok(idle);
        }
        let made = self.connect().await;
        match &made {
            Ok(_) => self.gate.reached(),
            // All connections are busy; a database that is away was told from that by `connect`.
            Err(Error::PoolTimedOut | Error::PoolClosed) => {}
            Err(error) => self.gate.failed(error),
        }
        made
    }

    async fn connect(&self) -> Result<PoolConnection<Postgres>, Error> {
        let mut connection = std::pin::pin!(self.pool.acquire());
        let mut suspicion = SUSPICION;
        loop {
            let doubt = async {
                tokio::time::sleep(suspicion).await;
                self.dial().await
            };
            // The wait for a connection goes on while the server is dialled.
            tokio::select! {
                biased;
                made = &mut connection => return made,
                there = doubt => there?,
            }
            suspicion *= 2;
        }
    }

    /// Whether a connection can be made at all.
    async fn dial(&self) -> Result<(), Error> {
        let options = self.pool.connect_options();
        let dialled = tokio::time::timeout(DIAL, options.connect()).await;
        let made = match dialled.unwrap_or_else(|_| Err(Error::Io(io::ErrorKind::TimedOut.into()))) {
            Ok(made) => made,
            // A server that has no room for another connection is there.
            Err(Error::Database(error)) if error.code().as_deref() == Some(TOO_MANY) => return Ok(()),
            Err(error) => return Err(error),
        };
        // It has served its purpose; that it does not close well means nothing.
        let _ = made.close().await;
        Ok(())
    }
}

fn away(cause: &str) -> Error {
    let said = format!("no connection could be made, and the next attempt follows shortly: {cause}");
    Error::Io(io::Error::new(io::ErrorKind::NotConnected, said))
}

impl<'p> Executor<'p> for &Pool {
    type Database = Postgres;

    fn execute<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<PgQueryResult, Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let pool = self.clone();
        Box::pin(async move { pool.acquire().await?.execute(query).await })
    }

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let pool = self.clone();
        // Collected: our answers are pages and batches, and the connection is free again before they are read.
        let all = async move { pool.acquire().await?.fetch_many(query).try_collect::<Vec<_>>().await };
        stream::once(all).map_ok(|all| stream::iter(all).map(Ok)).try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let pool = self.clone();
        Box::pin(async move { pool.acquire().await?.fetch_optional(query).await })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'p: 'e,
    {
        let pool = self.clone();
        Box::pin(async move { pool.acquire().await?.prepare_with(sql, parameters).await })
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<sqlx::Describe<Postgres>, Error>>
    where
        'p: 'e,
    {
        let pool = self.clone();
        Box::pin(async move { pool.acquire().await?.describe(sql).await })
    }
}
