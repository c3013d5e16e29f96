//! What every submission may say whatever its shape: key, priority, time, labels, failure policy.
//! Every problem is collected, so that a client sees all of them at once.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::{HeaderMap, HeaderName};
use chrono::{DateTime, SecondsFormat, Utc};
use outhaul_core::id::JobId;
use outhaul_core::job::{OnFailure, OnParentFailure};
use serde_json::{Map, Value, json};

use super::dead_letters::read_job_id;
use super::json::{check_text, child, kind};
use super::problem::FieldError;
use super::query::read_time;

/// The header that may carry the key.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The members of a submission that are read here.
pub(super) const MEMBERS: [&str; 7] =
    ["idempotencyKey", "priority", "runAt", "dependsOn", "onParentFailure", "labels", "onFailure"];

pub(super) const DEFAULT_PRIORITY: u8 = 5;
const MAX_KEY: usize = 255;
/// The most jobs that one may wait for.
pub(super) const MAX_PARENTS: usize = 100;
/// The most labels a job may have.
pub(super) const MAX_LABELS: usize = 32;
/// The longest name of a label, in characters.
pub(super) const MAX_LABEL_NAME: usize = 64;
/// The longest text of a label, in characters.
pub(super) const MAX_LABEL_TEXT: usize = 256;

/// The common options with their defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    /// The client's name for this request.
    pub idempotency_key: Option<String>,
    /// 0–9, higher first.
    pub priority: u8,
    /// Not before this moment.
    pub run_at: Option<DateTime<Utc>>,
    /// The jobs that must end before this one may start; each once.
    pub depends_on: Vec<JobId>,
    /// What happens when one of them comes to a bad end.
    pub on_parent_failure: OnParentFailure,
    /// The client's own notes.
    pub labels: BTreeMap<String, String>,
    /// What a dead chunk does to the rest.
    pub on_failure: OnFailure,
}

impl Options {
    /// Reads the options of a body and its headers; what is wrong is added to `errors`.
    pub(super) fn read(
        body: &Map<String, Value>,
        headers: &HeaderMap,
        key_required: bool,
        errors: &mut Vec<FieldError>,
    ) -> Self {
        Self {
            idempotency_key: read_key(body.get("idempotencyKey"), headers, key_required, errors),
            priority: read(body, "priority", errors, read_priority).unwrap_or(DEFAULT_PRIORITY),
            run_at: read(body, "runAt", errors, |value| read_time(text(value)?)),
            depends_on: body.get("dependsOn").map_or_else(Vec::new, |value| read_parents(value, errors)),
            on_parent_failure: read(body, "onParentFailure", errors, read_policy).unwrap_or_default(),
            labels: body.get("labels").map_or_else(BTreeMap::new, |value| read_labels(value, errors)),
            on_failure: read(body, "onFailure", errors, |value| {
                OnFailure::parse(text(value)?).ok_or_else(|| "must be `stop` or `continue`".to_owned())
            })
            .unwrap_or_default(),
        }
    }

    /// The options that make two requests the same, in one spelling; the key itself is not one.
    pub(super) fn canonical(&self) -> Value {
        let mut canonical = json!({
            "priority": self.priority,
            "runAt": self.run_at.map(|time| time.to_rfc3339_opts(SecondsFormat::Micros, true)),
            "labels": self.labels,
            "onFailure": self.on_failure.as_str(),
        });
        // Only where there is something to say, so that keys of jobs without parents keep their meaning.
        if !self.depends_on.is_empty() {
            canonical["dependsOn"] = json!(self.depends_on);
            canonical["onParentFailure"] = json!(self.on_parent_failure);
        }
        canonical
    }
}

fn read<T>(
    body: &Map<String, Value>,
    name: &str,
    errors: &mut Vec<FieldError>,
    read: impl FnOnce(&Value) -> Result<T, String>,
) -> Option<T> {
    match read(body.get(name)?) {
        Ok(value) => Some(value),
        Err(message) => {
            errors.push(FieldError::new(child("", name), message));
            None
        }
    }
}

/// A value that must be text.
pub(super) fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("must be text, not {}", kind(value)))
}

fn read_policy(value: &Value) -> Result<OnParentFailure, String> {
    OnParentFailure::parse(text(value)?).ok_or_else(|| "must be `hold`, `cancel`, `run` or `fail`".to_owned())
}

