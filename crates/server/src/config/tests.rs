//! The configuration as a whole: what is understood, and that everything wrong is said at once.

use std::path::Path;
use std::time::Duration;

use outhaul_core::retry::Backoff;
use outhaul_export::settings::{SourceUrl, StorageTarget};

use super::*;

mod deploy;

fn load<const N: usize>(text: &str, variables: [(&str, &str); N]) -> Result<Config, Problems> {
    let load = Load { file: None, insecure: false, environment: Environment::from(variables) };
    Config::parse(text, Path::new("/etc/outhaul"), &load)
}

fn problems<const N: usize>(text: &str, variables: [(&str, &str); N]) -> Vec<String> {
    match load(text, variables) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

/// The paths of all problems, in order of the text.
fn paths(text: &str) -> Vec<String> {
    let Err(problems) = load(text, []) else { return Vec::new() };
    problems.iter().map(|problem| problem.path.clone()).collect()
}

#[test]
fn nothing_at_all_is_the_embedded_default() {
    let config = load("", []).unwrap();
    assert_eq!(config.data_dir, Path::new("/etc/outhaul/outhaul-data"));
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.database.url.expose(), "sqlite:/etc/outhaul/outhaul-data/outhaul.db");
    assert!(matches!(&config.export.storage.target,
        StorageTarget::Local(path) if path == Path::new("/etc/outhaul/outhaul-data/files")));
    assert_eq!(config.export.storage.base_path, "exports/");
    assert_eq!(config.worker, WorkerSettings::default());
    assert_eq!(config.limits.max_chunks_per_job, 10_000);
    assert_eq!(config.limits.min_schedule_interval, Duration::from_secs(60));
    assert_eq!(config.store.idempotency_window, Duration::from_secs(86_400));
    assert_eq!(config.retain_jobs, Duration::from_secs(30 * 86_400));
    assert_eq!(config.retain_audit, Duration::from_secs(365 * 86_400));
    assert_eq!((config.limits.requests_per_second, config.limits.max_open_chunks), (None, None));
    assert!(config.auth.jwt().is_none() && config.auth.identities.is_empty());
    assert_eq!(config.export.snapshot_max_age, None);
    assert_eq!(config.export.reuse_window_days, 7);
    assert!(config.broker.is_none() && !config.store.parking);
    assert_eq!(config.health_listen, None);
}

#[test]
fn the_example_of_the_design_is_understood() {
    let text = r#"
        data_dir = "outhaul-data"
        [server]
        listen = "127.0.0.1:8080"
        [database]
        url = "postgres://user:password@host/db"
        listen = true
        [storage]
        url = "s3://bucket"
        base_path = "exports/"
        [delivery]
        kind = "database"
        work_queue = "job.chunk.work"
        parking_queue = "job.chunk.parking"
        window = 1000
        [queue]
        fairness_step = "100ms"
        [worker]
        concurrency = 8
        lease = "60s"
        heartbeat = "15s"
        poll_interval = "1s"
        [retry]
        max_attempts = 5
        backoff = { kind = "exponential", base = "1s", max = "5m", jitter = true }
        [limits]
        max_chunks_per_job = 10000
        max_body_bytes = 2097152
        max_row_bytes = 67108864
        [reuse]
        window_days = 7
        [idempotency]
        window = "24h"
        required = false
        [retention]
        jobs = "30d"
        files = "never"
        [auth]
        mode = "none"
        [sources.warehouse]
        url = "postgres://reader@db/warehouse"
        max_concurrent = 4
        statement_timeout = "10m"
        stall_timeout = "2m"
        [datasets.positions]
        default = true
        source = "warehouse"
        query = "select * from export_positions(:key, :effective_date)"
        [job_types.SEND_EMAIL]
        steps = [ { name = "render", http = "http://mailer/render" }, { name = "deliver", http = "http://mailer/deliver" } ]
    "#;
    let config = load(text, []).unwrap();
    assert_eq!(config.job_types["SEND_EMAIL"].steps.len(), 2);
    assert!(config.export.datasets["positions"].default);
    assert!(matches!(&config.export.sources["warehouse"].url, SourceUrl::Postgres(_)));
    assert!(
        matches!(&config.export.storage.target, StorageTarget::Object { url, .. } if url == "s3://bucket")
    );
}

