//! How a custom job is written down, in one place: the library and the HTTP API make the same
//! [`NewJob`] of the same request, so that an idempotency key means the same to both.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use outhaul_core::id::JobId;
use outhaul_core::job::{Idempotency, NewChunk, NewJob, OnFailure, OnParentFailure};
use serde_json::{Map, Number, Value, json};
use sha2::{Digest, Sha256};

use crate::envelope::Envelope;

/// What clients call the one chunk of a custom job.
pub const MAIN_CHUNK: &str = "main";

/// Whole numbers up to here are the same as integers and as floats.
const EXACT: f64 = 9_007_199_254_740_992.0;

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
    pub payload: Value,
    /// The rest of the request.
    pub options: SubmitOptions,
    /// From [`crate::Handler::unique_key`].
    pub unique_key: Option<String>,
}

impl Submission {
    /// The job to store. `now` and `random` make its id.
    pub fn into_new_job(self, now: DateTime<Utc>, random: u64) -> NewJob {
        let Self { job_type, payload, mut options, unique_key } = self;
        // A set, whatever the order in which it was named.
        options.depends_on.sort();
        options.depends_on.dedup();
        let mut asked = json!({
            "priority": options.priority,
            "runAt": options.run_at.map(|time| time.to_rfc3339_opts(SecondsFormat::Micros, true)),
            "labels": options.labels,
            "onFailure": options.on_failure.as_str(),
        });
        // Only where there is something to say, so that keys of jobs without parents keep their meaning.
        if !options.depends_on.is_empty() {
            asked["dependsOn"] = json!(options.depends_on);
            asked["onParentFailure"] = json!(options.on_parent_failure);
        }
        let idempotency = options.idempotency_key.map(|key| {
            let whole = json!({ "jobType": job_type, "payload": canonical(&payload), "options": asked });
            Idempotency { key, request_hash: text_hash(&whole.to_string()) }
        });
        let main = NewChunk {
            chunk_key: MAIN_CHUNK.to_owned(),
            queue: queue_of(&job_type),
            key: None,
            effective_date: None,
        };
        NewJob {
            job_id: JobId::new(now, random),
            request: json!({ "jobType": job_type, "options": asked }),
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
pub(crate) fn payload_hash(payload: &Value) -> String {
    text_hash(&canonical(payload).to_string())
}

/// SHA-256 in hex.
pub(crate) fn text_hash(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One spelling of equal JSON: members by name, `5.0` as `5`.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let sorted: BTreeMap<&String, Value> =
                members.iter().map(|(name, value)| (name, canonical(value))).collect();
            Value::Object(
                sorted.into_iter().map(|(name, value)| (name.clone(), value)).collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(canonical).collect()),
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < EXACT);
            Value::Number(whole.map_or_else(|| number.clone(), |float| Number::from(float as i64)))
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outhaul_core::clock;

    fn job(payload: Value, options: SubmitOptions) -> NewJob {
        let job_type = "SEND_EMAIL".to_owned();
        Submission { job_type, payload, options, unique_key: None }.into_new_job(clock::now(), 1)
    }

    fn hash(payload: Value, change: impl FnOnce(&mut SubmitOptions)) -> String {
        let mut options = SubmitOptions { idempotency_key: Some("k".to_owned()), ..SubmitOptions::default() };
        change(&mut options);
        job(payload, options).idempotency.map(|known| known.request_hash).unwrap_or_default()
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
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
    fn the_stored_request_has_no_payload_and_the_chunk_waits_in_its_types_queue() {
        let job = job(json!({"to": "hunter2"}), SubmitOptions::default());
        assert!(!job.request.to_string().contains("hunter2"));
        assert!(job.idempotency.is_none());
        assert_eq!((job.chunks.len(), job.chunks[0].queue.as_str()), (1, "job:SEND_EMAIL"));
        assert_eq!(job.chunks[0].chunk_key, MAIN_CHUNK);
        let envelope = Envelope::from_params(&job.params).ok().unwrap();
        assert_eq!(envelope.payload, json!({"to": "hunter2"}));
    }
}
