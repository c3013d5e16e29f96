//! What private servers have in common: a folder below the run's, `scripts/services` to start and kill
//! them, and an end with the value that stands for them. The run's end stops whatever is left.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::setting;

/// A server of a test's own; gone when dropped.
#[derive(Debug)]
pub(super) struct PrivateServer {
    /// What `scripts/services` calls it: `postgres`, `pgbouncer`, `activemq`, `rabbitmq`.
    name: &'static str,
    folder: TempDir,
    url: String,
}

impl PrivateServer {
    /// A new, empty server on a spare port.
    pub(super) fn start(name: &'static str) -> Self {
        Self::start_with(name, &[])
    }

    /// The same, where `NAME-start` takes more than a folder.
    pub(super) fn start_with(name: &'static str, rest: &[&str]) -> Self {
        let folder = tempfile::Builder::new()
            .prefix(&format!("{name}-"))
            .tempdir_in(setting("OUTHAUL_TEST_SERVICES_DIR"))
            .expect("make a folder for a private server");
        let url = services(&format!("{name}-start"), folder.path(), rest);
        Self { name, folder, url }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the script's `NAME-VERB` for it and returns what that prints.
    pub(super) fn run(&self, verb: &str, rest: &[&str]) -> String {
        services(&format!("{}-{verb}", self.name), self.folder(), rest)
    }

    /// Starts it on the same port and data; does nothing if it runs.
    pub(super) fn start_again(&self) {
        assert_eq!(self.run("start", &[]), self.url, "a restarted server keeps its port");
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        // Only reported: the end of the run stops whatever is left below its folder.
        if let Err(error) = try_services(&format!("{}-kill", self.name), self.folder(), &[]) {
            eprintln!("a private {} was not stopped: {error}", self.name);
        }
    }
}

/// Runs `scripts/services COMMAND FOLDER [REST…]` and returns what it prints.
pub(super) fn services(command: &str, folder: &Path, rest: &[&str]) -> String {
    try_services(command, folder, rest).unwrap_or_else(|error| panic!("scripts/services {command}: {error}"))
}

/// The same, where a failure is to be expected.
pub(super) fn try_services(command: &str, folder: &Path, rest: &[&str]) -> Result<String, String> {
    // The script is found at run time: builds are shared between checkouts.
    let output = Command::new(setting("OUTHAUL_TEST_SERVICES"))
        .arg(command)
        .arg(folder)
        .args(rest)
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}
