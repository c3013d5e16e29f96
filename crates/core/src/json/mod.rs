//! JSON as text: payloads, results and the bodies of definitions. A tree of values costs up to 70 times the bytes
//! of its text, so no tree is built from what a client sends: the text is checked once and then passed on unchanged.
//! That way numbers keep all their digits.
//!
//! Some JSON can be written and not be read back, or is read back as something else. One row with such JSON would stop
//! every process that reads the row, so such JSON is refused before it is stored.

mod canonical;
mod check;
mod lexer;
mod shallow;

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

pub use canonical::canonical;
pub use check::{Fault, Wrong, child};
pub use lexer::{Lexer, Token, unescaped};
pub use shallow::Object;

/// The deepest JSON that is stored, as a payload or as a result. Readers accept 127 levels; the difference is for the
/// envelope around it.
pub const MAX_DEPTH: usize = 120;

/// The beginning of member names that the JSON library keeps for itself: an object with such a member is
/// read back as something else.
pub const RESERVED: &str = "$serde_json::private::";

/// Why JSON text that we wrote cannot be stored; `None`: it can.
pub fn problem(json: &str) -> Option<String> {
    if is_too_deep(json) {
        return Some(format!("is nested deeper than {MAX_DEPTH} levels"));
    }
    // The library escapes no character of the prefix, so a plain search finds it.
    let reserved = json.match_indices(RESERVED).any(|(at, _)| json[..at].ends_with('"'));
    reserved.then(|| format!("holds a text that begins with `{RESERVED}`, which is reserved"))
}

/// Whether JSON text is nested deeper than [`MAX_DEPTH`].
fn is_too_deep(json: &str) -> bool {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0usize, 0usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest > MAX_DEPTH
}

/// JSON text. Cheap to clone. `Debug` shows how long it is, never what is in it: it may be a client's payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Arc<str>);

impl Json {
    /// Checks text that a client sent: valid, no member of an object twice, no reserved name.
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        check::check(text).map(|()| Self(text.trim_ascii().into()))
    }

    /// Text that we wrote or checked before; `None`: it is not JSON.
    pub fn stored(text: &str) -> Option<Self> {
        serde_json::from_str::<&RawValue>(text).ok().map(Self::from)
    }

    /// A value of ours as JSON.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        serde_json::to_string(value).map(|text| Self(text.into()))
    }

    /// `null`.
    pub fn null() -> Self {
        Self("null".into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads it as a type.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.0)
    }

    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self.0.as_bytes().first() {
            Some(b'{') => "an object",
            Some(b'[') => "a list",
            Some(b'"') => "text",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            _ => "a number",
        }
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.0.starts_with('{')
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl From<&RawValue> for Json {
    fn from(raw: &RawValue) -> Self {
        Self(raw.get().into())
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn what_is_let_through_can_be_read_back_in_its_envelope() {
        assert!(!is_too_deep(&nested(MAX_DEPTH)));
        let enveloped = format!(r#"{{"v":1,"payload":{}}}"#, nested(MAX_DEPTH));
        assert!(serde_json::from_str::<serde_json::Value>(&enveloped).is_ok());
        assert!(is_too_deep(&nested(MAX_DEPTH + 1)));
    }

    #[test]
    fn what_would_read_back_as_something_else_is_refused() {
        let magic = serde_json::json!({ "a": [{ format!("{RESERVED}RawValue"): "[1]" }] }).to_string();
        assert!(problem(&magic).is_some_and(|problem| problem.contains("reserved")));
        assert_eq!(problem(r#"{"a": "about $serde_json::private::RawValue"}"#), None);
        assert!(problem(&nested(MAX_DEPTH + 1)).is_some_and(|problem| problem.contains("120")));
    }

    #[test]
    fn text_is_kept_as_it_came_and_shown_nowhere() {
        let json =
            Json::parse(" {\"b\": 1.50,\n\"a\":[123456789012345678901234567890, \"hunter2\"]} ").unwrap();
        assert_eq!(json.as_str(), "{\"b\": 1.50,\n\"a\":[123456789012345678901234567890, \"hunter2\"]}");
        assert_eq!(serde_json::to_string(&json).unwrap(), json.as_str());
        assert!(!format!("{json:?}").contains("hunter2"));
        assert_eq!(Json::stored("{"), None);
        assert_eq!(Json::from(serde_json::json!({"a": 1})), Json::stored("{\"a\":1}").unwrap());
    }

    #[test]
    fn kinds_are_told_by_the_first_character() {
        for (text, kind) in [("{}", "an object"), ("[]", "a list"), ("\"\"", "text"), ("true", "a boolean")] {
            assert_eq!(Json::parse(text).unwrap().kind(), kind);
        }
        assert_eq!((Json::null().kind(), Json::parse("-1").unwrap().kind()), ("null", "a number"));
    }

    #[test]
    fn brackets_in_text_and_beside_each_other_are_no_depth() {
        assert!(!is_too_deep(&format!("{:?}", "[".repeat(1000))));
        assert!(!is_too_deep(&format!(r#"["\"{}"]"#, "[".repeat(1000))));
        assert!(!is_too_deep(&format!("[{}]", vec!["{}"; 1000].join(","))));
    }
}
