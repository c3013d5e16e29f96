//! ActiveMQ and RabbitMQ: which is meant, a private one for tests that kill or empty it, and what their
//! queues hold. Counts come from the queue itself at the time of the question, never from a cache.

use std::path::{Path, PathBuf};

use super::private::{PrivateServer, try_services};
use super::setting;

/// Which broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerKind {
    /// ActiveMQ Classic, over STOMP.
    ActiveMq,
    /// RabbitMQ, over AMQP 0.9.1.
    RabbitMq,
}

impl BrokerKind {
    /// The shared broker's URL, with the user and password.
    pub fn shared_url(self) -> String {
        self.setting("URL")
    }

    /// The shared broker's URL for TLS; its certificate is signed by [`Self::shared_ca_file`].
    pub fn shared_tls_url(self) -> String {
        self.setting("TLS_URL")
    }

    /// The certificate (PEM) to trust at [`Self::shared_tls_url`].
    pub fn shared_ca_file(self) -> PathBuf {
        PathBuf::from(self.setting("CA_FILE"))
    }

    /// How many messages of a queue of the shared broker are ready, and how many unacknowledged;
    /// `(0, 0)` if there is no such queue. An error where there is no answer, as may be on a busy machine.
    pub fn shared_queue_counts(self, queue: &str) -> Result<(u64, u64), String> {
        let folder = Path::new(&setting("OUTHAUL_TEST_SERVICES_DIR")).join(self.name());
        counts(&try_services(&format!("{}-counts", self.name()), &folder, &[queue])?)
    }

    /// What `scripts/services` calls it.
    fn name(self) -> &'static str {
        match self {
            Self::ActiveMq => "activemq",
            Self::RabbitMq => "rabbitmq",
        }
    }

    fn setting(self, what: &str) -> String {
        setting(&format!("OUTHAUL_TEST_{}_{what}", self.name().to_uppercase()))
    }
}

/// A broker of the test's own, which it may kill and empty; gone when dropped.
///
/// Its methods block until the broker is in the state they name (RabbitMQ takes some seconds to start);
/// async tests call them through `tokio::task::spawn_blocking` or accept the pause.
#[derive(Debug)]
pub struct PrivateBroker {
    kind: BrokerKind,
    server: PrivateServer,
}

impl PrivateBroker {
    /// A new, empty broker on spare ports.
    pub fn start(kind: BrokerKind) -> Self {
        Self { kind, server: PrivateServer::start(kind.name()) }
    }

    /// Which broker it is.
    pub fn kind(&self) -> BrokerKind {
        self.kind
    }

    /// Its URL, with the user and password; the same after a restart.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// Its URL for TLS, the same after a restart; its certificate is signed by [`Self::ca_file`].
    pub fn tls_url(&self) -> String {
        let url = std::fs::read_to_string(self.server.folder().join("tls.url"))
            .expect("a started broker has a TLS URL");
        url.trim().to_owned()
    }

    /// The certificate (PEM) to trust at [`Self::tls_url`].
    pub fn ca_file(&self) -> PathBuf {
        self.server.folder().join("ca.pem")
    }

    /// `kill -9`: what it wrote to disk stays. It is down until [`Self::start_again`].
    pub fn kill9(&self) {
        self.server.run("kill", &[]);
    }

    /// `kill -9`, and its data is deleted: [`Self::start_again`] starts an empty broker on the same ports.
    pub fn wipe(&self) {
        self.server.run("wipe", &[]);
    }

    /// Starts it on the same ports and data; does nothing if it runs.
    pub fn start_again(&self) {
        self.server.start_again();
    }

    /// How many messages of the queue are ready, and how many unacknowledged; `(0, 0)` if there is no
    /// such queue. An error where there is no answer, as may be on a busy machine.
    pub fn queue_counts(&self, queue: &str) -> Result<(u64, u64), String> {
        counts(&try_services(&format!("{}-counts", self.kind.name()), self.server.folder(), &[queue])?)
    }
}

/// Reads `READY UNACKNOWLEDGED`.
fn counts(printed: &str) -> Result<(u64, u64), String> {
    printed
        .split_once(' ')
        .and_then(|(ready, unacknowledged)| Some((ready.parse().ok()?, unacknowledged.parse().ok()?)))
        .ok_or_else(|| format!("two numbers, not {printed:?}"))
}

#[cfg(test)]
mod tests;
