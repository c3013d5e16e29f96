//! A database per test on the shared PostgreSQL server, so that all tests run in parallel.
//! It is dropped, with whatever connections are still open, when the value is.

mod template;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::servers::{postgres_url, unique_prefix};

/// A database of the test's own.
#[derive(Debug)]
pub struct TestDb {
    name: String,
    url: String,
}

impl TestDb {
    /// Makes an empty one: a source, or for tests of migrations.
    pub async fn create() -> Self {
        let db = Self::with_new_name();
        on_server(&format!("create database {}", db.name)).await.expect("create a test database");
        db
    }

    /// Makes one that has the engine's schema, as a new installation.
    pub async fn migrated() -> Self {
        let db = Self::with_new_name();
        template::clone_as(&db.name).await.expect("clone the template database");
        db
    }

    fn with_new_name() -> Self {
        let name = format!("outhaul_test_{}", unique_prefix());
        let url = url_of(&name);
        Self { name, url }
    }

    /// Where to connect.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let sql = format!("drop database if exists {} with (force)", self.name);
        // A thread of its own: the test's runtime may be busy with this very drop, or shutting down.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(on_server(&sql))
        });
        // Only reported: the server goes with the run, and a panic here would hide the test's own.
        match dropped.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("test database {} was not dropped: {error}", self.name),
            Err(_) => eprintln!("test database {} was not dropped: the thread panicked", self.name),
        }
    }
}

fn url_of(name: &str) -> String {
    let server = postgres_url();
    let (server, _) = server.rsplit_once('/').expect("the server's URL names a database");
    format!("{server}/{name}")
}

async fn on_server(sql: &str) -> Result<(), sqlx::Error> {
    let mut server = PgConnection::connect(&postgres_url()).await?;
    sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&mut server).await?;
    server.close().await
}

#[cfg(test)]
mod tests {
    use outhaul_core::secret::Secret;
    use outhaul_store::postgres::{DEFAULT_SCHEMA, migrate};
    use sqlx::query_scalar;

    use super::*;

    #[tokio::test]
    async fn each_has_its_own_and_it_goes_with_open_connections() {
        let (one, two) = (TestDb::create().await, TestDb::create().await);
        assert_ne!(one.url(), two.url());
        let mut open = PgConnection::connect(one.url()).await.unwrap();
        let name: String = query_scalar("select current_database()").fetch_one(&mut open).await.unwrap();
        assert_eq!(name, one.name);

        drop(one);
        let mut server = PgConnection::connect(&postgres_url()).await.unwrap();
        let left: i64 = query_scalar("select count(*) from pg_database where datname = $1")
            .bind(name)
            .fetch_one(&mut server)
            .await
            .unwrap();
        assert_eq!(left, 0);
    }

    /// Several at once, as at the start of a run, when the template is still to be made.
    #[tokio::test]
    async fn migrated_ones_are_installations_of_their_own() {
        let made = futures::future::join_all((0..4).map(|_| TestDb::migrated())).await;
        let mut names = std::collections::BTreeSet::new();
        for db in &made {
            let installation = migrate(&Secret::new(db.url()), DEFAULT_SCHEMA, false)
                .await
                .expect("nothing is left to migrate");
            names.insert(installation);
        }
        assert_eq!(names.len(), made.len(), "{names:?}");
    }
}
