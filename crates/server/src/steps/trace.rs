//! W3C trace context for calls: the trace of the submission where it brought one, else one that is the
//! same for all calls of a job, so that its steps show up together.

use sha2::{Digest, Sha256};

/// A `traceparent` for one call. `span` must be random.
pub(super) fn traceparent(submitted: Option<&str>, job_id: &str, span: u64) -> String {
    let trace = submitted.and_then(trace_id).map_or_else(|| derived(job_id), str::to_owned);
    // All zeros would mean no span at all.
    format!("00-{trace}-{:016x}-01", span.max(1))
}

/// The trace id of a well-formed `traceparent`, of this or a later version.
fn trace_id(text: &str) -> Option<&str> {
    let mut parts = text.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let zero = |text: &str| text.bytes().all(|b| b == b'0');
    let known_end = version != "00" || parts.next().is_none();
    let valid = hex(version, 2) && version != "ff" && hex(trace, 32) && hex(parent, 16) && hex(flags, 2);
    (valid && known_end && !zero(trace) && !zero(parent)).then_some(trace)
}

fn derived(job_id: &str) -> String {
    Sha256::digest(job_id).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    #[test]
    fn the_submissions_trace_goes_on_with_a_span_of_its_own() {
        let made = traceparent(Some(GIVEN), "J1", 0xab);
        assert_eq!(made, "00-4bf92f3577b34da6a3ce929d0e0e4736-00000000000000ab-01");
        let later = GIVEN.replacen("00", "01", 1) + "-more";
        assert_eq!(traceparent(Some(&later), "J1", 0xab), made);
        assert!(traceparent(Some(GIVEN), "J1", 0).contains("-0000000000000001-"));
    }

    #[test]
    fn otherwise_a_job_has_one_trace() {
        let made = traceparent(None, "J20260102_0000000000000", 7);
        assert_eq!(made.len(), 55);
        assert_eq!(trace_id(&made), trace_id(&traceparent(None, "J20260102_0000000000000", 8)));
        assert_ne!(trace_id(&made), trace_id(&traceparent(None, "J20260102_0000000000001", 7)));
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nx: y",
        ] {
            assert_eq!(traceparent(Some(bad), "J20260102_0000000000000", 7), made, "{bad}");
        }
    }
}
