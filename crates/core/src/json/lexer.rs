//! The tokens of JSON text that was checked before. Unlike a deserialiser, the lexer shows numbers and strings as
//! they were written.

use std::borrow::Cow;

/// One token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// `{`, `}`, `[`, `]`, `:` or `,`.
    Mark(char),
    /// A text or a name, with its quotes and escapes.
    Text(&'a str),
    /// A number, `true`, `false` or `null`.
    Word(&'a str),
}

/// Reads tokens from the beginning to the end.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    /// Starts at the beginning of JSON text. Text that is not JSON gives nonsense, but ends.
    pub fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (token, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        token
    }
}

impl<'a> Iterator for Lexer<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.rest = self.rest.trim_ascii_start();
        let first = self.rest.chars().next()?;
        let bytes = self.rest.as_bytes();
        Some(match first {
            '{' | '}' | '[' | ']' | ':' | ',' => {
                self.take(1);
                Token::Mark(first)
            }
            '"' => {
                let mut at = 1;
                while let Some(byte) = bytes.get(at) {
                    match byte {
                        b'"' => break,
                        b'\\' => at += 2,
                        _ => at += 1,
                    }
                }
                // Beyond the end only if the text is not JSON.
                let end = (at + 1).min(bytes.len());
                Token::Text(self.take(if self.rest.is_char_boundary(end) { end } else { bytes.len() }))
            }
            _ => {
                let is_end = |c: char| c.is_ascii_whitespace() || "{}[]:,\"".contains(c);
                Token::Word(self.take(self.rest.find(is_end).unwrap_or(bytes.len())))
            }
        })
    }
}

/// What a text token says, without its quotes and escapes.
pub fn unescaped(token: &str) -> Cow<'_, str> {
    if token.contains('\\') {
        return Cow::Owned(serde_json::from_str(token).unwrap_or_default());
    }
    Cow::Borrowed(token.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_stand_as_they_were_written() {
        let tokens: Vec<Token<'_>> = Lexer::new(" {\"a\\\"b\" : [1.50, -0,true]}\n").collect();
        let mark = Token::Mark;
        let expected = [
            mark('{'),
            Token::Text("\"a\\\"b\""),
            mark(':'),
            mark('['),
            Token::Word("1.50"),
            mark(','),
            Token::Word("-0"),
            mark(','),
            Token::Word("true"),
            mark(']'),
            mark('}'),
        ];
        assert_eq!(tokens, expected);
        assert_eq!(unescaped("\"a\\\"b\\u00e9\""), "a\"bé");
        assert_eq!(unescaped("\"é\""), "é");
    }

    proptest! {
        #[test]
        fn whatever_the_text_is_it_ends(text in ".*") {
            let total: usize = Lexer::new(&text).map(|token| match token {
                Token::Mark(_) => 1,
                Token::Text(text) | Token::Word(text) => text.len(),
            }).sum();
            prop_assert!(total <= text.len());
        }
    }
}
