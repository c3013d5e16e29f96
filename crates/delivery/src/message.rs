//! What messages say: of a chunk that is ready, and of what somebody else put on the work queue. Reading
//! is strict about what a store will be asked for, and blind to every other member.

use chrono::NaiveDate;
use outhaul_core::announcement::{Announcement, ChunkName};
use outhaul_core::key;
use outhaul_core::outbox::NewOutboxMessage;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::broker::{Destination, Outgoing};

/// The largest message that is read: ours have a few hundred bytes.
const MAX_BODY: usize = 64 * 1024;
/// How much of a foreign message is kept for a person, in bytes.
const MAX_KEPT: usize = 16 * 1024;
/// The longest name that is looked up, in characters: more than any of ours has.
const MAX_NAME: usize = 512;

/// The message that announces a chunk.
pub(crate) fn work(announcement: &Announcement, queue: Option<&str>) -> Outgoing {
    let Announcement { job_id, chunk_key, fence, .. } = announcement;
    let date = announcement.effective_date.map(|date| date.format("%Y%m%d").to_string());
    let body = json!({
        "jobId": job_id,
        "chunkKey": chunk_key,
        "key": announcement.key,
        "effectiveDate": date,
    });
    Outgoing {
        to: Destination::Work,
        message_id: format!("{job_id}/{chunk_key}/{fence}"),
        queue: queue.map(str::to_owned),
        body: body.to_string(),
    }
}

/// Which chunk a message names; or, for people, why it names none.
/// `length` is the message's, of which `body` may be the beginning.
pub(crate) fn read(body: &[u8], length: usize) -> Result<ChunkName, String> {
    if length > MAX_BODY {
        return Err(format!("messages of ours have at most {MAX_BODY} bytes"));
    }
    let text = std::str::from_utf8(body).map_err(|error| format!("it is not UTF-8 text: {error}"))?;
    let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    let Value::Object(members) = value else {
        return Err("it is JSON, and not an object".to_owned());
    };
    let job_id = name(&members, "jobId")?.ok_or("`jobId` is missing")?;
    let chunk_key = match name(&members, "chunkKey")? {
        Some(chunk_key) => chunk_key,
        None => export_chunk(&members)?,
    };
    Ok(ChunkName { job_id, chunk_key })
}

/// The chunk key of a message that has only the key and the date of an export.
fn export_chunk(members: &Map<String, Value>) -> Result<String, String> {
    let missing = |what| format!("`chunkKey` is missing, and so is `{what}`");
    let key = name(members, "key")?.ok_or_else(|| missing("key"))?;
    let date = name(members, "effectiveDate")?.ok_or_else(|| missing("effectiveDate"))?;
    let eight_digits = date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit());
    let day = NaiveDate::parse_from_str(&date, "%Y%m%d").ok().filter(|_| eight_digits);
    let day = day.ok_or("`effectiveDate` must be a date like 20250315")?;
    Ok(key::chunk_key(&key, day))
}

/// A member that is text, fit to be looked up; `None`: it is not there, or null.
fn name(members: &Map<String, Value>, member: &str) -> Result<Option<String>, String> {
    let text = match members.get(member) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text,
        Some(_) => return Err(format!("`{member}` must be text")),
    };
    if text.is_empty() {
        return Err(format!("`{member}` is empty"));
    }
    if text.chars().count() > MAX_NAME {
        return Err(format!("`{member}` has more than {MAX_NAME} characters"));
    }
    // A database may refuse such text, and the claim of its neighbours with it.
    if text.chars().any(char::is_control) {
        return Err(format!("`{member}` has control characters"));
    }
    Ok(Some(text.clone()))
}

/// The parking message for one that is not ours, or names nothing. Its id depends on nothing but the
/// body, so that one handed out twice is parked under one id.
pub(crate) fn foreign(body: &[u8], cause: &str) -> NewOutboxMessage {
    foreign_beginning(body, body.len(), cause)
}

