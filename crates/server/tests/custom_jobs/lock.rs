//! A lock that the test holds in the installation's PostgreSQL: whoever needs it waits until the test has
//! seen what it wants to see.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::common::{Process, Stack, eventually};

/// A held lock; gone with [`Lock::release`], or when dropped.
pub(crate) struct Lock {
    connection: PgConnection,
}

impl Lock {
    /// Takes the lock that a statement takes.
    pub(crate) async fn take(stack: &Stack, sql: &str) -> Self {
        let mut connection = PgConnection::connect(stack.postgres_url()).await.expect("the database answers");
        let sql = AssertSqlSafe(format!("begin; {sql}"));
        sqlx::raw_sql(sql).execute(&mut connection).await.expect("nobody else has it");
        Self { connection }
    }

    /// Waits until at least so many sessions of this installation wait for a lock.
    pub(crate) async fn wanted_by(&mut self, sessions: i64, process: &Process) {
        let waiting = "select count(*) from pg_stat_activity \
             where datname = current_database() and wait_event_type = 'Lock'";
        let connection = tokio::sync::Mutex::new(&mut self.connection);
        let what = format!("{sessions} sessions wait");
        let wanted = eventually(&what, || async {
            let mut connection = connection.lock().await;
            // Nothing new is seen of the activity within one transaction.
            let forget = "select pg_stat_clear_snapshot()";
            sqlx::query(forget).execute(&mut **connection).await.expect("the database answers");
            let count: i64 =
                sqlx::query_scalar(waiting).fetch_one(&mut **connection).await.expect("it answers");
            count >= sessions
        });
        wanted.await.unwrap_or_else(|error| panic!("{error}\n{}", process.log()));
    }

    /// Ends the sessions that wait, so that what they wait to do is not done.
    pub(crate) async fn cut_off_who_waits(&mut self) {
        let end = "select pg_terminate_backend(pid, 60000) from pg_stat_activity \
             where datname = current_database() and wait_event_type = 'Lock'";
        sqlx::query(end).execute(&mut self.connection).await.expect("the database answers");
    }

    /// Lets everybody go on.
    pub(crate) async fn release(self) {
        self.connection.close().await.expect("the lock goes with the connection");
    }
}
