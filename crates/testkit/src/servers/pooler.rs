//! A PgBouncer of the test's own, in transaction mode: every transaction of a client may run on another
//! backend, and a backend serves one client after the other.

use super::private::PrivateServer;

/// A PgBouncer in front of a PostgreSQL server; gone when dropped.
#[derive(Debug)]
pub struct PrivatePooler(PrivateServer);

impl PrivatePooler {
    /// Starts one on a spare port, in front of the server of this URL. It signs in there as the user of the URL,
    /// whoever its clients say they are.
    pub fn start(postgres_url: &str) -> Self {
        Self(PrivateServer::start_with("pgbouncer", &[postgres_url]))
    }

    /// The database of the URL that it was started with, through the pooler.
    pub fn url(&self) -> &str {
        self.0.url()
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, Executor as _, PgConnection, Row as _};

    use super::*;
    use crate::test_db::TestDb;

    #[tokio::test]
    async fn clients_share_backends() {
        let db = TestDb::create().await;
        let pooler = PrivatePooler::start(db.url());
        let mut clients = Vec::new();
        for _ in 0..2 {
            clients.push(PgConnection::connect(pooler.url()).await.unwrap());
        }
        let mut pids = Vec::new();
        for client in &mut clients {
            let row = client.fetch_one("select pg_backend_pid(), current_database()").await.unwrap();
            assert!(db.url().ends_with(&format!("/{}", row.get::<String, _>(1))));
            pids.push(row.get::<i32, _>(0));
        }
        assert_eq!(pids[0], pids[1], "one after the other on the same backend");
    }
}
