//! The schema that holds the engine's tables. Statements are written for the default schema and name it with every
//! table, because a `search_path` does not survive a transaction-mode pooler. For another schema the name is replaced.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use outhaul_core::store::{StoreError, StoreResult};

/// The schema that statements are written for, and the default of `database.schema`.
pub const DEFAULT: &str = "outhaul";

/// PostgreSQL cuts longer names off.
const MAX_BYTES: usize = 63;

/// What is wrong with a name of a schema. Names that need quotes are refused, so that no statement needs any.
pub fn check_schema(name: &str) -> Result<(), &'static str> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    match starts_well && name.bytes().all(plain) && name.len() <= MAX_BYTES && !name.starts_with("pg_") {
        true => Ok(()),
        false => Err(
            "must consist of a to z, 0 to 9 and _, must not start with a digit or pg_, and may have 63 characters",
        ),
    }
}

/// The name of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schema(&'static str);

/// Statements rewritten for other schemas, by schema and statement. Each is made once per process and lives as long as
/// the process, because sqlx wants statements that live for ever.
static REWRITTEN: Mutex<Option<HashMap<(&'static str, &'static str), &'static str>>> = Mutex::new(None);
static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

impl Schema {
    /// A schema by its name.
    pub(crate) fn new(name: &str) -> StoreResult<Self> {
        check_schema(name).map_err(|problem| StoreError::Unsafe(format!("database.schema: {problem}")))?;
        if name == DEFAULT {
            return Ok(Self(DEFAULT));
        }
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.iter().find(|known| **known == name) {
            return Ok(Self(known));
        }
        let name: &'static str = name.to_owned().leak();
        names.push(name);
        Ok(Self(name))
    }

    pub(crate) fn name(self) -> &'static str {
        self.0
    }

    /// The statement for this schema.
    pub(crate) fn sql(self, statement: &'static str) -> &'static str {
        if self.0 == DEFAULT {
            return statement;
        }
        let mut rewritten = REWRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        rewritten
            .get_or_insert_default()
            .entry((self.0, statement))
            .or_insert_with(|| statement.replace(&format!("{DEFAULT}."), &format!("{}.", self.0)).leak())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_name_the_schema() {
        let of = |name| Schema::new(name).unwrap().sql("SELECT 1 FROM outhaul.job JOIN outhaul.queue");
        assert_eq!(of("outhaul"), "SELECT 1 FROM outhaul.job JOIN outhaul.queue");
        assert_eq!(of("jobs_2"), "SELECT 1 FROM jobs_2.job JOIN jobs_2.queue");
        assert!(std::ptr::eq(of("jobs_2"), of("jobs_2")), "made once");
    }

    #[test]
    fn names_that_would_need_quotes_are_refused() {
        for name in ["", "Outhaul", "1a", "a-b", "a b", "a\"b", "pg_x", "ä", &"a".repeat(64)] {
            assert!(Schema::new(name).is_err(), "{name}");
        }
    }
}
