//! JSON bodies, read strictly: bounded size, bounded depth, no key twice. What the members mean is
//! checked afterwards, so that every problem is reported and not only the first.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use outhaul_core::json::RESERVED;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::problem::{FieldError, Problem};

/// The longest part of a member's name that is shown back.
const MAX_NAME_CHARS: usize = 128;
/// The most repeated members that are listed.
const MAX_TWICE: usize = 100;
/// Once their pointers have more bytes than this, no further one is listed.
const MAX_TWICE_BYTES: usize = 10_000;

/// Reads a request's body as JSON.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    patience: Duration,
) -> Result<Value, Problem> {
    expect_json(headers)?;
    let too_large = || {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body may have at most {limit} bytes (`limits.max_body_bytes`)"),
        )
    };
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    match tokio::time::timeout(patience, to_bytes(body, limit)).await {
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
        Ok(Ok(bytes)) => parse(&bytes),
        Ok(Err(error)) if is_length_limit(&error) => Err(too_large()),
        Ok(Err(_)) => Err(Problem::bad_request("the body broke off")),
    }
}

fn is_length_limit(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.to_string().contains("length limit") {
            return true;
        }
        cause = error.source();
    }
    false
}

fn expect_json(headers: &HeaderMap) -> Result<(), Problem> {
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

/// Parses JSON text; a member that is there twice is refused, whatever its values.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    let twice = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let root = Place { parent: None, step: Step::Index(0), twice: &twice };
    let parsed = root.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    match parsed {
        // serde_json's messages end in `at line L column C`.
        Err(error) => Err(Problem::bad_request(format!("the body is not valid JSON: {error}"))),
        Ok(_) if !twice.borrow().is_empty() => Err(Problem::invalid(twice.into_inner())),
        Ok(value) => Ok(value),
    }
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Where in the document the reader is: a list on the stack, so that pointers cost nothing until
/// one is needed. serde_json bounds the depth to 128.
struct Place<'a> {
    parent: Option<&'a Place<'a>>,
    step: Step<'a>,
    twice: &'a RefCell<Vec<FieldError>>,
}

