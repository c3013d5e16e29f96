//! What the errors of a PostgreSQL source blame, which decides whether another attempt can help and who may read them.

use std::io::ErrorKind;

use super::short;

/// The SQLSTATE of `set role` for a role that does not exist, among others.
const INVALID_PARAMETER: &str = "22023";

/// The answer to a write in a read-only transaction. Ours always is one, so it says nothing about the
/// state of the server.
pub(super) const READ_ONLY: &str = "25006";

/// SQLSTATEs that blame the query or its rights, rather than the state of the server: syntax, names and access
/// (42), unsupported (0A), unknown schema (3F), and a setting or role that is not there (22023).
pub(super) fn is_about_the_query(code: &str) -> bool {
    code == INVALID_PARAMETER || ["42", "0A", "3F"].iter().any(|class| code.starts_with(class))
}

/// SQLSTATEs that blame a value that was read or given, such as a division by zero: data (22), more rows than one
/// (21).
pub(super) fn is_about_the_data(code: &str) -> bool {
    code != INVALID_PARAMETER && ["22", "21"].iter().any(|class| code.starts_with(class))
}

/// SQLSTATEs about the connection, the login and the resources of the server. Their messages name addresses,
/// users and settings: `no pg_hba.conf entry for host "10.0.0.5"`.
pub(super) fn is_about_the_server(code: &str) -> bool {
    ["08", "28", "3D", "53", "58", "F0"].iter().any(|class| code.starts_with(class))
}

/// Whether the connection is gone, or the server is about to close it.
pub(super) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(answer) => {
            let code = answer.code().unwrap_or_default();
            ["08", "57P"].iter().any(|class| code.starts_with(class))
        }
        other => matches!(other, sqlx::Error::Io(_)),
    }
}

/// A cause in a few words, without anything that a URL may hold.
pub(super) fn cause(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Io(error) => match error.kind() {
            ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                "the connection was lost".to_owned()
            }
            _ => short(&error.to_string()),
        },
        sqlx::Error::Tls(error) => format!("TLS failed: {}", short(&error.to_string())),
        sqlx::Error::Protocol(_) => "unexpected answer from the server".to_owned(),
        sqlx::Error::Configuration(_) => "its settings were not accepted".to_owned(),
        _ => "the connection failed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_blames_the_query_or_the_data_is_fatal() {
        for code in ["42601", "42703", "42P01", "42501", "42883", "22023", "0A000", "3F000"] {
            assert!(is_about_the_query(code) && !is_about_the_data(code), "{code}");
        }
        for code in ["22P02", "22012", "22007", "21000"] {
            assert!(is_about_the_data(code) && !is_about_the_query(code), "{code}");
        }
        for code in ["57014", "57P01", "08006", "53300", "40001", "55P03", "28P01", "3D000", "XX000", ""] {
            assert!(!is_about_the_query(code) && !is_about_the_data(code), "{code}");
        }
    }
}
