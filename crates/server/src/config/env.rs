//! The environment's say in the configuration: `OUTHAUL__WORKER__CONCURRENCY=16` is `worker.concurrency`.
//! Read once at start; nothing reads the environment after that.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::problem::Problems;

/// What every overriding variable begins with; two underscores stand for a dot.
const PREFIX: &str = "OUTHAUL__";

/// The environment of this process, as far as it is text.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Takes a copy of the real one.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(text).collect())
    }

    /// One variable; an empty one counts as unset.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// All variables whose name begins so.
    pub(super) fn starting_with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let named = self.0.range(prefix.to_owned()..).take_while(move |(name, _)| name.starts_with(prefix));
        named.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Lays the overriding variables over what the file says. Returns their texts by path: where a
    /// setting wants text, `12345` must not have become a number.
    pub(super) fn lay_over(&self, table: &mut Table, problems: &mut Problems) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        let overriding = self.starting_with(PREFIX);
        let paths: Vec<(String, &str)> = overriding
            .map(|(name, text)| (name[PREFIX.len()..].to_lowercase().replace("__", "."), text))
            .map(|(path, text)| (as_written(table, &path), text))
            .collect();
        for (path, _) in &paths {
            forget_other_forms(table, path);
        }
        for (path, text) in paths {
            if insert(table, &path, scalar(text)) {
                texts.insert(path, text.to_owned());
            } else {
                let name = format!("{PREFIX}{}", path.to_uppercase().replace('.', "__"));
                problems.add(path, format!("the environment variable {name} names no setting"));
            }
        }
        texts
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        Self::from(&variables[..])
    }
}

impl From<&[(&str, &str)]> for Environment {
    fn from(variables: &[(&str, &str)]) -> Self {
        Self(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }
}

/// A TOML scalar where the text is one, else the text itself.
fn scalar(text: &str) -> Value {
    let parsed = format!("v = {text}").parse::<Table>().ok().filter(|table| table.len() == 1);
    match parsed.and_then(|mut table| table.remove("v")) {
        Some(value @ (Value::Boolean(_) | Value::Integer(_) | Value::Float(_) | Value::String(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}

/// The path as the file writes it: variables know no case, names such as `job_types.SEND_EMAIL` do.
fn as_written(table: &Table, path: &str) -> String {
    let mut inside = Some(table);
    let mut parts = Vec::new();
    for part in path.split('.') {
        let same = |name: &&String| name.eq_ignore_ascii_case(part);
        let here = inside.filter(|table| !table.contains_key(part));
        let written = here.and_then(|table| table.keys().find(same)).map_or(part, String::as_str);
        inside = inside.and_then(|table| table.get(written)).and_then(Value::as_table);
        parts.push(written);
    }
    parts.join(".")
}

/// `x`, `x_file` and `x_env` are forms of one setting: the environment's replaces the file's.
fn forget_other_forms(table: &mut Table, path: &str) {
    let (parents, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut table = table;
    for part in parents.split('.').filter(|part| !part.is_empty()) {
        match table.get_mut(part) {
            Some(Value::Table(inner)) => table = inner,
            _ => return,
        }
    }
    let base = name.strip_suffix("_file").or_else(|| name.strip_suffix("_env")).unwrap_or(name);
    for form in [base.to_owned(), format!("{base}_file"), format!("{base}_env")] {
        table.remove(&form);
    }
}

/// Sets `a.b.c`, making tables on the way; `false` where the way is blocked.
fn insert(table: &mut Table, path: &str, value: Value) -> bool {
    let (part, rest) = path.split_once('.').map_or((path, None), |(part, rest)| (part, Some(rest)));
    if part.is_empty() {
        return false;
    }
    match rest {
        None => {
            table.insert(part.to_owned(), value);
            true
        }
        Some(rest) => match table.entry(part).or_insert_with(|| Value::Table(Table::new())) {
            Value::Table(inner) => insert(inner, rest, value),
            _ => false,
        },
    }
}
