//! A gate in the installation's own PostgreSQL: exports whose query comes to it wait there while the test
//! keeps it shut. So nothing depends on how fast a machine is.

use sqlx::{Connection, PgConnection};

use super::{Stack, eventually};

/// While the test holds this lock, exports of this installation wait inside their query, at
/// `pg_advisory_xact_lock_shared(42)`. Exports wait for a lock no longer than 30 seconds; a query that shall wait
/// as long as the test does sets `lock_timeout` to 0 before it.
pub struct Gate {
    connection: PgConnection,
}

impl Gate {
    pub async fn shut(stack: &Stack) -> Self {
        let mut connection = PgConnection::connect(stack.postgres_url()).await.expect("the source answers");
        sqlx::query("select pg_advisory_lock(42)")
            .execute(&mut connection)
            .await
            .expect("nobody else has it");
        Self { connection }
    }

    /// Waits until so many exports are at the gate.
    pub async fn reached_by(&mut self, exports: i64) {
        let connection = tokio::sync::Mutex::new(&mut self.connection);
        let what = format!("{exports} exports wait at the gate");
        let reached = eventually(&what, || async {
            let waiting: i64 = sqlx::query_scalar(
                "select count(*) from pg_locks l join pg_database d on d.oid = l.database \
                 where l.locktype = 'advisory' and not l.granted and d.datname = current_database()",
            )
            .fetch_one(&mut **connection.lock().await)
            .await
            .expect("the source answers");
            waiting == exports
        });
        reached.await.unwrap_or_else(|error| panic!("{error}"));
    }

    pub async fn open(self) {
        self.connection.close().await.expect("the lock goes with the connection");
    }
}
