//! Entity tags: made from what an answer says, compared as RFC 9110 says.

use axum::http::header::{IF_NONE_MATCH, IF_RANGE};
use axum::http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};

/// Lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A weak tag for answers that say this, and may say more that is no news.
pub(super) fn weak(content: &[u8]) -> String {
    format!("W/\"{}\"", hex(&Sha256::digest(content)[..16]))
}

/// A tag as a header's value.
pub(super) fn header(tag: &str) -> HeaderValue {
    HeaderValue::from_str(tag).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

/// Whether the client says that it has this tag already; weak or strong makes no difference here.
pub(super) fn has(headers: &HeaderMap, tag: &str) -> bool {
    let opaque = |tag: &str| tag.trim().strip_prefix("W/").unwrap_or(tag.trim()).to_owned();
    let tag = opaque(tag);
    headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.trim() == "*" || value.split(',').any(|part| opaque(part) == tag))
}

/// Whether a range may be answered: no `If-Range`, or one with this very tag.
pub(super) fn range_applies(headers: &HeaderMap, tag: &str) -> bool {
    headers.get(IF_RANGE).is_none_or(|value| value.as_bytes() == tag.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (IF_NONE_MATCH, HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn tags_match_in_lists_weakly_and_by_star() {
        let tag = "\"x\"".to_owned();
        for (values, expected) in [
            (vec![], false),
            (vec![tag.as_str()], true),
            (vec!["*"], true),
            (vec!["\"a\", \"b\""], false),
            (vec!["\"a\"", tag.as_str()], true),
            (vec![tag.trim_matches('"')], false),
        ] {
            assert_eq!(has(&asks(&values), &tag), expected, "{values:?}");
        }
        assert!(has(&asks(&[&format!("\"a\",W/{tag}")]), &tag));
        let tag = weak(b"x");
        assert!(has(&asks(&[&tag]), &tag));
        assert!(has(&asks(&[tag.trim_start_matches("W/")]), &tag), "proxies may make it strong");
        assert!(!has(&asks(&[&weak(b"y")]), &tag));
    }

    #[test]
    fn a_range_of_another_version_does_not_apply() {
        let mut headers = HeaderMap::new();
        assert!(range_applies(&headers, "\"a\""));
        headers.insert(IF_RANGE, HeaderValue::from_static("\"a\""));
        assert!(range_applies(&headers, "\"a\""));
        assert!(!range_applies(&headers, "\"b\""));
        headers.insert(IF_RANGE, HeaderValue::from_static("W/\"a\""));
        assert!(!range_applies(&headers, "\"a\""));
    }
}