/// The parents in the order of their ids, each once: what was meant is a set.
fn read_parents(value: &Value, errors: &mut Vec<FieldError>) -> Vec<JobId> {
    let Value::Array(parents) = value else {
        errors.push(FieldError::new("/dependsOn", format!("must be a list of job ids, not {}", kind(value))));
        return Vec::new();
    };
    if parents.len() > MAX_PARENTS {
        errors.push(FieldError::new("/dependsOn", format!("may name at most {MAX_PARENTS} jobs")));
        return Vec::new();
    }
    let mut read = BTreeSet::new();
    for (place, parent) in parents.iter().enumerate() {
        match text(parent).and_then(read_job_id) {
            Ok(job_id) => drop(read.insert(job_id)),
            Err(message) => errors.push(FieldError::new(format!("/dependsOn/{place}"), message)),
        }
    }
    read.into_iter().collect()
}

/// A priority.
pub(super) fn read_priority(value: &Value) -> Result<u8, String> {
    // JSON does not tell 5 from 5.0.
    let number = value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=9.0).contains(number));
    number.map(|number| number as u8).ok_or_else(|| "must be a whole number from 0 to 9".to_owned())
}

fn read_key(
    field: Option<&Value>,
    headers: &HeaderMap,
    required: bool,
    errors: &mut Vec<FieldError>,
) -> Option<String> {
    let mut sent = headers.get_all(IDEMPOTENCY_KEY).iter();
    let (header, more) = (sent.next(), sent.next().is_some());
    if more {
        errors.push(FieldError::new("Idempotency-Key", "is there more than once"));
    }
    let from_header = header.map(|value| check_key(value.as_bytes()));
    let from_field = field.map(|value| text(value).and_then(|key| check_key(key.as_bytes())));
    for (pointer, read) in [("Idempotency-Key", &from_header), ("/idempotencyKey", &from_field)] {
        if let Some(Err(message)) = read {
            errors.push(FieldError::new(pointer, message.clone()));
        }
    }
    match (from_header, from_field) {
        (Some(Ok(header)), Some(Ok(field))) if header != field => {
            errors.push(FieldError::new("/idempotencyKey", "differs from the Idempotency-Key header"));
            None
        }
        (Some(key), _) | (None, Some(key)) => key.ok(),
        (None, None) => {
            if required {
                let message = "is required here: send it, or an Idempotency-Key header";
                errors.push(FieldError::new("/idempotencyKey", message));
            }
            None
        }
    }
}

fn check_key(bytes: &[u8]) -> Result<String, String> {
    let sound = (1..=MAX_KEY).contains(&bytes.len()) && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let key = sound.then(|| String::from_utf8(bytes.to_vec()).ok()).flatten();
    key.ok_or_else(|| format!("must be 1 to {MAX_KEY} printable ASCII characters"))
}

fn read_labels(value: &Value, errors: &mut Vec<FieldError>) -> BTreeMap<String, String> {
    let Some(members) = value.as_object() else {
        errors.push(FieldError::new("/labels", format!("must be an object of texts, not {}", kind(value))));
        return BTreeMap::new();
    };
    if members.len() > MAX_LABELS {
        errors.push(FieldError::new("/labels", format!("must have at most {MAX_LABELS} members")));
        return BTreeMap::new();
    }
    let mut labels = BTreeMap::new();
    for (name, value) in members {
        let checked = check_label_name(name)
            .and_then(|()| text(value))
            .and_then(|text| check_text(text, MAX_LABEL_TEXT).map(|()| text.to_owned()));
        match checked {
            Ok(text) => {
                labels.insert(name.clone(), text);
            }
            Err(message) => errors.push(FieldError::new(child("/labels", name), message)),
        }
    }
    labels
}

