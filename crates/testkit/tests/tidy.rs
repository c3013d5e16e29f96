//! Holds the rules of CONTRIBUTING.md that a look at the files can hold. Each test names every file that breaks its
//! rule.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails its test")]

use std::path::{Path, PathBuf};

/// More lines than this want a second file.
const LONGEST: usize = 650;

/// Statements that read all columns of a table or view. New ones name their columns, so that a migration can add one.
const STARS: &[&str] = &[
    "sqlite/sql/job_get.sql",
    "sqlite/sql/jobs_get.sql",
    "sqlite/sql/jobs_list.sql",
    "sqlite/sql/schedules_due.sql",
    "sqlite/sql/trigger_fire.sql",
    "sqlite/sql/trigger_fires.sql",
    "sqlite/sql/trigger_fires_due.sql",
    "sqlite/sql/trigger_fires_due_rules.sql",
    "sqlite/sql/triggers_match.sql",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every file of the repository with its text, by its path from the root. Files that are not text are left out.
fn texts() -> Vec<(String, String)> {
    let (root, mut texts) = (root(), Vec::new());
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name == "target" || (name.starts_with('.') && name != ".ci") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                texts.push((path.strip_prefix(&root).unwrap().to_string_lossy().into_owned(), text));
            }
        }
    }
    texts.sort();
    texts
}

/// Fails with the paths of files whose names end so and that break the rule.
fn none(rule: &str, extension: &str, breaks: impl Fn(&str, &str) -> bool) {
    let texts = texts();
    let files = || texts.iter().filter(|(path, _)| path.ends_with(extension));
    assert!(files().count() > 0, "no file ends with {extension}");
    let wrong: Vec<&str> =
        files().filter(|(path, text)| breaks(path, text)).map(|(path, _)| path.as_str()).collect();
    assert!(wrong.is_empty(), "{rule}:\n{}", wrong.join("\n"));
}

#[test]
fn files_are_small() {
    none("longer than a file should be", ".rs", |_, text| text.lines().count() > LONGEST);
}

#[test]
fn files_say_what_they_are() {
    none("does not open with `//!`", ".rs", |_, text| {
        !text.starts_with("//!") && !text.starts_with("#![doc")
    });
}

#[test]
fn nothing_names_a_place_on_one_machine() {
    let places = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    none("names a folder of one machine", "", |_, text| places.iter().any(|place| text.contains(place)));
}

#[test]
fn every_statement_is_used() {
    let texts = texts();
    none("is read by no Rust file of its store or crate", ".sql", |path, _| {
        // Both stores have statements of the same names.
        let (folder, _) = path.split_once("/sql/").or(path.split_once("/src/")).unwrap_or((path, ""));
        let stem = Path::new(path).file_stem().unwrap().to_string_lossy();
        let (file, name) = (format!("{stem}.sql\""), format!("\"{stem}\""));
        let mut code = texts.iter().filter(|(user, _)| user.starts_with(folder) && user.ends_with(".rs"));
        // What the migrations make is written down for readers, and a test compares it.
        let read = path.starts_with("crates/") && !path.contains("/schema/");
        read && !code.any(|(_, text)| text.contains(&file) || text.contains(&name))
    });
}

#[test]
fn statements_name_their_columns() {
    none("reads all columns of a table or view", ".sql", |path, text| {
        !STARS.iter().any(|known| path.ends_with(known)) && reads_all_columns(text)
    });
}

/// Whether a statement has a `*` that stands for the columns of a table or view. Those of a `WITH` query or a
/// function, such as `unnest`, are known where the `*` is.
fn reads_all_columns(sql: &str) -> bool {
    let words = words(sql);
    let word = |n: usize| words.get(n).map_or("", String::as_str);
    let is_table = |n: usize| {
        let with = |at: usize| word(at) == "as" && ["(", "materialized", "not"].contains(&word(at + 1));
        let in_with = (0..words.len()).any(|at| word(at) == word(n) && with(at + 1));
        !in_with && word(n) != "(" && word(n + 1) != "("
    };
    let sources = || (1..words.len()).filter(|n| ["from", "join"].contains(&word(n - 1)));
    (1..words.len()).filter(|n| word(*n) == "*").any(|star| match word(star - 1) {
        "returning" => true,
        "select" | "," => sources().find(|n| *n > star).is_some_and(is_table),
        before => before.strip_suffix('.').is_some_and(|alias| {
            let named = |n: usize| word(n) == alias || word(n + 1) == alias || word(n + 2) == alias;
            sources().filter(|n| named(*n)).any(is_table)
        }),
    })
}

/// The words and signs of a statement in lower case, without comments.
fn words(sql: &str) -> Vec<String> {
    let code = sql.lines().map(|line| line.split("--").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
    let mut words = vec![String::new()];
    for sign in code.to_lowercase().chars() {
        let last = words.last_mut().unwrap();
        if sign.is_alphanumeric() || "_.$:".contains(sign) {
            last.push(sign);
        } else if sign.is_whitespace() {
            words.push(String::new());
        } else {
            words.extend([sign.to_string(), String::new()]);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn a_star_is_told_from_a_product() {
    for sql in [
        "SELECT * FROM job",
        "SELECT v.*, 1 FROM job_view AS v",
        "UPDATE job SET n = 1 RETURNING *",
        "WITH a AS (SELECT 1) SELECT a.n, * FROM job JOIN a ON true",
    ] {
        assert!(reads_all_columns(sql), "{sql}");
    }
    for sql in [
        "SELECT count(*), 2 * n FROM job -- *",
        "WITH a AS MATERIALIZED (SELECT n FROM job) SELECT * FROM a",
        "SELECT g.* FROM unnest($1::text[]) AS g (name)",
        "SELECT * FROM unnest($1::text[])",
    ] {
        assert!(!reads_all_columns(sql), "{sql}");
    }
}