/// The same for one of so many bytes, of which only the beginning was read.
pub(crate) fn foreign_beginning(body: &[u8], length: usize, cause: &str) -> NewOutboxMessage {
    let mut hash = Sha256::new_with_prefix(body);
    if length > body.len() {
        hash.update(length.to_be_bytes());
    }
    let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let message_id = format!("foreign/{hash}");
    let mut kept = String::from_utf8_lossy(&body[..body.len().min(MAX_KEPT + 4)]).into_owned();
    let cut = length > MAX_KEPT || kept.len() > MAX_KEPT;
    kept.truncate(kept.floor_char_boundary(MAX_KEPT));
    let cause = if cut {
        format!("{cause} (it has {length} bytes, of which only the beginning is kept)")
    } else {
        cause.to_owned()
    };
    let body = json!({ "messageId": message_id, "cause": cause, "body": kept }).to_string();
    NewOutboxMessage { message_id, body }
}

#[cfg(test)]
mod tests {
    use outhaul_core::clock;
    use outhaul_core::id::{ChunkId, JobId, QueueId};
    use proptest::prelude::*;

    use super::*;

    fn read_all(body: &[u8]) -> Result<ChunkName, String> {
        read(body, body.len())
    }

    fn announcement() -> Announcement {
        Announcement {
            chunk: ChunkId(7),
            fence: 3,
            mark: clock::now(),
            queue: QueueId(1),
            job_id: JobId::from_store("J20260102_0000000000123".to_owned()),
            chunk_key: "key=ABC:date=20250315".to_owned(),
            key: Some("ABC".to_owned()),
            effective_date: NaiveDate::from_ymd_opt(2025, 3, 15),
        }
    }

    #[test]
    fn a_message_has_the_payload_of_the_contract() {
        let message = work(&announcement(), Some("source:warehouse"));
        assert_eq!(
            message.body,
            r#"{"jobId":"J20260102_0000000000123","chunkKey":"key=ABC:date=20250315","key":"ABC","effectiveDate":"20250315"}"#
        );
        assert_eq!(message.message_id, "J20260102_0000000000123/key=ABC:date=20250315/3");
        assert_eq!((message.to, message.queue.as_deref()), (Destination::Work, Some("source:warehouse")));

        let custom =
            Announcement { chunk_key: "main".into(), key: None, effective_date: None, ..announcement() };
        assert_eq!(
            work(&custom, None).body,
            r#"{"jobId":"J20260102_0000000000123","chunkKey":"main","key":null,"effectiveDate":null}"#
        );
    }

    #[test]
    fn what_was_written_is_read_and_so_is_the_short_form() {
        let named = |chunk_key: &str| {
            Ok(ChunkName { job_id: "J20260102_0000000000123".into(), chunk_key: chunk_key.into() })
        };
        assert_eq!(read_all(work(&announcement(), None).body.as_bytes()), named("key=ABC:date=20250315"));
        let short =
            br#"{"effectiveDate":"20250315","key":"ABC","more":[1],"jobId":"J20260102_0000000000123"}"#;
        assert_eq!(read_all(short), named("key=ABC:date=20250315"));
        let null =
            br#"{"jobId":"J20260102_0000000000123","chunkKey":null,"key":"A","effectiveDate":"20240229"}"#;
        assert_eq!(read_all(null), named("key=A:date=20240229"));
    }

