//! A transaction on PostgreSQL takes on the rights of one caller, in PostgREST's manner: its role, and its
//! claims in `request.jwt.claims`. Both are LOCAL: they end with the transaction, however it ends.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row as _};

use super::pg_session::answer;
use crate::rights::Assumed;

/// Tells the claims; answers who the queries now run as and who signed in, and whether row-level security is
/// nothing to either.
const TELL: &str = "select pg_catalog.set_config('request.jwt.claims', $1, true), \
    current_user::text, session_user::text, \
    (select r.rolsuper or r.rolbypassrls from pg_catalog.pg_roles as r where r.rolname = current_user), \
    (select r.rolsuper or r.rolbypassrls from pg_catalog.pg_roles as r where r.rolname = session_user)";

/// Who the queries of a transaction run as.
pub(super) struct Acting {
    /// Its name.
    pub(super) name: String,
    /// To whom row-level security is nothing: itself, or else whoever signed in, for a query can go back to it
    /// from any role (`set_config('role', 'none', true)`).
    pub(super) unbound: Option<String>,
}

/// Takes the rights on, for the rest of the transaction.
pub(super) async fn assume(connection: &mut PgConnection, assumed: &Assumed) -> sqlx::Result<Acting> {
    let role = assumed.role.as_deref().map(|role| format!("; set local role {}", quoted(role)));
    // Where it is off, queries fail rather than show less: so it is on, whatever the user's default says.
    let begin = format!("set local row_security = on{}", role.unwrap_or_default());
    answer(sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *connection)).await?;
    let tell = sqlx::query(TELL).persistent(false).bind(&assumed.claims);
    let row = answer(tell.fetch_one(connection)).await?;
    let (name, user): (String, String) = (row.try_get(1)?, row.try_get(2)?);
    // Unknown counts as yes.
    let bypasses = |column| Ok::<_, sqlx::Error>(row.try_get::<Option<bool>, _>(column)?.unwrap_or(true));
    let unbound = if bypasses(3)? { Some(name.clone()) } else { bypasses(4)?.then_some(user) };
    Ok(Acting { name, unbound })
}

/// A name as an identifier that can mean nothing else. NUL cannot be in it: role names are checked at start.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
