//! What is stored of a custom job's submission, and read with its claim. Durable, so it has a version;
//! every released form must stay readable.

use std::borrow::Cow;

use outhaul_core::json::Json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

const VERSION: u32 = 1;

/// A custom job's payload with what travels beside it. No `Debug`: payloads are never shown.
#[derive(Clone, PartialEq)]
pub struct Envelope {
    /// What the client sent for the job type, as it was sent.
    pub payload: Json,
    /// The W3C trace context of the submission, for calls made on its behalf.
    pub traceparent: Option<String>,
}

#[derive(Serialize)]
struct Written<'a> {
    v: u32,
    payload: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
}

#[derive(Deserialize)]
struct Read<'a> {
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(default)]
    traceparent: Option<Cow<'a, str>>,
}

/// Read first: a newer version may have other members, or members of another form.
#[derive(Deserialize)]
struct Version {
    v: u64,
}

impl Envelope {
    /// Wraps a payload.
    pub fn new(payload: Json, traceparent: Option<String>) -> Self {
        Self { payload, traceparent }
    }

    /// The form that is stored with the job, as its `params`.
    pub fn into_params(self) -> Json {
        let traceparent = self.traceparent.as_deref();
        let written = Written { v: VERSION, payload: &self.payload, traceparent };
        Json::of(&written).expect("a payload is JSON already")
    }

    /// Reads what was stored; the error says what to do, and nothing of the payload.
    pub fn from_params(params: &Json) -> Result<Self, String> {
        let version = params.read::<Version>().map(|version| version.v);
        if version.ok() != Some(u64::from(VERSION)) {
            return Err("the job was submitted by a newer outhaul: use that version to run it".to_owned());
        }
        match serde_json::from_str(params.as_str()) {
            Ok(Read { payload, traceparent }) => {
                Ok(Self::new(payload.into(), traceparent.map(Cow::into_owned)))
            }
            Err(_) => Err("the stored payload cannot be read".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_released_form_is_read() {
        let v1 = Json::from(json!({"v": 1, "payload": {"to": "a@example.com"}}));
        let read = Envelope::from_params(&v1).ok().unwrap();
        assert!(read == Envelope::new(json!({"to": "a@example.com"}).into(), None));
        assert_eq!(read.into_params().as_str(), v1.as_str());
        let traced = json!({"v": 1, "payload": null, "traceparent": "00-1-2-01"});
        let read = Envelope::from_params(&traced.into()).ok().unwrap();
        assert_eq!((read.payload.as_str(), read.traceparent.as_deref()), ("null", Some("00-1-2-01")));
    }

    #[test]
    fn a_payload_stands_there_as_it_was_sent() {
        let sent = "{ \"account\": 123456789012345678901234567890,\n \"rate\": 0.10 }";
        let params = Envelope::new(Json::parse(sent).unwrap(), None).into_params();
        let read = Envelope::from_params(&Json::stored(params.as_str()).unwrap()).ok().unwrap();
        assert_eq!(read.payload.as_str(), sent);
    }

    #[test]
    fn a_newer_form_is_named_and_nothing_of_the_payload_is() {
        let newer = Envelope::from_params(&json!({"v": 2, "secret": "hunter2"}).into()).err().unwrap();
        assert!(newer.contains("newer outhaul") && !newer.contains("hunter2"), "{newer}");
        assert!(Envelope::from_params(&json!({}).into()).is_err());
        assert!(Envelope::from_params(&Json::null()).is_err());
        assert!(Envelope::from_params(&json!({"v": 1}).into()).is_err());
    }
}
