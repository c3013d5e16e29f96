//! What broker URLs mean, and that no refusal shows a piece of one.

use super::*;

fn read(kind: BrokerKind, url: &str) -> Result<BrokerSettings, String> {
    BrokerSettings::read(kind, &Secret::new(url), TlsSettings::default())
}

fn amqp(url: &str) -> BrokerSettings {
    read(BrokerKind::RabbitMq, url).unwrap_or_else(|problem| panic!("{url}: {problem}"))
}

fn stomp(url: &str) -> BrokerSettings {
    read(BrokerKind::ActiveMq, url).unwrap_or_else(|problem| panic!("{url}: {problem}"))
}

#[test]
fn a_whole_url_is_read() {
    let settings = amqp("amqps://us%40er:p%2f%3fss%25w@broker.example:6000/team%2fa?heartbeat=7");
    assert_eq!(
        settings,
        BrokerSettings {
            kind: BrokerKind::RabbitMq,
            host: "broker.example".to_owned(),
            port: 6000,
            tls: Some(TlsSettings::default()),
            user: "us@er".to_owned(),
            password: Secret::new("p/?ss%w"),
            virtual_host: "team/a".to_owned(),
            work_queue: WORK_QUEUE.to_owned(),
            parking_queue: PARKING_QUEUE.to_owned(),
            heartbeat: Duration::from_secs(7),
        }
    );
    assert_eq!(settings.describe(), "amqps://broker.example:6000/team%2fa");
    assert!(!format!("{settings:?}").contains("p/?ss"));
}

#[test]
fn what_is_left_out_has_defaults() {
    let rabbit = amqp("amqp://h");
    assert_eq!((rabbit.port, rabbit.tls, rabbit.heartbeat), (5672, None, Duration::from_secs(10)));
    assert_eq!((rabbit.user.as_str(), rabbit.password.expose()), ("guest", "guest"));
    assert_eq!(amqp("amqps://h").port, 5671);
    assert_eq!(amqp("amqp://user@h").password.expose(), "");

    let active = stomp("stomp://h");
    assert_eq!((active.port, &active.tls, active.virtual_host.as_str()), (61613, &None, "h"));
    assert_eq!((active.user.as_str(), active.password.expose()), ("", ""));
    assert_eq!(active.describe(), "stomp://h:61613");
    for secure in ["stomps://h", "stomp+ssl://h"] {
        assert_eq!((stomp(secure).port, stomp(secure).tls), (61614, Some(TlsSettings::default())));
        assert_eq!(stomp(secure).describe(), "stomps://h:61614");
    }
}

#[test]
fn the_path_is_the_virtual_host() {
    for (url, expected) in [
        ("amqp://h", "/"),
        ("amqp://h/", "/"),
        ("amqp://h/%2f", "/"),
        ("amqp://h/%2F", "/"),
        ("amqp://h/name", "name"),
        ("amqp://h/a%2fb", "a/b"),
        ("amqp://h/gr%C3%BCn", "grün"),
        ("amqp://h/a%40b", "a@b"),
    ] {
        assert_eq!(amqp(url).virtual_host, expected, "{url}");
    }
    assert_eq!(amqp("amqp://h/").describe(), "amqp://h:5672/%2f");
    assert_eq!(stomp("stomp://h/other").virtual_host, "other");
    assert_eq!(stomp("stomp://h/other").describe(), "stomp://h:61613/other");
}

#[test]
fn hosts_may_be_addresses() {
    let six = amqp("amqp://[2001:db8::1]:1234/v");
    assert_eq!((six.host.as_str(), six.port), ("2001:db8::1", 1234));
    assert_eq!(six.describe(), "amqp://[2001:db8::1]:1234/v");
    assert_eq!(stomp("stomp://[::1]").host, "::1");
    assert_eq!(stomp("stomp://[::1]").describe(), "stomp://[::1]:61613");
    assert_eq!(amqp("amqp://127.0.0.1").host, "127.0.0.1");
}

