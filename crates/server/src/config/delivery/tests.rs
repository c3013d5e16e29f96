//! `[delivery]`: what is understood, what is refused and where, and that no password is ever shown.

use std::path::Path;

use super::super::{Config, Environment, Load};
use super::*;

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n";

fn parse<const N: usize>(folder: &Path, text: &str, env: [(&str, &str); N]) -> Result<Config, Problems> {
    let load = Load { file: None, insecure: false, environment: Environment::from(env) };
    Config::parse(&format!("[delivery]\n{text}"), folder, &load)
}

fn broker<const N: usize>(text: &str, env: [(&str, &str); N]) -> BrokerConfig {
    let config = parse(Path::new("/etc/outhaul"), text, env).unwrap();
    assert!(config.store.parking, "what dies is told to the broker");
    config.broker.unwrap()
}

/// The paths of everything that is wrong.
fn paths(folder: &Path, text: &str) -> Vec<String> {
    let Err(problems) = parse(folder, text, []) else { return Vec::new() };
    let shown = format!("{problems} {problems:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    problems.iter().map(|problem| problem.path.clone()).collect()
}

#[test]
fn a_url_is_enough() {
    let rabbit = broker("kind = \"rabbitmq\"\nurl = \"amqp://ann:hunter2@mq/jobs\"", []);
    assert_eq!((rabbit.kind(), rabbit.window, rabbit.expiry), ("rabbitmq", 1000, Duration::from_secs(120)));
    let settings = &rabbit.settings;
    assert_eq!((settings.host.as_str(), settings.port), ("mq", 5672));
    assert_eq!((settings.user.as_str(), settings.password.expose()), ("ann", "hunter2"));
    assert_eq!(
        (settings.work_queue.as_str(), settings.parking_queue.as_str()),
        ("job.chunk.work", "job.chunk.parking")
    );
    assert_eq!((settings.virtual_host.as_str(), settings.heartbeat), ("jobs", Duration::from_secs(10)));
    assert!(settings.tls.is_none());
    assert!(!format!("{rabbit:?}").contains("hunter2"));

    let active = broker("kind = \"activemq\"\nurl = \"stomps://mq\"", []);
    assert_eq!((active.kind(), active.settings.kind), ("activemq", BrokerKind::ActiveMq));
    assert_eq!(active.settings.tls, Some(TlsSettings::default()));
}

#[test]
fn every_setting_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in
        [("ca.pem", CERTIFICATE), ("cert.pem", CERTIFICATE), ("key.pem", KEY), ("pw", "hunter2\n")]
    {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let text = r#"
        kind = "rabbitmq"
        url = "amqps://ann:other@mq"
        user = "bob"
        password_file = "pw"
        ca_file = "ca.pem"
        client_cert_file = "cert.pem"
        client_key_file = "key.pem"
        work_queue = "work"
        parking_queue = "parking"
        window = 100000
        heartbeat = "5m"
        expiry = "1d"
    "#;
    let config = parse(folder.path(), text, []).unwrap();
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("other"), "{shown}");
    let BrokerConfig { settings, window, expiry } = config.broker.unwrap();
    assert_eq!((settings.user.as_str(), settings.password.expose()), ("bob", "hunter2"));
    let client = (CERTIFICATE.to_owned(), Secret::new(KEY));
    assert_eq!(settings.tls, Some(TlsSettings { ca: Some(CERTIFICATE.into()), client: Some(client) }));
    assert_eq!((settings.work_queue.as_str(), settings.parking_queue.as_str()), ("work", "parking"));
    assert_eq!((window, settings.heartbeat), (100_000, Duration::from_secs(300)));
    assert_eq!(expiry, Duration::from_secs(86_400));
}

#[test]
fn the_environment_goes_over_the_file() {
    let text = "kind = \"rabbitmq\"\nurl = \"amqp://old\"\npassword_file = \"gone\"";
    let env = [
        ("OUTHAUL__DELIVERY__KIND", "activemq"),
        ("OUTHAUL__DELIVERY__URL", "stomp://ann:x@new:1234"),
        ("OUTHAUL__DELIVERY__PASSWORD", "12345"),
        ("OUTHAUL__DELIVERY__WINDOW", "7"),
        ("OUTHAUL__DELIVERY__EXPIRY", "30s"),
        ("OUTHAUL__DELIVERY__WORK_QUEUE", "1"),
    ];
    let BrokerConfig { settings, window, expiry } = broker(text, env);
    assert_eq!((settings.host.as_str(), settings.port), ("new", 1234));
    assert_eq!(settings.password.expose(), "12345");
    assert_eq!((window, expiry, settings.work_queue.as_str()), (7, Duration::from_secs(30), "1"));
    let by_name = broker("kind = \"rabbitmq\"\nurl_env = \"MQ\"", [("MQ", "amqp://there")]);
    assert_eq!(by_name.settings.host, "there");
}

