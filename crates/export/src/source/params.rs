//! A dataset's query with its placeholders found, once, at start. Values are put in as SQL literals
//! (PostgreSQL's COPY takes no bind parameters, see `docs/adr/0002-parameters-in-copy.md`) or by
//! number, for databases that bind them.

use chrono::{Datelike, NaiveDate};

use super::lexer::{Dialect, Token, Unterminated, token};

/// A value that a query may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// `:key`, a text.
    Key,
    /// `:effective_date`, a date.
    EffectiveDate,
}

/// A query cut at its placeholders. One statement, balanced, with nothing left open at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<(String, Param)>,
    tail: String,
}

/// What is wrong with a dataset's query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A placeholder of another name.
    #[error(
        "unknown placeholder `:{0}`; there are `:key` and `:effective_date` (leave a space after a colon that starts no placeholder)"
    )]
    Unknown(String),
    /// A placeholder in another form.
    #[error("placeholder `{0}` cannot be filled in; write `:key` or `:effective_date`")]
    Foreign(String),
    /// More than one statement.
    #[error("must be one statement, but goes on after a semicolon")]
    SeveralStatements,
    /// A literal, identifier or comment without an end.
    #[error("has a {0} that does not end")]
    Unterminated(&'static str),
    /// Parentheses that do not match.
    #[error("has parentheses that do not match")]
    Unbalanced,
    /// No statement at all.
    #[error("is empty")]
    Empty,
}

/// A value that no literal can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LiteralError {
    /// PostgreSQL's text has no NUL.
    #[error("the key contains a NUL character")]
    Nul,
    /// Outside the years that every database takes.
    #[error("the date is outside the years 1 to 9999")]
    Year,
}

impl Template {
    /// Finds the placeholders of a query, or says what is wrong with it.
    pub fn parse(query: &str, dialect: Dialect) -> Result<Self, TemplateError> {
        let (mut pieces, mut piece) = (Vec::new(), 0);
        let (mut at, mut end, mut depth, mut empty) = (0, None, 0_usize, true);
        while at < query.len() {
            let (kind, next) = token(query.as_bytes(), at, dialect)
                .map_err(|Unterminated(what)| TemplateError::Unterminated(what))?;
            if end.is_some() && kind != Token::Blank {
                return Err(TemplateError::SeveralStatements);
            }
            match kind {
                Token::Semicolon => end = Some(at),
                Token::Open => depth += 1,
                Token::Close => depth = depth.checked_sub(1).ok_or(TemplateError::Unbalanced)?,
                Token::ForeignPlaceholder => return Err(TemplateError::Foreign(query[at..next].to_owned())),
                Token::Placeholder => {
                    let param = match &query[at + 1..next] {
                        "key" => Param::Key,
                        "effective_date" => Param::EffectiveDate,
                        name => return Err(TemplateError::Unknown(name.to_owned())),
                    };
                    pieces.push((query[piece..at].to_owned(), param));
                    piece = next;
                }
                Token::Blank | Token::Other => {}
            }
            empty &= matches!(kind, Token::Blank | Token::Semicolon);
            at = next;
        }
        if empty {
            return Err(TemplateError::Empty);
        }
        if depth > 0 {
            return Err(TemplateError::Unbalanced);
        }
        Ok(Self { pieces, tail: query[piece..end.unwrap_or(query.len())].to_owned() })
    }

    /// The query with values as literals, for PostgreSQL.
    pub fn with_literals(&self, key: &str, effective_date: NaiveDate) -> Result<String, LiteralError> {
        let (key, date) = (text_literal(key)?, date_literal(effective_date)?);
        Ok(self.with(|param| match param {
            Param::Key => &key,
            Param::EffectiveDate => &date,
        }))
    }

    /// The query with `?1` for the key and `?2` for the effective date, to be bound.
    pub fn with_numbers(&self) -> String {
        self.with(|param| match param {
            Param::Key => "?1",
            Param::EffectiveDate => "?2",
        })
    }

    fn with<'a>(&self, value: impl Fn(Param) -> &'a str) -> String {
        let mut sql = String::new();
        for (text, param) in &self.pieces {
            sql.push_str(text);
            sql.push_str(value(*param));
        }
        sql.push_str(&self.tail);
        sql
    }
}

/// A text as a PostgreSQL expression that can mean nothing else, whatever
/// `standard_conforming_strings` says: with a backslash in it, it is an `E'…'`, as `quote_literal`
/// writes it. The parentheses keep it from joining a neighbouring literal.
pub fn text_literal(value: &str) -> Result<String, LiteralError> {
    if value.contains('\0') {
        return Err(LiteralError::Nul);
    }
    let quotes_doubled = value.replace('\'', "''");
    Ok(if value.contains('\\') {
        format!("(E'{}'::text)", quotes_doubled.replace('\\', "\\\\"))
    } else {
        format!("('{quotes_doubled}'::text)")
    })
}

