//! From a client's key to one file name, such that two keys never share a file and none leaves its folder.

use std::fmt::Write as _;

use chrono::NaiveDate;

/// The longest key a client may send, in characters.
pub const MAX_KEY_CHARS: usize = 128;
/// The longest file name that common file systems take, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// Percent-encodes a key into one path segment: everything but `A-Z a-z 0-9 . _ -`, and a leading dot.
pub fn encode(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for (i, byte) in key.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (byte == b'.' && i > 0);
        if plain {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Checks a trimmed key; the error says what is wrong with it.
pub fn check(key: &str) -> Result<(), String> {
    if key.is_empty() {
        return Err("must not be empty".into());
    }
    if key.chars().count() > MAX_KEY_CHARS {
        return Err(format!("must have at most {MAX_KEY_CHARS} characters"));
    }
    if key.chars().any(char::is_control) {
        return Err("must not contain control characters".into());
    }
    Ok(())
}

/// `<KEY>_<YYYYMMDD>.<ext>`.
pub fn file_name(key: &str, date: NaiveDate, extension: &str) -> String {
    format!("{}_{}.{extension}", encode(key), date.format("%Y%m%d"))
}

/// `<YYYY>/<MM>/<DD>/<KEY>_<YYYYMMDD>.<ext>`: a file's path below its dataset's base path.
pub fn relative_path(key: &str, date: NaiveDate, extension: &str) -> String {
    format!("{}/{}", date.format("%Y/%m/%d"), file_name(key, date, extension))
}

/// `key=<K>:date=<YYYYMMDD>`: what clients call a chunk of an export.
pub fn chunk_key(key: &str, date: NaiveDate) -> String {
    format!("key={key}:date={}", date.format("%Y%m%d"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_are_those_of_the_contract() {
        let date = NaiveDate::from_ymd_opt(2025, 2, 15).unwrap();
        assert_eq!(relative_path("ABC", date, "csv"), "2025/02/15/ABC_20250215.csv");
        assert_eq!(chunk_key("ABC", date), "key=ABC:date=20250215");
    }

    #[test]
    fn dangerous_keys_become_one_harmless_segment() {
        for (key, encoded) in [
            ("../x", "%2E.%2Fx"),
            ("..", "%2E."),
            (".", "%2E"),
            ("/abs", "%2Fabs"),
            ("a//b", "a%2F%2Fb"),
            ("C:\\x", "C%3A%5Cx"),
            ("%2e%2e%2f", "%252e%252e%252f"),
            ("a b'\"", "a%20b%27%22"),
            ("😀", "%F0%9F%98%80"),
            ("a.b_c-D9", "a.b_c-D9"),
        ] {
            assert_eq!(encode(key), encoded);
        }
    }

    #[test]
    fn unusable_keys_are_refused_with_a_reason() {
        assert!(check("").is_err());
        assert!(check(&"x".repeat(129)).is_err());
        assert!(check("a\0b").is_err());
        assert!(check("a\nb").is_err());
        assert!(check(&"é".repeat(128)).is_ok());
    }

    fn decode(name: &str) -> Vec<u8> {
        let mut bytes = name.bytes();
        let mut out = Vec::new();
        while let Some(byte) = bytes.next() {
            if byte == b'%' {
                let hex = [bytes.next().unwrap(), bytes.next().unwrap()];
                out.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
            } else {
                out.push(byte);
            }
        }
        out
    }

    proptest! {
        #[test]
        fn encoding_can_be_undone_so_no_two_keys_meet(key in "\\PC{1,40}") {
            let name = encode(&key);
            prop_assert_eq!(decode(&name), key.as_bytes());
            prop_assert!(!name.contains('/') && !name.starts_with('.'));
        }
    }
}
