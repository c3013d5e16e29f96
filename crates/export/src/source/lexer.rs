//! Just enough of SQL's lexical rules to tell code from literals, identifiers and comments, so that a
//! `:name` inside a string is text and outside it is a placeholder. Knows nothing of grammar.

/// Whose lexical rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `E'…'`, `$tag$…$tag$`, nested comments, `::` casts.
    Postgres,
    /// `` `…` ``, `[…]`, and the placeholders `?`, `@x`, `$x`, which only drivers fill in.
    Sqlite,
}

/// What a piece of SQL is, as far as placeholders and statement ends are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// White space and comments.
    Blank,
    /// `:name`, `:claims.name` or `:claims."name"`.
    Placeholder,
    /// A placeholder in a form that only a driver could fill in.
    ForeignPlaceholder,
    /// `;`
    Semicolon,
    /// `(`
    Open,
    /// `)`
    Close,
    /// Anything else: words, numbers, literals, operators.
    Other,
}

/// A literal, identifier or comment that never ends; the word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unterminated(pub(super) &'static str);

/// The token that starts at `at` (which must be inside `sql`) and where it ends.
pub(super) fn token(sql: &[u8], at: usize, dialect: Dialect) -> Result<(Token, usize), Unterminated> {
    let postgres = dialect == Dialect::Postgres;
    let next = sql.get(at + 1).copied();
    let other = |end| Ok((Token::Other, end));
    match sql[at] {
        byte if is_space(byte) => Ok((Token::Blank, at + run(&sql[at..], is_space))),
        b'-' if next == Some(b'-') => Ok((Token::Blank, line_comment(sql, at, postgres))),
        b'/' if next == Some(b'*') => Ok((Token::Blank, block_comment(sql, at, postgres)?)),
        b'\'' => other(quoted(sql, at, b'\'', "string literal")?),
        b'"' => other(quoted(sql, at, b'"', "quoted identifier")?),
        b'`' if !postgres => other(quoted(sql, at, b'`', "quoted identifier")?),
        b'[' if !postgres => other(find(sql, at + 1, b"]").ok_or(Unterminated("quoted identifier"))?),
        b'e' | b'E' if postgres && next == Some(b'\'') => other(escape_string(sql, at + 1)?),
        b'$' if postgres => match dollar_tag(&sql[at..]) {
            Some(tag) => other(find(sql, at + tag.len(), tag).ok_or(Unterminated("dollar-quoted string"))?),
            None => other(at + 1),
        },
        b'?' if !postgres => Ok((Token::ForeignPlaceholder, at + 1)),
        b'$' | b'@' if !postgres => Ok((Token::ForeignPlaceholder, at + 1 + run(&sql[at + 1..], is_word))),
        b':' if matches!(next, Some(b':' | b'=')) => other(at + 2),
        b':' if next.is_some_and(is_word_start) => Ok((Token::Placeholder, placeholder(sql, at)?)),
        b';' => Ok((Token::Semicolon, at + 1)),
        b'(' => Ok((Token::Open, at + 1)),
        b')' => Ok((Token::Close, at + 1)),
        // Words may hold `$`, so `a$b$` opens no dollar quote.
        byte if is_word_start(byte) => other(at + run(&sql[at..], |byte| is_word(byte) || byte == b'$')),
        _ => other(at + 1),
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn is_word(byte: u8) -> bool {
    is_word_start(byte) || byte.is_ascii_digit()
}

fn run(sql: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    sql.iter().position(|&byte| !belongs(byte)).unwrap_or(sql.len())
}

/// The end of a placeholder. After `:claims` its name is quoted whole, or goes on over dots; nothing else has
/// parts.
fn placeholder(sql: &[u8], at: usize) -> Result<usize, Unterminated> {
    let word = |from: usize| from + run(&sql[from..], is_word);
    let mut end = word(at + 1);
    if &sql[at + 1..end] == b"claims" {
        if sql[end..].starts_with(b".\"") {
            return quoted(sql, end + 1, b'"', "quoted claim (`:claims.\"NAME\"`)");
        }
        while sql.get(end) == Some(&b'.') && sql.get(end + 1).copied().is_some_and(is_word_start) {
            end = word(end + 1);
        }
    }
    Ok(end)
}

/// The end of the first `needle` from `from` on.
fn find(sql: &[u8], from: usize, needle: &[u8]) -> Option<usize> {
    let at = sql.get(from..)?.windows(needle.len()).position(|window| window == needle)?;
    Some(from + at + needle.len())
}

fn line_comment(sql: &[u8], at: usize, postgres: bool) -> usize {
    at + run(&sql[at..], |byte| byte != b'\n' && !(postgres && byte == b'\r'))
}

fn block_comment(sql: &[u8], at: usize, nests: bool) -> Result<usize, Unterminated> {
    let (mut depth, mut i) = (1, at + 2);
    while depth > 0 {
        match (sql.get(i), sql.get(i + 1)) {
            (Some(b'*'), Some(b'/')) => (depth, i) = (depth - 1, i + 2),
            (Some(b'/'), Some(b'*')) if nests => (depth, i) = (depth + 1, i + 2),
            (Some(_), _) => i += 1,
            (None, _) => return Err(Unterminated("comment")),
        }
    }
    Ok(i)
}

/// A literal or identifier in which only its doubled quote is special.
fn quoted(sql: &[u8], open: usize, quote: u8, what: &'static str) -> Result<usize, Unterminated> {
    let mut i = open + 1;
    loop {
        match sql.get(i) {
            Some(&byte) if byte == quote && sql.get(i + 1) == Some(&quote) => i += 2,
            Some(&byte) if byte == quote => return Ok(i + 1),
            Some(_) => i += 1,
            None => return Err(Unterminated(what)),
        }
    }
}

/// The body of `E'…'` from its quote on, with the segments that SQL lets follow on later lines: they
/// too obey the rules of `E'…'`.
fn escape_string(sql: &[u8], open: usize) -> Result<usize, Unterminated> {
    let mut i = open + 1;
    loop {
        match sql.get(i) {
            Some(b'\\') => i += 2,
            Some(b'\'') if sql.get(i + 1) == Some(&b'\'') => i += 2,
            Some(b'\'') => match continuation(sql, i + 1) {
                Some(quote) => i = quote + 1,
                None => return Ok(i + 1),
            },
            Some(_) => i += 1,
            None => return Err(Unterminated("string literal")),
        }
    }
}

/// Where a quote continues a string after white space that has a line break in it.
fn continuation(sql: &[u8], mut at: usize) -> Option<usize> {
    let mut broken = false;
    loop {
        match sql.get(at)? {
            b'\n' | b'\r' => (broken, at) = (true, at + 1),
            &byte if is_space(byte) => at += 1,
            b'-' if sql.get(at + 1) == Some(&b'-') => at = line_comment(sql, at, true),
            b'\'' if broken => return Some(at),
            _ => return None,
        }
    }
}

/// `$$` or `$tag$` at the start of `sql`.
fn dollar_tag(sql: &[u8]) -> Option<&[u8]> {
    let tag = run(&sql[1..], is_word);
    let well_formed = sql.get(1 + tag) == Some(&b'$') && (tag == 0 || is_word_start(sql[1]));
    well_formed.then(|| &sql[..tag + 2])
}
