//! Ends transactions on a PostgreSQL source from another connection: our own transactions that must stop, and
//! transactions that an earlier holder of the slot left running. Nobody else's transaction is ever ended.
//!
//! Behind a pooler in transaction mode a backend serves one client after the other. So the backend's pid, start time
//! and session name do not say whose transaction it runs now. Each of our transactions therefore has a name that
//! nothing else ever has, `SLOT#RANDOM`, set LOCAL as its `application_name`: a backend has that name exactly as
//! long as it runs that transaction. The statement that ends a backend selects it by that name.
//!
//! A direct session (`pg_direct.rs`) has a backend that serves nobody else. The whole session has such a name, also
//! between two transactions. So the next holder of the slot ends a backend only while it is not idle.
//!
//! One race remains. Between the statement's check of the name and its signal pass some microseconds, in which the
//! transaction could end and the pooler could give its backend to another client:
//!
//! - With a transaction of our own this cannot happen. We close its connection first, without COMMIT, and a pooler
//!   closes the backend of a client that leaves in the middle of a transaction. Once COMMIT was sent, nothing is
//!   ended any more: the query is over.
//! - With a transaction of an earlier holder it can happen only if that process is alive, has lost its slot, and
//!   sends its COMMIT within these microseconds.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;

/// PostgreSQL truncates longer names, and two truncated names could be equal.
const MAX_NAME_BYTES: usize = 63;
/// Length of the suffix that makes a transaction's name unique: `#` and 12 hexadecimal digits.
const MARK_BYTES: usize = 13;
/// How long to wait between two checks whether a signalled transaction has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A slot's name as `application_name` takes it: ASCII, and with room for a transaction's mark.
pub(super) fn session_name(slot: &str) -> String {
    const MOST: usize = MAX_NAME_BYTES - MARK_BYTES;
    if slot.len() <= MOST && slot.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return slot.to_owned();
    }
    let hash = Sha256::digest(slot.as_bytes());
    let hash: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    let readable = slot.chars().filter(|char| char.is_ascii_graphic() && *char != '#');
    format!("{}~{hash}", readable.take(MOST - 1 - hash.len()).collect::<String>())
}

/// A unique name for one transaction of a session.
pub(super) fn transaction_name(session: &str) -> String {
    format!("{session}#{:012x}", rand::random::<u64>() >> 16)
}

/// A name as a literal. Standard strings are pinned, so that a backslash is nothing special.
pub(super) fn literal(name: &str) -> String {
    format!("'{}'", name.replace('\'', "''"))
}

/// Ends the transaction of this name, if this backend still runs it. One simple query: behind a pooler, a prepared
/// statement could be bound on another backend than it was parsed on.
pub(super) async fn end(spare: &mut PgConnection, pid: i32, transaction: &str) -> sqlx::Result<()> {
    let sql = format!(
        "select pg_catalog.pg_terminate_backend(pid) from pg_catalog.pg_stat_activity \
         where pid = {pid} and application_name = {}",
        literal(transaction)
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(spare).await.map(drop)
}

/// Whether anything else has the name of a transaction of this session, as an expression. A hint, to be followed by
/// [`evict`]: the view `pg_stat_activity` would tell more, and costs three times as much.
pub(super) fn crowded(session: &str) -> String {
    let named = named(session);
    format!(
        "exists (select from pg_catalog.pg_stat_get_activity(null) where {named} and pid <> pg_catalog.pg_backend_pid())"
    )
}

/// Whether `application_name` is that of a transaction of this session, and `state` that of a running one.
fn named(session: &str) -> String {
    let prefix = format!("{session}#");
    let name = format!("pg_catalog.left(application_name, {}) = {}", prefix.len(), literal(&prefix));
    format!("{name} and state is distinct from 'idle'")
}

/// Ends the transactions of a session's name, other than that of the backend `own`, and returns when they have
/// ended. Needs a connection outside of any transaction: one transaction sees one state of `pg_stat_activity`.
pub(super) async fn evict(spare: &mut PgConnection, session: &str, own: i32) -> sqlx::Result<()> {
    // Does not wait for each one to end: the next would then be signalled long after its name was checked. Workers of
    // a parallel query share the name of their leader, and end with it.
    let sql = format!(
        "select pg_catalog.pg_terminate_backend(pid) from pg_catalog.pg_stat_activity \
         where {} and usename = current_user and datname = pg_catalog.current_database() \
         and backend_type = 'client backend' and pid <> {own}",
        named(session)
    );
    let mut said = false;
    loop {
        let told = sqlx::raw_sql(AssertSqlSafe(sql.clone())).fetch_all(&mut *spare).await?;
        if told.is_empty() {
            return Ok(());
        }
        if !std::mem::replace(&mut said, true) {
            tracing::warn!(
                slot = session,
                count = told.len(),
                "ending what an earlier holder of slot {session} left at work"
            );
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_never_meet() {
        assert_eq!(session_name("outhaul:1a2b:source:warehouse:3"), "outhaul:1a2b:source:warehouse:3");
        let long = |end| session_name(&format!("outhaul:1a2b:source:{}:{end}", "x".repeat(80)));
        assert!(transaction_name(&long(1)).len() <= MAX_NAME_BYTES && long(1).is_ascii());
        assert_ne!(long(1), long(2));
        assert_ne!(session_name("outhaul:grün:1"), session_name("outhaul:grn:1"));
        assert_ne!(transaction_name("outhaul:1"), transaction_name("outhaul:1"));
        // No name of a transaction of one slot begins like those of another.
        assert_ne!(session_name("outhaul:1#2"), "outhaul:1#2");
        assert!(!session_name("outhaul:1#2").contains('#'));
    }

    #[test]
    fn names_stay_values() {
        assert_eq!(literal("it's"), "'it''s'");
        assert!(named("it's").starts_with("pg_catalog.left(application_name, 5) = 'it''s#' and "));
    }
}
