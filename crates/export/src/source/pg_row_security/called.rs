//! Everything in a query's text that may call a function. PostgreSQL does not tell which functions a query calls
//! without making a view of it, which needs a database that can be written to; but whatever it calls by name
//! stands in its text. Rather too much is found than too little: only what is `SECURITY DEFINER` matters.

use std::borrow::Cow;

use crate::source::lexer::{Dialect, Token, Unterminated, token};

/// A name that may be a function's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Called {
    /// What stands before it and a dot, for what can only be a schema.
    pub(super) schema: Option<String>,
    /// The name; unquoted ones in lower case.
    pub(super) name: String,
    /// How it would be called.
    pub(super) manner: Manner,
}

/// The ways to write a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// `name(…)`
    Call,
    /// `relation.name`, most often a column.
    Row,
    /// `(…).name`
    Value,
}

impl Manner {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Row => "row",
            Self::Value => "value",
        }
    }
}

/// Why the names of a query cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    /// The server knows more ways to write a name than are worth knowing here.
    #[error("has a name written as U&\"…\", which is not looked into; write it without escapes")]
    Escaped,
    /// Templates are checked for it, so that nobody sees this.
    #[error("has a {0} that does not end")]
    Unterminated(&'static str),
}

enum Piece {
    Name(String),
    Dot,
    Open,
    Else,
}

/// Lists the names; `sql` is PostgreSQL's.
pub(super) fn called(sql: &str) -> Result<Vec<Called>, Unreadable> {
    let pieces = pieces(sql)?;
    let before = |i: usize, by: usize| i.checked_sub(by).and_then(|i| pieces.get(i));
    let mut found = Vec::new();
    for (i, piece) in pieces.iter().enumerate() {
        let Piece::Name(name) = piece else { continue };
        let dotted = matches!(before(i, 1), Some(Piece::Dot));
        let owner = before(i, 2).filter(|_| dotted);
        let (schema, manner) = match (pieces.get(i + 1), owner) {
            (Some(Piece::Open), Some(Piece::Name(schema))) => (Some(schema.clone()), Manner::Call),
            (Some(Piece::Open), _) => (None, Manner::Call),
            (_, Some(Piece::Name(_))) => (None, Manner::Row),
            (_, Some(_)) => (None, Manner::Value),
            (_, None) => continue,
        };
        let called = Called { schema, name: name.clone(), manner };
        if !found.contains(&called) {
            found.push(called);
        }
    }
    Ok(found)
}

/// The text without blanks, as far as names are concerned.
fn pieces(sql: &str) -> Result<Vec<Piece>, Unreadable> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    while at < sql.len() {
        let (kind, end) = token(sql.as_bytes(), at, Dialect::Postgres)
            .map_err(|Unterminated(what)| Unreadable::Unterminated(what))?;
        let text = &sql[at..end];
        if text.eq_ignore_ascii_case("u") && sql[end..].starts_with("&\"") {
            return Err(Unreadable::Escaped);
        }
        match kind {
            Token::Blank => {}
            Token::Open => pieces.push(Piece::Open),
            _ => pieces.push(name(text).map_or_else(
                || if text == "." { Piece::Dot } else { Piece::Else },
                |name| Piece::Name(name.into_owned()),
            )),
        }
        at = end;
    }
    Ok(pieces)
}

/// A word or a quoted identifier, as the name it is.
fn name(text: &str) -> Option<Cow<'_, str>> {
    if let Some(quoted) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        return Some(quoted.replace("\"\"", "\"").into());
    }
    let first = text.chars().next()?;
    // `E'…'` begins like a word.
    let is_word = (first.is_ascii_alphabetic() || first == '_' || !first.is_ascii()) && !text.ends_with('\'');
    is_word.then(|| text.to_lowercase().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(sql: &str) -> Vec<String> {
        let line = |called: Called| {
            let schema = called.schema.map(|schema| format!("{schema}.")).unwrap_or_default();
            format!("{} {schema}{}", called.manner.as_str(), called.name)
        };
        called(sql).unwrap().into_iter().map(line).collect()
    }

    #[test]
    fn calls_are_found_however_they_are_written() {
        for (sql, expected) in [
            ("select F(1), f(2) from t", vec!["call f"]),
            ("select f /* why ( */ -- and\n (1)", vec!["call f"]),
            ("select s . f(1), db.\"S\".\"a\"\"B c\"(1)", vec!["call s.f", "row S", "call S.a\"B c"]),
            (
                "select t.f, (t).g, t[1].h, 'x.i(' || $$j($$ || E'k(' from t",
                vec!["row f", "value g", "value h"],
            ),
            ("select grün(1), \"U\"&\"x\", U & x", vec!["call grün"]),
            ("select 1.5, 'it''s' -- f(1)", vec![]),
            ("table t", vec![]),
        ] {
            assert_eq!(listed(sql), expected, "{sql}");
        }
    }

    #[test]
    fn names_that_hide_behind_escapes_are_not_passed_over() {
        for sql in ["select u&\"\\0066\"(1)", "select s.U&\"f\"(1)"] {
            assert_eq!(called(sql), Err(Unreadable::Escaped), "{sql}");
        }
        assert!(called("select u&'\\0066'").unwrap().is_empty());
    }
}
