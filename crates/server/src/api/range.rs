//! The `Range` header: one range of bytes. What we do not understand we may ignore (RFC 9110 §14.2);
//! a range outside the file is 416.

use std::ops::Range;

use axum::http::HeaderMap;
use axum::http::header::RANGE;

/// Which bytes of a file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of them.
    Whole,
    /// These, never empty.
    Part(Range<u64>),
    /// None that exist.
    Unsatisfiable,
}

/// Reads the header for a file of `size` bytes.
pub(super) fn wanted(headers: &HeaderMap, size: u64) -> Wanted {
    let mut values = headers.get_all(RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Wanted::Whole };
    value.to_str().ok().and_then(|text| parse(text, size)).unwrap_or(Wanted::Whole)
}

/// `None`: not a range that we serve, so the whole file is the answer.
fn parse(text: &str, size: u64) -> Option<Wanted> {
    let (unit, spec) = text.split_once('=')?;
    let (first, last) = spec.trim().split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") || spec.contains(',') {
        return None;
    }
    let number = |text: &str| match text {
        "" => Some(None),
        _ if !text.bytes().all(|byte| byte.is_ascii_digit()) => None,
        // Digits beyond u64 are beyond any file.
        _ => Some(Some(text.parse::<u64>().unwrap_or(u64::MAX))),
    };
    let range = match (number(first)?, number(last)?) {
        (None, None) => return None,
        (None, Some(suffix)) => size.saturating_sub(suffix)..size,
        (Some(first), None) => first..size,
        (Some(first), Some(last)) if last < first => return None,
        (Some(first), Some(last)) => first..last.saturating_add(1).min(size),
    };
    Some(if range.start < range.end { Wanted::Part(range) } else { Wanted::Unsatisfiable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn read(text: &str, size: u64) -> Wanted {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, HeaderValue::from_str(text).unwrap());
        wanted(&headers, size)
    }

    #[test]
    fn ranges_are_cut_to_the_file() {
        for (text, range) in [
            ("bytes=0-3", 0..4),
            ("bytes=0-0", 0..1),
            ("bytes=5-", 5..10),
            ("bytes=-3", 7..10),
            ("bytes=-30", 0..10),
            ("bytes=9-99999999999999999999999", 9..10),
            ("Bytes = 2-3", 2..4),
        ] {
            assert_eq!(read(text, 10), Wanted::Part(range), "{text}");
        }
    }

    #[test]
    fn ranges_outside_the_file_cannot_be_satisfied() {
        for text in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(read(text, 10), Wanted::Unsatisfiable, "{text}");
        }
        assert_eq!(read("bytes=0-0", 0), Wanted::Unsatisfiable);
        assert_eq!(read("bytes=-1", 0), Wanted::Unsatisfiable);
    }

    #[test]
    fn what_is_not_understood_gets_the_whole_file() {
        for text in
            ["bytes=5-2", "bytes=-", "bytes=a-b", "bytes=1-2,4-5", "rows=1-2", "bytes", "bytes=+1-2", ""]
        {
            assert_eq!(read(text, 10), Wanted::Whole, "{text}");
        }
        let mut twice = HeaderMap::new();
        twice.append(RANGE, HeaderValue::from_static("bytes=0-1"));
        twice.append(RANGE, HeaderValue::from_static("bytes=2-3"));
        assert_eq!(wanted(&twice, 10), Wanted::Whole);
    }
}
