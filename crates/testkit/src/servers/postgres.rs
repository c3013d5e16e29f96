//! A PostgreSQL server of the test's own, for tests of what happens when it goes away.

use super::private::PrivateServer;

/// A PostgreSQL server of the test's own, which it may stop and kill; gone when dropped.
///
/// Its methods block until the server is in the state they name; async tests call them through
/// `tokio::task::spawn_blocking` or accept the pause.
#[derive(Debug)]
pub struct PrivatePostgres(PrivateServer);

impl PrivatePostgres {
    /// A new, empty server on a spare port.
    pub fn start() -> Self {
        Self(PrivateServer::start("postgres"))
    }

    /// Its maintenance database; the same after a restart.
    pub fn url(&self) -> &str {
        self.0.url()
    }

    /// Stops it without ceremony (`immediate`: no checkpoint, recovery at the next start) and starts it.
    pub fn restart_immediate(&self) {
        self.0.run("stop", &["immediate"]);
        self.start_again();
    }

    /// `kill -9` of the server and all its processes; it stays down until [`Self::start_again`].
    pub fn kill9(&self) {
        self.0.run("kill", &[]);
    }

    /// Starts it on the same port and data; does nothing if it runs.
    pub fn start_again(&self) {
        self.0.start_again();
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, PgConnection, query, query_scalar};

    use super::*;

    #[tokio::test]
    async fn a_private_server_keeps_what_it_committed_through_restart_and_kill() {
        let server = PrivatePostgres::start();
        let mut db = PgConnection::connect(server.url()).await.unwrap();
        query("create table t as select 1 as n").execute(&mut db).await.unwrap();

        server.restart_immediate();
        assert!(query("select 1").execute(&mut db).await.is_err(), "the old connection is cut");
        let mut db = PgConnection::connect(server.url()).await.unwrap();
        query("insert into t values (2)").execute(&mut db).await.unwrap();

        server.kill9();
        assert!(PgConnection::connect(server.url()).await.is_err(), "nothing listens after a kill");
        server.start_again();
        server.start_again();
        let mut db = PgConnection::connect(server.url()).await.unwrap();
        let sum: i64 = query_scalar("select sum(n) from t").fetch_one(&mut db).await.unwrap();
        assert_eq!(sum, 3);

        let url = server.url().to_owned();
        let folder = server.0.folder().to_owned();
        drop(server);
        assert!(PgConnection::connect(&url).await.is_err(), "nothing listens after the drop");
        assert!(!folder.exists());
    }
}
