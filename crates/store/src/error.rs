//! What a database error means to callers: try again later, or a defect of ours.

use outhaul_core::json::Json;
use outhaul_core::store::StoreError;
use sqlx::postgres::PgDatabaseError;

/// Classifies an error of either database.
pub(crate) fn from_sqlx(error: sqlx::Error) -> StoreError {
    let later = match &error {
        sqlx::Error::Database(database) => {
            undid(&error).is_some() || database.code().is_some_and(|code| passes(&code))
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        _ => false,
    };
    if later { StoreError::Unavailable(error.into()) } else { StoreError::Refused(error.into()) }
}

/// Why the server rolled back a statement with its transaction, if both may simply run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undone {
    /// Another transaction got in the way: a deadlock, or a serialization failure if a role or a pooler
    /// raises the isolation level.
    Conflict,
    /// The statement was prepared before a view or table got other columns. PostgreSQL never runs it on that
    /// connection again.
    StalePlan,
}

/// Why the failed verb was rolled back and may run again; `None`: it may not.
pub(crate) fn undone(error: &StoreError) -> Option<Undone> {
    let StoreError::Unavailable(cause) = error else { return None };
    undid(cause.downcast_ref()?)
}

/// Whether the server rolled a transaction back because of others: a conflict, or a lock that did not become free in
/// time.
pub(crate) fn rolled_back(error: &StoreError) -> bool {
    let StoreError::Unavailable(cause) = error else { return false };
    let Some(error) = cause.downcast_ref::<sqlx::Error>() else { return false };
    undid(error).is_some()
        || error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "55P03")
}

fn undid(error: &sqlx::Error) -> Option<Undone> {
    let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    match error.code() {
        "40001" | "40P01" => Some(Undone::Conflict),
        // A bug of ours could cause 0A000, too. The routine decides, because the message may be in any language.
        "0A000" if error.routine() == Some("RevalidateCachedQuery") => Some(Undone::StalePlan),
        _ => None,
    }
}

/// PostgreSQL's SQLSTATEs and SQLite's result codes of conditions that pass: connection, resources,
/// operator intervention, read-only, deadlock, lock timeout, transactions that idled or lasted too long; busy, locked,
/// full, I/O, read-only.
fn passes(code: &str) -> bool {
    if code.len() == 5 {
        return ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class))
            || ["25006", "25P03", "25P04", "40001", "40P01", "55P03"].contains(&code)
            // Authentication and missing databases: an operator mends these, not a new binary.
            || ["28000", "28P01", "3D000"].contains(&code);
    }
    let primary = code.parse::<u32>().map(|code| code & 0xff);
    matches!(primary, Ok(5 | 6 | 8 | 10 | 13 | 14))
}

/// A value in the database that no version of ours writes.
pub(crate) fn corrupt(column: &str, value: impl std::fmt::Display) -> StoreError {
    StoreError::Refused(format!("{column} holds `{value}`, which no version of outhaul writes").into())
}

/// Reads JSON text that we stored; the error shows nothing of it, for it may be a client's payload.
pub(crate) fn json(column: &str, text: &str) -> Result<Json, StoreError> {
    Json::stored(text).ok_or_else(|| StoreError::Refused(format!("{column} holds no JSON").into()))
}

/// Reads what we stored of who asked for a job.
pub(crate) fn identity(text: &str) -> Result<outhaul_core::identity::Identity, StoreError> {
    serde_json::from_str(text).map_err(|error| {
        StoreError::Refused(format!("job.identity cannot be read at column {}", error.column()).into())
    })
}

/// The parameters of a claimed chunk. The claim is made: what cannot be read must fail its own attempt, not
/// those of the chunks beside it.
pub(crate) fn readable(job_id: &str, params: &str) -> Json {
    json("job.params", params).unwrap_or_else(|error| {
        tracing::error!(job_id, %error, "the parameters of job {job_id} cannot be read");
        Json::null()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passing_conditions_are_told_from_defects() {
        for code in ["08006", "53300", "57P01", "57P03", "25006", "25P03", "40P01", "5", "517", "13", "10"] {
            assert!(passes(code), "{code}");
        }
        for code in ["0A000", "42601", "23505", "22021", "1", "19", "2067"] {
            assert!(!passes(code), "{code}");
        }
    }
}
