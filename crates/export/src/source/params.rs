//! A dataset's query with its placeholders found, once, at start. Values are put in as SQL literals
//! (PostgreSQL's COPY takes no bind parameters, see `docs/adr/0002-parameters-in-copy.md`) or by
//! number, for databases that bind them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use chrono::{Datelike, NaiveDate};

use super::lexer::{Dialect, Token, Unterminated, token};

/// A value that a query may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Param {
    /// `:key`, a text.
    Key,
    /// `:effective_date`, a date.
    EffectiveDate,
    /// `:claims.NAME`, a text.
    Claim(String),
}

/// A query cut at its placeholders. One statement, balanced, with nothing left open at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<(String, Param)>,
    tail: String,
    claims: Vec<String>,
}

/// What is wrong with a dataset's query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A placeholder of another name.
    #[error(
        "unknown placeholder `:{0}`; there are `:key`, `:effective_date` and `:claims.NAME` (leave a space after a colon that starts no placeholder)"
    )]
    Unknown(String),
    /// A placeholder in another form.
    #[error("placeholder `{0}` cannot be filled in; write `:key`, `:effective_date` or `:claims.NAME`")]
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

/// A value that cannot be put in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LiteralError {
    /// PostgreSQL's text has no NUL.
    #[error("a value contains a NUL character")]
    Nul,
    /// A claim that nobody gave a value.
    #[error("its query needs claim `{0}` of a caller")]
    NoClaim(String),
    /// Outside the years that every database takes.
    #[error("the date is outside the years 1 to 9999")]
    Year,
}

impl Template {
    /// Finds the placeholders of a query, or says what is wrong with it.
    pub fn parse(query: &str, dialect: Dialect) -> Result<Self, TemplateError> {
        let (mut pieces, mut piece, mut claims) = (Vec::new(), 0, Vec::<String>::new());
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
                        name => match name.strip_prefix("claims.") {
                            Some(claim) => Param::Claim(claim.to_owned()),
                            None => return Err(TemplateError::Unknown(name.to_owned())),
                        },
                    };
                    if let Param::Claim(name) = &param
                        && !claims.contains(name)
                    {
                        claims.push(name.clone());
                    }
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
        Ok(Self { pieces, tail: query[piece..end.unwrap_or(query.len())].to_owned(), claims })
    }

    /// The claims that it asks for, each once.
    pub fn claims(&self) -> &[String] {
        &self.claims
    }

    /// The query with values as literals, for PostgreSQL and a query that asks for no claims.
    pub fn with_literals(&self, key: &str, effective_date: NaiveDate) -> Result<String, LiteralError> {
        self.with_claims(key, effective_date, None)
    }

    /// The same with the claims of a caller, by name.
    pub fn with_claims(
        &self,
        key: &str,
        effective_date: NaiveDate,
        claims: Option<&BTreeMap<String, String>>,
    ) -> Result<String, LiteralError> {
        let (key, date) = (text_literal(key)?, date_literal(effective_date)?);
        self.with(|param| {
            Ok(match param {
                Param::Key => Cow::from(&key),
                Param::EffectiveDate => Cow::from(&date),
                Param::Claim(name) => Cow::from(text_literal(claim(claims, name)?)?),
            })
        })
    }

    /// The query without any values, for PostgreSQL to plan but never to run: NULL is a value of every type,
    /// so that it can be planned whatever the query does with it.
    pub fn with_nulls(&self) -> String {
        let null = |param: &Param| match param {
            Param::Key | Param::Claim(_) => "(NULL::text)",
            Param::EffectiveDate => "(NULL::date)",
        };
        self.with(|param| Ok(Cow::from(null(param)))).expect("nothing in it can fail")
    }

    /// The query with numbers for what [`Self::arguments`] lists, to be bound.
    pub fn with_numbers(&self) -> String {
        let number = |param: &Param| match param {
            Param::Key => 1,
            Param::EffectiveDate => 2,
            Param::Claim(name) => 3 + self.claims.iter().position(|known| known == name).unwrap_or_default(),
        };
        self.with(|param| Ok(Cow::from(format!("?{}", number(param))))).expect("nothing in it can fail")
    }

    /// The values for [`Self::with_numbers`], in their order.
    pub fn arguments(
        &self,
        key: &str,
        effective_date: NaiveDate,
        claims: Option<&BTreeMap<String, String>>,
    ) -> Result<Vec<String>, LiteralError> {
        let mut arguments = vec![key.to_owned(), iso(effective_date)?];
        for name in &self.claims {
            arguments.push(claim(claims, name)?.to_owned());
        }
        Ok(arguments)
    }

    fn with<'a>(
        &self,
        value: impl Fn(&Param) -> Result<Cow<'a, str>, LiteralError>,
    ) -> Result<String, LiteralError> {
        let mut sql = String::new();
        for (text, param) in &self.pieces {
            sql.push_str(text);
            sql.push_str(&value(param)?);
        }
        sql.push_str(&self.tail);
        Ok(sql)
    }
}

fn claim<'a>(claims: Option<&'a BTreeMap<String, String>>, name: &str) -> Result<&'a str, LiteralError> {
    let found = claims.and_then(|claims| claims.get(name));
    found.map(String::as_str).ok_or_else(|| LiteralError::NoClaim(name.to_owned()))
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
            ("select :claims.b, :claims.a.c::int, :claims.b", "select ?3, ?4::int, ?3"),
            ("select ':claims.a', :claims.größe-:claims.x2., :key", "select ':claims.a', ?3-?4., ?1"),
            ("select (:key.claims.a)", "select (?1.claims.a)"),
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
            ("select :claims", Unknown("claims".into())),
            ("select :claims.", Unknown("claims".into())),
            ("select :claims.1", Unknown("claims".into())),
            ("select :claims . county", Unknown("claims".into())),
            ("select :claims_county", Unknown("claims_county".into())),
            ("select :Claims.county", Unknown("Claims".into())),
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
    fn claims_are_values_and_never_left_out() {
        let query = "select :claims.b, :claims.a, :key, :claims.b, :effective_date";
        let template = Template::parse(query, Dialect::Postgres).unwrap();
        assert_eq!(template.claims(), ["b", "a"]);
        let date = NaiveDate::from_ymd_opt(2025, 2, 15).unwrap();
        let mut claims = BTreeMap::from([("a".to_owned(), "'; drop".to_owned())]);
        let missing = || LiteralError::NoClaim("b".into());
        assert_eq!(template.with_claims("k", date, Some(&claims)), Err(missing()));
        assert_eq!(template.with_literals("k", date), Err(missing()));
        assert_eq!(template.arguments("k", date, None), Err(missing()));
        claims.insert("b".into(), ":key".into());
        assert_eq!(
            template.with_claims("k", date, Some(&claims)).unwrap(),
            "select (':key'::text), ('''; drop'::text), ('k'::text), (':key'::text), (DATE '2025-02-15')"
        );
        assert_eq!(template.with_numbers(), "select ?3, ?4, ?1, ?3, ?2");
        let arguments = template.arguments("k", date, Some(&claims)).unwrap();
        assert_eq!(arguments, ["k", "2025-02-15", ":key", "'; drop"]);
        assert_eq!(
            template.with_nulls(),
            "select (NULL::text), (NULL::text), (NULL::text), (NULL::text), (NULL::date)"
        );
        claims.insert("b".into(), "a\0b".into());
        assert_eq!(template.with_claims("k", date, Some(&claims)), Err(LiteralError::Nul));
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
