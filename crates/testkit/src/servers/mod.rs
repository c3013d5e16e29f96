//! The servers that tests use: the shared ones of `scripts/services run`, and private ones for tests
//! that stop or kill theirs. Without `run` around them tests fail: a skip is never silent.

mod broker;
mod pooler;
mod postgres;
mod private;
mod python;

pub use broker::{BrokerKind, PrivateBroker};
pub use pooler::PrivatePooler;
pub use postgres::PrivatePostgres;
pub use python::{pika_url, python};

/// Where the shared S3-compatible server is, and how to sign in.
#[derive(Debug, Clone)]
pub struct S3Settings {
    /// Base URL, plain HTTP.
    pub endpoint: String,
    /// Key id with all rights.
    pub access_key_id: String,
    /// The key's secret.
    pub secret_access_key: String,
    /// A bucket that exists; tests share it, see [`unique_prefix`].
    pub bucket: String,
}

/// The shared PostgreSQL server's maintenance database. Tests take a [`crate::test_db::TestDb`].
pub fn postgres_url() -> String {
    setting("OUTHAUL_TEST_POSTGRES_URL")
}

/// The shared S3-compatible server.
pub fn s3() -> S3Settings {
    S3Settings {
        endpoint: setting("OUTHAUL_TEST_S3_ENDPOINT"),
        access_key_id: setting("OUTHAUL_TEST_S3_ACCESS_KEY_ID"),
        secret_access_key: setting("OUTHAUL_TEST_S3_SECRET_ACCESS_KEY"),
        bucket: setting("OUTHAUL_TEST_S3_BUCKET"),
    }
}

/// The shared ActiveMQ, with the user and password. Tests take queues of their own, see [`unique_prefix`].
pub fn activemq_url() -> String {
    BrokerKind::ActiveMq.shared_url()
}

/// The shared RabbitMQ, with the user and password. Tests take queues of their own, see [`unique_prefix`].
pub fn rabbitmq_url() -> String {
    BrokerKind::RabbitMq.shared_url()
}

/// A name of 16 random letters and digits: a folder in the bucket, or a queue, that no other test uses.
pub fn unique_prefix() -> String {
    format!("{:016x}", rand::random::<u64>())
}

fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run the tests with `make test` (it starts the servers they need)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shared_s3_server_is_there() {
        let s3 = s3();
        let address = s3.endpoint.strip_prefix("http://").unwrap();
        std::net::TcpStream::connect(address).unwrap();
        assert_ne!(unique_prefix(), unique_prefix());
    }
}
