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
    /// `:claims.NAME` or `:claims."NAME"`, a text.
    Claim(String),
}

impl Param {
    /// Reads a placeholder, less its colon.
    fn parse(text: &str) -> Result<Self, TemplateError> {
        let name = match text {
            "key" => return Ok(Self::Key),
            "effective_date" => return Ok(Self::EffectiveDate),
            _ => text.strip_prefix("claims.").ok_or_else(|| TemplateError::Unknown(text.to_owned()))?,
        };
        match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
            None => Ok(Self::Claim(name.to_owned())),
            Some("") => Err(TemplateError::Unknown(text.to_owned())),
            Some(quoted) if quoted.contains('\0') => Err(TemplateError::NulInClaim),
            Some(quoted) => Ok(Self::Claim(quoted.replace("\"\"", "\""))),
        }
    }
}

/// How a query asks for a claim: with quotes around its name where it needs them.
pub(crate) fn claim_placeholder(name: &str) -> String {
    let plain = format!(":claims.{name}");
    // All of it is one placeholder, and nothing in it stands for something else. Dialects agree on this.
    let read = token(plain.as_bytes(), 0, Dialect::Postgres);
    if !name.starts_with('"') && read == Ok((Token::Placeholder, plain.len())) {
        return plain;
    }
    format!(":claims.\"{}\"", name.replace('"', "\"\""))
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
        "unknown placeholder `:{0}`; there are `:key`, `:effective_date` and `:claims.NAME` or `:claims.\"NAME\"` (leave a space after a colon that starts no placeholder)"
    )]
    Unknown(String),
    /// A placeholder in another form.
    #[error(
        "placeholder `{0}` cannot be filled in; write `:key`, `:effective_date`, `:claims.NAME` or `:claims.\"NAME\"`"
    )]
    Foreign(String),
    /// A claim that no database could hold.
    #[error("names a claim that has a NUL character")]
    NulInClaim,
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
                    let param = Param::parse(&query[at + 1..next])?;
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

    /// Whether the query uses `:key`.
    pub fn uses_key(&self) -> bool {
        self.pieces.iter().any(|(_, param)| *param == Param::Key)
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
mod tests;
