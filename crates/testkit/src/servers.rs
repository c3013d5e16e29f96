//! The servers that tests use: the shared ones of `scripts/services run`, and private ones for tests
//! that stop or kill theirs. Without `run` around them tests fail: a skip is never silent.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Where the shared S3-compatible server is, and how to sign in.
#[derive(Debug, Clone)]
pub struct S3Settings {
    /// Base URL, plain HTTP.
    pub endpoint: String,
    /// Key id with all rights.
    pub access_key_id: String,
    /// The key's secret.
    pub secret_access_key: String,
    /// A bucket that exists; tests share it, see [`unique_prefix`].
    pub bucket: String,
}

/// The shared PostgreSQL server's maintenance database. Tests take a [`crate::test_db::TestDb`].
pub fn postgres_url() -> String {
    setting("OUTHAUL_TEST_POSTGRES_URL")
}

/// The shared S3-compatible server.
pub fn s3() -> S3Settings {
    S3Settings {
        endpoint: setting("OUTHAUL_TEST_S3_ENDPOINT"),
        access_key_id: setting("OUTHAUL_TEST_S3_ACCESS_KEY_ID"),
        secret_access_key: setting("OUTHAUL_TEST_S3_SECRET_ACCESS_KEY"),
        bucket: setting("OUTHAUL_TEST_S3_BUCKET"),
    }
}

/// A name of 16 random letters and digits: a folder in the bucket where no other test writes.
pub fn unique_prefix() -> String {
    format!("{:016x}", rand::random::<u64>())
}

/// A PostgreSQL server of the test's own, which it may stop and kill; gone when dropped.
///
/// Its methods block until the server is in the state they name; async tests call them through
/// `tokio::task::spawn_blocking` or accept the pause.
#[derive(Debug)]
pub struct PrivatePostgres {
    folder: TempDir,
    url: String,
}

impl PrivatePostgres {
    /// A new, empty server on a spare port.
    pub fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("postgres-")
            .tempdir_in(setting("OUTHAUL_TEST_SERVICES_DIR"))
            .expect("make a folder for a private server");
        let url = services(&["postgres-start"], folder.path());
        Self { folder, url }
    }

    /// Its maintenance database; the same after a restart.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops it without ceremony (`immediate`: no checkpoint, recovery at the next start) and starts it.
    pub fn restart_immediate(&self) {
        services(&["postgres-stop", "immediate"], self.folder.path());
        self.start_again();
    }

    /// `kill -9` of the server and all its processes; it stays down until [`Self::start_again`].
    pub fn kill9(&self) {
        services(&["postgres-kill"], self.folder.path());
    }

    /// Starts it on the same port and data; does nothing if it runs.
    pub fn start_again(&self) {
        let url = services(&["postgres-start"], self.folder.path());
        assert_eq!(url, self.url, "a restarted server keeps its port");
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        // Only reported: the end of the run stops whatever is left below its folder.
        if let Err(error) = try_services(&["postgres-kill"], self.folder.path()) {
            eprintln!("a private PostgreSQL was not stopped: {error}");
        }
    }
}

fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run the tests with `make test` (it starts the servers they need)")
    })
}

/// Runs `scripts/services COMMAND FOLDER [MODE]` and returns what it prints.
fn services(command: &[&str], folder: &Path) -> String {
    try_services(command, folder).unwrap_or_else(|error| panic!("scripts/services {command:?}: {error}"))
}

fn try_services(command: &[&str], folder: &Path) -> Result<String, String> {
    let (verb, rest) = command.split_first().expect("a command");
    // The script is found at run time: builds are shared between checkouts.
    let output = Command::new(setting("OUTHAUL_TEST_SERVICES"))
        .arg(verb)
        .arg(folder)
        .args(rest)
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
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
        let folder = server.folder.path().to_owned();
        drop(server);
        assert!(PgConnection::connect(&url).await.is_err(), "nothing listens after the drop");
        assert!(!folder.exists());
    }

    #[test]
    fn the_shared_s3_server_is_there() {
        let s3 = s3();
        let address = s3.endpoint.strip_prefix("http://").unwrap();
        std::net::TcpStream::connect(address).unwrap();
        assert_ne!(unique_prefix(), unique_prefix());
    }
}
