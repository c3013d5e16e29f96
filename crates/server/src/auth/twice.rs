//! JSON in which a member occurs twice. Readers differ in which of the two they take, so a token with such a member
//! could mean one thing to its issuer and another here.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Whether every member of every object, at any depth, occurs only once.
pub(super) fn each_once(json: &[u8]) -> bool {
    serde_json::from_slice::<Once>(json).is_ok()
}

/// Any JSON in which no member occurs twice; no value is kept.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if !seen.insert(name) {
                return Err(A::Error::custom("a member stands twice"));
            }
            members.next_value::<Self>()?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_stands_twice_is_found_at_any_depth() {
        for once in [r#"{"a":1,"b":{"a":[{"a":null},{"a":true}]}}"#, "[]", r#"{"a":1.5,"A":"a"}"#] {
            assert!(each_once(once.as_bytes()), "{once}");
        }
        for twice in [
            r#"{"sub":"a","sub":"a"}"#,
            r#"{"a":{"b":1,"c":2,"b":1}}"#,
            r#"{"a":[{"b":[{"c":1,"c":{}}]}]}"#,
            r#"{"sub":1,"\u0073ub":2}"#,
        ] {
            assert!(!each_once(twice.as_bytes()), "{twice}");
        }
    }
}