#[test]
fn every_problem_is_listed_at_once() {
    let text = r#"
        [server]
        listen = "8080"
        health_listen = "8081"
        [database]
        url = "oracle://db"
        [storage]
        url = "ftp://files"
        base_path = "../up"
        [delivery]
        kind = "kafka"
        window = 0
        [worker]
        concurrency = 0
        claim_limit = 0
        lease = "20s"
        heartbeat = "10s"
        poll_intervall = "1s"
        [retry]
        max_attempts = 0
        backoff = { kind = "square", base = "5m", max = "1s", jiter = true }
        [retention]
        jobs = "1h"
        files = "30d"
        audit = 0
        [auth]
        mode = "token"
        keep = 5
        [sources.Crm]
        url = "mysql://crm"
        [sources.ledger]
        max_concurrent = 0
        [datasets.reports]
        default = true
        source = "nowhere"
        [datasets.users]
        default = true
        source = "ledger"
        query = "select 1"
        timeout = "soon"
        [reports.user_funds]
        query = "select 1"
        [job_types.SEND_EMAIL]
        steps = []
        [limits]
        min_schedule_interval = "0s"
        requests_per_second = 0
        burst = 0
        max_open_chunks = 0
        max_priority = 10
        [schedules.nightly]
        cron = "0 25 * * *"
        timezon = "UTC"
        overlap = "never"
        [triggers."a trigger"]
        after = []
        job = { jobType = "{{label.day}}" }
        [workers]
        concurrency = 1
    "#;
    let mut found = paths(text);
    found.sort();
    let expected = [
        "auth",
        "auth.audience",
        "auth.issuer",
        "auth.keep",
        "auth.mode",
        "database.url",
        "datasets",
        "datasets.reports",
        "datasets.reports.query",
        "datasets.reports.source",
        "datasets.users.timeout",
        "delivery.kind",
        "delivery.window",
        "job_types.SEND_EMAIL.steps",
        "limits.burst",
        "limits.max_open_chunks",
        "limits.max_priority",
        "limits.min_schedule_interval",
        "limits.requests_per_second",
        "reports",
        "retention.audit",
        "retention.files",
        "retention.jobs",
        "retry.backoff.jiter",
        "retry.backoff.kind",
        "retry.backoff.max",
        "retry.max_attempts",
        "schedules.nightly.cron",
        "schedules.nightly.job",
        "schedules.nightly.overlap",
        "schedules.nightly.run_as",
        "schedules.nightly.timezon",
        "server.health_listen",
        "server.listen",
        "sources.Crm",
        "sources.Crm.url",
        "sources.ledger.max_concurrent",
        "sources.ledger.url",
        "storage.base_path",
        "storage.url",
        "triggers.a trigger",
        "triggers.a trigger.after",
        "triggers.a trigger.job.jobType",
        "worker.claim_limit",
        "worker.concurrency",
        "worker.heartbeat",
        "worker.poll_intervall",
        "workers",
    ];
    assert_eq!(found, expected);
}

#[test]
fn unknown_settings_get_a_hint() {
    assert_eq!(
        problems("[worker]\nconcurency = 3", []),
        ["worker.concurency: is not a setting; did you mean `concurrency`?"]
    );
    assert_eq!(problems("[workr]", []), ["workr: is not a setting; did you mean `worker`?"]);
    assert_eq!(problems("[merge.all]", []), ["merge: is not available yet"]);
    assert_eq!(problems("[schedule.nightly]", []), ["schedule: is not a setting; did you mean `schedules`?"]);
    assert_eq!(problems("", [("OUTHAUL__WORKER__CONCURENCY", "3")]).len(), 1);
    assert_eq!(problems("", [("OUTHAUL__DATA_DIR__X", "3"), ("OUTHAUL____X", "3")]).len(), 2);
}

#[test]
fn wrong_types_say_what_would_be_right() {
    let found = problems("[worker]\nconcurrency = \"many\"\nlease = 60\n[database]\nlisten = 1", []);
    assert_eq!(
        found,
        [
            "database.listen: invalid type: integer `1`, expected true or false",
            "worker.concurrency: is text, expected a whole number",
            "worker.lease: is not a duration: write it in quotes, such as \"90s\"",
        ]
    );
}

