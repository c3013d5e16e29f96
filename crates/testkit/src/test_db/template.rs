//! The template database: it has the engine's schema, is made once per server and store version, and every test
//! that wants a migrated database clones it. A clone is cheaper than migrating.
//!
//! Test binaries of one build share the template, because its name holds a hash of the store's files (`build.rs`).

use outhaul_core::secret::Secret;
use outhaul_store::postgres::{DEFAULT_SCHEMA, migrate};
use sqlx::{AssertSqlSafe, Connection, PgConnection, query, query_scalar};

use super::{on_server, url_of};
use crate::servers::{postgres_url, unique_prefix};

const NAME: &str = concat!("outhaul_template_", env!("OUTHAUL_STORE_HASH"));

/// PostgreSQL's code for a template database that is not there.
const NO_SUCH_DATABASE: &str = "3D000";

/// A clone would be the same installation as every other clone, so it gets a name of its own.
/// The table is looked up, because its schema is the store's affair.
const NEW_INSTALLATION: &str = "do $$ begin
    execute format('update %s set value = left(replace(gen_random_uuid()::text, ''-'', ''''), 8)
                    where name = ''installation''',
        (select oid::regclass from pg_class where relname = 'meta' and relkind = 'r'));
    end $$";

/// Makes the database `name` as a clone of the template.
pub(super) async fn clone_as(name: &str) -> Result<(), sqlx::Error> {
    let clone = format!("create database {name} template {NAME}");
    match on_server(&clone).await {
        Err(error) if is_missing(&error) => {
            make().await?;
            on_server(&clone).await?;
        }
        done => done?,
    }
    let mut made = PgConnection::connect(&url_of(name)).await?;
    query(NEW_INSTALLATION).execute(&mut made).await?;
    made.close().await
}

fn is_missing(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == NO_SUCH_DATABASE)
}

/// Makes the template, unless another process made it meanwhile. The template gets its name last, so a process
/// that is killed in between leaves no half-made template behind.
async fn make() -> Result<(), sqlx::Error> {
    let mut server = PgConnection::connect(&postgres_url()).await?;
    // Held until this connection ends.
    query("select pg_advisory_lock(hashtext($1))").bind(NAME).execute(&mut server).await?;
    let made = query_scalar("select exists (select from pg_database where datname = $1)");
    if !made.bind(NAME).fetch_one(&mut server).await? {
        let draft = format!("outhaul_test_{}", unique_prefix());
        on_server(&format!("create database {draft}")).await?;
        migrate(&Secret::new(url_of(&draft)), DEFAULT_SCHEMA, true)
            .await
            .map_err(|error| sqlx::Error::Configuration(error.into()))?;
        // A connection to the template would stop everybody from cloning it.
        for change in ["with allow_connections false is_template true", &format!("rename to {NAME}")] {
            query(AssertSqlSafe(format!("alter database {draft} {change}"))).execute(&mut server).await?;
        }
    }
    server.close().await
}
