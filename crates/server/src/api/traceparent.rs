//! The W3C trace context of a request. It goes into calls that are made for the job later on, so only
//! what is well formed is kept; anything else is as if it had not been sent.

use axum::http::{HeaderMap, HeaderName};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Later versions may be longer than the 55 characters of the first, within reason.
const MAX_LENGTH: usize = 255;

/// The request's trace context, where it has exactly one that makes sense.
pub(super) fn read(headers: &HeaderMap) -> Option<String> {
    let mut sent = headers.get_all(TRACEPARENT).iter();
    let (only, more) = (sent.next()?, sent.next().is_some());
    let text = only.to_str().ok()?;
    (!more && is_sound(text)).then(|| text.to_owned())
}

/// `00-<trace id>-<parent id>-<flags>` in lower-case hex, neither id all zeros; later versions may say
/// more after that.
fn is_sound(text: &str) -> bool {
    if text.len() > MAX_LENGTH {
        return false;
    }
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |part: &str, length: usize| is_hex(part, length) && part.bytes().any(|byte| byte != b'0');
    let [version, trace, parent, flags, more @ ..] = parts.as_slice() else { return false };
    let is_version = is_hex(version, 2) && *version != "ff" && (*version != "00" || more.is_empty());
    is_version && is_id(trace, 32) && is_id(parent, 16) && is_hex(flags, 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read_of(values: &[&[u8]]) -> Option<String> {
        let header = |value: &&[u8]| (TRACEPARENT, HeaderValue::from_bytes(value).unwrap());
        read(&values.iter().map(header).collect())
    }

    #[test]
    fn a_sound_context_is_kept_and_anything_else_ignored() {
        assert_eq!(read_of(&[GOOD.as_bytes()]).as_deref(), Some(GOOD));
        let later = GOOD.replacen("00", "cc", 1) + "-what-the-future-holds";
        assert_eq!(read_of(&[later.as_bytes()]), Some(later.clone()));
        assert_eq!(read_of(&[format!("{later}{}", "x".repeat(255)).as_bytes()]), None);
        assert_eq!(read_of(&[]), None);
        let appended: HeaderMap = [GOOD, GOOD].iter().fold(HeaderMap::new(), |mut headers, value| {
            headers.append(TRACEPARENT, HeaderValue::from_static(value));
            headers
        });
        assert_eq!(read(&appended), None);
        for wrong in [
            "",
            "00",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(read_of(&[wrong.as_bytes()]), None, "{wrong}");
        }
        assert_eq!(read_of(&[b"\xff"]), None);
    }
}
