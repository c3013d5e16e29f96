//! Where a broker is and how to sign in: read from a URL, with certificates from files. No message here
//! repeats any part of the URL: a password that was not escaped may have ended up anywhere in it.

use std::ops::RangeInclusive;
use std::time::Duration;

use outhaul_core::secret::Secret;
use url::{Host, Url};

#[cfg(test)]
mod tests;

/// Where chunks are announced, unless a team names its own queue.
pub const WORK_QUEUE: &str = "job.chunk.work";
/// Where dead chunks and foreign messages go, unless a team names its own queue.
pub const PARKING_QUEUE: &str = "job.chunk.parking";

/// How often a side may say that it is there: from every second to every five minutes.
pub const HEARTBEATS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);

const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(10);
/// Bytes of a queue's name. AMQP allows 255; ours stay below it on every broker.
const MAX_QUEUE_NAME: usize = 200;
/// Bytes of a virtual host's name, which AMQP sends as a short string.
const MAX_VIRTUAL_HOST: usize = 255;

/// Which protocol a broker speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerKind {
    /// STOMP 1.2: `stomp://`, `stomps://` (also `stomp+ssl://`).
    ActiveMq,
    /// AMQP 0.9.1: `amqp://`, `amqps://`.
    RabbitMq,
}

/// A broker and its two queues. `Debug` shows no password.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerSettings {
    /// Its protocol.
    pub kind: BrokerKind,
    /// Its host name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Set: speak TLS.
    pub tls: Option<TlsSettings>,
    /// Who signs in.
    pub user: String,
    /// With what.
    pub password: Secret,
    /// The virtual host (RabbitMQ: `/` unless the URL has a path; STOMP: the `host` header).
    pub virtual_host: String,
    /// Where chunks are announced.
    pub work_queue: String,
    /// Where dead chunks and foreign messages go.
    pub parking_queue: String,
    /// How often each side says that it is there.
    pub heartbeat: Duration,
}

/// How to check the broker's certificate, and to show one's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsSettings {
    /// Certificates (PEM) to trust instead of the machine's.
    pub ca: Option<String>,
    /// A certificate (PEM) and its key to show.
    pub client: Option<(String, Secret)>,
}

impl BrokerSettings {
    /// Reads a broker's URL; the queues have their usual names. `tls` says how to check certificates, and is
    /// of use only with a TLS scheme. An error is for people, and never shows the URL.
    pub fn read(kind: BrokerKind, url: &Secret, tls: TlsSettings) -> Result<Self, String> {
        let url = Url::parse(url.expose())
            .map_err(|error| format!("the broker's URL cannot be read: {error}; {}", kind.expected()))?;
        let (secure, default_port) = kind
            .scheme(url.scheme())
            .ok_or_else(|| format!("the broker's URL has the wrong scheme; {}", kind.expected()))?;
        if url.fragment().is_some() {
            return Err(format!("the broker's URL has a `#`, which means nothing here; {ESCAPE}"));
        }
        let host = host(&url)?;
        let (user, password) = credentials(kind, &url)?;
        Ok(Self {
            kind,
            port: match url.port() {
                Some(0) => return Err("the broker's URL has port 0, which nobody listens on".to_owned()),
                Some(port) => port,
                None => default_port,
            },
            tls: tls_of(kind, secure, tls)?,
            user,
            password,
            virtual_host: match virtual_host(&url)? {
                Some(name) => name,
                None if kind == BrokerKind::RabbitMq => "/".to_owned(),
                None => host.clone(),
            },
            host,
            work_queue: WORK_QUEUE.to_owned(),
            parking_queue: PARKING_QUEUE.to_owned(),
            heartbeat: heartbeat(&url)?,
        })
    }

    /// The same with queues of these names; or everything that is wrong with them.
    pub fn with_queues(self, work: &str, parking: &str) -> Result<Self, Vec<QueueProblem>> {
        let problems = self.kind.judge_queues(work, parking);
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self { work_queue: work.to_owned(), parking_queue: parking.to_owned(), ..self })
    }

    /// Where the broker is, for logs: never with credentials.
    pub fn describe(&self) -> String {
        let scheme = match (self.kind, self.tls.is_some()) {
            (BrokerKind::ActiveMq, false) => "stomp",
            (BrokerKind::ActiveMq, true) => "stomps",
            (BrokerKind::RabbitMq, false) => "amqp",
            (BrokerKind::RabbitMq, true) => "amqps",
        };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let path = match self.kind {
            BrokerKind::ActiveMq if self.virtual_host == self.host => String::new(),
            _ => format!("/{}", self.virtual_host.replace('/', "%2f")),
        };
        format!("{scheme}://{host}:{}{path}", self.port)
    }
}

impl BrokerKind {
    /// Whether a scheme means TLS, and its port; nothing if it is not one of this kind.
    fn scheme(self, scheme: &str) -> Option<(bool, u16)> {
        match (self, scheme) {
            (Self::ActiveMq, "stomp") => Some((false, 61613)),
            (Self::ActiveMq, "stomps" | "stomp+ssl") => Some((true, 61614)),
            (Self::RabbitMq, "amqp") => Some((false, 5672)),
            (Self::RabbitMq, "amqps") => Some((true, 5671)),
            _ => None,
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::ActiveMq => "ActiveMQ needs stomp://user:password@host:61613, or stomps:// for TLS",
            Self::RabbitMq => {
                "RabbitMQ needs amqp://user:password@host:5672/virtual-host, or amqps:// for TLS"
            }
        }
    }