fn check_label_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a label must have a name".into());
    }
    check_text(name, MAX_LABEL_NAME).map_err(|message| format!("the name {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn read_all(body: Value, keys: &[&[u8]], required: bool) -> (Options, Vec<String>) {
        let mut headers = HeaderMap::new();
        for key in keys {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(key).unwrap());
        }
        let mut errors = Vec::new();
        let options = Options::read(body.as_object().unwrap(), &headers, required, &mut errors);
        (options, errors.into_iter().map(|error| error.pointer).collect())
    }

    #[test]
    fn defaults_are_filled_in() {
        let (options, errors) = read_all(json!({}), &[], false);
        assert!(errors.is_empty());
        let said = json!({"priority": 5.0, "labels": {}, "onFailure": "stop"});
        assert_eq!(options, read_all(said, &[], false).0);
    }

    #[test]
    fn every_problem_is_pointed_at() {
        let body = json!({"priority": 10, "runAt": "tomorrow", "onFailure": "STOP", "idempotencyKey": "",
            "labels": {"a": 1, "b~/": "x\u{0}", "": "x", "ok": "x"}});
        let (_, errors) = read_all(body, &[], false);
        assert_eq!(
            errors,
            [
                "/idempotencyKey",
                "/priority",
                "/runAt",
                "/labels/a",
                "/labels/b~0~1",
                "/labels/",
                "/onFailure"
            ]
        );
        for wrong in [json!(null), json!("5"), json!(-1), json!(5.5), json!(1e300), json!([5])] {
            assert_eq!(read_all(json!({"priority": wrong}), &[], false).1, ["/priority"]);
        }
        let many: Map<String, Value> = (0..33).map(|i| (i.to_string(), json!("x"))).collect();
        assert_eq!(read_all(json!({"labels": many}), &[], false).1, ["/labels"]);
        assert_eq!(read_all(json!({"labels": ["x"]}), &[], false).1, ["/labels"]);
    }

    #[test]
    fn the_key_comes_from_either_place() {
        assert_eq!(read_all(json!({}), &[b"k 1"], true).0.idempotency_key.as_deref(), Some("k 1"));
        assert_eq!(
            read_all(json!({"idempotencyKey": "k"}), &[], true).0.idempotency_key.as_deref(),
            Some("k")
        );
        assert_eq!(read_all(json!({"idempotencyKey": "k"}), &[b"k"], false).1, [""; 0]);
        assert_eq!(read_all(json!({"idempotencyKey": "k"}), &[b"l"], false).1, ["/idempotencyKey"]);
        assert_eq!(read_all(json!({}), &[], true).1, ["/idempotencyKey"]);
    }

    #[test]
    fn unusable_keys_are_refused() {
        let long = [b'x'; 256];
        for key in [&b""[..], "ключ".as_bytes(), b"\xff", b"a\tb", &long] {
            assert_eq!(read_all(json!({}), &[key], false).1, ["Idempotency-Key"], "{key:?}");
        }
        assert!(read_all(json!({}), &[&long[..255]], false).1.is_empty());
        assert_eq!(read_all(json!({}), &[b"a", b"a"], false).1, ["Idempotency-Key"]);
        for key in [json!(1), json!(null), json!("a\u{0}"), json!("a\n"), json!("é"), json!("x".repeat(256))]
        {
            assert_eq!(read_all(json!({"idempotencyKey": key}), &[], false).1, ["/idempotencyKey"]);
        }
    }

    #[test]
    fn parents_are_a_set_and_each_bad_one_is_pointed_at() {
        let (one, two) = ("J20260102_0123456789ABC", "J20260102_0123456789ABD");
        let canonical = |body: Value| read_all(body, &[], false).0.canonical();
        let asked = json!({"dependsOn": [two, one, two], "onParentFailure": "hold"});
        assert_eq!(canonical(asked), canonical(json!({"dependsOn": [one, two]})));
        assert_eq!(canonical(json!({"dependsOn": []})), canonical(json!({})), "no parents, no difference");
        assert_ne!(canonical(json!({"dependsOn": [one]})), canonical(json!({})));
        let wrong = json!({"dependsOn": [one, "x", 5], "onParentFailure": "wait"});
        assert_eq!(read_all(wrong, &[], false).1, ["/dependsOn/1", "/dependsOn/2", "/onParentFailure"]);
        for wrong in [json!(one), json!(null), json!(vec![one; 101])] {
            assert_eq!(read_all(json!({"dependsOn": wrong}), &[], false).1, ["/dependsOn"]);
        }
    }

    #[test]
    fn one_moment_has_one_spelling() {
        let canonical = |time: &str| read_all(json!({"runAt": time}), &[], false).0.canonical();
        assert_eq!(canonical("2026-01-02T03:04:05Z"), canonical("2026-01-02T05:04:05.000+02:00"));
        assert_ne!(canonical("2026-01-02T03:04:05Z"), canonical("2026-01-02T03:04:06Z"));
    }
}
