//! What is told of a database's answer. Its own words quote values: a cast that fails names what it could not
//! cast. Where rows depend on who asks, they may be rows of others, and a job's error is read by people who may
//! not see them; so only the code is told there, in a cause and in a log alike.

use sqlx::error::DatabaseError;
use sqlx::postgres::PgDatabaseError;

/// What `set role` answers for a role that is not there.
const NO_SUCH_ROLE: &str = "22023";

/// Whose words are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// The database's own.
    Own,
    /// Its own about names, syntax, rights and roles, which hold nothing of a row that was not read; else ours.
    /// For queries that are planned and not run.
    OfPlanning,
    /// Ours, around the code.
    Code,
}

impl Words {
    /// For a query whose rows depend on somebody, or do not.
    pub(super) fn for_rows(scoped: bool) -> Self {
        if scoped { Self::Code } else { Self::Own }
    }

    /// A server's answer, by its SQLSTATE.
    pub(super) fn of_state(self, answer: &dyn DatabaseError) -> String {
        let code = answer.code().unwrap_or_default();
        match self {
            Self::Own => answer.message().to_owned(),
            Self::OfPlanning if code.starts_with("42") || code == NO_SUCH_ROLE => with_hint(answer),
            Self::OfPlanning | Self::Code => coded(class(&code), &format!("SQLSTATE {code}")),
        }
    }

    /// SQLite's answer, by its result code.
    pub(super) fn of_result(self, answer: &dyn DatabaseError) -> String {
        let code = answer.code().unwrap_or_default();
        match self {
            Self::Own => answer.message().to_owned(),
            Self::OfPlanning | Self::Code => coded("an error", &format!("result code {code}")),
        }
    }

    /// What is no answer of a database, such as a value of the wrong type.
    pub(super) fn of_other(self, error: &sqlx::Error) -> String {
        match self {
            Self::Own => error.to_string(),
            Self::OfPlanning | Self::Code => "the answer is not what was asked for".to_owned(),
        }
    }
}

/// What PostgreSQL suggests where a name or a type is wrong; for operators.
pub(super) fn hint(answer: &dyn DatabaseError) -> Option<&str> {
    let answer = answer.try_downcast_ref::<PgDatabaseError>()?;
    answer.hint().filter(|_| answer.code().starts_with("42")).map(|hint| hint.trim_end_matches('.'))
}

fn with_hint(answer: &dyn DatabaseError) -> String {
    let hint = hint(answer).map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{}{hint}", answer.message())
}

fn coded(kind: &str, code: &str) -> String {
    format!("{kind} ({code}); the database's own words are not shown, for they may quote rows")
}

/// The standard's name for a SQLSTATE's class.
fn class(code: &str) -> &'static str {
    match code.get(..2).unwrap_or_default() {
        "08" => "connection exception",
        "0A" => "feature not supported",
        "21" => "cardinality violation",
        "22" => "data exception",
        "23" => "integrity constraint violation",
        "25" => "invalid transaction state",
        "28" => "invalid authorization",
        "3D" => "invalid database name",
        "3F" => "invalid schema name",
        "40" => "transaction rollback",
        "42" => "syntax error or access rule violation",
        "53" => "insufficient resources",
        "54" => "program limit exceeded",
        "55" => "object not in prerequisite state",
        "57" => "operator intervention",
        "58" => "system error",
        "P0" => "an error that a function raised",
        _ => "an error",
    }
}
