//! Reads a payload as its type. What does not fit is named by its path and by what was expected there;
//! never by its value, for payloads are not shown.

use outhaul_core::json::Json;
use serde::de::DeserializeOwned;

/// The longest path that is shown: names of members come from the client.
const MAX_PATH: usize = 200;

/// Reads the payload, or says in a sentence why it cannot be read.
pub(super) fn read<T: DeserializeOwned>(payload: &Json) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_str(payload.as_str());
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let path: String = path.chars().filter(|c| !c.is_control()).take(MAX_PATH).collect();
        let place = match path.as_str() {
            "." | "" => "payload".to_owned(),
            index if index.starts_with('[') => format!("payload{index}"),
            member => format!("payload.{member}"),
        };
        format!("{place}: {}", problem(&error.into_inner().to_string()))
    })
}

/// The part of serde's message that quotes nothing of the payload but names of members.
fn problem(message: &str) -> String {
    // Cut off the library's line and column: the path tells the place better.
    let message = message.rfind(" at line ").map_or(message, |end| &message[..end]);
    const QUOTES_A_VALUE: [&str; 4] =
        ["invalid type: ", "invalid value: ", "invalid length ", "unknown variant `"];
    const EXPECTED: &str = ", expected ";
    if QUOTES_A_VALUE.iter().any(|start| message.starts_with(start))
        // The last one: what comes before it may hold the same words.
        && let Some(at) = message.rfind(EXPECTED)
    {
        return format!("expected {}", &message[at + EXPECTED.len()..]);
    }
    let names = |start: &str| message.strip_prefix(start)?.split_once('`');
    match (names("missing field `"), names("duplicate field `"), names("unknown field `")) {
        (Some((name, "")), _, _) => format!("missing field `{name}`"),
        (_, Some((name, "")), _) => format!("duplicate field `{name}`"),
        (_, _, Some((name, rest))) if name.len() <= MAX_PATH && rest.starts_with(", ") => {
            format!("unknown field `{name}`")
        }
        // A message of the type's own, which may quote anything.
        _ => "does not fit the job type".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Mail {
        to: String,
        #[serde(default)]
        copies: Vec<Copy>,
        #[serde(default)]
        style: Option<Style>,
        #[serde(default)]
        at: Option<chrono::DateTime<chrono::Utc>>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Copy {
        to: String,
        weight: u8,
    }

    #[derive(Debug, Deserialize)]
    enum Style {
        Plain,
        Rich,
    }

    #[test]
    fn what_does_not_fit_is_named_without_its_value() {
        let secret = "hunter2, expected hunter2";
        for (payload, expected) in [
            (json!({"to": 7_777}), "payload.to: expected a string"),
            (json!({}), "payload: missing field `to`"),
            (json!({"to": "a", "cc": secret}), "payload.cc: unknown field `cc`"),
            (
                json!({"to": "a", "copies": [{"to": "b", "weight": secret}]}),
                "payload.copies[0].weight: expected u8",
            ),
            (
                json!({"to": "a", "copies": [{"to": "b", "weight": 7_777}]}),
                "payload.copies[0].weight: expected u8",
            ),
            (json!({"to": "a", "style": secret}), "payload.style: expected `Plain` or `Rich`"),
            (json!({"to": "a", "at": secret}), "payload.at: does not fit the job type"),
            (json!(secret), "payload: expected struct Mail"),
            (json!(null), "payload: expected struct Mail"),
        ] {
            let message = read::<Mail>(&payload.into()).unwrap_err();
            assert_eq!(message, expected);
            assert!(!message.contains("hunter2") && !message.contains("7777"), "{message}");
        }
        assert!(read::<Mail>(&json!({"to": "a", "style": "Plain"}).into()).is_ok());
        assert!(read::<Vec<u8>>(&json!([1, "x"]).into()).unwrap_err().starts_with("payload[1]: expected u8"));
    }
    #[test]
    fn numbers_come_with_all_their_digits() {
        #[derive(Deserialize)]
        struct Account {
            number: u128,
            rate: Box<serde_json::value::RawValue>,
        }
        let sent = r#"{"number": 123456789012345678901234567890, "rate": 0.1234567890123456789}"#;
        let account: Account = read(&Json::parse(sent).unwrap()).unwrap();
        assert_eq!(account.number, 123_456_789_012_345_678_901_234_567_890);
        assert_eq!(account.rate.get(), "0.1234567890123456789");
    }
}
