//! Which job types a process has: those written in Rust, and those of the configuration.

use outhaul::Registry;
use outhaul_core::job::EXPORT;

use super::{StartError, StartErrors};
use crate::config::Config;
use crate::steps::{Client, HttpJob};

/// Adds the configuration's job types to those written in Rust. A name that both have is refused: which
/// of the two is meant cannot be known.
pub(crate) fn complete(config: &Config, registry: Registry) -> Result<Registry, StartErrors> {
    let refused = |name: &str, why: &str| StartError::JobType(name.to_owned(), why.to_owned());
    let mut errors = Vec::new();
    if registry.get(EXPORT).is_some() {
        errors.push(refused(EXPORT, "is Outhaul's own; give the one written in Rust another name"));
    }
    for name in config.job_types.keys().filter(|name| registry.get(name).is_some()) {
        let why = "is written in Rust and has steps in [job_types] as well; remove or rename one of them";
        errors.push(refused(name, why));
    }
    if !errors.is_empty() {
        return Err(StartErrors(errors));
    }
    let mut registry = registry.default_retry(config.retry.clone());
    if config.job_types.is_empty() {
        return Ok(registry);
    }
    let client = Client::new(config.http.allow.clone()).map_err(StartError::HttpClient)?;
    for (name, settings) in &config.job_types {
        registry = registry.with(HttpJob::new(name, settings, client.clone()));
    }
    Ok(registry)
}
