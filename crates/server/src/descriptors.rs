//! File descriptors: the process raises its limit as far as it may, and client connections get only the descriptors
//! that jobs do not need. API and workers share one table, so a flood of connections must not take descriptors from
//! jobs.

use crate::config::Config;
use crate::roles::Roles;

/// The most connections, whatever the limit.
const MOST: u64 = 4096;
/// The fewest connections, whatever the limit, so that a process with a very low limit still answers `/healthz`.
const FEWEST: u64 = 16;
/// A connection may have a file open beside itself: a download from local storage does.
const PER_CONNECTION: u64 = 2;
/// Descriptors of the process itself: logs, listeners, timers, wake-ups, certificates, the broker, the keys of tokens,
/// idle connections to steps.
const OURS: u64 = 128;
/// A chunk may have its source (a SQLite file has two more beside it), its staged file or several parts of an
/// upload, and a few calls of steps open.
const PER_CHUNK: u64 = 12;
/// The embedded database with its log and its index, for readers and the writer.
const EMBEDDED: u64 = 32;

/// Raises the soft limit to the hard limit, and returns the new limit; `None`: the system has none.
pub(crate) fn raise() -> Option<u64> {
    #[cfg(unix)]
    {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        // Some systems accept no more than 10,240, whatever hard limit they report.
        for wanted in [hard, hard.min(10_240)].into_iter().filter(|wanted| *wanted > soft) {
            if setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok() {
                return Some(wanted);
            }
        }
        Some(soft)
    }
    #[cfg(not(unix))]
    None
}

/// How many connections the limit allows without taking descriptors that jobs need.
pub(crate) fn connections(limit: Option<u64>, config: &Config, roles: Roles) -> usize {
    let Some(limit) = limit else { return MOST as usize };
    let room = limit.saturating_sub(needed(config, roles)) / PER_CONNECTION;
    if room < FEWEST {
        tracing::warn!(
            limit,
            "serve.few_descriptors: {limit} file descriptors are too few for what this process runs; raise its \
             limit (LimitNOFILE= of a unit, ulimit -n)"
        );
    }
    room.clamp(FEWEST, MOST) as usize
}

/// How many descriptors the database, sources, files and brokers may need at once.
fn needed(config: &Config, roles: Roles) -> u64 {
    let database = match config.database.url.expose().starts_with("sqlite:") {
        true => EMBEDDED,
        // Twice the pools: each purpose also has a few connections for transactions.
        false => 2 * u64::from(config.database.api_connections + config.database.engine_connections),
    };
    let chunks = if roles.worker { u64::from(config.worker.concurrency) } else { 0 };
    OURS + database + PER_CHUNK * chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Load};

    fn config(text: &str) -> Config {
        let load = Load { file: None, insecure: false, environment: Environment::default() };
        Config::parse(text, std::path::Path::new("/"), &load).unwrap()
    }

    #[test]
    fn connections_leave_room_for_what_jobs_need() {
        let config = config("[worker]\nconcurrency = 8\n");
        let room = |limit| connections(Some(limit), &config, Roles::ALL) as u64;
        for limit in [512, 1024, 4096] {
            assert!(room(limit) * PER_CONNECTION + needed(&config, Roles::ALL) <= limit, "{limit}");
            assert!(room(limit) > FEWEST);
        }
        assert_eq!((room(64), room(0), room(1 << 20)), (FEWEST, FEWEST, MOST));
        assert_eq!(connections(None, &config, Roles::ALL) as u64, MOST);
        let api = Roles { worker: false, ..Roles::ALL };
        assert!(connections(Some(1024), &config, api) > connections(Some(1024), &config, Roles::ALL));
    }

    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        use nix::sys::resource::{Resource, getrlimit};
        let raised = raise().unwrap();
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(raised, soft);
    }
}