impl Place<'_> {
    fn pointer(&self) -> String {
        match (self.parent, &self.step) {
            (None, _) => String::new(),
            (Some(parent), Step::Key(key)) => child(&parent.pointer(), key),
            (Some(parent), Step::Index(index)) => format!("{}/{index}", parent.pointer()),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let step = Step::Index(items.len());
            match seq.next_element_seed(Place { parent: Some(&self), step, twice: self.twice })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let place = Place { parent: Some(&self), step: Step::Key(&key), twice: self.twice };
            if members.contains_key(&key) {
                // A body of nothing but repetitions must not become a larger answer.
                let said: usize = self.twice.borrow().iter().map(|error| error.pointer.len()).sum();
                if self.twice.borrow().len() >= MAX_TWICE || said > MAX_TWICE_BYTES {
                    return Err(A::Error::custom("too many members are there more than once"));
                }
                self.twice.borrow_mut().push(FieldError::new(place.pointer(), "is there more than once"));
            }
            if key.starts_with(RESERVED) && self.twice.borrow().len() < MAX_TWICE {
                let message = format!("names that begin with `{RESERVED}` are reserved");
                self.twice.borrow_mut().push(FieldError::new(place.pointer(), message));
            }
            let value = map.next_value_seed(place)?;
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

/// The pointer to a member, escaped as RFC 6901 says; a name that is longer than any of ours is cut.
pub(crate) fn child(pointer: &str, key: &str) -> String {
    let shown: String = key.chars().take(MAX_NAME_CHARS).collect();
    let cut = if shown.len() < key.len() { "…" } else { "" };
    format!("{pointer}/{}{cut}", shown.replace('~', "~0").replace('/', "~1"))
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
    use axum::response::IntoResponse;

    fn refused(text: &str) -> Problem {
        parse(text.as_bytes()).expect_err(text)
    }

    fn headers(pairs: &[(axum::http::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn ordinary_json_is_read_as_it_is() {
        let text = r#"{"b":[1,-2,0.5,"x",null,true,{}],"a":{"é":"😀"}}"#;
        assert_eq!(parse(text.as_bytes()).unwrap().to_string(), text);
    }

    #[test]
    fn malformed_json_names_line_and_column() {
        for text in ["", "{", "{\"a\":}", "[1,]", "nul", "{} x", "\"\u{1}\"", "1e999", "\"\\ud800\""] {
            let problem = refused(text);
            assert_eq!(problem.status(), 400);
            assert!(format!("{problem:?}").contains("line"), "{problem:?}");
        }
        assert!(parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn what_the_library_would_read_as_something_else_is_refused() {
        let sent = br#"{"payload": {"a": [{"\u0024serde_json::private::RawValue": "[1]"}]}}"#;
        let refused = parse(sent).unwrap_err();
        let shown = format!("{refused:?}");
        assert!(shown.contains("/payload/a/0/$serde_json") && shown.contains("reserved"), "{shown}");
    }

    #[test]
    fn a_long_name_is_not_sent_back_whole() {
        assert!(child("", &"x".repeat(1_000_000)).len() < 200);
        assert_eq!(child("/a", &"x".repeat(128)).len(), 131);
    }

    #[test]
    fn depth_is_bounded() {
        let deep = "[".repeat(100_000);
        assert!(format!("{:?}", refused(&deep)).contains("recursion limit"));
    }

    #[test]
    fn every_repeated_member_is_pointed_at() {
        let problem = refused(r#"{"a":1,"a":2,"items":[{},{"x/y":1,"x/y":1}]}"#);
        let pointers: Vec<_> = problem.errors().iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!(pointers, ["/a", "/items/1/x~1y"]);
        let many: String = (0..1000).map(|_| "\"a\":1,").collect();
        assert!(refused(&format!("{{{many}\"b\":1}}")).errors().len() <= 100);
        let below_a_long_name = format!("{{\"{}\":{{\"a\":1,\"a\":1,\"a\":1}}}}", "x".repeat(100_000));
        assert!(format!("{:?}", refused(&below_a_long_name)).len() < 1000);
    }

    #[tokio::test]
    async fn other_media_types_are_415() {
        for pairs in [
            &[][..],
            &[(CONTENT_TYPE, "text/plain")],
            &[(CONTENT_TYPE, "application/jsonx")],
            &[(CONTENT_TYPE, "application/json; charset=latin1")],
            &[(CONTENT_TYPE, "application/json"), (CONTENT_ENCODING, "gzip")],
        ] {
            let problem = read(&headers(pairs), Body::from("{}"), 100, PATIENCE).await.unwrap_err();
            assert_eq!(problem.status(), 415, "{pairs:?}");
        }
        for text in ["application/json", "Application/JSON; charset=\"UTF-8\""] {
            assert!(read(&headers(&[(CONTENT_TYPE, text)]), Body::from("{}"), 100, PATIENCE).await.is_ok());
        }
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_413_announced_or_not() {
        let json = headers(&[(CONTENT_TYPE, "application/json")]);
        let long = format!("\"{}\"", "x".repeat(99));
        let problem = read(&json, Body::from(long.clone()), 100, PATIENCE).await.unwrap_err();
        assert_eq!(problem.into_response().status(), 413);
        let announced = headers(&[(CONTENT_TYPE, "application/json"), (CONTENT_LENGTH, "101")]);
        assert_eq!(read(&announced, Body::from("{}"), 100, PATIENCE).await.unwrap_err().status(), 413);
        assert!(read(&json, Body::from(long), 101, PATIENCE).await.is_ok());
    }

    #[tokio::test]
    async fn a_body_that_never_comes_is_408() {
        let json = headers(&[(CONTENT_TYPE, "application/json")]);
        let never = Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
        let problem = read(&json, never, 100, Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(problem.status(), 408);
    }
}
