//! What a database error means to callers: try again later, or a defect of ours.

use outhaul_core::store::StoreError;

/// Classifies an error of either database.
pub(crate) fn from_sqlx(error: sqlx::Error) -> StoreError {
    let later = match &error {
        sqlx::Error::Database(database) => database.code().is_some_and(|code| passes(&code)),
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

/// PostgreSQL's SQLSTATEs and SQLite's result codes of conditions that pass: connection, resources,
/// operator intervention, read-only, deadlock and lock timeout; busy, locked, full, I/O, read-only.
fn passes(code: &str) -> bool {
    if code.len() == 5 {
        return ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class))
            || ["25006", "40001", "40P01", "55P03"].contains(&code)
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
pub(crate) fn json(column: &str, text: &str) -> Result<serde_json::Value, StoreError> {
    serde_json::from_str(text).map_err(|error| {
        StoreError::Refused(format!("{column} holds no JSON at column {}", error.column()).into())
    })
}

/// Reads what we stored of who asked for a job.
pub(crate) fn identity(text: &str) -> Result<outhaul_core::identity::Identity, StoreError> {
    serde_json::from_str(text).map_err(|error| {
        StoreError::Refused(format!("job.identity cannot be read at column {}", error.column()).into())
    })
}

/// The parameters of a claimed chunk. The claim is made: what cannot be read must fail its own attempt, not
/// those of the chunks beside it.
pub(crate) fn readable(job_id: &str, params: &str) -> serde_json::Value {
    json("job.params", params).unwrap_or_else(|error| {
        tracing::error!(job_id, %error, "the parameters of job {job_id} cannot be read");
        serde_json::Value::Null
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passing_conditions_are_told_from_defects() {
        for code in ["08006", "53300", "57P01", "57P03", "25006", "40P01", "5", "517", "13", "10"] {
            assert!(passes(code), "{code}");
        }
        for code in ["42601", "23505", "22021", "1", "19", "2067"] {
            assert!(!passes(code), "{code}");
        }
    }
}
