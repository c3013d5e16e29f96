//! Tables, sizes and JSON on stdout. What comes from a server is never trusted with the terminal.

use std::io::Write as _;

use indicatif::{HumanBytes, HumanCount};
use serde_json::Value;

/// Text without control characters: a key or a message must neither move the cursor of the terminal nor reverse the
/// text beside it.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_bidi_control(c) { '\u{fffd}' } else { c }).collect()
}

/// The characters that Unicode calls `Bidi_Control`: marks, embeddings, overrides and isolates.
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes to stdout; a reader that went away (`| head`) is not an error.
pub(crate) fn say(text: impl AsRef<str>) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", text.as_ref()).and_then(|()| out.flush());
}

/// A value as indented JSON.
pub(crate) fn json(value: &Value) {
    say(format!("{value:#}"));
}

/// Columns as wide as they must be, two spaces apart.
pub(crate) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heads[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(heads.to_vec())];
    lines.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    lines.join("\n")
}

/// A member as text; nothing for null.
pub(crate) fn text(value: &Value, name: &str) -> String {
    match &value[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        other => other.to_string(),
    }
}

/// A member as a number; 0 where it is none.
pub(crate) fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or(0)
}

/// A member as a count with separators.
pub(crate) fn count(value: &Value, name: &str) -> String {
    HumanCount(number(value, name)).to_string()
}

/// A member as a size.
pub(crate) fn bytes(value: &Value, name: &str) -> String {
    HumanBytes(number(value, name)).to_string()
}

/// The beginning of a checksum, enough for people to compare.
pub(crate) fn short_hash(value: &Value) -> String {
    text(value, "sha256").chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_or_turns_text_is_left() {
        for c in [
            '\u{1b}', '\u{9b}', '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202e}', '\u{2066}',
            '\u{2069}',
        ] {
            assert_eq!(plain(&format!("a{c}b")), "a\u{fffd}b", "{c:?}");
        }
        assert_eq!(plain("שלום é 漢字"), "שלום é 漢字", "what people write stays");
    }

    #[test]
    fn columns_line_up_and_escapes_stay_out() {
        let rows = [vec!["a\u{1b}[31m".to_owned(), "1".to_owned()], vec!["é".to_owned(), "22".to_owned()]];
        let text = table(&["KEY", "N"], &rows);
        assert!(!text.contains('\u{1b}'));
        let columns: Vec<usize> =
            text.lines().map(|line| line.chars().rev().collect::<String>().find(' ').unwrap_or(0)).collect();
        assert_eq!(columns, [1, 1, 2], "{text}");
    }
}
