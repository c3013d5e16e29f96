//! JSON bodies, read strictly: the body must be JSON, and no member may occur twice. What the members mean is checked
//! afterwards, so that every problem is reported and not only the first.

use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use outhaul_core::json::{Json, Wrong};
use serde_json::Value;

use super::problem::{FieldError, Problem};

pub(crate) use outhaul_core::json::child;

/// Refuses what does not call itself JSON.
pub(super) fn expect_json(headers: &HeaderMap) -> Result<(), Problem> {
    let unsupported = |detail| Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = content_type.split(';').map(str::trim);
    if !parts.next().unwrap_or_default().eq_ignore_ascii_case("application/json") {
        return unsupported("the body must be sent as `Content-Type: application/json`");
    }
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    });
    if charset.is_some_and(|charset| !charset.eq_ignore_ascii_case("utf-8")) {
        return unsupported("JSON must be sent as UTF-8");
    }
    let encoding = headers.get(CONTENT_ENCODING).map_or(&b"identity"[..], |value| value.as_bytes());
    if !encoding.eq_ignore_ascii_case(b"identity") {
        return unsupported("the body must not be compressed");
    }
    Ok(())
}

/// Checks the text of a body; a member that is there twice is refused, whatever its values.
pub(super) fn parse(text: &str) -> Result<Json, Problem> {
    Json::parse(text).map_err(|wrong| match wrong {
        Wrong::Syntax(sentence) => Problem::bad_request(format!("the body is not valid JSON: {sentence}")),
        Wrong::Members(faults) => {
            let errors = faults.into_iter().map(|fault| FieldError::new(fault.pointer, fault.message));
            Problem::invalid(errors.collect())
        }
    })
}

/// What is wrong with a body that must be an object.
pub(super) fn no_object(sent: &Json) -> FieldError {
    FieldError::new("", format!("must be an object, not {}", sent.kind()))
}

/// What a JSON value is, for messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Text that may go to a database and to a log: no control characters, NUL among them.
pub(crate) fn check_text(text: &str, max_chars: usize) -> Result<(), String> {
    if text.chars().count() > max_chars {
        return Err(format!("must have at most {max_chars} characters"));
    }
    if text.chars().any(char::is_control) {
        return Err("must not contain control characters".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(pairs: &[(axum::http::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn malformed_json_names_line_and_column() {
        for text in ["", "{", "{\"a\":}", "1e999"] {
            let problem = parse(text).unwrap_err();
            assert_eq!(problem.status(), 400);
            assert!(format!("{problem:?}").contains("line"), "{problem:?}");
        }
    }

    #[test]
    fn every_member_that_may_not_be_there_is_pointed_at() {
        let problem = parse(r#"{"a":1,"a":2,"items":[{},{"x/y":1,"x/y":1}]}"#).unwrap_err();
        let pointers: Vec<_> = problem.errors().iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!(pointers, ["/a", "/items/1/x~1y"]);
    }

    #[test]
    fn other_media_types_are_415() {
        for pairs in [
            &[][..],
            &[(CONTENT_TYPE, "text/plain")],
            &[(CONTENT_TYPE, "application/jsonx")],
            &[(CONTENT_TYPE, "application/json; charset=latin1")],
            &[(CONTENT_TYPE, "application/json"), (CONTENT_ENCODING, "gzip")],
        ] {
            assert_eq!(expect_json(&headers(pairs)).unwrap_err().status(), 415, "{pairs:?}");
        }
        for text in ["application/json", "Application/JSON; charset=\"UTF-8\""] {
            assert!(expect_json(&headers(&[(CONTENT_TYPE, text)])).is_ok());
        }
    }
}
