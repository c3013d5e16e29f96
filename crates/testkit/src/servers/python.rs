//! A second opinion on the brokers: a few lines of Python, with clients that are not ours.

use std::process::Command;

use super::setting;

/// The URL of a RabbitMQ as `pika` should have it: by itself it gives up on a busy machine after seconds, and
/// a script that is busy with something else would miss its own heartbeats.
pub fn pika_url(url: &str) -> String {
    format!("{url}?connection_attempts=5&retry_delay=2&stack_timeout=120&socket_timeout=60&heartbeat=0")
}

/// A Python that has `pika` and `stomp.py`, told to run `code` with `arguments` in `sys.argv[1:]`.
/// The caller chooses between `output`, which suits most, and `spawn`.
pub fn python(code: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(setting("OUTHAUL_TEST_PYTHON"));
    command.arg("-c").arg(code).args(arguments);
    command
}