#[test]
fn the_environment_goes_over_the_file() {
    let text = "[worker]\nconcurrency = 2\n[sources.warehouse]\nurl_file = \"gone\"";
    let variables = [
        ("OUTHAUL__WORKER__CONCURRENCY", "16"),
        ("OUTHAUL__WORKER__POLL_INTERVAL", "2s"),
        ("OUTHAUL__IDEMPOTENCY__REQUIRED", "true"),
        ("OUTHAUL__SOURCES__WAREHOUSE__URL", "sqlite:w.db"),
        ("OUTHAUL__DATA_DIR", "7"),
        ("OUTHAUL__QUEUE__FAIRNESS_STEP", "0"),
        ("OUTHAUL__RETRY__BACKOFF__KIND", "fixed"),
        ("OUTHAUL__STORAGE__REGION", "12"),
        ("OUTHAUL_SERVER", "http://elsewhere"),
    ];
    let config = load(text, variables).unwrap();
    assert_eq!(config.worker.concurrency, 16);
    assert_eq!(config.worker.poll_interval, Duration::from_secs(2));
    assert!(config.idempotency_required);
    assert_eq!(config.data_dir, Path::new("/etc/outhaul/7"));
    assert_eq!(config.store.fairness_step, Duration::ZERO);
    assert!(matches!(&config.export.sources["warehouse"].url,
        SourceUrl::Sqlite(path) if path == Path::new("/etc/outhaul/w.db")));
}

#[test]
fn secrets_come_from_files_and_variables_and_are_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pw"), "hunter2-file\n").unwrap();
    let text = r#"
        [database]
        url = "postgres://u@h/db"
        password_file = "pw"
        [storage]
        url = "s3://bucket"
        access_key_id = "hunter2-id"
        secret_access_key_env = "MY_KEY"
        [sources.a]
        url_env = "MY_URL"
        [sources.b]
        url = "postgres://u:hunter2-text@h/db"
    "#;
    let variables = [
        ("MY_KEY", "hunter2-key"),
        ("MY_URL", "postgres://u:hunter2-env@h/db"),
        ("AWS_SESSION_TOKEN", "hunter2-token"),
        ("AWS_ACCESS_KEY_ID", "other"),
        ("AWS_CA_BUNDLE", "for other tools"),
    ];
    let load = Load { file: None, insecure: false, environment: Environment::from(variables) };
    let config = Config::parse(text, folder.path(), &load).unwrap();
    assert_eq!(config.database.url.expose(), "postgres://u:hunter2-file@h/db");
    let StorageTarget::Object { options, .. } = &config.export.storage.target else {
        panic!("not an object store")
    };
    assert_eq!(options["aws_secret_access_key"].expose(), "hunter2-key");
    assert_eq!(options["aws_access_key_id"].expose(), "hunter2-id", "the file goes before the cloud's own");
    assert!(!options.contains_key("aws_session_token"), "it belongs to other keys");
    assert!(!options.contains_key("aws_ca_bundle"), "the library would refuse what it does not know");
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn problems_never_repeat_a_secret() {
    let texts = [
        "[database]\nurl = \"postgres://u:hunter2@",
        "[database]\nurl = \"postgres://u:hunter2@:99999/db\"",
        "[database]\nurl = \"hunter2\"",
        "[database]\nurl = [\"hunter2\"]",
        "[database]\npassword = \"hunter2\"\nurl = \"postgres://u:hunter2@h/db\"",
        "[database]\nlisten = \"postgres://u:hunter2@h/db\"",
        "[sources.a]\nurl = \"mysql://u:hunter2@h/db\"",
        "[storage]\nsecret_access_key = { x = \"hunter2\" }",
        "[sources.a]\nurl = \"sqlite:x\"\nurl_env = \"hunter2_is_only_a_name\"",
    ];
    for text in texts {
        let found = problems(text, []);
        assert!(!found.is_empty(), "{text}");
        assert!(!found.join("\n").contains("hunter2"), "{found:?}");
    }
}

#[test]
fn missing_secrets_are_named_by_place() {
    let text = "[database]\nurl_env = \"NOT_SET\"\n[sources.a]\nurl_file = \"no/such/file\"";
    assert_eq!(paths(text), ["database.url_env", "sources.a.url_file"]);
}

