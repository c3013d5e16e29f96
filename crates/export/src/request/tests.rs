//! What requests are refused for, and what they become.

use super::*;
use crate::testing::{caller, dataset, scoped, settings};
use outhaul_core::id::JobId;

fn exports() -> Exports {
    Exports::new(&settings([dataset("positions", true), dataset("trades", false)])).unwrap()
}

fn request(items: &[(&str, &[&str])]) -> ExportRequest {
    let items = items.iter().map(|(key, dates)| Item {
        key: (*key).to_owned(),
        effective_dates: dates.iter().map(|date| (*date).to_owned()).collect(),
    });
    ExportRequest { items: items.collect(), ..ExportRequest::default() }
}

fn problems(request: &ExportRequest) -> Vec<(String, String)> {
    let problems = request.validate(&exports()).unwrap_err();
    problems.into_iter().map(|problem| (problem.pointer, problem.message)).collect()
}

fn pointers(request: &ExportRequest) -> Vec<String> {
    problems(request).into_iter().map(|(pointer, _)| pointer).collect()
}

#[test]
fn equal_pairs_are_merged_across_items_in_first_order() {
    let plan = request(&[
        ("B", &["20250315", "20250215", "20250315"]),
        (" A ", &["20250101"]),
        ("B ", &["20250215"]),
    ])
    .validate(&exports())
    .unwrap();
    let keys: Vec<&str> = plan.chunks.iter().map(|chunk| chunk.chunk_key.as_str()).collect();
    assert_eq!(keys, ["key=B:date=20250315", "key=B:date=20250215", "key=A:date=20250101"]);
    assert_eq!(plan.dataset.name, "positions");
    assert_eq!(plan.base_path(), "exports/");
    assert!(plan.chunks.iter().all(|chunk| chunk.queue == "source:warehouse"));
    assert_eq!(plan.params().as_str(), r#"{"format":"CSV","force":false}"#);
    assert_eq!(plan.wanted().len(), 3);
}

#[test]
fn every_problem_is_listed_with_its_place() {
    let mut bad = request(&[
        ("  ", &["20250230", "2025-02-15", "20250215"]),
        ("a\0b", &[]),
        (&"x".repeat(129), &["00000101", "2025021５", ""]),
        (&"é".repeat(50), &["20240229"]),
    ]);
    bad.dataset = Some("posicions".into());
    bad.output.format = Some("PARQUET".into());
    assert_eq!(
        problems(&bad),
        [
            ("/dataset", "there is no dataset `posicions`; known: positions, trades"),
            ("/output/format", "format `PARQUET` is not available yet; available: CSV"),
            ("/items/0/key", "must not be empty"),
            ("/items/0/effectiveDates/0", "`20250230` is not a day in the calendar"),
            (
                "/items/0/effectiveDates/1",
                "`2025-02-15` is not a date in the form yyyyMMdd, such as 20250215"
            ),
            ("/items/1/key", "must not contain control characters"),
            ("/items/1/effectiveDates", "must not be empty"),
            ("/items/2/key", "must have at most 128 characters"),
            ("/items/2/effectiveDates/0", "`00000101` is not a day in the calendar"),
            ("/items/2/effectiveDates/1", "`2025021５` is not a date in the form yyyyMMdd, such as 20250215"),
            ("/items/2/effectiveDates/2", "`` is not a date in the form yyyyMMdd, such as 20250215"),
            ("/items/3/key", "is too long: its file name would have 313 bytes encoded, at most 255 will do"),
        ]
        .map(|(pointer, message)| (pointer.to_owned(), message.to_owned()))
    );
}

#[test]
fn hostile_keys_are_keys_like_any_other() {
    for key in ["../x", "..", "a/b", "'; DROP TABLE t; --", "1 OR 1=1", "%", "_", "\\", "\"", "😀", "C:\\x"]
    {
        let plan = request(&[(key, &["20250215"])]).validate(&exports()).unwrap();
        assert_eq!(plan.chunks[0].key.as_deref(), Some(key));
    }
}

#[test]
fn an_empty_request_and_one_chunk_too_many_are_refused() {
    assert_eq!(pointers(&request(&[])), ["/items"]);
    let dates = ["20250101", "20250102", "20250103", "20250104", "20250105"];
    assert!(request(&[("A", &dates)]).validate(&exports()).is_ok());
    let refused = problems(&request(&[("A", &dates), ("B", &dates[..1])]));
    assert_eq!(refused, [("/items".into(), "asks for 6 files, but a job may have at most 5".into())]);
}

#[test]
fn without_a_default_dataset_one_must_be_named() {
    let exports = Exports::new(&settings([dataset("positions", false)])).unwrap();
    let problem = &request(&[("A", &["20250215"])]).validate(&exports).unwrap_err()[0];
    assert_eq!(problem.message, "must be given, for no dataset is the default; known: positions");
}

#[test]
fn requests_for_the_same_files_have_one_canonical_text() {
    let canonical =
        |request: &ExportRequest| request.validate(&exports()).unwrap().canonical().as_str().to_owned();
    let short = request(&[("A", &["20250215", "20250101"]), ("B", &["20250215"])]);
    let mut long = request(&[(" B", &["20250215"]), ("A", &["20250101"]), ("A", &["20250215", "20250215"])]);
    long.dataset = Some("positions".into());
    long.output.format = Some("CSV".into());
    assert_eq!(canonical(&short), canonical(&long));
    assert_eq!(
        canonical(&short),
        r#"{"dataset":"positions","items":[{"effectiveDates":["20250101","20250215"],"key":"A"},{"effectiveDates":["20250215"],"key":"B"}],"output":{"force":false,"format":"CSV"}}"#
    );
    let mut forced = short.clone();
    forced.output.force = true;
    assert_ne!(canonical(&short), canonical(&forced));
    let mut other = short.clone();
    other.dataset = Some("trades".into());
    assert_ne!(canonical(&short), canonical(&other));
}

#[test]
fn a_dry_run_counts_what_the_rule_would_do() {
    let now: DateTime<Utc> = "2026-01-08T12:00:00Z".parse().unwrap();
    let mut asked = request(&[("A", &["20251231", "20260101"]), ("B", &["20251231"]), ("C", &["20251231"])]);
    let plan = asked.validate(&exports()).unwrap();
    let record = |key: &str, date: &str, definition: &str| {
        let identity = plan.dataset.identity("", key, date.parse().unwrap());
        let record = FileRecord {
            path: plan.dataset.file_path(&identity, Format::Csv),
            rows: 1,
            bytes: 1,
            sha256: String::new(),
            etag: None,
            format: "CSV".into(),
            definition: definition.into(),
            generation: 1,
            generated_at: now,
            claimed_at: now,
            job_id: JobId::new(now, 1),
        };
        (identity, record)
    };
    let definition = plan.dataset.definition.clone();
    let recorded = [
        record("A", "2025-12-31", &definition),
        record("A", "2026-01-01", &definition),
        record("B", "2025-12-31", "an older one"),
    ];
    let dry = plan.dry_run(&recorded, now, 7);
    assert_eq!((dry.total, dry.reuse, dry.generate), (4, 1, 3));
    assert_eq!(dry.verdict, "3 of 4 files would be generated, 1 reused");
    asked.output.force = true;
    let forced = asked.validate(&exports()).unwrap().dry_run(&recorded, now, 7);
    assert_eq!(forced.verdict, "all 4 files would be generated");
}

#[test]
fn params_read_back_and_what_is_newer_does_not() {
    let params = Params { force: true, ..Params::default() };
    assert_eq!(Params::from_json(&params.to_json()), Ok(params));
    assert_eq!(Params::from_json(&json!({}).into()), Ok(Params::default()));
    assert_eq!(Params::from_json(&json!({ "format": "PARQUET" }).into()), Err("the output format"));
    for unreadable in [json!({ "identity": 7 }), json!({ "identity": null }), json!({ "scope": 7 })] {
        assert!(Params::from_json(&unreadable.clone().into()).is_err(), "{unreadable}");
    }
}

fn scoped_plan(identity: Option<&Identity>) -> Result<ExportPlan, PlanError> {
    let exports = Exports::new(&settings([scoped("positions", true), dataset("trades", false)])).unwrap();
    request(&[("A", &["20250215"])]).plan(&exports, identity, MAX_PROBLEMS, &|_| false)
}

#[test]
fn a_plan_keeps_what_rows_depend_on_and_no_more() {
    let claims = [("county", json!("kent")), ("email", json!("ann@example.com"))];
    let plan = scoped_plan(Some(&caller(&claims))).unwrap();
    assert_eq!(plan.scope(), crate::scope_of(&plan.dataset, &caller(&claims)).unwrap());
    let (scope, params) = (plan.scope(), plan.params());
    assert_eq!(
        params.as_str(),
        format!(
            r#"{{"format":"CSV","force":false,"identity":{{"subject":"ann","claims":{{"county":"kent"}},"verifiedAt":"2026-01-01T00:00:00Z"}},"scope":"{scope}"}}"#
        )
    );
    assert_eq!(Params::from_json(&params).unwrap().scope, scope);
    assert_eq!(plan.base_path(), "exports/", "one for the dataset, whoever asks");
    assert_eq!(
        plan.canonical().as_str(),
        format!(
            r#"{{"dataset":"positions","items":[{{"effectiveDates":["20250215"],"key":"A"}}],"output":{{"force":false,"format":"CSV"}},"scope":"{scope}"}}"#
        )
    );
    let essex = scoped_plan(Some(&caller(&[("county", json!("essex"))]))).unwrap();
    assert_ne!(plan.canonical(), essex.canonical(), "one idempotency key is not for both");
}

#[test]
fn who_asks_changes_nothing_of_an_unscoped_plan() {
    let exports = exports();
    let asked = request(&[("A", &["20250215"])]);
    let known = caller(&[("county", json!("kent"))]);
    let (nobody, ann) = (
        asked.validate(&exports).unwrap(),
        asked.plan(&exports, Some(&known), MAX_PROBLEMS, &|_| false).unwrap(),
    );
    assert_eq!((nobody.scope(), ann.scope()), ("", ""));
    assert_eq!(ann.params().as_str(), r#"{"format":"CSV","force":false}"#);
    assert_eq!(nobody.params(), ann.params());
    assert_eq!(nobody.canonical(), ann.canonical());
}

#[test]
fn whose_claims_are_missing_gets_no_plan() {
    for identity in [None, Some(&caller(&[])), Some(&caller(&[("county", json!(null))]))] {
        let Err(PlanError::MissingClaims(missing)) = scoped_plan(identity) else { panic!("{identity:?}") };
        assert_eq!(missing.problems[0].claim, "county");
    }
    let exports = Exports::new(&settings([scoped("positions", true)])).unwrap();
    let refused = request(&[("A", &["20250215"])]).validate(&exports).unwrap_err();
    assert_eq!(refused[0].pointer, "/dataset", "where nobody can be told apart");
    let wrong = request(&[]).plan(&exports, None, MAX_PROBLEMS, &|_| false);
    assert!(matches!(wrong, Err(PlanError::Problems(_))), "what is wrong anyway comes first");
}

#[test]
fn a_dry_run_reuses_no_file_of_another_scope() {
    let now: DateTime<Utc> = "2026-01-08T12:00:00Z".parse().unwrap();
    let plan = scoped_plan(Some(&caller(&[("county", json!("kent"))]))).unwrap();
    let record = FileRecord {
        path: "x".into(),
        rows: 1,
        bytes: 1,
        sha256: String::new(),
        etag: None,
        format: "CSV".into(),
        definition: plan.dataset.definition.clone(),
        generation: 1,
        generated_at: now,
        claimed_at: now,
        job_id: JobId::new(now, 1),
    };
    let of = |scope: &str| {
        let identity = plan.dataset.identity(scope, "A", "2025-02-15".parse().unwrap());
        let path = plan.dataset.file_path(&identity, Format::Csv);
        plan.dry_run(&[(identity, FileRecord { path, ..record.clone() })], now, 7).reuse
    };
    assert_eq!((of(plan.scope()), of("0123456789abcdef"), of("")), (1, 0, 0));
}

#[test]
fn the_search_for_problems_ends_when_there_are_enough() {
    let bad = vec!["x"; 200_000];
    let found = pointers(&request(&[("A", &bad), ("", &bad)]));
    assert_eq!(found.len(), MAX_PROBLEMS);
    assert_eq!(found[999], "/items/0/effectiveDates/999");
}

#[test]
fn known_problems_are_not_listed_and_do_not_count() {
    let request = request(&[("", &["x", "y"]), ("", &["z"])]);
    let found = request.validate_beside(&exports(), 2, &|place| place.starts_with("/items/0")).unwrap_err();
    let pointers: Vec<&str> = found.iter().map(|problem| problem.pointer.as_str()).collect();
    assert_eq!(pointers, ["/items/1/key", "/items/1/effectiveDates/0"]);
}
