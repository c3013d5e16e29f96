//! Checks JSON text without building values, because a body full of brackets must not grow in memory. The JSON library
//! checks depth, numbers and strings. This file checks that no member occurs twice, and that none has a reserved name.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::RESERVED;

/// The longest part of a member's name that is shown back.
const MAX_NAME_CHARS: usize = 128;
/// The most members that are listed.
const MAX_FAULTS: usize = 100;
/// Once the pointers of the listed members have more bytes than this, no further member is listed.
const MAX_FAULT_BYTES: usize = 10_000;
/// Objects of more members than this keep their names in a set.
const FEW: usize = 16;

/// Why text is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The text is not JSON; the sentence ends in `at line L column C`.
    Syntax(String),
    /// Members that may not be there.
    Members(Vec<Fault>),
}

/// A member that may not be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where, as a JSON pointer.
    pub pointer: String,
    /// What is wrong, for people.
    pub message: String,
}

/// The pointer to a member, escaped as RFC 6901 says; a name that is longer than any of ours is cut.
pub fn child(pointer: &str, key: &str) -> String {
    let shown: String = key.chars().take(MAX_NAME_CHARS).collect();
    let cut = if shown.len() < key.len() { "…" } else { "" };
    format!("{pointer}/{}{cut}", shown.replace('~', "~0").replace('/', "~1"))
}

/// Checks a whole text.
pub(super) fn check(text: &str) -> Result<(), Wrong> {
    let faults = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_str(text);
    let root = Place { parent: None, step: Step::Index(0), faults: &faults };
    match root.deserialize(&mut reader).and_then(|()| reader.end()) {
        Err(error) => Err(Wrong::Syntax(error.to_string())),
        Ok(()) if !faults.borrow().is_empty() => Err(Wrong::Members(faults.into_inner())),
        Ok(()) => Ok(()),
    }
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Where in the text the reader is: a list on the stack, so that pointers cost nothing until one is needed. The
/// library bounds the depth to 128.
#[derive(Clone, Copy)]
struct Place<'a> {
    parent: Option<&'a Place<'a>>,
    step: Step<'a>,
    faults: &'a RefCell<Vec<Fault>>,
}

impl Place<'_> {
    fn pointer(&self) -> String {
        match (self.parent, &self.step) {
            (None, _) => String::new(),
            (Some(parent), Step::Key(key)) => child(&parent.pointer(), key),
            (Some(parent), Step::Index(index)) => format!("{}/{index}", parent.pointer()),
        }
    }

    /// Whether the member could be listed. The number is limited, because a text full of faults must not cause an
    /// answer that is larger than the text.
    fn fault(&self, message: impl Into<String>) -> bool {
        let mut faults = self.faults.borrow_mut();
        let said: usize = faults.iter().map(|fault| fault.pointer.len()).sum();
        let has_room = faults.len() < MAX_FAULTS && said <= MAX_FAULT_BYTES;
        if has_room {
            faults.push(Fault { pointer: self.pointer(), message: message.into() });
        }
        has_room
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0;
        while let Some(()) = items.next_element_seed(Place {
            parent: Some(&self),
            step: Step::Index(index),
            faults: self.faults,
        })? {
            index += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut names = Names::default();
        while let Some(name) = members.next_key_seed(Name)? {
            let place = Place { parent: Some(&self), step: Step::Key(&name), faults: self.faults };
            if name.starts_with(RESERVED) {
                place.fault(format!("names that begin with `{RESERVED}` are reserved"));
            }
            if names.has(&name) && !place.fault("is there more than once") {
                return Err(A::Error::custom("too many members are there more than once"));
            }
            members.next_value_seed(place)?;
            names.add(name);
        }
        Ok(())
    }
}

/// The names of one object so far. Most objects have few.
#[derive(Default)]
struct Names<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

impl<'de> Names<'de> {
    fn has(&self, name: &str) -> bool {
        self.few.iter().any(|known| known == name) || self.many.contains(name)
    }

    fn add(&mut self, name: Cow<'de, str>) {
        if self.few.len() < FEW {
            self.few.push(name);
        } else {
            self.many.insert(name);
        }
    }
}

/// A member's name, borrowed from the text unless it has escapes.
pub(super) struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Wrong {
        check(text).expect_err(text)
    }

    fn pointers(text: &str) -> Vec<String> {
        match refused(text) {
            Wrong::Members(faults) => faults.into_iter().map(|fault| fault.pointer).collect(),
            Wrong::Syntax(sentence) => panic!("{sentence}"),
        }
    }

    #[test]
    fn ordinary_json_passes() {
        for text in [r#"{"b":[1,-2,0.5,"x",null,true,{}],"a":{"é":"😀"}}"#, " 1e-400 ", "\"\"", "[]"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_is_not_json_names_line_and_column() {
        for text in ["", "{", "{\"a\":}", "[1,]", "nul", "{} x", "\"\u{1}\"", "1e999", "\"\\ud800\"", "01"] {
            let Wrong::Syntax(sentence) = refused(text) else { panic!("{text}") };
            assert!(sentence.contains("line 1 column"), "{sentence}");
        }
        let Wrong::Syntax(deep) = refused(&"[".repeat(100_000)) else { panic!("too deep") };
        assert!(deep.contains("recursion limit"), "{deep}");
    }

    #[test]
    fn every_repeated_member_is_pointed_at() {
        assert_eq!(pointers(r#"{"a":1,"\u0061":2,"items":[{},{"x/y":1,"x/y":1}]}"#), ["/a", "/items/1/x~1y"]);
        let many: String = (0..100).map(|i| format!("\"n{i}\":1,")).collect();
        assert_eq!(pointers(&format!("{{{many}\"n7\":1,\"n99\":1}}")), ["/n7", "/n99"]);
        let repeated: String = (0..1000).map(|_| "\"a\":1,").collect();
        assert!(matches!(refused(&format!("{{{repeated}\"b\":1}}")), Wrong::Syntax(_)));
        let below_a_long_name = format!("{{\"{}\":{{\"a\":1,\"a\":1,\"a\":1}}}}", "x".repeat(100_000));
        assert!(format!("{:?}", refused(&below_a_long_name)).len() < 1000);
    }

    #[test]
    fn what_the_library_would_read_as_something_else_is_refused() {
        let found = pointers(r#"{"payload": {"a": [{"\u0024serde_json::private::RawValue": "[1]"}]}}"#);
        assert_eq!(found, ["/payload/a/0/$serde_json::private::RawValue"]);
    }

    #[test]
    fn a_long_name_is_not_sent_back_whole() {
        assert!(child("", &"x".repeat(1_000_000)).len() < 200);
        assert_eq!(child("/a", &"x".repeat(128)).len(), 131);
    }
}
