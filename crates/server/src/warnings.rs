//! Warnings about settings that are allowed but may be mistakes. `serve` logs them at start, and
//! `outhaul check` prints them as WARN lines. A warning changes no exit code and stops nothing.

mod postgres_tls;

use outhaul_export::Exports;

use crate::config::Config;

/// One warning: the part of the configuration, and what to look at there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    /// Such as `dataset positions`.
    pub(crate) what: String,
    /// What may be wrong and what to do about it, for people.
    pub(crate) text: String,
}

/// All warnings about a configuration. `exports` is missing where the datasets have problems of their own.
pub(crate) fn of(config: &Config, exports: Option<&Exports>) -> Vec<Warning> {
    postgres_tls::of(config).chain(exports.into_iter().flat_map(datasets)).collect()
}

/// Logs the warnings at start.
pub(crate) fn log(warnings: &[Warning]) {
    for Warning { what, text } in warnings {
        tracing::warn!("serve.warning: {what}: {text}");
    }
}

/// A forgotten `:key` gives every key the rows of all keys.
fn datasets(exports: &Exports) -> Vec<Warning> {
    let forgetful = exports.datasets().filter(|dataset| dataset.forgets_key());
    let warning = |name: &str| {
        Warning {
        what: format!("dataset {name}"),
        text: "its query does not use :key, so that every key gets the same rows; use :key, or write key = \"none\" if that is meant".to_owned(),
    }
    };
    forgetful.map(|dataset| warning(&dataset.name)).collect()
}
