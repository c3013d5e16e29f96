//! Where in a token a claim is: its name, or a dotted path to a nested one such as `realm_access.roles`.

use outhaul_core::json;
use serde_json::{Map, Value};

/// A claim's place. A claim whose whole name is the text wins over a nested one, for names such as
/// `https://example.com/roles` have dots of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPath(String);

impl ClaimPath {
    /// The place as it is written in the configuration.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is wrong with it, for people.
    pub(super) fn problem(&self) -> Option<&'static str> {
        if self.0.is_empty() {
            Some("must not be empty")
        } else if self.0.len() > 255 || self.0.contains(char::is_control) {
            Some("must have at most 255 bytes and no control characters")
        } else if !self.is_one_name() && self.0.split('.').any(str::is_empty) {
            Some("has an empty name between its dots")
        } else {
            None
        }
    }

    /// The claim, if the token has it; `null` is as good as nothing.
    pub(super) fn find<'a>(&self, claims: &'a Map<String, Value>) -> Option<&'a Value> {
        let found = claims.get(&self.0).or_else(|| {
            let mut names = self.0.split('.');
            let first = claims.get(names.next()?)?;
            names.try_fold(first, |value, name| value.get(name))
        });
        found.filter(|value| !value.is_null())
    }

    /// Puts a claim where [`Self::find`] finds it.
    pub(super) fn put(&self, claims: &mut Map<String, Value>, value: Value) {
        if self.is_one_name() {
            claims.insert(self.0.clone(), value);
            return;
        }
        let mut names: Vec<&str> = self.0.split('.').collect();
        let last = names.pop().unwrap_or_default();
        let mut place = claims;
        for name in names {
            let next = place.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if !next.is_object() {
                *next = Value::Object(Map::new());
            }
            place = next.as_object_mut().expect("it was just made an object");
        }
        place.insert(last.to_owned(), value);
    }

    fn is_one_name(&self) -> bool {
        self.0.contains('/') || !self.0.contains('.')
    }
}

/// Whether a claim can be kept: databases cannot hold NUL, a number that was rounded while it was read could make
/// two people's rows one (as any may be that is not whole, or has more than 64 bits), and what is nested too
/// deeply could not be read back.
pub(super) fn can_be_kept(value: &Value) -> bool {
    json::problem(&value.to_string()).is_none() && has_exact_parts(value)
}

fn has_exact_parts(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => true,
        Value::Number(number) => number.is_i64() || number.is_u64(),
        Value::String(text) => !text.contains('\0'),
        Value::Array(items) => items.iter().all(has_exact_parts),
        Value::Object(members) => {
            members.iter().all(|(name, value)| !name.contains('\0') && has_exact_parts(value))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!("Kent"), |value, _| json!([value]))
    }

    fn find(path: &str, claims: &Value) -> Option<Value> {
        ClaimPath::new(path).find(claims.as_object().unwrap()).cloned()
    }

    #[test]
    fn names_paths_and_names_with_dots_are_found() {
        let claims = json!({
            "county": "Kent", "nothing": null, "realm_access": {"roles": ["a"], "deep": {"er": 1}},
            "https://example.com/roles": ["b"], "a.b": 1, "a": {"b": 2},
        });
        assert_eq!(find("county", &claims), Some(json!("Kent")));
        assert_eq!(find("realm_access.roles", &claims), Some(json!(["a"])));
        assert_eq!(find("realm_access.deep.er", &claims), Some(json!(1)));
        assert_eq!(find("https://example.com/roles", &claims), Some(json!(["b"])));
        assert_eq!(find("a.b", &claims), Some(json!(1)), "the whole name wins");
        for missing in ["nothing", "absent", "county.x", "realm_access.absent", "realm_access.roles.0", "."] {
            assert_eq!(find(missing, &claims), None, "{missing}");
        }
    }

    #[test]
    fn what_is_put_is_found() {
        for path in ["roles", "realm_access.roles", "a.b.c", "https://example.com/roles"] {
            let mut claims = json!({"a": 1}).as_object().unwrap().clone();
            ClaimPath::new(path).put(&mut claims, json!("x"));
            assert_eq!(find(path, &claims.into()), Some(json!("x")), "{path}");
        }
    }

    #[test]
    fn broken_paths_are_named() {
        for path in ["", "a..b", ".a", "a.", "a\nb", &"x".repeat(256)] {
            assert!(ClaimPath::new(path).problem().is_some(), "{path:?}");
        }
        for path in ["sub", "a.b", "https://example.com/x"] {
            assert_eq!(ClaimPath::new(path).problem(), None, "{path}");
        }
    }

    #[test]
    fn what_no_database_can_hold_is_not_kept() {
        for value in [json!("a\0b"), json!([["\0"]]), json!({"\0": 1}), nested(121)] {
            assert!(!can_be_kept(&value), "{value}");
        }
        for value in [json!("Kent"), json!("1.5"), json!([true, null]), nested(120)] {
            assert!(can_be_kept(&value), "{value}");
        }
    }

    #[test]
    fn of_numbers_only_whole_ones_of_64_bits_are_kept() {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        for text in ["0", "-1", "9007199254740993", "18446744073709551615", "-9223372036854775808"] {
            for value in [read(text), read(&format!(r#"{{"a": [{text}]}}"#))] {
                assert!(can_be_kept(&value) && value.to_string().contains(text), "{text}");
            }
        }
        for text in [
            "1.12345678901234567",
            "1.5",
            "1.0",
            "-0",
            "1e2",
            "1e22",
            "18446744073709551616",
            "-9223372036854775809",
        ] {
            for value in [read(text), read(&format!(r#"{{"a": [{text}]}}"#))] {
                assert!(!can_be_kept(&value), "{text}");
            }
        }
    }
}
