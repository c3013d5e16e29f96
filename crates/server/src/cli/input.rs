//! What commands read from files and stdin: text, and objects in JSON or TOML.

use std::io::Read as _;
use std::path::Path;

use serde_json::{Map, Value};

use super::failure::Failure;
use crate::config::{Problems, definitions, syntax};

/// The text of a file, or of stdin for `-`.
pub(crate) fn text(file: &Path) -> Result<String, Failure> {
    let cannot = |error: std::io::Error| Failure::new(format!("{} cannot be read: {error}", file.display()));
    if file.as_os_str() != "-" {
        return std::fs::read_to_string(file).map_err(cannot);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

/// An object from a file in JSON or TOML: by its extension, else by how it begins.
pub(crate) fn object(file: &Path) -> Result<Map<String, Value>, Failure> {
    let text = text(file)?;
    let is_toml = match file.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => true,
        Some("json") => false,
        _ => !text.trim_start().starts_with('{'),
    };
    if is_toml { from_toml(file, &text) } else { from_json(file, &text) }
}

/// An object in JSON.
pub(crate) fn from_json(file: &Path, text: &str) -> Result<Map<String, Value>, Failure> {
    // The reader's messages name a place in the text, and nothing of it.
    serde_json::from_str(text)
        .map_err(|error| Failure::new(format!("{} does not hold a JSON object: {error}", file.display())))
}

fn from_toml(file: &Path, text: &str) -> Result<Map<String, Value>, Failure> {
    let wrong = |problem: String| Failure::new(format!("{}: {problem}", file.display()));
    let table: toml::Table = text.parse().map_err(|error| wrong(syntax(text, &error)))?;
    let mut problems = Problems::default();
    let mut members = Map::new();
    for (name, value) in table {
        let value = definitions::json(&name, value, &mut problems);
        members.insert(name, value);
    }
    match problems.iter().next() {
        None => Ok(members),
        Some(problem) => Err(wrong(problem.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(name: &str, text: &str) -> Result<Value, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        object(&file).map(Value::Object).map_err(|failure| failure.to_string())
    }

    #[test]
    fn json_and_toml_are_told_apart() {
        let (json, toml) = (r#" {"cron": "@daily"}"#, "# nightly\ncron = \"@daily\"");
        for (name, text) in [("a.json", json), ("a.toml", toml), ("a", json), ("a", toml)] {
            assert_eq!(read(name, text), Ok(json!({"cron": "@daily"})), "{name}");
        }
    }

    #[test]
    fn dates_become_text_and_what_json_has_not_is_refused() {
        let good = "[job.labels]\nday = 2025-02-15\n[[job.items]]\nkey = \"A\"";
        let expected = json!({"job": {"labels": {"day": "2025-02-15"}, "items": [{"key": "A"}]}});
        assert_eq!(read("a.toml", good), Ok(expected));
        let said = read("a.toml", "[job.payload]\nrate = nan").unwrap_err();
        assert!(said.contains("job.payload.rate: is not a number that JSON has"), "{said}");
    }

    #[test]
    fn what_cannot_be_read_is_not_repeated() {
        for (name, text) in
            [("a.json", r#"{"x": hunter2}"#), ("a.toml", "x = 1\ny = hunter2"), ("a.json", "[1]")]
        {
            let said = read(name, text).unwrap_err();
            assert!(!said.contains("hunter2"), "{said}");
        }
        assert!(read("a.toml", "x = 1\ny = hunter2").unwrap_err().contains("line 2: "));
    }
}
