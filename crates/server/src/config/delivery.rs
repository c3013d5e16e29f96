//! `[delivery]`: whether workers hear of chunks from the database alone or from a broker, where that is and
//! how to sign in. No message ever repeats the URL: it may hold a password.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outhaul_core::secret::Secret;
use outhaul_delivery::{BrokerKind, BrokerSettings, HEARTBEATS, TlsSettings};
use url::Url;

use super::problem::Problems;
use super::raw;
use super::secrets::{Given, Secrets};

/// A broker beside the database, and how much it is told. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// Where it is and how to sign in.
    pub settings: BrokerSettings,
    /// How many chunks of one queue may be announced and unclaimed.
    pub window: u32,
    /// How long it may keep an announced chunk before the chunk is announced again.
    pub expiry: Duration,
}

impl BrokerConfig {
    /// Its kind as `delivery.kind` spells it.
    pub fn kind(&self) -> &'static str {
        match self.settings.kind {
            BrokerKind::ActiveMq => "activemq",
            BrokerKind::RabbitMq => "rabbitmq",
        }
    }
}

/// Judges the section; `None`: the database delivers, or a problem was noted.
pub(super) fn judge(
    raw: raw::Delivery,
    secrets: &Secrets<'_>,
    problems: &mut Problems,
) -> Option<BrokerConfig> {
    judge_numbers(&raw, problems);
    let kind = match raw.kind.as_str() {
        "database" => {
            for name in broker_only(&raw) {
                let message = "is of no use with kind = \"database\"; name a broker, or take it out";
                problems.add(format!("delivery.{name}"), message);
            }
            return None;
        }
        "activemq" => BrokerKind::ActiveMq,
        "rabbitmq" => BrokerKind::RabbitMq,
        _ => {
            problems.add("delivery.kind", "must be \"database\", \"activemq\" or \"rabbitmq\"");
            return None;
        }
    };
    for problem in kind.judge_queues(&raw.work_queue, &raw.parking_queue) {
        problems.add(format!("delivery.{}", problem.field), problem.message);
    }
    let tls = certificates(&raw, secrets.folder, problems);
    if raw.user.as_deref().is_some_and(|user| user.is_empty() || user.contains(char::is_control)) {
        problems.add("delivery.user", "must be a name; leave it out to take the URL's");
    }
    let password = Given { text: raw.password, file: raw.password_file, env: raw.password_env };
    let password = secrets.find("delivery.password", password, problems);
    if raw.url.is_none() && raw.url_file.is_none() && raw.url_env.is_none() {
        problems.add("delivery.url", format!("is needed: where the broker is, such as {}", example(kind)));
    }
    let url = Given { text: raw.url, file: raw.url_file, env: raw.url_env };
    let url = secrets.find("delivery.url", url, problems)?;
    // Queues and certificates were judged above, each at its own place: what is wrong now is the URL.
    let mut settings = match BrokerSettings::read(kind, &url, TlsSettings::default()) {
        Ok(settings) => settings,
        Err(message) => {
            problems.add("delivery.url", message);
            return None;
        }
    };
    match &mut settings.tls {
        Some(place) => *place = tls,
        None => {
            let message = format!("is of no use without TLS: write the url as {}", secure(kind));
            for name in tls_only(&raw.ca_file, &raw.client_cert_file, &raw.client_key_file) {
                problems.add(format!("delivery.{name}"), &message);
            }
        }
    }
    if raw.user.is_some() && !has_password(&url) {
        // What a broker's fresh installation takes for nobody's name is not the password of this one.
        settings.password = Secret::default();
    }
    settings.user = raw.user.unwrap_or(settings.user);
    if password.is_some() && settings.user.is_empty() {
        problems.add("delivery.user", "is needed with a password, here or in the URL");
    }
    settings.password = password.unwrap_or(settings.password);
    settings.work_queue = raw.work_queue;
    settings.parking_queue = raw.parking_queue;
    settings.heartbeat = raw.heartbeat.map_or(settings.heartbeat, |heartbeat| heartbeat.0);
    Some(BrokerConfig { settings, window: raw.window, expiry: raw.expiry.0 })
}