#[test]
fn relative_paths_belong_to_the_files_folder() {
    let text = "data_dir = \"d\"\n[database]\nurl = \"sqlite:d/o.db\"\n[storage]\nurl = \"file:out\"\n\
                [sources.a]\nurl = \"sqlite://s.db\"\n[sources.b]\nurl = \"sqlite:///abs/s.db\"";
    let config = load(text, []).unwrap();
    assert_eq!(config.data_dir, Path::new("/etc/outhaul/d"));
    assert_eq!(config.database.url.expose(), "sqlite:/etc/outhaul/d/o.db");
    assert!(matches!(&config.export.storage.target,
        StorageTarget::Local(path) if path == Path::new("/etc/outhaul/out")));
    let file = |name: &str| match &config.export.sources[name].url {
        SourceUrl::Sqlite(path) => path.clone(),
        SourceUrl::Postgres(_) => panic!("not SQLite"),
    };
    assert_eq!(file("a"), Path::new("/etc/outhaul/s.db"));
    assert_eq!(file("b"), Path::new("/abs/s.db"));
}

#[test]
fn a_file_is_found_by_flag_variable_or_default() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my.toml");
    std::fs::write(&file, "[worker]\nconcurrency = 3").unwrap();
    let by_flag = Load { file: Some(file.clone()), insecure: false, environment: Environment::default() };
    assert_eq!(Config::load(&by_flag).unwrap().worker.concurrency, 3);
    let name = file.to_str().unwrap();
    let by_variable =
        Load { file: None, insecure: false, environment: Environment::from([("OUTHAUL_CONFIG", name)]) };
    assert_eq!(Config::load(&by_variable).unwrap().worker.concurrency, 3);
    let gone =
        Load { file: Some("no/such.toml".into()), insecure: false, environment: Environment::default() };
    assert!(Config::load(&gone).unwrap_err().to_string().contains("no/such.toml cannot be read"));
}

#[test]
fn other_machines_are_let_in_only_on_purpose() {
    let text = "[server]\nlisten = \"0.0.0.0:8080\"";
    assert_eq!(paths(text), ["server.listen"]);
    let insecure = Load { file: None, insecure: true, environment: Environment::default() };
    assert!(Config::parse(text, Path::new("/"), &insecure).is_ok());
    assert!(paths("[server]\nlisten = \"[::1]:0\"").is_empty());
    assert!(paths("[server]\nlisten = \"localhost:8080\"").is_empty());
    // Of its health a process shows nothing secret.
    let health = load("[server]\nhealth_listen = \"0.0.0.0:8081\"", []).unwrap();
    assert_eq!(health.health_listen.unwrap().to_string(), "0.0.0.0:8081");
}

#[test]
fn callers_are_limited_only_where_it_is_asked_for() {
    let limits = |text: &str| load(&format!("[limits]\n{text}"), []).unwrap().limits;
    for (text, rate, burst) in [
        ("", None, 10),
        ("requests_per_second = 3", Some(3), 10),
        ("requests_per_second = 50", Some(50), 100),
        ("requests_per_second = 50\nburst = 7", Some(50), 7),
    ] {
        let limits = limits(text);
        assert_eq!((limits.requests_per_second, limits.burst), (rate, burst), "{text}");
    }
    assert_eq!((limits("").max_priority, limits("max_priority = 5").max_priority), (9, 5));
    assert_eq!(limits("max_open_chunks = 5000").max_open_chunks, Some(5000));
    assert_eq!(paths("[limits]\nburst = 5"), ["limits.burst"], "of no use alone");
}

#[test]
fn a_datasets_retry_inherits_what_it_leaves_out() {
    let text = r#"
        [retry]
        max_attempts = 9
        backoff = { kind = "linear", base = "2s", max = "10s" }
        [sources.a]
        url = "sqlite:a.db"
        [datasets.one]
        source = "a"
        query = "select 1"
        retry = { backoff = { kind = "fixed", base = "3s" } }
        [datasets.two]
        source = "a"
        query = "select 2"
        retry.max_attempts = 2
        timeout = "1h"
    "#;
    let config = load(text, []).unwrap();
    let (one, two) = (&config.export.datasets["one"], &config.export.datasets["two"]);
    assert_eq!(
        (one.retry.max_attempts, &one.retry.backoff),
        (9, &Backoff::Fixed { base: Duration::from_secs(3) })
    );
    let linear = Backoff::Linear { base: Duration::from_secs(2), max: Duration::from_secs(10) };
    assert_eq!((two.retry.max_attempts, &two.retry.backoff), (2, &linear));
    assert_eq!((one.timeout, two.timeout), (None, Some(Duration::from_secs(3600))));
}

