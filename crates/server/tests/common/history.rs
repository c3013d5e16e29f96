//! What histories are judged by: every transition that the engine may make, and no other.

use std::collections::BTreeMap;

use chrono::{DateTime, FixedOffset};
use serde_json::Value;

use super::Client;

/// Every transition that may be, as the design's table has them.
pub const ALLOWED: [(Option<&str>, &str); 18] = [
    (None, "CREATED"),
    (None, "QUEUED"),
    (Some("CREATED"), "QUEUED"),
    (Some("QUEUED"), "RUNNING"),
    (Some("RUNNING"), "SUCCESS"),
    (Some("RUNNING"), "RETRY"),
    (Some("RUNNING"), "QUEUED"),
    (Some("RUNNING"), "CREATED"),
    (Some("RETRY"), "QUEUED"),
    (Some("RETRY"), "DEAD"),
    (Some("QUEUED"), "CREATED"),
    (Some("RETRY"), "CREATED"),
    (Some("CREATED"), "DEAD"),
    (Some("CREATED"), "CANCELLED"),
    (Some("QUEUED"), "CANCELLED"),
    (Some("RETRY"), "CANCELLED"),
    (Some("RUNNING"), "CANCELLED"),
    (Some("DEAD"), "QUEUED"),
];

/// A moment as the API writes it. As text two of them have no order: one may have fewer digits.
pub fn time(value: &Value) -> DateTime<FixedOffset> {
    let text = value.as_str().unwrap_or_else(|| panic!("{value} is a time"));
    DateTime::parse_from_rfc3339(text).unwrap_or_else(|error| panic!("{value}: {error}"))
}

/// Insists that every chunk of a job went on where it was, only where it may go and never back in time, and
/// that each of `chunks` ended as SUCCESS. Nothing leaves that state, so each came to it once.
pub async fn all_succeeded(client: &Client, job: &str, chunks: usize) {
    let mut last: BTreeMap<String, (String, DateTime<FixedOffset>)> = BTreeMap::new();
    for row in client.all(&format!("/jobs/{job}/history")).await {
        let (from, to) = (row["from"].as_str(), row["to"].as_str().expect("a state"));
        assert!(ALLOWED.contains(&(from, to)), "{job}: {row}");
        let at = time(&row["at"]);
        let key = row["chunkKey"].as_str().expect("a chunk key");
        let before = last.get(key);
        assert_eq!(from, before.map(|(state, _)| state.as_str()), "it goes on where it was: {row}");
        assert!(before.is_none_or(|(_, before)| *before <= at), "not back in time: {row}");
        last.insert(key.to_owned(), (to.to_owned(), at));
    }
    let unfinished: Vec<_> = last.iter().filter(|(_, (state, _))| state != "SUCCESS").collect();
    assert!(unfinished.is_empty() && last.len() == chunks, "{} chunks; {unfinished:?}", last.len());
}