fn example(kind: BrokerKind) -> &'static str {
    match kind {
        BrokerKind::ActiveMq => "stomp://user@host:61613",
        BrokerKind::RabbitMq => "amqp://user@host:5672",
    }
}

fn secure(kind: BrokerKind) -> &'static str {
    match kind {
        BrokerKind::ActiveMq => "stomps://…",
        BrokerKind::RabbitMq => "amqps://…",
    }
}

fn has_password(url: &Secret) -> bool {
    Url::parse(url.expose()).is_ok_and(|url| url.password().is_some())
}

fn judge_numbers(raw: &raw::Delivery, problems: &mut Problems) {
    if !(1..=100_000).contains(&raw.window) {
        problems.add("delivery.window", "must be between 1 and 100000");
    }
    if raw.heartbeat.is_some_and(|heartbeat| !HEARTBEATS.contains(&heartbeat.0)) {
        problems.add("delivery.heartbeat", "must be between \"1s\" and \"5m\"");
    }
    if !(Duration::from_secs(10)..=Duration::from_secs(86_400)).contains(&raw.expiry.0) {
        problems.add("delivery.expiry", "must be between \"10s\" and \"1d\"");
    }
}

fn broker_only(raw: &raw::Delivery) -> impl Iterator<Item = &'static str> {
    let given = [
        ("url", raw.url.is_some()),
        ("url_file", raw.url_file.is_some()),
        ("url_env", raw.url_env.is_some()),
        ("user", raw.user.is_some()),
        ("password", raw.password.is_some()),
        ("password_file", raw.password_file.is_some()),
        ("password_env", raw.password_env.is_some()),
    ];
    let named = given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name);
    named.chain(tls_only(&raw.ca_file, &raw.client_cert_file, &raw.client_key_file))
}

fn tls_only(
    ca: &Option<PathBuf>,
    cert: &Option<PathBuf>,
    key: &Option<PathBuf>,
) -> impl Iterator<Item = &'static str> + use<> {
    let given =
        [("ca_file", ca.is_some()), ("client_cert_file", cert.is_some()), ("client_key_file", key.is_some())];
    given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name)
}

/// What certificates and keys there are; read now, so that what is missing is said at start.
fn certificates(raw: &raw::Delivery, folder: &Path, problems: &mut Problems) -> TlsSettings {
    let mut read = |name: &str, file: &Option<PathBuf>, holds: &str| {
        let file = file.as_deref()?;
        let path = format!("delivery.{name}");
        match std::fs::read_to_string(folder.join(file)) {
            Ok(text) if text.contains("-----BEGIN ") && text.contains(&format!("{holds}-----")) => Some(text),
            Ok(_) => {
                let holds = holds.to_lowercase();
                problems.add(path, format!("{} holds no {holds} in PEM form", file.display()));
                None
            }
            Err(error) => {
                problems.add(path, format!("{} cannot be read: {error}", file.display()));
                None
            }
        }
    };
    let ca = read("ca_file", &raw.ca_file, "CERTIFICATE");
    let cert = read("client_cert_file", &raw.client_cert_file, "CERTIFICATE");
    let key = read("client_key_file", &raw.client_key_file, "PRIVATE KEY");
    match (&raw.client_cert_file, &raw.client_key_file) {
        (Some(_), None) => problems.add("delivery.client_key_file", "is needed with client_cert_file"),
        (None, Some(_)) => problems.add("delivery.client_cert_file", "is needed with client_key_file"),
        _ => {}
    }
    TlsSettings { ca, client: cert.zip(key.map(Secret::new)) }
}

#[cfg(test)]
mod tests;