#[test]
fn three_jobs_a_poll_every_second_and_linear_waits_are_a_matter_of_configuration() {
    let text = "[worker]\nconcurrency = 2\npoll_interval = \"1s\"\nclaim_limit = 3\n[retry]\n\
                max_attempts = 3\nbackoff = { kind = \"linear\", base = \"1s\" }";
    let config = load(text, []).unwrap();
    let worker = WorkerSettings { concurrency: 2, claim_limit: Some(3), ..WorkerSettings::default() };
    assert_eq!(config.worker, worker);
    let waits: Vec<u64> = (1..=3).map(|n| config.retry.backoff.wait(n, 0.5).as_secs()).collect();
    assert_eq!(waits, [1, 2, 3]);
    assert_eq!(load("", [("OUTHAUL__WORKER__CLAIM_LIMIT", "4")]).unwrap().worker.claim_limit, Some(4));
}

#[test]
fn no_wait_before_another_attempt_is_longer_than_a_year() {
    let text = "[retry]\nbackoff = { base = \"999999999d\", max = \"999999999d\" }\n\
                [sources.s]\nurl = \"sqlite:s.db\"\n[datasets.d]\nsource = \"s\"\nquery = \"select 1\"\n\
                retry = { backoff = { kind = \"fixed\", base = \"366d\" } }\n\
                [job_types.MAIL]\nsteps = [{ name = \"a\", http = \"http://mailer/a\" }]\n\
                retry = { backoff = { base = \"1s\", max = \"366d\" } }";
    let problems = load(text, []).unwrap_err();
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    for path in [
        "retry.backoff.base",
        "retry.backoff.max",
        "datasets.d.retry.backoff.base",
        "job_types.MAIL.retry.backoff.max",
    ] {
        assert!(paths.contains(&path), "{problems}");
    }
    assert!(problems.to_string().contains("must be at most \"365d\""), "{problems}");
    load("[retry]\nbackoff = { kind = \"fixed\", base = \"365d\" }", []).unwrap();
}

#[test]
fn a_count_query_is_checked_as_the_query_is() {
    let dataset = |count: &str| {
        format!(
            "[sources.a]\nurl = \"postgres://a/b\"\n[datasets.one]\nsource = \"a\"\n\
             query = \"select 1\"\ncount_query = \"{count}\""
        )
    };
    let right = "select count(*) from t where k = :key and d = :effective_date";
    let config = load(&dataset(right), []).unwrap();
    assert_eq!(config.export.datasets["one"].query.count.as_deref(), Some(right));
    for (wrong, problem) in [
        ("select :kee", "unknown placeholder `:kee`"),
        ("select 1; select 2", "must be one statement"),
        ("select (1", "parentheses"),
        (" ", "is empty"),
    ] {
        let found = problems(&dataset(wrong), []);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("datasets.one.count_query: ") && found[0].contains(problem),
            "{found:?}"
        );
    }
}

#[test]
fn what_is_not_toml_is_refused_with_its_line() {
    let found = problems("[worker]\nconcurrency = = 3\n", []);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("line 2: the file is not TOML"), "{found:?}");
}

#[test]
fn a_password_without_a_database_is_said() {
    assert_eq!(paths("[database]\npassword = \"hunter2\""), ["database.password"]);
    let alone = "[database]\npassword_env = \"PGPASSWORD\"";
    let said = problems(alone, [("PGPASSWORD", "hunter2")]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("database.password_env") && !said[0].contains("hunter2"), "{said:?}");
    let with_url = "[database]\nurl = \"postgres://outhaul@db/outhaul\"\npassword = \"hunter2\"";
    assert_eq!(problems(with_url, []), [""; 0]);
}
