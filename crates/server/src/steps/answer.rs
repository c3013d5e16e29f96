//! What an answer means: a result, worth another attempt, or the end. Causes hold the status, never
//! anything of the body.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use outhaul::{Cause, Failed};
use outhaul_core::json::RESERVED;
use reqwest::StatusCode;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// The longest wait that a receiver may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// What a status other than success means; `None`: it is success.
pub(super) fn failure(status: StatusCode, retry_after: Option<&str>, now: DateTime<Utc>) -> Option<Failed> {
    let text = match status.canonical_reason() {
        Some(reason) => format!("answered {} {reason}", status.as_u16()),
        None => format!("answered {}", status.as_u16()),
    };
    match status.as_u16() {
        200..300 => None,
        300..400 => Some(Failed::Fatal(format!("{text}; redirects are not followed").into())),
        408 | 425 | 429 => Some(retryable(text, retry_after, now)),
        400..500 => Some(Failed::Fatal(text.into())),
        _ => Some(retryable(text, retry_after, now)),
    }
}

fn retryable(text: String, retry_after: Option<&str>, now: DateTime<Utc>) -> Failed {
    let retry_in = retry_after.and_then(|value| wait(value, now));
    Failed::Retryable(Cause { retry_in, ..Cause::from(text) })
}

/// `Retry-After`: seconds, or a date.
fn wait(value: &str, now: DateTime<Utc>) -> Option<Duration> {
    let value = value.trim();
    let wait = if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than fit mean a very long time.
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        let date = DateTime::parse_from_rfc2822(value).ok()?;
        (date.with_timezone(&Utc) - now).to_std().unwrap_or_default()
    };
    Some(wait.min(LONGEST_WAIT))
}

/// Whether a body calls itself JSON.
pub(super) fn is_json(content_type: Option<&str>) -> bool {
    let essence = content_type.and_then(|text| text.split(';').next()).unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

/// The step's result as JSON text, from a whole body.
pub(super) fn result(body: Vec<u8>, declared_json: bool) -> Result<String, &'static str> {
    if body.is_empty() {
        return Ok("null".to_owned());
    }
    let text = String::from_utf8(body);
    match text {
        // Kept as it came: numbers keep their digits, objects their order.
        Ok(text) if serde_json::from_str::<Json>(&text).is_ok() => Ok(text),
        _ if declared_json => Err("answered with broken JSON"),
        Ok(text) => Ok(serde_json::to_string(&text).expect("text is JSON")),
        Err(_) => Err("answered with bytes that are neither JSON nor text"),
    }
}

/// Any JSON that can be read back, without keeping it: a body of brackets must not grow in memory.
/// Unlike `IgnoredAny` it looks into everything, so that depth, numbers and text are checked.
struct Json;

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Json {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            if name.starts_with(RESERVED) {
                return Err(A::Error::custom("a reserved name"));
            }
            members.next_value::<Self>()?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> DateTime<Utc> {
        DateTime::parse_from_rfc3339("2026-01-02T03:04:05Z").unwrap().with_timezone(&Utc)
    }

    fn judged(status: u16) -> Option<Failed> {
        failure(StatusCode::from_u16(status).unwrap(), None, now())
    }

    #[test]
    fn the_status_decides() {
        for status in [200, 201, 204, 299] {
            assert_eq!(judged(status), None, "{status}");
        }
        for status in [408, 425, 429, 500, 502, 503, 504, 599, 999] {
            assert!(matches!(judged(status), Some(Failed::Retryable(_))), "{status}");
        }
        for status in [300, 302, 304, 308, 400, 401, 404, 409, 410, 422, 499] {
            assert!(matches!(judged(status), Some(Failed::Fatal(_))), "{status}");
        }
        assert_eq!(judged(503), Some(Failed::Retryable("answered 503 Service Unavailable".into())));
        assert_eq!(judged(599), Some(Failed::Retryable("answered 599".into())));
        assert_eq!(judged(302).unwrap().to_string(), "answered 302 Found; redirects are not followed");
    }

    #[test]
    fn retry_after_is_honoured_up_to_an_hour() {
        let wait = |value| match failure(StatusCode::TOO_MANY_REQUESTS, Some(value), now()) {
            Some(Failed::Retryable(cause)) => cause.retry_in.map(|wait| wait.as_secs()),
            other => panic!("{other:?}"),
        };
        assert_eq!(wait("0"), Some(0));
        assert_eq!(wait(" 120 "), Some(120));
        assert_eq!(wait("86400"), Some(3600));
        assert_eq!(wait("99999999999999999999999999"), Some(3600));
        assert_eq!(wait("Fri, 02 Jan 2026 03:05:05 GMT"), Some(60));
        assert_eq!(wait("Fri, 02 Jan 2026 03:00:00 GMT"), Some(0));
        assert_eq!(wait("Sat, 03 Jan 2026 03:00:00 GMT"), Some(3600));
        for nonsense in ["", "-5", "1.5", "soon", "Fri, 32 Jan 2026 03:00:00 GMT"] {
            assert_eq!(wait(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn json_is_kept_as_it_came() {
        for text in [
            "null",
            "true",
            " {\"b\": 1.50,\n\"a\":[12345678901234567890123]} ",
            "\"x\"",
            "-1",
            "{\"a\":1,\"a\":2}",
        ] {
            assert_eq!(result(text.into(), true), Ok(text.to_owned()));
            assert_eq!(result(text.into(), false), Ok(text.to_owned()));
        }
        assert_eq!(result(Vec::new(), true), Ok("null".into()));
    }

    #[test]
    fn text_becomes_a_string_unless_it_calls_itself_json() {
        assert_eq!(result("sent \"ok\"\n".into(), false), Ok(r#""sent \"ok\"\n""#.into()));
        assert_eq!(result("{\"a\":".into(), false), Ok(r#""{\"a\":""#.into()));
        for broken in ["{\"a\":", "{} {}", "NaN", "\u{feff}{}", " "] {
            assert_eq!(result(broken.into(), true), Err("answered with broken JSON"), "{broken}");
        }
        assert_eq!(result(b"\"\xff\"".to_vec(), true), Err("answered with broken JSON"));
        let bytes = "answered with bytes that are neither JSON nor text";
        assert_eq!(result(b"\x1f\x8b\xff".to_vec(), false), Err(bytes));
    }

    #[test]
    fn what_could_not_be_read_back_is_broken() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels)).into_bytes();
        assert!(result(deep(100), true).is_ok());
        assert!(result(deep(100_000), true).is_err());
        assert!(result(b"\"\\ud800\"".to_vec(), true).is_err());
        let magic = r#"{"a": {"\u0024serde_json::private::RawValue": "[1]"}}"#;
        assert_eq!(result(magic.into(), true), Err("answered with broken JSON"));
        for text in ["[1e999]", "{\"a\": \"\\ud800\"}"] {
            assert_eq!(
                result(text.into(), true).is_ok(),
                serde_json::from_str::<serde_json::Value>(text).is_ok(),
                "{text}"
            );
        }
    }

    #[test]
    fn json_calls_itself_so() {
        for yes in
            ["application/json", "Application/JSON; charset=utf-8", "application/problem+json", "text/json"]
        {
            assert!(is_json(Some(yes)), "{yes}");
        }
        for no in ["text/plain", "", "application/jsonx", "text/html; q=application/json"] {
            assert!(!is_json(Some(no)), "{no}");
        }
        assert!(!is_json(None));
    }
}
