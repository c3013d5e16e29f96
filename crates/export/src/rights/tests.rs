//! What becomes of claims, who is admitted, and what makes two callers one scope.

use super::*;
use crate::dataset::Exports;
use crate::settings::{DatasetSettings, ScopeSettings};
use crate::testing::{caller, dataset, scoped, settings};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

fn checked(settings_of: DatasetSettings) -> Arc<Dataset> {
    let exports = Exports::new(&settings([settings_of])).unwrap();
    exports.datasets().next().unwrap().clone()
}

fn county(value: Value) -> Result<Rights, MissingClaims> {
    rights(&checked(scoped("positions", true)), Some(&caller(&[("county", value)]))).map(Option::unwrap)
}

#[test]
fn a_scope_is_a_hash_of_the_claims_that_count_and_of_nothing_else() {
    let kent = county(json!("kent")).unwrap();
    // SHA-256 of {"county":"kent"}: a published path must not change.
    assert_eq!(kent.scope(), "c14ae66d99a0208a2b27fa0513288cdf");
    assert_ne!(county(json!("Kent")).unwrap().scope(), kent.scope());
    assert_ne!(county(json!(1)).unwrap().scope(), county(json!("1")).unwrap().scope());
    let dataset = checked(scoped("positions", true));
    let mut other = caller(&[("county", json!("kent")), ("city", json!("dover"))]);
    (other.subject, other.department) = ("bob".into(), None);
    assert_eq!(scope_of(&dataset, &other).unwrap(), kent.scope());
    let one = county(json!({"b": [{"x": 1, "a": 2}], "a": 1})).unwrap();
    let two = county(json!({"a": 1, "b": [{"a": 2, "x": 1}]})).unwrap();
    assert_eq!(one, two, "the order of members is no difference, neither in the hash nor in the text");
    assert_eq!(one.texts()["county"], r#"{"a":1,"b":[{"a":2,"x":1}]}"#);
}

#[test]
fn nothing_depends_on_the_caller_of_an_unscoped_dataset() {
    let plain = checked(dataset("positions", true));
    assert_eq!(scope_of(&plain, &caller(&[("county", json!("kent"))])), Ok(String::new()));
    assert_eq!(rights(&plain, None), Ok(None));
}

#[test]
fn claims_reach_queries_as_text() {
    let text = |value| county(value).unwrap().texts()["county"].clone();
    for (value, expected) in [
        (json!("kent"), "kent"),
        (json!(" kent "), " kent "),
        (json!("'; DROP TABLE t; --"), "'; DROP TABLE t; --"),
        (json!("a\\'b\"c"), "a\\'b\"c"),
        (json!("Ωmega 😀 \u{2019}"), "Ωmega 😀 \u{2019}"),
        (json!(7), "7"),
        (json!(-1.5), "-1.5"),
        (json!(0), "0"),
        (json!(true), "true"),
        (json!(false), "false"),
        (json!(["kent", "essex"]), r#"["kent","essex"]"#),
    ] {
        assert_eq!(text(value), expected);
    }
}

#[test]
fn claims_that_say_nothing_or_cannot_be_used_are_named_but_not_shown() {
    let deep = (0..130).fold(json!(1), |inner, _| json!([inner]));
    for (value, problem) in [
        (Value::Null, "is empty"),
        (json!(""), "is empty"),
        (json!(" \t"), "is empty"),
        (json!([]), "is empty"),
        (json!({}), "is empty"),
        (json!("a\0b"), "contains a NUL character"),
        (json!(["a", {"x": "\0"}]), "contains a NUL character"),
        (json!({"a\0": 1}), "contains a NUL character"),
        (json!("x".repeat(5000)), "is too long"),
        (json!({"$serde_json::private::RawValue": "1"}), "cannot be stored"),
        (deep, "cannot be stored"),
    ] {
        let missing = county(value).unwrap_err();
        assert_eq!(missing.problems, [ClaimProblem { claim: "county".into(), problem }]);
        assert_eq!(
            missing.to_string(),
            format!(
                "dataset `positions` shows each caller its own rows, and the caller's claims do not say which: `county` {problem}"
            )
        );
    }
    assert!(county(json!("x".repeat(4000))).is_ok());
    let dataset = checked(scoped("positions", true));
    assert!(scope_of(&dataset, &caller(&[("County", json!("kent"))])).is_err(), "names are what they are");
    assert_eq!(rights(&dataset, None).unwrap_err().problems[0].problem, "is missing");
    assert!(!format!("{:?}", county(json!("secret")).unwrap()).contains("secret"));
}

fn secured() -> Arc<Dataset> {
    let mut all = settings([DatasetSettings {
        query: "select 1".into(),
        scope: ScopeSettings {
            row_scope: vec!["sub".into(), "county".into()],
            row_security: true,
            role_claim: Some("db_role".into()),
            roles: vec!["north".into(), "so\"uth".into()],
            unsecured_tables: vec!["public.lookup".into()],
        },
        ..dataset("secured", true)
    }]);
    let source = all.sources.get_mut("warehouse").unwrap();
    source.url =
        crate::settings::SourceUrl::Postgres(outhaul_core::secret::Secret::new("postgres://reader@db/x"));
    Exports::new(&all).unwrap().datasets().next().unwrap().clone()
}

#[test]
fn row_security_is_told_the_scope_and_no_more() {
    let dataset = secured();
    let claims = [("county", json!("kent")), ("db_role", json!("so\"uth")), ("salary", json!(7))];
    let rights = rights(&dataset, Some(&caller(&claims))).unwrap().unwrap();
    let assumed = rights.security().unwrap();
    assert_eq!(assumed.role.as_deref(), Some("so\"uth"));
    assert_eq!(assumed.claims, r#"{"county":"kent","db_role":"so\"uth","sub":"ann"}"#);
    assert_eq!(assumed.unsecured.iter().collect::<Vec<_>>(), ["public.lookup"]);
    for role in [json!("admin"), json!("NORTH"), json!("none"), json!(["north"]), json!(1)] {
        let claims = [("county", json!("kent")), ("db_role", role)];
        let missing = super::rights(&dataset, Some(&caller(&claims))).unwrap_err();
        let problem = "names no role of this dataset";
        assert_eq!(missing.problems, [ClaimProblem { claim: "db_role".into(), problem }]);
    }
    let missing = super::rights(&dataset, Some(&Identity::anonymous(DateTime::UNIX_EPOCH))).unwrap_err();
    let named: Vec<&str> = missing.problems.iter().map(|problem| problem.claim.as_str()).collect();
    assert_eq!(named, ["county", "db_role", "sub"], "all at once");
}

fn admitted(dataset: &Dataset, params: &Params, hours: i64) -> Result<Option<Rights>, Unfit> {
    let claimed_at =
        "2026-01-01T00:00:00Z".parse::<DateTime<Utc>>().unwrap() + chrono::TimeDelta::hours(hours);
    admit(dataset, params, claimed_at, Some(Duration::from_secs(24 * 3600)))
}

fn params(claims: &[(&str, Value)]) -> Params {
    let identity = caller(claims);
    let scope = scope_of(&checked(scoped("positions", true)), &identity).unwrap_or_default();
    Params { identity: Some(identity), scope, ..Params::default() }
}

#[test]
fn a_job_runs_with_what_was_stored_and_not_for_ever() {
    let dataset = checked(scoped("positions", true));
    let params = params(&[("county", json!("kent"))]);
    for hours in [-1, 0, 24] {
        let rights = admitted(&dataset, &params, hours).unwrap().unwrap();
        assert_eq!((rights.scope(), &*rights.texts()["county"]), (&*params.scope, "kent"));
    }
    let old = admitted(&dataset, &params, 25).unwrap_err();
    let sentence = "the identity this job was submitted with is older than 24h; submit it again, under another idempotency key";
    assert_eq!(old, Unfit::Failed(Failed::Fatal(sentence.into())));
    let forever = admit(&dataset, &params, "2030-01-01T00:00:00Z".parse().unwrap(), None);
    assert!(forever.is_ok());
}

#[test]
fn whatever_does_not_fit_is_not_run() {
    let (plain, scoped) = (checked(dataset("positions", true)), checked(scoped("positions", true)));
    let nobody = Params::default();
    assert_eq!(admitted(&plain, &nobody, 99), Ok(None));
    let Err(Unfit::Failed(Failed::Fatal(cause))) = admitted(&scoped, &nobody, 0) else {
        panic!("run for nobody")
    };
    assert!(cause.text.contains("nothing is known of who submitted this job"), "{cause}");
    // Submitted for Kent, but this worker would show everything: its configuration is older.
    let kent = params(&[("county", json!("kent"))]);
    let Err(Unfit::NotYet(cause)) = admitted(&plain, &kent, 0) else { panic!("run for everybody") };
    assert!(cause.contains("depend on other claims here"), "{cause}");
    let forged = Params { scope: "0123456789abcdef".repeat(2), ..kent.clone() };
    assert!(matches!(admitted(&scoped, &forged, 0), Err(Unfit::NotYet(_))), "another's scope");
    let without = params(&[("city", json!("dover"))]);
    let Err(Unfit::Failed(Failed::Fatal(cause))) = admitted(&scoped, &without, 0) else {
        panic!("run without a claim")
    };
    assert!(cause.text.contains("`county` is missing"), "{cause}");
    // Roles are looked at again: one may have been taken off the list.
    let role = params(&[("county", json!("kent")), ("db_role", json!("admin"))]);
    assert!(matches!(admitted(&secured(), &role, 0), Err(Unfit::Failed(Failed::Fatal(_)))));
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[^\\x00]{1,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,3}", inner, 1..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    /// The heart of it: who shares a scope shares the texts that queries see, and so the rows.
    #[test]
    fn callers_of_one_scope_are_the_same_to_every_query(one in json_value(), two in json_value()) {
        if let (Ok(one), Ok(two)) = (county(one), county(two)) {
            prop_assert!(one.scope() != two.scope() || one == two);
        }
    }

    #[test]
    fn what_is_stored_gives_the_same_rights_again(value in json_value()) {
        let params = params(&[("county", value)]);
        if !params.scope.is_empty() {
            let read = Params::from_json(&params.to_json()).unwrap();
            prop_assert_eq!(&read, &params);
            let dataset = checked(scoped("positions", true));
            let rights = admitted(&dataset, &read, 0).unwrap().unwrap();
            prop_assert_eq!(rights.scope(), params.scope);
        }
    }
}