    /// Everything that is wrong with these names for the two queues. They must mean the same to every broker:
    /// each has signs of its own that make several destinations of one name, or patterns.
    pub fn judge_queues(self, work: &str, parking: &str) -> Vec<QueueProblem> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let mut problems = Vec::new();
        for (field, name) in [("work_queue", work), ("parking_queue", parking)] {
            if !(1..=MAX_QUEUE_NAME).contains(&name.len()) || !name.bytes().all(plain) {
                let message = format!("must be 1 to {MAX_QUEUE_NAME} letters, digits, `.`, `_` and `-`");
                problems.push(QueueProblem { field, message });
            } else if self == Self::RabbitMq && name.starts_with("amq.") {
                let message = "must not begin with `amq.`: RabbitMQ keeps such names for itself".to_owned();
                problems.push(QueueProblem { field, message });
            }
        }
        if work == parking {
            let message = "must be another than work_queue: workers would take what a person has to look at";
            problems.push(QueueProblem { field: "parking_queue", message: message.to_owned() });
        }
        problems
    }
}

/// What is wrong with the name of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueProblem {
    /// `work_queue` or `parking_queue`.
    pub field: &'static str,
    /// For people: what would be right.
    pub message: String,
}

const ESCAPE: &str = "in a user or password write %40 for @, %2f for /, %3f for ?, %23 for #, %25 for %";

fn tls_of(kind: BrokerKind, secure: bool, tls: TlsSettings) -> Result<Option<TlsSettings>, String> {
    if !secure && tls != TlsSettings::default() {
        let scheme = if kind == BrokerKind::RabbitMq { "amqps" } else { "stomps" };
        return Err(format!(
            "certificates are given, but the broker's URL does not ask for TLS ({scheme}://)"
        ));
    }
    Ok(secure.then_some(tls))
}

fn host(url: &Url) -> Result<String, String> {
    match url.host() {
        Some(Host::Domain("")) | None => Err("the broker's URL names no host".to_owned()),
        Some(Host::Domain(name)) if name.contains('%') => {
            Err("the broker's URL has a host name with characters that no host has".to_owned())
        }
        Some(Host::Domain(name)) => Ok(name.to_owned()),
        Some(Host::Ipv4(address)) => Ok(address.to_string()),
        Some(Host::Ipv6(address)) => Ok(address.to_string()),
    }
}

fn credentials(kind: BrokerKind, url: &Url) -> Result<(String, Secret), String> {
    let read = |text: &str| {
        let text = decode(text).ok_or_else(|| {
            format!("the broker's URL has a user or password that cannot be read; {ESCAPE}")
        })?;
        if text.chars().any(char::is_control) {
            return Err("the broker's URL has a control character in its user or password".to_owned());
        }
        Ok(text)
    };
    match (url.username(), url.password()) {
        ("", None) => Ok(match kind {
            BrokerKind::RabbitMq => ("guest".to_owned(), Secret::new("guest")),
            BrokerKind::ActiveMq => (String::new(), Secret::default()),
        }),
        ("", Some(_)) => Err("the broker's URL has a password but no user".to_owned()),
        (user, password) => Ok((read(user)?, Secret::new(read(password.unwrap_or_default())?))),
    }
}

/// The path's one segment, if it has one. `/` alone means nothing: the default virtual host.
fn virtual_host(url: &Url) -> Result<Option<String>, String> {
    let path = url.path().strip_prefix('/').unwrap_or(url.path());
    if path.is_empty() {
        return Ok(None);
    }
    // `amqp://user:1234/rest@host`: the password was cut at its slash, and `rest` is a part of it.
    if path.contains('@') {
        return Err(format!("the broker's URL has an `@` after its first slash; {ESCAPE}"));
    }
    if path.contains('/') {
        return Err("the broker's URL has more than one segment in its path; the path is the virtual host, \
                    with %2f for a slash in its name"
            .to_owned());
    }
    let name = decode(path).filter(|name| !name.chars().any(char::is_control));
    match name {
        Some(name) if name.len() <= MAX_VIRTUAL_HOST => Ok(Some(name)),
        Some(_) => Err(format!("the broker's URL has a virtual host longer than {MAX_VIRTUAL_HOST} bytes")),
        None => Err("the broker's URL has a virtual host (its path) that cannot be read".to_owned()),
    }
}

fn heartbeat(url: &Url) -> Result<Duration, String> {
    let Some(query) = url.query() else { return Ok(DEFAULT_HEARTBEAT) };
    let seconds = query.strip_prefix("heartbeat=").filter(|text| !text.contains('&')).ok_or_else(|| {
        format!("the broker's URL has options; the only one known is ?heartbeat=<seconds>; {ESCAPE}")
    })?;
    match seconds.parse().map(Duration::from_secs) {
        Ok(beat) if HEARTBEATS.contains(&beat) => Ok(beat),
        _ => {
            let (least, most) = (HEARTBEATS.start().as_secs(), HEARTBEATS.end().as_secs());
            Err(format!("the broker's URL has a heartbeat that is not {least} to {most} seconds"))
        }
    }
}

/// Percent-decoding; nothing if an escape is broken or the result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            u8::try_from(high * 16 + low).ok()?
        } else {
            byte
        });
    }
    String::from_utf8(decoded).ok()
}
