//! How a custom job is written down, in one place: the library and the HTTP API make the same
//! [`NewJob`] of the same request, so that an idempotency key means the same to both.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use outhaul_core::id::JobId;
use outhaul_core::job::{Idempotency, NewChunk, NewJob, OnFailure, OnParentFailure};
use outhaul_core::json::{Json, canonical};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::envelope::Envelope;

/// What clients call the one chunk of a custom job.
pub const MAIN_CHUNK: &str = "main";

/// The queue that jobs of a custom type wait in: `job:<TYPE>`.
pub fn queue_of(job_type: &str) -> String {
    format!("job:{job_type}")
}

/// What may be said of any custom job beside its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmitOptions {
    /// The client's name for this request; see [`Idempotency`].
    pub idempotency_key: Option<String>,
    /// 0–9, higher first.
    pub priority: u8,
    /// Not before this moment.
    pub run_at: Option<DateTime<Utc>>,
    /// The jobs that must end before this one may start.
    pub depends_on: Vec<JobId>,
    /// What happens when one of them comes to a bad end.
    pub on_parent_failure: OnParentFailure,
    /// Free text for the client's own use.
    pub labels: BTreeMap<String, String>,
    /// What a dead chunk does to the rest; a custom job has no rest, but a request may say it.
    pub on_failure: OnFailure,
    /// Who asks; keys are unique per owner.
    pub owner: String,
    /// The W3C trace context of the request. Not part of what makes two requests the same.
    pub traceparent: Option<String>,
}

impl Default for SubmitOptions {
    fn default() -> Self {
        Self {
            idempotency_key: None,
            priority: 5,
            run_at: None,
            depends_on: Vec::new(),
            on_parent_failure: OnParentFailure::default(),
            labels: BTreeMap::new(),
            on_failure: OnFailure::default(),
            owner: "anonymous".to_owned(),
            traceparent: None,
        }
    }
}

/// A custom job as it was asked for, validated. No `Debug`: payloads are never shown.
#[derive(Clone)]
pub struct Submission {
    /// The registered job type.
    pub job_type: String,
    /// What its handler gets.
    pub payload: Json,
    /// The rest of the request.
    pub options: SubmitOptions,
    /// From [`crate::Handler::unique_key`].
    pub unique_key: Option<String>,
}

/// The parts of a request other than the payload. The order and the form of its members are part of stored hashes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    priority: u8,
    run_at: Option<String>,
    labels: &'a BTreeMap<String, String>,
    on_failure: OnFailure,
    // Left out if empty, so that the hashes of jobs without parents do not change.
    #[serde(skip_serializing_if = "Option::is_none")]
    depends_on: Option<&'a Vec<JobId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_parent_failure: Option<OnParentFailure>,
}

fn written<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("it has names of text")
}