#[test]
fn a_wrong_scheme_says_what_is_expected() {
    for url in ["stomp://h", "http://h", "amqp+ssl://h", "h:5672", "AMQPX://h"] {
        let problem = read(BrokerKind::RabbitMq, url).unwrap_err();
        assert!(problem.contains("amqp://") && problem.contains("amqps://"), "{url}: {problem}");
    }
    for url in ["amqp://h", "tcp://h:61616", "stomp"] {
        let problem = read(BrokerKind::ActiveMq, url).unwrap_err();
        assert!(problem.contains("stomp://") && problem.contains("stomps://"), "{url}: {problem}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused_without_showing_it() {
    for (url, hint) in [
        ("amqp://user:hunter2@h?secure=hunter2", "heartbeat=<seconds>"),
        ("amqp://user:hunter2@h?heartbeat=5&x=hunter2", "heartbeat=<seconds>"),
        ("amqp://user:hunter2@h?", "heartbeat=<seconds>"),
        ("amqp://user:hunter2@h?heartbeat=0", "1 to 300"),
        ("amqp://user:hunter2@h?heartbeat=301", "1 to 300"),
        ("amqp://user:hunter2@h?heartbeat=hunter2", "1 to 300"),
        ("amqp://user:hunter2@h?heartbeat=-1", "1 to 300"),
        ("amqp://user:hunter2@h#hunter2", "`#`"),
        ("amqp://user:1#hunter2@h", "%23"),
        ("amqp://user:1/hunter2@h", "%2f"),
        ("amqp://user:1?hunter2@h", "%3f"),
        ("amqp://user:/hunter2@h", "%2f"),
        ("amqp://user:hunter2/x@h", "cannot be read"),
        ("amqp://user:hunter2@h/a/b", "%2f"),
        ("amqp://user:hunter2@h/hunter2%zz", "virtual host"),
        ("amqp://user:hunter2@h/hunter2%00", "virtual host"),
        ("amqp://user:hunter2%zz@h", "%25"),
        ("amqp://user:hunter2%ff@h", "%25"),
        ("amqp://user:hunter2%0a@h", "control character"),
        ("amqp://:hunter2@h", "no user"),
        ("amqp://user:hunter2@h:0", "port 0"),
        ("amqp://user:hunter2@h:99999", "cannot be read"),
        ("amqp://user:hunter2@", "cannot be read"),
        ("amqp:///hunter2", "no host"),
        ("amqp:hunter2", "no host"),
        ("amqp://user:hunter2@h%41", "host"),
        ("hunter2", "cannot be read"),
        ("", "cannot be read"),
    ] {
        let problem = read(BrokerKind::RabbitMq, url).expect_err(url);
        assert!(!problem.contains("hunter2"), "{url}: {problem}");
        assert!(problem.contains(hint), "{url}: {problem}");
    }
    let long = format!("amqp://h/{}", "v".repeat(256));
    assert!(read(BrokerKind::RabbitMq, &long).unwrap_err().contains("255 bytes"));
}

#[test]
fn certificates_need_a_tls_scheme() {
    let tls = TlsSettings { ca: Some("PEM".to_owned()), client: Some(("PEM".to_owned(), Secret::new("k"))) };
    let read = |kind, url: &str| BrokerSettings::read(kind, &Secret::new(url), tls.clone());
    assert_eq!(read(BrokerKind::RabbitMq, "amqps://h").unwrap().tls, Some(tls.clone()));
    assert!(read(BrokerKind::RabbitMq, "amqp://h").unwrap_err().contains("amqps://"));
    assert!(read(BrokerKind::ActiveMq, "stomp://h").unwrap_err().contains("stomps://"));
}

#[test]
fn queue_names_are_judged_each_at_its_place() {
    let longest = "q".repeat(200);
    for (kind, url) in [(BrokerKind::RabbitMq, "amqp://h"), (BrokerKind::ActiveMq, "stomp://h")] {
        let settings = read(kind, url).unwrap().with_queues(&longest, "own.parking_1-a").unwrap();
        assert_eq!(
            (settings.work_queue.as_str(), settings.parking_queue.as_str()),
            (longest.as_str(), "own.parking_1-a")
        );
        let fields = |work: &str, parking: &str| {
            let problems = settings.clone().with_queues(work, parking).unwrap_err();
            assert_eq!(problems, kind.judge_queues(work, parking));
            problems.iter().map(|problem| problem.field).collect::<Vec<_>>()
        };
        for bad in [
            "",
            "a\nb",
            "a\0b",
            " a",
            "a b",
            "a>",
            "a.*",
            "a,b",
            "a?b=1",
            "a/b",
            "a:b",
            "ü",
            &"q".repeat(201),
        ] {
            assert_eq!(fields(bad, "p"), ["work_queue"], "{bad:?}");
            assert_eq!(fields("w", bad), ["parking_queue"], "{bad:?}");
            assert_eq!(fields(bad, "a b c"), ["work_queue", "parking_queue"], "{bad:?}");
        }
        assert_eq!(fields("same", "same"), ["parking_queue"]);
    }
    assert_eq!(BrokerKind::RabbitMq.judge_queues("amq.work", "p")[0].field, "work_queue");
    assert_eq!(BrokerKind::ActiveMq.judge_queues("amq.work", "p"), []);
}
