//! Custom jobs: a serde struct with a type name and an `async fn run`. What the engine makes of one is
//! in `handler`; what it may do while it runs, in `context`.

mod context;
mod error;
mod handler;
mod options;
mod payload;
pub(crate) mod runtime;
mod state;
mod transaction;

use std::time::Duration;

use outhaul_core::job::EXPORT;
use outhaul_core::json::Json;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use context::Context;
pub use error::{Classify, JobError};
pub(crate) use handler::{JobHandler, attempt};
pub use options::JobOptions;
pub(crate) use state::Shared;

use crate::submission::{payload_hash, text_hash};

/// The job type of reports.
const REPORT: &str = "REPORT";
/// The longest that anything waits: what every database can still count to.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// The longest name of a job type.
const MAX_NAME: usize = 64;

/// A job of your own: its fields are the payload, `run` is the work.
///
/// It runs *at least once*: after a crash the next attempt starts `run` again. What is inside
/// [`Context::step`] is skipped once its result is recorded.
pub trait Job: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What clients call it, such as `SEND_EMAIL`: a letter, then letters, digits, `_` and `-`, at most
    /// 64 in all. Stored with every job, so renaming it strands those that wait.
    const TYPE: &'static str;

    /// What it leaves for its client as the job's `result`; `()` for nothing.
    type Output: Serialize + Send + 'static;

    /// Retries, timeout, limits. The default: the process's retry policy, 15 minutes, any number at once.
    fn options() -> JobOptions {
        JobOptions::default()
    }

    /// While a job of this type with the same key is waiting or running, no second one is stored. See
    /// [`JobOptions::unique`] for the usual case, where the whole payload is the key.
    fn unique_key(&self) -> Option<String> {
        None
    }

    /// Does the work. An `Err` made by `?` is tried again; see [`JobError`].
    fn run(&self, ctx: &Context) -> impl Future<Output = Result<Self::Output, JobError>> + Send;
}

/// Why a text cannot name a custom job type; `None`: it can.
pub fn job_type_problem(name: &str) -> Option<&'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || name.len() > MAX_NAME {
        return Some("must start with a letter and have at most 64 characters");
    }
    if !name.chars().all(plain) {
        return Some("may hold letters, digits, `_` and `-` only");
    }
    if [EXPORT, REPORT].contains(&name) {
        return Some("is taken by a job type of Outhaul's own");
    }
    None
}

/// The key under which at most one such job may wait or run. Hashed, for a key may hold anything.
pub(crate) fn unique_key<J: Job>(job: &J) -> Option<String> {
    match job.unique_key() {
        Some(key) => Some(text_hash(&key)),
        // Of what the type makes of the payload, so that a default left out is the same as one given.
        None if J::options().is_unique() => Json::of(job).ok().as_ref().map(payload_hash),
        None => None,
    }
}

/// The same for a payload that has not been read yet. One that does not fit is compared as it is.
pub(crate) fn unique_key_of<J: Job>(payload: &Json) -> Option<String> {
    match payload.read::<J>() {
        Ok(job) => unique_key(&job),
        Err(_) => J::options().is_unique().then(|| payload_hash(payload)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_types_have_plain_names_that_are_not_ours() {
        for name in ["SEND_EMAIL", "a", "Send-Email-2", &"x".repeat(64)] {
            assert_eq!(job_type_problem(name), None, "{name}");
        }
        for name in ["", "2", "_A", "A B", "A:B", "Ä", "EXPORT", "REPORT", &"x".repeat(65)] {
            assert!(job_type_problem(name).is_some(), "{name}");
        }
    }
}