#[test]
fn a_user_of_its_own_does_not_sign_in_with_another_ones_password() {
    let rabbit = |more: &str, url: &str| {
        let settings = broker(&format!("kind = \"rabbitmq\"\nurl = \"{url}\"\n{more}"), []).settings;
        (settings.user, settings.password.expose().to_owned())
    };
    let pair = |user: &str, password: &str| (user.to_owned(), password.to_owned());
    assert_eq!(rabbit("", "amqp://mq"), pair("guest", "guest"));
    assert_eq!(rabbit("user = \"ann\"", "amqp://mq"), pair("ann", ""));
    assert_eq!(rabbit("user = \"ann\"", "amqp://bob:pw@mq"), pair("ann", "pw"));
    assert_eq!(rabbit("password = \"pw\"", "amqp://bob@mq"), pair("bob", "pw"));
}

#[test]
fn what_is_wrong_is_said_where_it_is_and_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.pem"), CERTIFICATE).unwrap();
    std::fs::write(folder.path().join("key.pem"), KEY).unwrap();
    std::fs::write(folder.path().join("none.pem"), "hunter2").unwrap();
    for (text, expected) in [
        ("kind = \"kafka\"\nurl = \"kafka://hunter2\"", "delivery.kind"),
        ("kind = \"Rabbitmq\"", "delivery.kind"),
        ("kind = \"rabbitmq\"", "delivery.url"),
        ("kind = \"rabbitmq\"\nurl = \"stomp://ann:hunter2@mq\"", "delivery.url"),
        ("kind = \"activemq\"\nurl = \"amqp://ann:hunter2@mq\"", "delivery.url"),
        ("kind = \"rabbitmq\"\nurl = \"hunter2\"", "delivery.url"),
        ("kind = \"rabbitmq\"\nurl = 5", "delivery.url delivery.url"),
        ("kind = \"rabbitmq\"\nurl = \"amqp://mq\"\nurl_file = \"x\"", "delivery.url"),
        ("kind = \"rabbitmq\"\nurl_env = \"NOT_SET\"", "delivery.url_env"),
        ("kind = \"rabbitmq\"\nurl_file = \"gone\"", "delivery.url_file"),
        ("url = \"amqp://ann:hunter2@mq\"", "delivery.url"),
        (
            "kind = \"database\"\nurl_env = \"A\"\nuser = \"u\"\npassword_env = \"B\"\nca_file = \"ca.pem\"",
            "delivery.url_env delivery.user delivery.password_env delivery.ca_file",
        ),
        (
            "kind = \"rabbitmq\"\nurl = \"amqp://mq\"\nwindow = 0\nheartbeat = \"500ms\"\nexpiry = \"9s\"",
            "delivery.window delivery.heartbeat delivery.expiry",
        ),
        (
            "kind = \"rabbitmq\"\nurl = \"amqp://mq\"\nwindow = 100001\nheartbeat = \"6m\"\nexpiry = \"25h\"",
            "delivery.window delivery.heartbeat delivery.expiry",
        ),
        (
            "kind = \"rabbitmq\"\nurl = \"amqp://mq\"\nca_file = \"ca.pem\"\nclient_key_file = \"key.pem\"",
            "delivery.client_cert_file delivery.ca_file delivery.client_key_file",
        ),
        (
            "kind = \"rabbitmq\"\nurl = \"amqps://mq\"\nclient_cert_file = \"ca.pem\"",
            "delivery.client_key_file",
        ),
        (
            "kind = \"rabbitmq\"\nurl = \"amqps://mq\"\nca_file = \"none.pem\"\nclient_cert_file = \"gone\"\n\
             client_key_file = \"ca.pem\"",
            "delivery.ca_file delivery.client_cert_file delivery.client_key_file",
        ),
        (
            "kind = \"rabbitmq\"\nurl = \"amqp://mq\"\nwork_queue = \"amq.work\"\nparking_queue = \"a b\"",
            "delivery.work_queue delivery.parking_queue",
        ),
        (
            "kind = \"activemq\"\nurl = \"stomp://mq\"\nwork_queue = \"same\"\nparking_queue = \"same\"",
            "delivery.parking_queue",
        ),
        ("kind = \"activemq\"\nurl = \"stomp://mq\"\nwork_queue = \"a,b\"", "delivery.work_queue"),
        ("kind = \"activemq\"\nurl = \"stomp://mq\"\npassword = \"hunter2\"", "delivery.user"),
        ("kind = \"activemq\"\nurl = \"stomp://mq\"\nuser = \"\"", "delivery.user"),
        ("kind = \"activemq\"\nurl = \"stomp://mq\"\nvindow = 3", "delivery.vindow"),
        (
            "kind = \"activemq\"\nurl = \"stomp://ann:hunter2@\"\nuser = \"\"\npassword_file = \"gone\"",
            "delivery.user delivery.password_file delivery.url",
        ),
    ] {
        assert_eq!(paths(folder.path(), text).join(" "), expected, "{text}");
    }
}