/// A date as a PostgreSQL expression; ISO form reads the same under every DateStyle.
pub fn date_literal(date: NaiveDate) -> Result<String, LiteralError> {
    Ok(format!("(DATE '{}')", iso(date)?))
}

/// A date as `yyyy-mm-dd`.
pub fn iso(date: NaiveDate) -> Result<String, LiteralError> {
    if !(1..=9999).contains(&date.year()) {
        return Err(LiteralError::Year);
    }
    Ok(date.format("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(query: &str, dialect: Dialect) -> Result<String, TemplateError> {
        Template::parse(query, dialect).map(|template| template.with_numbers())
    }

    #[test]
    fn placeholders_are_found_in_code_only() {
        for (query, expected) in [
            ("select :key, :effective_date", "select ?1, ?2"),
            ("select :key::int, a::text, b:=1", "select ?1::int, a::text, b:=1"),
            ("select 1::date::text,:key", "select 1::date::text,?1"),
            ("select ':key', 'it''s :key', :key", "select ':key', 'it''s :key', ?1"),
            ("select '\\', :key", "select '\\', ?1"),
            (r"select E'\':key', e'\\', :key", r"select E'\':key', e'\\', ?1"),
            ("select E'a'\n'\\':key', :key", "select E'a'\n'\\':key', ?1"),
            ("select E'a' -- x\n  '\\':key', :key", "select E'a' -- x\n  '\\':key', ?1"),
            ("select E'a', '\\', :key", "select E'a', '\\', ?1"),
            (r#"select ":key", "a"":key", :key"#, r#"select ":key", "a"":key", ?1"#),
            ("select $$:key$$, $a$ $$ :key $b$ $a$, :key", "select $$:key$$, $a$ $$ :key $b$ $a$, ?1"),
            ("select a$b$, :key, c$b$", "select a$b$, ?1, c$b$"),
            ("select $1, :key", "select $1, ?1"),
            ("select 1 -- :key ' \n, :key", "select 1 -- :key ' \n, ?1"),
            ("select /* :key /* :key */ ' */ :key", "select /* :key /* :key */ ' */ ?1"),
            ("select name'x', U&'\\0041:key', :key", "select name'x', U&'\\0041:key', ?1"),
            ("select a[1: 2], :key", "select a[1: 2], ?1"),
            ("select 'größe', größe, :key", "select 'größe', größe, ?1"),
        ] {
            assert_eq!(numbered(query, Dialect::Postgres).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn sqlite_has_its_own_quotes_and_placeholders() {
        for (query, expected) in [
            ("select `:key`, [:key], \":key\", ':key', :key", "select `:key`, [:key], \":key\", ':key', ?1"),
            ("select /* /* :key */ :key", "select /* /* :key */ ?1"),
            (r"select e'\', :key", r"select e'\', ?1"),
        ] {
            assert_eq!(numbered(query, Dialect::Sqlite).as_deref(), Ok(expected));
        }
        for foreign in ["?", "@key", "$key"] {
            let found = numbered(&format!("select {foreign}"), Dialect::Sqlite);
            assert_eq!(found, Err(TemplateError::Foreign(foreign.to_owned())));
        }
    }

    #[test]
    fn what_cannot_be_one_query_is_refused() {
        use TemplateError::*;
        for (query, problem) in [
            ("select :kee", Unknown("kee".into())),
            ("select :KEY", Unknown("KEY".into())),
            ("select :key_2", Unknown("key_2".into())),
            ("select a[lo:hi]", Unknown("hi".into())),
            ("select 1; drop table t", SeveralStatements),
            ("select 1;;", SeveralStatements),
            ("select 'a", Unterminated("string literal")),
            (r"select E'a\'", Unterminated("string literal")),
            ("select \"a", Unterminated("quoted identifier")),
            ("select $x$ $y$", Unterminated("dollar-quoted string")),
            ("select 1 /* /* */", Unterminated("comment")),
            ("select 1) to stdout --", Unbalanced),
            ("select (1", Unbalanced),
            (" -- nothing\n;", Empty),
            ("", Empty),
        ] {
            assert_eq!(numbered(query, Dialect::Postgres), Err(problem), "{query}");
        }
    }

    #[test]
    fn a_last_semicolon_is_dropped() {
        assert_eq!(numbered("select ';', :key ; -- done\n", Dialect::Postgres).unwrap(), "select ';', ?1 ");
    }

    #[test]
    fn literals_hold_quotes_and_backslashes_and_no_nul() {
        assert_eq!(text_literal("a'b").unwrap(), "('a''b'::text)");
        assert_eq!(text_literal(r"a\'b").unwrap(), r"(E'a\\''b'::text)");
        assert_eq!(text_literal("a\0b"), Err(LiteralError::Nul));
        let date = NaiveDate::from_ymd_opt(33, 2, 1).unwrap();
        assert_eq!(date_literal(date).unwrap(), "(DATE '0033-02-01')");
        assert_eq!(date_literal(NaiveDate::from_ymd_opt(0, 2, 1).unwrap()), Err(LiteralError::Year));
    }
}
