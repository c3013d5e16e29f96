//! Direct sessions: connections to a PostgreSQL source that have a backend of their own, with no pooler in between.
//! A direct session keeps its settings, so that a chunk which needs one statement sends one statement. Through a
//! pooler every transaction brings its settings along.
//!
//! The proof is a random value in the connection's startup packet. A server gives it to the backend that it starts for
//! this connection. A pooler takes a backend that is there already, or will be there for others, so it refuses or
//! ignores a setting that it does not know. A backend that has the value was therefore started for this connection.
//! Nothing is set on a session before the proof.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Row as _};

use super::pg_ending::{literal, transaction_name};
use super::pg_session::answer;
use super::pg_settings::Settings;

/// The setting that holds the random value.
const MARK: &str = "outhaul.session";

/// What is known of a direct session.
#[derive(Debug)]
pub(super) struct Direct {
    /// The backend of the session.
    pub(super) pid: i32,
    /// The name of the session, which nothing else ever has.
    pub(super) name: String,
    /// Undoes what queries may have set, which leaves the settings of the startup packet.
    pub(super) reset: String,
}

/// The options of a connection that may become a direct session, and their random value.
pub(super) fn options(options: PgConnectOptions, settings: &Settings) -> (PgConnectOptions, String) {
    let mark = format!("{:032x}", rand::random::<u128>());
    (options.options(settings.startup()).options([(MARK, mark.as_str())]), mark)
}

/// Whether a connection may have failed because of its startup settings, and could succeed without them. Failures of
/// the login (28), the database's name (3D) and the state of the server (53, 57) have other causes.
pub(super) fn may_blame_settings(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(answer) => {
            let code = answer.code().unwrap_or_default();
            !["28", "3D", "53", "57"].iter().any(|class| code.starts_with(class))
        }
        sqlx::Error::Protocol(_) => true,
        sqlx::Error::Io(error) => {
            matches!(error.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset)
        }
        _ => false,
    }
}

/// Makes a connection a direct session of this slot, if the proof holds. Otherwise nothing was set.
pub(super) async fn prove(
    connection: &mut PgConnection,
    mark: &str,
    slot: &str,
) -> sqlx::Result<Option<Direct>> {
    let ask = format!(
        "select pg_catalog.pg_backend_pid(), \
         coalesce(pg_catalog.current_setting('{MARK}', true) = {}, false)",
        literal(mark)
    );
    let row = answer(sqlx::raw_sql(AssertSqlSafe(ask)).fetch_one(&mut *connection)).await?;
    if !row.try_get::<bool, _>(1)? {
        return Ok(None);
    }
    let (pid, name) = (row.try_get(0)?, transaction_name(slot));
    let reset = format!("reset all; reset role; set application_name = {}", literal(&name));
    // The server notices during a query that we are gone. Not every version and platform can, and only asking tells.
    let noticing = format!("{reset}; set client_connection_check_interval = '1s'");
    let set = answer(sqlx::raw_sql(AssertSqlSafe(noticing.clone())).execute(&mut *connection)).await;
    let reset = match set {
        Ok(_) => noticing,
        Err(sqlx::Error::Database(_)) => {
            answer(sqlx::raw_sql(AssertSqlSafe(reset.clone())).execute(connection)).await?;
            reset
        }
        Err(error) => return Err(error),
    };
    Ok(Some(Direct { pid, name, reset }))
}
