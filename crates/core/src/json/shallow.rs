//! The members of an object as values, down to the depth that the callers read. Lists and objects below that depth are
//! left empty: callers only need to distinguish them from other values, and a full tree would cost many times the text.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::Json;
use super::check::Name;

/// How far down values are kept below an object's members, or below the elements of a list: that of `key` and
/// `effectiveDates` of an item.
const DEPTH: usize = 2;

/// An object: members as shallow values, and those that were asked for as text.
#[derive(Clone, Default)]
pub struct Object {
    /// The members that are not kept as text.
    pub members: Map<String, Value>,
    apart: Vec<(String, Json)>,
}

impl Object {
    /// Members of ours, of which those in `apart` become text.
    pub fn new(mut members: Map<String, Value>, apart: &[&str]) -> Self {
        let apart = apart.iter().filter_map(|name| Some(((*name).to_owned(), members.remove(*name)?.into())));
        let apart = apart.collect();
        Self { members, apart }
    }

    /// A member that is kept as text.
    pub fn text(&self, name: &str) -> Option<&Json> {
        self.apart.iter().find(|(known, _)| known == name).map(|(_, json)| json)
    }

    /// Whether the object has such a member.
    pub fn has(&self, name: &str) -> bool {
        self.members.contains_key(name) || self.text(name).is_some()
    }
}

impl Json {
    /// The object's members; those in `apart` as text, the others as values whose lists and objects are at most two
    /// deep. `None`: it is no object.
    pub fn object(&self, apart: &[&str]) -> Option<Object> {
        let mut reader = serde_json::Deserializer::from_str(self.as_str());
        Members(apart).deserialize(&mut reader).ok()
    }

    /// The value as far down as three levels; what is below is left empty.
    pub fn value(&self) -> Value {
        let mut reader = serde_json::Deserializer::from_str(self.as_str());
        Shallow(DEPTH + 1).deserialize(&mut reader).unwrap_or_default()
    }

    /// Shows the list's elements one after the other, each as a value that is at most two deep; `false`: it is no
    /// list.
    pub fn each(&self, see: &mut dyn FnMut(Value)) -> bool {
        let mut reader = serde_json::Deserializer::from_str(self.as_str());
        Elements(see).deserialize(&mut reader).is_ok()
    }
}

struct Members<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = Object;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Object, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Object, A::Error> {
        let mut object = Object::default();
        while let Some(name) = members.next_key_seed(Name)? {
            if self.0.contains(&&*name) {
                let raw = members.next_value::<&RawValue>()?;
                object.apart.push((name.into_owned(), raw.into()));
            } else {
                let value = members.next_value_seed(Shallow(DEPTH))?;
                object.members.insert(name.into_owned(), value);
            }
        }
        Ok(object)
    }
}

struct Elements<'a>(&'a mut dyn FnMut(Value));

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(value) = items.next_element_seed(Shallow(DEPTH))? {
            (self.0)(value);
        }
        Ok(())
    }
}

/// A value of which so many levels are kept.
#[derive(Clone, Copy)]
struct Shallow(usize);

impl<'de> DeserializeSeed<'de> for Shallow {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Shallow {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        match self.0.checked_sub(1) {
            Some(depth) => {
                while let Some(item) = from.next_element_seed(Self(depth))? {
                    items.push(item);
                }
            }
            None => while from.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        match self.0.checked_sub(1) {
            Some(depth) => {
                while let Some(name) = from.next_key::<String>()? {
                    members.insert(name, from.next_value_seed(Self(depth))?);
                }
            }
            None => while from.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {},
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_are_values_or_text_and_what_is_deep_is_left_empty() {
        let json =
            Json::parse(r#"{"payload": {"n": 1.50}, "a": [1, {"b": [2, {"c": 3}]}], "n": 5}"#).unwrap();
        let object = json.object(&["payload"]).unwrap();
        assert_eq!(object.text("payload").unwrap().as_str(), r#"{"n": 1.50}"#);
        assert_eq!(Value::Object(object.members.clone()), json!({"a": [1, {"b": []}], "n": 5}));
        assert!(object.has("payload") && object.has("n") && !object.has("b"));
        assert!(Json::null().object(&[]).is_none());
    }

    #[test]
    fn elements_come_one_after_the_other() {
        let mut seen = Vec::new();
        let list = Json::parse(r#"[1, {"key": "A", "dates": ["x", []]}, [[[1]]]]"#).unwrap();
        assert!(list.each(&mut |value| seen.push(value)));
        assert_eq!(seen, [json!(1), json!({"key": "A", "dates": ["x", []]}), json!([[[]]])]);
        assert!(!Json::parse("{}").unwrap().each(&mut |_| {}));
    }
}
