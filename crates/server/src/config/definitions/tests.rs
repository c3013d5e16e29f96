//! Schedules and triggers of the file: what is understood, and that everything wrong is said at once.

use std::path::Path;

use serde_json::json;

use super::*;
use crate::config::{Config, Environment, Load, Problems};

fn load<const N: usize>(text: &str, variables: [(&str, &str); N]) -> Result<Config, Problems> {
    let load = Load { file: None, insecure: false, environment: Environment::from(variables) };
    Config::parse(text, Path::new("/etc/outhaul"), &load)
}

const GOOD: &str = r#"
    [schedules.nightly]
    cron = "0 2 * * MON-FRI"
    timezone = "Europe/Zurich"
    overlap = "queue"
    catch_up = "all"
    catch_up_limit = 5
    jitter = "90s"

    [schedules.nightly.job]
    dataset = "positions"
    priority = 7
    labels = { businessDate = "{{slot - 1d | yyyy-MM-dd}}", since = 2025-02-15 }
    items = [ { key = "ABC", effectiveDates = ["{{slot - 1d}}"] } ]

    [triggers.payroll]
    after = ["dataset:positions", "dataset:rates"]
    match = "businessDate"
    within = "24h"
    job = { jobType = "PAYROLL", payload = { day = "{{label.businessDate}}", rate = 1.5, dry = false } }
"#;

#[test]
fn a_section_is_the_body_that_a_client_would_put() {
    let config = load(GOOD, []).unwrap();
    let schedule = json!({
        "cron": "0 2 * * MON-FRI", "timezone": "Europe/Zurich", "overlap": "queue",
        "catchUp": "all", "catchUpLimit": 5, "jitter": "90s",
        "job": {
            "dataset": "positions", "priority": 7,
            "labels": { "businessDate": "{{slot - 1d | yyyy-MM-dd}}", "since": "2025-02-15" },
            "items": [{ "key": "ABC", "effectiveDates": ["{{slot - 1d}}"] }]
        }
    });
    assert_eq!(Value::Object(config.schedules["nightly"].0.clone()), schedule);
    let trigger = json!({
        "after": ["dataset:positions", "dataset:rates"], "match": "businessDate", "within": "24h",
        "job": { "jobType": "PAYROLL", "payload": { "day": "{{label.businessDate}}", "rate": 1.5, "dry": false } }
    });
    assert_eq!(Value::Object(config.triggers["payroll"].0.clone()), trigger);
}

#[test]
fn the_environment_goes_over_a_section() {
    let variables = [
        ("OUTHAUL__SCHEDULES__NIGHTLY__CRON", "30 3 * * *"),
        ("OUTHAUL__SCHEDULES__NIGHTLY__JITTER", "0"),
        ("OUTHAUL__SCHEDULES__NIGHTLY__JOB__PRIORITY", "9"),
        ("OUTHAUL__TRIGGERS__PAYROLL__AFTER", "dataset:positions, job:RATES"),
    ];
    let config = load(GOOD, variables).unwrap();
    let (schedule, trigger) = (&config.schedules["nightly"].0, &config.triggers["payroll"].0);
    assert_eq!((&schedule["cron"], &schedule["jitter"]), (&json!("30 3 * * *"), &json!("0s")));
    assert_eq!(schedule["job"]["priority"], 9);
    assert_eq!(trigger["after"], json!(["dataset:positions", "job:RATES"]));
}

#[test]
fn a_job_is_not_shown() {
    let shown = format!("{:?}", load(GOOD, []).unwrap());
    assert!(shown.contains("Europe/Zurich") && !shown.contains("PAYROLL"), "{shown}");
}

#[test]
fn places_are_those_of_the_file() {
    for (pointer, path) in [
        ("", "schedules.nightly"),
        ("/cron", "schedules.nightly.cron"),
        ("/catchUpLimit", "schedules.nightly.catch_up_limit"),
        ("/job/items/0/key", "schedules.nightly.job.items.0.key"),
        ("/job/labels/a~1b~0c", "schedules.nightly.job.labels.a/b~c"),
        ("/job/catchUp", "schedules.nightly.job.catchUp"),
    ] {
        assert_eq!(place("schedules", "nightly", pointer), path);
    }
}

fn problems(text: &str) -> Vec<String> {
    load(text, [])
        .err()
        .map(|problems| problems.iter().map(ToString::to_string).collect())
        .unwrap_or_default()
}

#[test]
fn everything_that_needs_no_dataset_is_said_at_once() {
    let text = r#"
        [schedules.a]
        cron = "0 0 31 2 *"
        timezone = "Europe/Atlantis"
        overlap = "never"
        catch_up = "some"
        catch_up_limit = 0
        jitter = "soon"
        job = { labels = { day = "{{slto}}" }, items = [ { key = "{{slot | yy}}" } ] }

        [schedules.b]
        cron = "* * * * * *"
        jitter = "2h"
        jobb = {}

        [schedules."no name"]
        cron = 5

        [triggers.c]
        after = ["dataset:x", "dataset:x", "job:EXPORT", "job:B"]
        within = "0s"
        job = { jobType = "B", payload = { a = "{{slot}}", b = "{{parents.9.jobId}}", c = nan } }

        [triggers.d]
        job = "later"
    "#;
    let Err(found) = load(text, []) else { panic!("nothing of it is right") };
    let mut paths: Vec<&str> = found.iter().map(|problem| problem.path.as_str()).collect();
    paths.sort_unstable();
    let expected = [
        "schedules.a.catch_up",
        "schedules.a.catch_up_limit",
        "schedules.a.cron",
        "schedules.a.jitter",
        "schedules.a.job.items.0.key",
        "schedules.a.job.labels.day",
        "schedules.a.overlap",
        "schedules.a.timezone",
        "schedules.b.cron",
        "schedules.b.jitter",
        "schedules.b.job",
        "schedules.b.jobb",
        "schedules.no name",
        "schedules.no name.cron",
        "schedules.no name.job",
        "triggers.c.after.1",
        "triggers.c.after.2",
        "triggers.c.job.payload.a",
        "triggers.c.job.payload.b",
        "triggers.c.job.payload.c",
        "triggers.c.match",
        "triggers.c.within",
        "triggers.d.after",
        "triggers.d.job",
    ];
    assert_eq!(paths, expected, "{found}");
}

#[test]
fn unknown_settings_get_a_hint() {
    let good = "[schedules.a]\ncron = \"@daily\"\njob = {}\n";
    assert_eq!(
        problems(&format!("{good}catchup = \"all\"")),
        ["schedules.a.catchup: is not a setting; did you mean `catch_up`?"]
    );
    let good = "[triggers.a]\nafter = \"job:B\"\njob = {}\n";
    assert_eq!(
        problems(&format!("{good}matches = \"x\"")),
        ["triggers.a.matches: is not a setting; did you mean `match`?"]
    );
}

#[test]
fn how_often_is_a_matter_of_configuration() {
    let text = "[schedules.a]\ncron = \"*/10 * * * * *\"\njob = {}\n";
    let said = problems(text);
    assert!(said.len() == 1 && said[0].contains("limits.min_schedule_interval"), "{said:?}");
    assert_eq!(problems(&format!("{text}[limits]\nmin_schedule_interval = \"10s\"")), [""; 0]);
    assert_eq!(problems("[limits]\nmin_schedule_interval = \"900ms\"").len(), 1);
}
