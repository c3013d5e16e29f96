//! Reads a table into a raw section key by key, so that one wrong key does not hide the next.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::problem::Problems;

/// What all sections are read with.
pub(super) struct Reader<'a> {
    /// Texts from the environment by path, for settings that want text.
    pub(super) texts: &'a BTreeMap<String, String>,
    /// Everything found wrong so far.
    pub(super) problems: &'a mut Problems,
}

impl Reader<'_> {
    /// Takes a section out of its parent; a missing one has its defaults.
    pub(super) fn section<T: DeserializeOwned + Default>(&mut self, parent: &mut Table, name: &str) -> T {
        match parent.remove(name) {
            None => T::default(),
            Some(Value::Table(table)) => self.table(name, table),
            Some(_) => {
                self.problems.add(name, format!("must be a table: write [{name}]"));
                T::default()
            }
        }
    }

    /// Takes all named sections of one kind: `[sources.warehouse]`, `[sources.crm]`.
    pub(super) fn sections<T: DeserializeOwned + Default>(
        &mut self,
        parent: &mut Table,
        kind: &str,
    ) -> BTreeMap<String, T> {
        let mut named: Table = match parent.remove(kind) {
            None => Table::new(),
            Some(Value::Table(table)) => table,
            Some(_) => {
                self.problems.add(kind, format!("must be tables: write [{kind}.name]"));
                Table::new()
            }
        };
        let names: Vec<String> = named.keys().cloned().collect();
        let mut read = BTreeMap::new();
        for name in names {
            let path = format!("{kind}.{name}");
            match named.remove(&name) {
                Some(Value::Table(table)) => {
                    read.insert(name, self.table(&path, table));
                }
                _ => self.problems.add(&path, format!("must be a table: write [{path}]")),
            }
        }
        read
    }

    /// Reads one table. Each key is first tried alone; those that do not fit are reported and left out.
    pub(super) fn table<T: DeserializeOwned + Default>(&mut self, path: &str, table: Table) -> T {
        let mut fitting = Table::new();
        for (key, value) in table {
            let place = format!("{path}.{key}");
            let text = self.texts.get(&place).map(|text| Value::String(text.clone()));
            match alone::<T>(&key, &value) {
                Ok(()) => {
                    fitting.insert(key, value);
                }
                Err(message) => match text.filter(|text| alone::<T>(&key, text).is_ok()) {
                    Some(text) => {
                        fitting.insert(key, text);
                    }
                    None => self.problems.add(place, message),
                },
            }
        }
        fitting.try_into().unwrap_or_else(|error: toml::de::Error| {
            self.problems.add(path, plain(error.message()));
            T::default()
        })
    }
}

fn alone<T: DeserializeOwned>(key: &str, value: &Value) -> Result<(), String> {
    let table = Table::from_iter([(key.to_owned(), value.clone())]);
    table.try_into::<T>().map(drop).map_err(|error| plain(error.message()))
}

/// serde's words in ours. Drops wrong text values: one of them may be a secret in the wrong place.
fn plain(message: &str) -> String {
    if let Some(rest) = message.strip_prefix("unknown field `") {
        let (name, known) = rest.split_once('`').unwrap_or((rest, ""));
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        return unknown(name, &known);
    }
    let message = match (message.strip_prefix("invalid type: string "), message.rsplit_once(", expected ")) {
        (Some(_), Some((_, expected))) => format!("is text, expected {expected}"),
        _ => message.to_owned(),
    };
    ["u8", "u16", "u32", "u64", "usize"]
        .into_iter()
        .find_map(|kind| message.strip_suffix(&format!("expected {kind}")))
        .map(|start| format!("{start}expected a whole number"))
        .unwrap_or(message)
        .replace("expected a boolean", "expected true or false")
        .replace("expected a string", "expected text in quotes")
}

/// Says that a key is not known, with the nearest one that is.
pub(super) fn unknown(name: &str, known: &[&str]) -> String {
    let nearest = known.iter().map(|word| (distance(name, word), word)).min();
    match nearest {
        Some((distance, word)) if distance <= 2.max(name.len() / 3) => {
            format!("is not a setting; did you mean `{word}`?")
        }
        _ => format!("is not a setting; known here: {}", known.join(", ")),
    }
}

/// How many letters must change to make one word the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
