//! Logs: to stderr, for people on a terminal and as JSON otherwise. The filter is read once, at start.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::Environment;

/// Libraries that log what they were given, which may be anything.
const QUIET: &str = "lapin=off";

/// Starts logging with `OUTHAUL_LOG` or `RUST_LOG`, else with `default`. A second call changes nothing.
pub fn start(environment: &Environment, default: &str) {
    let asked = environment.get("OUTHAUL_LOG").or_else(|| environment.get("RUST_LOG"));
    let (filter, wrong) = match asked.map(EnvFilter::try_new) {
        None => (EnvFilter::new(default), None),
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (EnvFilter::new(default), Some(error)),
    };
    // It logs messages that a broker returns, with all that is in them; what matters of it is told by us.
    let filter = QUIET.parse().into_iter().fold(filter, EnvFilter::add_directive);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if std::io::stderr().is_terminal() {
        builder.with_target(false).finish().try_init()
    } else {
        builder.json().flatten_event(true).with_ansi(false).finish().try_init()
    };
    if let (Ok(()), Some(error)) = (started, wrong) {
        tracing::warn!(%error, "OUTHAUL_LOG cannot be read, using `{default}`");
    }
}
