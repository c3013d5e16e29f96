//! The examples in `deploy/` are read by the binary that they are for: what they say is understood, with each
//! delivery, and every variable that they ask for is given to their processes.

use std::path::Path;

use super::super::{Config, Environment, Load};

fn deploy(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `NAME: value` and `NAME=value` lines, as compose and env files have them.
fn variables<'a>(text: &'a str, between: &str) -> Vec<(&'a str, &'a str)> {
    let name = |name: &str| name.starts_with("OUTHAUL_") && !name.contains(' ');
    text.lines()
        .filter_map(|line| line.trim().split_once(between))
        .filter(|(key, _)| name(key))
        .map(|(key, value)| (key, value.trim()))
        .collect()
}

fn read(text: &str, variables: &[(&str, &str)]) -> Config {
    let load = Load { file: None, insecure: false, environment: Environment::from(variables) };
    Config::parse(text, Path::new("/etc/outhaul"), &load).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn the_processes_of_compose_start_with_each_delivery() {
    let (config, compose) = (deploy("outhaul.toml"), deploy("compose.yaml"));
    for kind in ["database", "rabbitmq", "activemq"] {
        let delivery = deploy(&format!("delivery-{kind}.env"));
        let mut given = variables(&compose, ": ");
        given.extend(variables(&delivery, "="));
        let config = read(&config, &given);
        assert_eq!(config.broker.as_ref().map_or("database", |broker| broker.kind()), kind);
        assert!(config.health_listen.is_some());
        if let Some(broker) = config.broker {
            let service = format!("\n  {}:\n", broker.settings.host);
            assert!(compose.contains(&service), "compose has the broker {}", broker.settings.host);
        }
    }
}

#[test]
fn the_configuration_of_kubernetes_is_understood() {
    let manifest = deploy("kubernetes/config.yaml");
    let (_, config) = manifest.split_once("outhaul.toml: |\n").unwrap();
    let config: String = config.lines().map(|line| format!("{}\n", line.trim())).collect();
    let secret = deploy("kubernetes/secret.example.yaml");
    let config = read(&config, &variables(&secret, ": "));
    assert!(config.auth.jwt().is_some() && config.broker.is_none());
}

#[test]
fn units_and_manifests_name_roles_and_flags_that_there_are() {
    let units = [
        "systemd/outhaul-api.service",
        "systemd/outhaul-worker@.service",
        "systemd/outhaul-scheduler.service",
    ];
    for (file, role) in units.into_iter().zip(["api", "worker", "scheduler"]) {
        let unit = deploy(file);
        assert!(
            unit.contains(&format!("outhaul serve --config /etc/outhaul/outhaul.toml --roles {role}\n")),
            "{unit}"
        );
        let manifest = deploy(&format!("kubernetes/{role}.yaml"));
        assert!(
            manifest
                .contains(&format!("args: [serve, --config, /etc/outhaul/outhaul.toml, --roles, {role}]"))
        );
    }
}
