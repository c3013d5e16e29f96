//! Steps: named stages inside a custom job. A recorded result is a recovery point: whoever runs the
//! chunk next takes it from here instead of doing the work again.

use chrono::{DateTime, Utc};

use crate::json;

/// The most bytes of JSON that one step, or a job as a whole, may leave as its result.
pub const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// Why JSON text cannot be kept as a result; `None`: it can.
pub fn result_problem(result: &str) -> Option<String> {
    if result.len() > MAX_RESULT_BYTES {
        return Some(format!(
            "its result has {} bytes of JSON, {MAX_RESULT_BYTES} are allowed",
            result.len()
        ));
    }
    json::problem(result).map(|problem| format!("its result {problem}"))
}

/// What a step left behind, for the next attempt of its chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// Its name, unique in its chunk.
    pub name: String,
    /// Its result as JSON text: kept as it was, so that every database takes every JSON.
    pub result: String,
    /// When it was recorded.
    pub completed_at: DateTime<Utc>,
}

/// A finished step as clients may see it: its result is the job's own business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRow {
    /// Its name.
    pub name: String,
    /// When it was recorded.
    pub completed_at: DateTime<Utc>,
}

/// The longest name of a step.
const MAX_NAME: usize = 64;

/// Why a text cannot name a step; `None`: it can. The name stands in `Idempotency-Key` and in signed
/// text, so it is kept plain.
pub fn name_problem(name: &str) -> Option<&'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > MAX_NAME {
        return Some("must have 1 to 64 characters");
    }
    if !name.chars().all(plain) {
        return Some("may hold letters, digits, `_` and `-` only");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for name in ["deliver", "step-1", "A_b", &"x".repeat(64)] {
            assert_eq!(name_problem(name), None, "{name}");
        }
        for name in ["", "a b", "a.b", "a/b", "ü", "~sleep", "a\n", &"x".repeat(65)] {
            assert!(name_problem(name).is_some(), "{name}");
        }
    }
}
