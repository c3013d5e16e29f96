//! What is stored of a custom job's submission, and read with its claim. Durable, so it has a version;
//! every released form must stay readable.

use serde_json::{Value, json};

const VERSION: u32 = 1;

/// A custom job's payload with what travels beside it. No `Debug`: payloads are never shown.
#[derive(Clone, PartialEq)]
pub struct Envelope {
    v: u32,
    /// What the client sent for the job type.
    pub payload: Value,
    /// The W3C trace context of the submission, for calls made on its behalf.
    pub traceparent: Option<String>,
}

impl Envelope {
    /// Wraps a payload.
    pub fn new(payload: Value, traceparent: Option<String>) -> Self {
        Self { v: VERSION, payload, traceparent }
    }

    /// The form that is stored with the job, as its `params`.
    pub fn into_params(self) -> Value {
        let mut params = json!({ "v": self.v });
        params["payload"] = self.payload;
        if let Some(traceparent) = self.traceparent {
            params["traceparent"] = traceparent.into();
        }
        params
    }

    /// Reads what was stored; the error says what to do, and nothing of the payload.
    pub fn from_params(params: &Value) -> Result<Self, String> {
        let version = params.get("v").and_then(Value::as_u64);
        if version != Some(u64::from(VERSION)) {
            return Err("the job was submitted by a newer outhaul: use that version to run it".to_owned());
        }
        let Some(payload) = params.get("payload") else {
            return Err("the stored payload cannot be read".to_owned());
        };
        let traceparent = params.get("traceparent").and_then(Value::as_str).map(str::to_owned);
        Ok(Self::new(payload.clone(), traceparent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_released_form_is_read() {
        let v1 = json!({"v": 1, "payload": {"to": "a@example.com"}});
        let read = Envelope::from_params(&v1).ok().unwrap();
        assert!(read == Envelope::new(json!({"to": "a@example.com"}), None));
        assert_eq!(read.into_params(), v1);
        let traced = json!({"v": 1, "payload": null, "traceparent": "00-1-2-01"});
        assert_eq!(Envelope::from_params(&traced).ok().unwrap().traceparent.as_deref(), Some("00-1-2-01"));
    }

    #[test]
    fn a_newer_form_is_named_and_nothing_of_the_payload_is() {
        let newer = Envelope::from_params(&json!({"v": 2, "secret": "hunter2"})).err().unwrap();
        assert!(newer.contains("newer outhaul") && !newer.contains("hunter2"), "{newer}");
        assert!(Envelope::from_params(&json!({})).is_err());
    }
}
