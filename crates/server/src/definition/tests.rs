//! Definitions, good and bad, against a planner that knows one dataset and two job types.

use std::collections::BTreeSet;

use chrono::{TimeZone, Utc};
use outhaul_core::identity::ANONYMOUS;
use outhaul_core::json::Object;
use outhaul_core::schedule::{CatchUp, Overlap, ScheduleSpec};
use outhaul_core::trigger::TriggerSpec;
use serde_json::{Value, json};

use super::*;
use crate::api::tests::planner;
use crate::auth::AuthSettings;
use crate::planning::RequestPlanner;

/// The bounds of a judge that lives as long as a test.
struct Bench {
    planner: RequestPlanner,
    terms: BTreeSet<String>,
}

impl Bench {
    fn new() -> Self {
        let planner = planner();
        let terms = planner.terms();
        Self { planner, terms }
    }

    fn judge(&self) -> Judge<'_> {
        Judge { planner: &self.planner, min_interval: Duration::from_secs(60), terms: &self.terms }
    }

    fn schedule(&self, body: &Value) -> Result<ScheduleSpec, Vec<PlanProblem>> {
        read_schedule(&definition(body), &self.judge(), &AuthSettings::default()).map(|(spec, _)| spec)
    }

    fn trigger(&self, body: &Value) -> Result<TriggerSpec, Vec<PlanProblem>> {
        read_trigger(&definition(body), &self.judge(), &AuthSettings::default()).map(|(spec, _)| spec)
    }
}

fn definition(body: &Value) -> Object {
    Object::new(body.as_object().unwrap().clone(), &["job"])
}

fn pointers<T: std::fmt::Debug>(read: Result<T, Vec<PlanProblem>>) -> Vec<String> {
    let mut pointers: Vec<String> = read.unwrap_err().into_iter().map(|problem| problem.pointer).collect();
    pointers.sort();
    pointers
}

/// A body with some of its members changed; null takes one out.
fn with(mut body: Value, changes: Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(body.as_object_mut().unwrap().remove(name)),
            _ => body[name] = value.clone(),
        }
    }
    body
}

fn nightly() -> Value {
    json!({"cron": "0 2 * * *", "job": {"items": [{"key": "ABC", "effectiveDates": ["{{slot - 1d}}"]}]}})
}

fn mail() -> Value {
    json!({"after": ["dataset:positions"], "job": {"jobType": "SEND_EMAIL", "payload": "{{parents.0.jobId}}"}})
}

#[test]
fn a_schedule_says_little_and_means_the_defaults() {
    let bench = Bench::new();
    let spec = bench.schedule(&nightly()).unwrap();
    assert_eq!(
        spec,
        ScheduleSpec {
            cron: "0 2 * * *".into(),
            timezone: "UTC".into(),
            job: nightly()["job"].clone().into(),
            overlap: Overlap::Skip,
            catch_up: CatchUp::Last,
            catch_up_limit: 100,
            jitter: Duration::ZERO,
        }
    );
    let said = json!({"timezone": "UTC", "overlap": "skip", "catchUp": "last", "catchUpLimit": 100.0, "jitter": "0s"});
    assert_eq!(bench.schedule(&with(nightly(), said)).unwrap(), spec);
}

#[test]
fn the_spelling_of_the_configuration_is_taken() {
    let bench = Bench::new();
    let spelled = bench.schedule(&with(nightly(), json!({"catch_up": "all", "catch_up_limit": 7}))).unwrap();
    let named = bench.schedule(&with(nightly(), json!({"catchUp": "all", "catchUpLimit": 7}))).unwrap();
    assert_eq!((spelled.catch_up_limit, &spelled), (7, &named));
    let both = with(nightly(), json!({"catch_up": "all", "catchUp": "all"}));
    assert_eq!(pointers(bench.schedule(&both)), ["/catch_up"]);
}

#[test]
fn every_problem_of_a_schedule_is_pointed_at() {
    let bench = Bench::new();
    let judged = |changes: Value| pointers(bench.schedule(&with(nightly(), changes)));
    for cron in
        ["nonsense", "", "0 2 31 2 *", "* * * * * *", "*/30 * * * * *", "61 * * * *", "0 2 * * * * * *"]
    {
        assert_eq!(judged(json!({"cron": cron})), ["/cron"], "{cron}");
    }
    assert_eq!(judged(json!({"cron": "0 0 ".repeat(100)})), ["/cron"]);
    assert_eq!(judged(json!({"cron": "0 2\u{0} * * *"})), ["/cron"]);
    assert_eq!(judged(json!({"cron": 5})), ["/cron"]);
    assert_eq!(judged(json!({"cron": null})), ["/cron"]);
    assert_eq!(judged(json!({"timezone": "Mars/Olympus"})), ["/timezone"]);
    assert_eq!(
        judged(json!({"timezone": 5, "overlap": "SKIP", "catchUp": "some"})),
        ["/catchUp", "/overlap", "/timezone"]
    );
    for limit in [json!(0), json!(1001), json!(1.5), json!("7"), json!(-1), json!(true)] {
        assert_eq!(judged(json!({ "catchUpLimit": limit })), ["/catchUpLimit"]);
    }
    for jitter in [
        json!("24h"),
        json!("25h"),
        json!("1w"),
        json!(" 5s"),
        json!(0),
        json!("-5s"),
        json!("99999999999999999999d"),
    ] {
        assert_eq!(judged(json!({ "jitter": jitter })), ["/jitter"]);
    }
    assert!(bench.schedule(&with(nightly(), json!({"jitter": "86399s"}))).is_ok());
    for job in [json!("x"), json!([]), json!(5)] {
        assert_eq!(judged(json!({ "job": job })), ["/job"]);
    }
    assert_eq!(judged(json!({"job": null})), ["/job"]);
    assert_eq!(judged(json!({"crno": 1, "name": "x", "paused": true})), ["/crno", "/name", "/paused"]);
    // All at once, the job's too, although nobody can say when it would be due.
    let all =
        json!({"cron": "x", "timezone": "x", "jitter": "x", "job": {"jobType": "NOPE", "priority": 10}});
    assert_eq!(judged(all), ["/cron", "/jitter", "/job/jobType", "/job/priority", "/timezone"]);
}

