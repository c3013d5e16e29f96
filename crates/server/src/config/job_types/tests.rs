//! Job types and `[http]`: what is understood, and what is refused with its place.

use std::path::Path;

use outhaul_core::retry::Backoff;

use super::*;
use crate::config::{Config, Environment, Load, Problems};

fn load<const N: usize>(text: &str, variables: [(&str, &str); N]) -> Result<Config, Problems> {
    let load = Load { file: None, insecure: false, environment: Environment::from(variables) };
    Config::parse(text, Path::new("/etc/outhaul"), &load)
}

fn problems(text: &str) -> Vec<String> {
    match load(text, []) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

/// The only problem with these steps.
fn problem(steps: &str) -> String {
    let found = problems(&format!("[job_types.MAIL]\nsteps = [{steps}]"));
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].strip_prefix("job_types.MAIL.").unwrap().to_owned()
}

#[test]
fn everything_has_a_default_but_the_steps() {
    let text = "[retry]\nmax_attempts = 9\n[job_types.MAIL]\nsteps = [{ name = \"send\", http = \"https://mailer/send?a=b\" }]";
    let config = load(text, []).unwrap();
    let mail = &config.job_types["MAIL"];
    assert_eq!(mail.steps[0].name, "send");
    assert_eq!(mail.steps[0].url.as_str(), "https://mailer/send?a=b");
    assert_eq!(mail.steps[0].timeout, Duration::from_secs(30));
    assert_eq!(mail.retry.max_attempts, 9, "inherited");
    assert_eq!(mail.timeout, Duration::from_secs(900));
    assert_eq!(mail.max_concurrent, None);
    assert!(mail.secrets.is_empty());
    assert_eq!(mail.max_response_bytes, 1024 * 1024);
    assert_eq!(config.http.allow, Allow::default());
}

