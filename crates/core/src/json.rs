//! What JSON may be stored. Some that can be written cannot be read back, or reads back as something else,
//! and one such row would stop whoever meets it; so it is refused before it is stored.

/// The deepest JSON that is stored, as a payload or as a result: less than readers take (127), for an
/// envelope goes around it.
pub const MAX_DEPTH: usize = 120;

/// The beginning of member names that the JSON library keeps for itself: an object with such a member is
/// read back as something else.
pub const RESERVED: &str = "$serde_json::private::";

/// Why JSON text that we wrote cannot be stored; `None`: it can.
pub fn problem(json: &str) -> Option<String> {
    if is_too_deep(json) {
        return Some(format!("is nested deeper than {MAX_DEPTH} levels"));
    }
    // The library escapes no character of it, so that it stands there as it is.
    let reserved = json.match_indices(RESERVED).any(|(at, _)| json[..at].ends_with('"'));
    reserved.then(|| format!("holds a text that begins with `{RESERVED}`, which is reserved"))
}

/// Whether JSON text is nested deeper than [`MAX_DEPTH`].
fn is_too_deep(json: &str) -> bool {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0usize, 0usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest > MAX_DEPTH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn what_is_let_through_can_be_read_back_in_its_envelope() {
        assert!(!is_too_deep(&nested(MAX_DEPTH)));
        let enveloped = format!(r#"{{"v":1,"payload":{}}}"#, nested(MAX_DEPTH));
        assert!(serde_json::from_str::<serde_json::Value>(&enveloped).is_ok());
        assert!(is_too_deep(&nested(MAX_DEPTH + 1)));
    }

    #[test]
    fn what_would_read_back_as_something_else_is_refused() {
        let magic = serde_json::json!({ "a": [{ format!("{RESERVED}RawValue"): "[1]" }] }).to_string();
        assert!(problem(&magic).is_some_and(|problem| problem.contains("reserved")));
        assert_eq!(problem(r#"{"a": "about $serde_json::private::RawValue"}"#), None);
        assert!(problem(&nested(MAX_DEPTH + 1)).is_some_and(|problem| problem.contains("120")));
    }

    #[test]
    fn brackets_in_text_and_beside_each_other_are_no_depth() {
        assert!(!is_too_deep(&format!("{:?}", "[".repeat(1000))));
        assert!(!is_too_deep(&format!(r#"["\"{}"]"#, "[".repeat(1000))));
        assert!(!is_too_deep(&format!("[{}]", vec!["{}"; 1000].join(","))));
    }
}