#[test]
fn the_job_of_a_schedule_is_tried_out() {
    let bench = Bench::new();
    let judged = |job: Value| pointers(bench.schedule(&with(nightly(), json!({ "job": job }))));
    let items = |date: &str| json!({"items": [{"key": "ABC", "effectiveDates": [date]}]});
    assert_eq!(
        judged(items("{{slot | yyyy-MM-dd}}")),
        ["/job/items/0/effectiveDates/0"],
        "no date of an export"
    );
    assert_eq!(judged(items("{{slot - 1x}}")), ["/job/items/0/effectiveDates/0"]);
    assert_eq!(judged(items("{{slto}}")), ["/job/items/0/effectiveDates/0"]);
    assert_eq!(
        judged(json!({"jobType": "SEND_EMAIL", "payload": {"a/b": ["{{label.x}}"]}})),
        ["/job/payload/a~1b/0"]
    );
    assert_eq!(judged(json!({})), ["/job"]);
    let message = bench.schedule(&with(nightly(), json!({"job": {"jobType": "NOPE", "payload": "hunter2"}})));
    assert!(message.unwrap_err().iter().all(|problem| !problem.message.contains("hunter2")));
    let deep = (0..125).fold(json!(1), |inner, _| json!([inner]));
    assert_eq!(judged(json!({"jobType": "SEND_EMAIL", "payload": deep})), ["/job"]);
    assert_eq!(
        judged(json!({"jobType": "SEND_EMAIL", "payload": {"$serde_json::private::RawValue": "1"}})),
        ["/job"]
    );
    let many = json!({"jobType": "SEND_EMAIL", "payload": vec!["{{x}}"; 5000]});
    assert!(judged(many).len() <= 1001, "an answer that lists more helps nobody");
}

#[test]
fn a_new_schedule_waits_for_its_first_slot() {
    let spec = Bench::new().schedule(&with(nightly(), json!({"timezone": "Europe/Berlin"}))).unwrap();
    let now = Utc.with_ymd_and_hms(2026, 1, 10, 1, 0, 0).unwrap();
    let next = next_slot("nightly", &spec, now).unwrap();
    assert_eq!(next.slot, Utc.with_ymd_and_hms(2026, 1, 11, 1, 0, 0).unwrap(), "strictly after now");
    assert_eq!(next.fire_at, next.slot);
}

#[test]
fn a_trigger_says_little_and_means_the_defaults() {
    let bench = Bench::new();
    let spec = bench.trigger(&mail()).unwrap();
    assert_eq!(
        (spec.match_label.as_deref(), spec.within, spec.produces.as_str()),
        (None, None, "job:SEND_EMAIL")
    );
    let nulls = json!({"after": ["dataset:positions"], "job": mail()["job"], "match": null, "within": null});
    assert_eq!(bench.trigger(&nulls).unwrap(), spec, "what an answer shows may be sent back");
    let export =
        with(mail(), json!({"job": {"items": [{"key": "{{label.k}}", "effectiveDates": ["{{label.d}}"]}]}}));
    assert_eq!(bench.trigger(&export).unwrap().produces, "dataset:positions", "the default one");
    let by_day = json!({"job": {"jobType": "ONCE", "runAt": "{{label.d}}T00:00:00Z"}});
    assert_eq!(bench.trigger(&with(mail(), by_day)).unwrap().produces, "job:ONCE", "a date of another form");
}