#[test]
fn everything_can_be_said() {
    let text = r#"
        [retry]
        max_attempts = 9
        [http]
        allow = ["10.0.0.0/8", "localhost", "mailer"]
        [job_types.Send-Email_2]
        steps = [{ name = "send", http = "http://mailer/send", timeout = "200ms" }]
        retry = { backoff = { kind = "fixed", base = "3s" } }
        timeout = "1m"
        max_concurrent = 10
        secret = "hunter2"
        max_response_bytes = 10
    "#;
    let config = load(text, []).unwrap();
    let mail = &config.job_types["Send-Email_2"];
    assert_eq!(mail.steps[0].timeout, Duration::from_millis(200));
    let fixed = Backoff::Fixed { base: Duration::from_secs(3) };
    assert_eq!((mail.retry.max_attempts, &mail.retry.backoff), (9, &fixed));
    assert_eq!((mail.timeout, mail.max_concurrent), (Duration::from_secs(60), Some(10)));
    assert_eq!(mail.max_response_bytes, 10);
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn the_order_counts_until_a_step_says_what_it_needs() {
    let needs = |steps: &str| -> Vec<Vec<String>> {
        let config = load(&format!("[job_types.MAIL]\nsteps = [{steps}]"), []).unwrap();
        config.job_types["MAIL"].steps.iter().map(|step| step.needs.clone()).collect()
    };
    let url = "http = \"http://mailer\"";
    let listed = format!("{{ name = \"a\", {url} }}, {{ name = \"b\", {url} }}, {{ name = \"c\", {url} }}");
    assert_eq!(needs(&listed), [vec![], vec!["a".to_owned()], vec!["b".to_owned()]]);
    let graph = listed.replace("\"b\",", "\"b\", needs = [\"c\", \"a\"],");
    assert_eq!(needs(&graph), [vec![], vec!["c".to_owned(), "a".to_owned()], vec![]]);
    let apart = listed.replace("\"b\",", "\"b\", needs = [],");
    assert_eq!(needs(&apart), [vec![], vec![], Vec::<String>::new()]);
}

#[test]
fn every_problem_is_listed_at_once() {
    let text = r#"
        [http]
        allow = ["10.0.0.1/8", "http://x"]
        alow = []
        [job_types.EXPORT]
        steps = [{ name = "a", http = "http://h" }]
        [job_types."1st"]
        steps = [{ name = "a", http = "http://h" }]
        [job_types.MAIL]
        steps = [
            { name = "a b", http = "ftp://h" },
            { nam = "x", http = "http://u:hunter2@h" },
            7,
            { name = "c", timeout = "0s", needs = ["gone", "c", "d", "d"] },
            { name = "d", http = "http://h#top" },
            { name = "d", http = "/path?hunter2" },
        ]
        timeout = "0s"
        max_concurrent = 0
        max_response_bytes = 1048577
        retry = { max_attempts = 0 }
        secret_env = "NOT_SET"
        [job_types.NONE]
        step = []
    "#;
    let Err(found) = load(text, []) else { panic!("it must be refused") };
    let mut paths: Vec<&str> = found.iter().map(|problem| problem.path.as_str()).collect();
    paths.sort_unstable();
    let expected = [
        "http.allow",
        "http.allow",
        "http.alow",
        "job_types.1st",
        "job_types.EXPORT",
        "job_types.MAIL.max_concurrent",
        "job_types.MAIL.max_response_bytes",
        "job_types.MAIL.retry.max_attempts",
        "job_types.MAIL.secret_env",
        "job_types.MAIL.steps[0].http",
        "job_types.MAIL.steps[0].name",
        "job_types.MAIL.steps[1].http",
        "job_types.MAIL.steps[1].nam",
        "job_types.MAIL.steps[1].name",
        "job_types.MAIL.steps[2]",
        "job_types.MAIL.steps[3].http",
        "job_types.MAIL.steps[3].needs",
        "job_types.MAIL.steps[3].needs",
        "job_types.MAIL.steps[3].needs",
        "job_types.MAIL.steps[3].timeout",
        "job_types.MAIL.steps[4].http",
        "job_types.MAIL.steps[5].http",
        "job_types.MAIL.steps[5].name",
        "job_types.MAIL.timeout",
        "job_types.NONE.step",
        "job_types.NONE.steps",
    ];
    assert_eq!(paths, expected);
    assert!(!found.to_string().contains("hunter2"), "{found}");
}

#[test]
fn a_graph_that_cannot_run_names_what_is_wrong() {
    let step =
        |name: &str, needs: &str| format!("{{ name = \"{name}\", http = \"http://h\", needs = [{needs}] }}");
    let circle = [step("a", "\"b\""), step("b", "\"c\", \"d\""), step("c", ""), step("d", "\"b\"")].join(",");
    assert_eq!(problem(&circle), "steps: wait for each other: b → d → b");
    assert_eq!(problem(&step("a", "\"a\"")), "steps[0].needs: a step cannot need itself");
    assert_eq!(
        problem(&[step("a", "\"z\""), step("b", "")].join(",")),
        "steps[0].needs: there is no step `z`; there are: a, b"
    );
    assert_eq!(
        problem(&[step("a", ""), step("b", "\"a\", \"a\"")].join(",")),
        "steps[1].needs: `a` is there twice"
    );
}

#[test]
fn steps_are_bounded() {
    let steps = |count: usize| {
        let steps: Vec<String> =
            (0..count).map(|i| format!("{{ name = \"s{i}\", http = \"http://h\" }}")).collect();
        format!("[job_types.MAIL]\nsteps = [{}]", steps.join(","))
    };
    assert_eq!(problems(&steps(100)), [""; 0]);
    assert_eq!(problems(&steps(101)), ["job_types.MAIL.steps: has 101 steps, 100 are allowed"]);
}

#[test]
fn urls_are_whole_and_plain() {
    for url in
        ["http://h", "HTTPS://h:8443/a?b=c", "http://[::1]:80/", "http://127.0.0.1", "http://2130706433/"]
    {
        assert!(step_url(url).is_ok(), "{url}");
    }
    for url in [
        "",
        "h/path",
        "/path",
        "//h/path",
        "http:h",
        "http://",
        "ftp://h",
        "file:///x",
        "http://u@h",
        "http://h#",
        "http://h:99999",
    ] {
        assert!(step_url(url).is_err(), "{url}");
    }
}

#[test]
fn names_of_types_are_plain_and_free() {
    let found = |name: &str| {
        problems(&format!("[job_types.\"{name}\"]\nsteps = [{{ name = \"a\", http = \"http://h\" }}]"))
    };
    for name in ["A", "send_email", "Send-Email-2", &"x".repeat(64)] {
        assert_eq!(found(name), [""; 0], "{name}");
    }
    for name in ["", "1A", "_A", "a b", "a.b", "ü", "EXPORT", "REPORT", "Export", &"x".repeat(65)] {
        assert_eq!(found(name).len(), 1, "{name}");
    }
}

#[test]
fn secrets_come_one_or_two_at_a_time_and_are_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("old"), "hunter2-file\n").unwrap();
    let steps = "steps = [{ name = \"a\", http = \"http://h?key=hunter2\" }]";
    let variables = [("OLD", "hunter2-old"), ("NEW", "whsec_aGk="), ("EMPTY", ""), ("BAD", "whsec_hunter2!")];
    let load = Load { file: None, insecure: false, environment: Environment::from(variables) };
    let with = |secret: &str| {
        let config = Config::parse(&format!("[job_types.MAIL]\n{steps}\n{secret}"), folder.path(), &load);
        config.map_err(|problems| problems.to_string())
    };
    let exposed = |secret: &str| -> Vec<String> {
        let config = with(secret).unwrap();
        assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
        config.job_types["MAIL"].secrets.iter().map(|secret| secret.expose().to_owned()).collect()
    };
    assert_eq!(exposed("secret_env = \"OLD\""), ["hunter2-old"]);
    assert_eq!(exposed("secret_env = [\"OLD\", \"NEW\"]"), ["hunter2-old", "whsec_aGk="]);
    assert_eq!(exposed("secret_env = \"OLD,NEW\""), ["hunter2-old", "whsec_aGk="]);
    assert_eq!(exposed("secret_file = \"old\""), ["hunter2-file"]);
    assert_eq!(exposed("secret = [\"hunter2,a\", \"b\"]"), ["hunter2,a", "b"]);
    for (secret, place) in [
        (
            "secret_env = \"NOT_SET\"",
            "job_types.MAIL.secret_env: the environment variable NOT_SET is not set",
        ),
        ("secret_env = \"EMPTY\"", "job_types.MAIL.secret_env: the environment variable EMPTY is not set"),
        ("secret_env = \"BAD\"", "job_types.MAIL.secret_env: begins with whsec_"),
        ("secret_env = []", "job_types.MAIL.secret: must be one secret"),
        ("secret_env = [\"OLD\", \"NEW\", \"OLD\"]", "job_types.MAIL.secret: must be one secret"),
        ("secret = \"\"", "job_types.MAIL.secret: is empty"),
        ("secret = { x = \"hunter2\" }", "job_types.MAIL.secret: must be text in quotes"),
        ("secret_file = \"gone\"", "job_types.MAIL.secret_file: gone cannot be read"),
        ("secret = \"hunter2\"\nsecret_env = \"OLD\"", "job_types.MAIL.secret: give only one of"),
    ] {
        let problems = with(secret).unwrap_err();
        assert!(problems.contains(place), "{problems}");
        assert!(!problems.contains("hunter2"), "{problems}");
    }
}

#[test]
fn the_environment_reaches_names_in_any_case() {
    let text =
        "[job_types.SEND_EMAIL]\nsecret_file = \"gone\"\nsteps = [{ name = \"a\", http = \"http://h\" }]";
    let variables = [
        ("OUTHAUL__JOB_TYPES__SEND_EMAIL__TIMEOUT", "5m"),
        ("OUTHAUL__JOB_TYPES__SEND_EMAIL__RETRY__MAX_ATTEMPTS", "2"),
        ("OUTHAUL__JOB_TYPES__SEND_EMAIL__SECRET", "12345"),
        ("OUTHAUL__HTTP__ALLOW", "10.0.0.0/8, localhost"),
    ];
    let config = load(text, variables).unwrap();
    assert_eq!(config.job_types.len(), 1);
    let email = &config.job_types["SEND_EMAIL"];
    assert_eq!((email.timeout, email.retry.max_attempts), (Duration::from_secs(300), 2));
    assert_eq!(email.secrets, [Secret::new("12345")]);
    let mut allow = Allow::default();
    allow.add("10.0.0.0/8").unwrap();
    allow.add("localhost").unwrap();
    assert_eq!(config.http.allow, allow);
}