    #[test]
    fn what_names_no_chunk_is_refused_with_a_reason() {
        let long = format!(r#"{{"jobId":"{}","chunkKey":"main"}}"#, "J".repeat(513));
        let deep = "[".repeat(60_000);
        for (body, reason) in [
            (&b"hello"[..], "it is not JSON"),
            (b"", "it is not JSON"),
            (b"\xff\xfe", "it is not UTF-8"),
            (deep.as_bytes(), "it is not JSON"),
            (b"[]", "not an object"),
            (b"{}", "`jobId` is missing"),
            (br#"{"jobId":7,"chunkKey":"main"}"#, "`jobId` must be text"),
            (br#"{"jobId":"","chunkKey":"main"}"#, "`jobId` is empty"),
            (br#"{"jobId":"J\u0000","chunkKey":"main"}"#, "`jobId` has control characters"),
            (long.as_bytes(), "`jobId` has more than 512 characters"),
            (br#"{"jobId":"J"}"#, "`chunkKey` is missing, and so is `key`"),
            (br#"{"jobId":"J","chunkKey":{}}"#, "`chunkKey` must be text"),
            (br#"{"jobId":"J","key":"A"}"#, "so is `effectiveDate`"),
            (br#"{"jobId":"J","key":"A","effectiveDate":"2025-03-15"}"#, "`effectiveDate` must be a date"),
            (br#"{"jobId":"J","key":"A","effectiveDate":"20250231"}"#, "`effectiveDate` must be a date"),
            (br#"{"jobId":"J","key":"A","effectiveDate":20250315}"#, "`effectiveDate` must be text"),
        ] {
            let refused = read_all(body).unwrap_err();
            assert!(refused.contains(reason), "{refused} does not say {reason}");
        }
        let large = read(b"{}", MAX_BODY + 1).unwrap_err();
        assert!(large.contains("at most 65536 bytes"), "{large}");
    }

    #[test]
    fn a_foreign_message_is_kept_under_one_id() {
        let parked = foreign(b"{\"a\0\xff\"}", "it is not UTF-8 text");
        let body: Value = serde_json::from_str(&parked.body).unwrap();
        assert_eq!(body["messageId"], parked.message_id);
        assert_eq!(body["cause"], "it is not UTF-8 text");
        assert_eq!(body["body"], "{\"a\0\u{fffd}\"}");
        assert!(!parked.body.contains('\0'), "a database may refuse it");
        assert_eq!(foreign(b"x", "one").message_id, foreign(b"x", "two").message_id);
        assert_ne!(foreign(b"x", "one").message_id, foreign(b"y", "one").message_id);
        assert_ne!(
            foreign_beginning(b"x", 7, "one").message_id,
            foreign_beginning(b"x", 8, "one").message_id
        );
    }

    #[test]
    fn of_a_large_foreign_message_the_beginning_is_kept() {
        for body in ["é".repeat(MAX_KEPT).into_bytes(), vec![0xff; MAX_KEPT - 1]] {
            let parked: Value = serde_json::from_str(&foreign(&body, "it is large").body).unwrap();
            let kept = parked["body"].as_str().unwrap();
            assert!(kept.len() <= MAX_KEPT && kept.len() > MAX_KEPT - 4, "{}", kept.len());
            assert!(parked["cause"].as_str().unwrap().contains("only the beginning"), "{parked}");
        }
        let parked: Value =
            serde_json::from_str(&foreign_beginning(b"read", 3 << 30, "it is large").body).unwrap();
        assert_eq!(parked["body"], "read");
        assert_eq!(
            parked["cause"],
            "it is large (it has 3221225472 bytes, of which only the beginning is kept)"
        );
        let whole: Value = serde_json::from_str(&foreign(&[b'a'; MAX_KEPT], "it fits").body).unwrap();
        assert_eq!(whole["cause"], "it fits");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_parked(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Err(reason) = read_all(&body) {
                let parked: Value = serde_json::from_str(&foreign(&body, &reason).body).unwrap();
                prop_assert_eq!(parked["cause"].as_str(), Some(reason.as_str()));
            }
        }

        #[test]
        fn any_chunk_is_read_back(chunk_key in "[^\\p{Cc}]{1,200}", random in any::<u64>()) {
            let job_id = JobId::new(clock::now(), random);
            let message = work(&Announcement { job_id: job_id.clone(), chunk_key: chunk_key.clone(), ..announcement() }, None);
            let name = ChunkName { job_id: job_id.to_string(), chunk_key };
            prop_assert_eq!(read_all(message.body.as_bytes()), Ok(name));
        }
    }
}