#[test]
fn every_problem_of_a_trigger_is_pointed_at() {
    let bench = Bench::new();
    let judged = |changes: Value| pointers(bench.trigger(&with(mail(), changes)));
    for after in [json!([]), json!("dataset:positions"), json!({}), json!(vec!["job:ONCE"; 11])] {
        assert_eq!(judged(json!({ "after": after })), ["/after"]);
    }
    assert_eq!(judged(json!({"after": null})), ["/after"]);
    for term in [
        json!("job:EXPORT"),
        json!("dataset:nope"),
        json!("job:nope"),
        json!("positions"),
        json!(5),
        json!(""),
    ] {
        assert_eq!(judged(json!({"after": [term]})), ["/after/0"]);
    }
    let twice = json!({"after": ["job:ONCE", "dataset:positions", "job:ONCE"], "match": "d"});
    assert_eq!(judged(twice), ["/after/2"]);
    let several = json!({"after": ["job:ONCE", "dataset:positions"]});
    assert_eq!(judged(several.clone()), ["/match"]);
    assert!(bench.trigger(&with(with(mail(), several), json!({"match": "d"}))).is_ok());
    for label in [json!(""), json!("a\u{0}"), json!("x".repeat(65)), json!(5), json!(["d"])] {
        assert_eq!(judged(json!({ "match": label })), ["/match"]);
    }
    for within in [json!("0s"), json!("1"), json!(5), json!("9999d"), json!("18446744073709551615s")] {
        assert_eq!(judged(json!({ "within": within })), ["/within"]);
    }
    assert_eq!(judged(json!({"whithin": "1h", "fired": []})), ["/fired", "/whithin"]);
    let all = json!({"after": ["x"], "match": 5, "within": "x", "job": {"jobType": "NOPE", "priority": 10}});
    assert_eq!(judged(all), ["/after/0", "/job/jobType", "/job/priority", "/match", "/within"]);
}

#[test]
fn the_job_of_a_trigger_is_tried_out() {
    let bench = Bench::new();
    let judged = |job: Value| pointers(bench.trigger(&with(mail(), json!({ "job": job }))));
    assert_eq!(judged(json!({"jobType": "{{label.type}}"})), ["/job/jobType"]);
    let by_label = json!({"dataset": "{{label.d}}", "items": [{"key": "A", "effectiveDates": ["20250215"]}]});
    assert_eq!(judged(by_label), ["/job/dataset"]);
    assert_eq!(judged(json!({"jobType": "ONCE", "payload": "{{parents.1.jobId}}"})), ["/job/payload"]);
    assert_eq!(judged(json!({"jobType": "ONCE", "payload": "{{slot}}"})), ["/job/payload"]);
    assert_eq!(judged(json!({"jobType": "ONCE", "payload": "{{label.x"})), ["/job/payload"]);
    assert_eq!(judged(json!({"jobType": "ONCE", "priority": "{{label.p}}"})), ["/job/priority"]);
}

#[test]
fn names_have_a_form() {
    for name in ["a", "0", "Nightly.positions_v2-eu", &"x".repeat(64)] {
        assert_eq!(check_name(name), Ok(()), "{name}");
    }
    for name in ["", ".", "..", ".a", "-a", "_a", "a b", "a/b", "ä", "a\u{0}", "a\n", &"x".repeat(65)] {
        assert!(check_name(name).is_err(), "{name}");
    }
}

#[test]
fn jobs_belong_to_whoever_a_definition_runs_as() {
    use crate::auth::{JwtSettings, Keys, Mode, NamedIdentity};
    let bench = Bench::new();
    let identities = [("nightly".to_owned(), NamedIdentity::default())];
    let open = AuthSettings { identities: identities.into(), ..AuthSettings::default() };
    let keys = Keys::Secret(outhaul_core::secret::Secret::new("x"));
    let jwt = JwtSettings::new("i", vec!["a".into()], keys);
    let closed = AuthSettings { mode: Mode::Jwt(Box::new(jwt)), ..open.clone() };
    let schedule = |auth: &AuthSettings, changes: Value| {
        let body = with(nightly(), changes);
        read_schedule(&definition(&body), &bench.judge(), auth).map(|(_, owner)| owner)
    };
    let trigger = |auth: &AuthSettings, changes: Value| {
        let body = with(mail(), changes);
        read_trigger(&definition(&body), &bench.judge(), auth).map(|(_, owner)| owner)
    };
    assert_eq!(pointers(schedule(&closed, json!({}))), ["/runAs"]);
    assert_eq!(pointers(schedule(&closed, json!({"job": 5}))), ["/job", "/runAs"], "all at once");
    assert_eq!(trigger(&closed, json!({})).unwrap(), ANONYMOUS, "its parents' owner is known when it fires");
    for read in [&schedule as &dyn Fn(&AuthSettings, Value) -> Result<String, Vec<PlanProblem>>, &trigger] {
        let owned = |auth: &AuthSettings, changes: Value| read(auth, changes).unwrap();
        assert_eq!(owned(&open, json!({})), ANONYMOUS);
        for auth in [&open, &closed] {
            assert_eq!(owned(auth, json!({"runAs": "nightly"})), "identity:nightly");
            assert_eq!(owned(auth, json!({"run_as": "nightly"})), "identity:nightly");
            for wrong in
                [json!({"runAs": "other"}), json!({"runAs": 5}), json!({"runAs": "a", "run_as": "a"})]
            {
                assert_eq!(pointers(read(auth, wrong)), ["/runAs"]);
            }
        }
    }
}