impl Submission {
    /// The job to store. `now` and `random` make its id.
    pub fn into_new_job(self, now: DateTime<Utc>, random: u64) -> NewJob {
        let Self { job_type, payload, mut options, unique_key } = self;
        // A set, whatever the order in which it was named.
        options.depends_on.sort();
        options.depends_on.dedup();
        let has_parents = !options.depends_on.is_empty();
        let asked = Asked {
            priority: options.priority,
            run_at: options.run_at.map(|time| time.to_rfc3339_opts(SecondsFormat::Micros, true)),
            labels: &options.labels,
            on_failure: options.on_failure,
            depends_on: has_parents.then_some(&options.depends_on),
            on_parent_failure: has_parents.then_some(options.on_parent_failure),
        };
        let (named, asked) = (written(&job_type), written(&asked));
        let idempotency = options.idempotency_key.take().map(|key| {
            let payload = canonical(&payload);
            let whole = format!(r#"{{"jobType":{named},"payload":{payload},"options":{asked}}}"#);
            Idempotency { key, request_hash: text_hash(&whole) }
        });
        let request = format!(r#"{{"jobType":{named},"options":{asked}}}"#);
        let main = NewChunk {
            chunk_key: MAIN_CHUNK.to_owned(),
            queue: queue_of(&job_type),
            key: None,
            effective_date: None,
        };
        NewJob {
            job_id: JobId::new(now, random),
            request: Json::stored(&request).expect("it is JSON"),
            job_type,
            dataset: None,
            owner: options.owner,
            idempotency,
            unique_key,
            params: Envelope::new(payload, options.traceparent).into_params(),
            priority: options.priority,
            on_failure: options.on_failure,
            labels: options.labels,
            run_at: options.run_at,
            parents: options.depends_on,
            on_parent_failure: options.on_parent_failure,
            base_path: None,
            identity: None,
            scope: String::new(),
            made_by: None,
            quota: None,
            chunks: vec![main],
        }
    }
}

/// SHA-256 of a payload, in hex; the same however its members are ordered or its numbers written.
pub(crate) fn payload_hash(payload: &Json) -> String {
    text_hash(&canonical(payload))
}

/// SHA-256 in hex.
pub(crate) fn text_hash(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use outhaul_core::clock;
    use serde_json::json;

    fn job(payload: Json, options: SubmitOptions) -> NewJob {
        let job_type = "SEND_EMAIL".to_owned();
        Submission { job_type, payload, options, unique_key: None }.into_new_job(clock::now(), 1)
    }

    fn hash(payload: impl Into<Json>, change: impl FnOnce(&mut SubmitOptions)) -> String {
        let mut options = SubmitOptions { idempotency_key: Some("k".to_owned()), ..SubmitOptions::default() };
        change(&mut options);
        job(payload.into(), options).idempotency.map(|known| known.request_hash).unwrap_or_default()
    }

    fn parsed(text: &str) -> Json {
        Json::parse(text).unwrap()
    }

    #[test]
    fn equal_requests_have_equal_hashes_however_they_are_written() {
        let one = hash(parsed(r#"{"a": 1, "b": {"x": [1.0, -0.0], "y": null}}"#), |_| {});
        let two = hash(parsed(r#"{"b":{"y":null,"x":[1,0]},"a":1.0}"#), |options| {
            options.traceparent = Some("00-1-2-01".to_owned());
        });
        assert_eq!(one, two);
        assert_eq!(one.len(), 64);
    }

    #[test]
    fn whatever_matters_changes_the_hash() {
        let all = [
            hash(json!({"n": 1}), |_| {}),
            hash(json!({"n": 2}), |_| {}),
            hash(json!({"n": "1"}), |_| {}),
            hash(json!({"n": 1.5}), |_| {}),
            hash(json!([1, 2]), |_| {}),
            hash(json!([2, 1]), |_| {}),
            hash(json!({"n": 1}), |options| options.priority = 6),
            hash(json!({"n": 1}), |options| options.run_at = Some(DateTime::UNIX_EPOCH)),
            hash(json!({"n": 1}), |options| options.labels = [("a".to_owned(), "b".to_owned())].into()),
            hash(json!({"n": 1}), |options| options.on_failure = OnFailure::Continue),
        ];
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn hashes_are_those_of_earlier_versions() {
        let payload = parsed(
            r#"{"to": "a@b.c", "n": [1, 2.5, 1e2, -0.0, 18446744073709551615], "e\u0301": {"z": null, "a": "\u00e9\n"}}"#,
        );
        let plain = hash(payload.clone(), |_| {});
        assert_eq!(plain, "849bae383aa4b654a2ba643fc2307dd16e8c692fd3204c1a014754116bb59f96");
        let all = hash(payload, |options| {
            options.priority = 7;
            options.run_at = Some(DateTime::UNIX_EPOCH);
            options.labels = [("a".to_owned(), "b\"".to_owned())].into();
            options.on_failure = OnFailure::Continue;
            options.depends_on =
                vec![JobId::new(DateTime::UNIX_EPOCH, 7), JobId::new(DateTime::UNIX_EPOCH, 1)];
        });
        assert_eq!(all, "a7b990fe3ab54be025779e945110ba679a01531c8d86d0e8d77d37a2c96e4e9f");
    }

    #[test]
    fn numbers_that_a_float_cannot_tell_apart_are_not_the_same_request() {
        let one = hash(parsed(r#"{"account": 123456789012345678901234567890}"#), |_| {});
        let other = hash(parsed(r#"{"account": 123456789012345678901234567891}"#), |_| {});
        assert_ne!(one, other);
        let again = hash(parsed(r#"{ "account": 123456789012345678901234567890.0 }"#), |_| {});
        assert_eq!(one, again, "the same number, written otherwise");
    }

    #[test]
    fn the_stored_request_has_no_payload_and_the_chunk_waits_in_its_types_queue() {
        let job = job(parsed(r#"{"to": "hunter2"}"#), SubmitOptions::default());
        assert_eq!(job.request.read::<serde_json::Value>().unwrap()["options"]["priority"], 5);
        assert!(!job.request.as_str().contains("hunter2"));
        assert!(job.idempotency.is_none());
        assert_eq!((job.chunks.len(), job.chunks[0].queue.as_str()), (1, "job:SEND_EMAIL"));
        assert_eq!(job.chunks[0].chunk_key, MAIN_CHUNK);
        let envelope = Envelope::from_params(&job.params).ok().unwrap();
        assert_eq!(envelope.payload.as_str(), r#"{"to": "hunter2"}"#);
    }
}
