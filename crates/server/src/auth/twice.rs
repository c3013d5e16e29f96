//! JSON in which a member occurs twice. Readers differ in which of the two they take, so a token with such a member
//! could mean one thing to its issuer and another here.

use outhaul_core::json::Json;

/// Whether every member of every object, at any depth, occurs only once.
pub(super) fn each_once(json: &[u8]) -> bool {
    str::from_utf8(json).is_ok_and(|text| Json::parse(text).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_stands_twice_is_found_at_any_depth() {
        for once in [r#"{"a":1,"b":{"a":[{"a":null},{"a":true}]}}"#, "[]", r#"{"a":1.5,"A":"a"}"#] {
            assert!(each_once(once.as_bytes()), "{once}");
        }
        for twice in [
            r#"{"sub":"a","sub":"a"}"#,
            r#"{"a":{"b":1,"c":2,"b":1}}"#,
            r#"{"a":[{"b":[{"c":1,"c":{}}]}]}"#,
            r#"{"sub":1,"\u0073ub":2}"#,
        ] {
            assert!(!each_once(twice.as_bytes()), "{twice}");
        }
    }
}
