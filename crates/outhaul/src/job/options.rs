//! What may be set per job type.

use std::time::Duration;

use outhaul_core::retry::RetryPolicy;

/// How long one attempt may take when a job type does not say.
const TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// How jobs of one type are run.
///
/// ```
/// # use outhaul::{JobOptions, core::retry::{Backoff, RetryPolicy}};
/// # use std::time::Duration;
/// let backoff = Backoff::Fixed { base: Duration::from_secs(30) };
/// let options = JobOptions::default()
///     .retry(RetryPolicy { max_attempts: 3, backoff })
///     .timeout(Duration::from_secs(60))
///     .max_concurrent(4);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct JobOptions {
    retry: Option<RetryPolicy>,
    timeout: Option<Duration>,
    max_concurrent: Option<u32>,
    unique: bool,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self { retry: None, timeout: Some(TIMEOUT), max_concurrent: None, unique: false }
    }
}

impl JobOptions {
    /// How often and how fast failed attempts are repeated; otherwise as [`crate::Registry::default_retry`] says.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// How long one attempt may take. One that takes longer is stopped, and has failed.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Lets an attempt run for as long as its process lives.
    pub fn no_timeout(mut self) -> Self {
        self.timeout = None;
        self
    }

    /// How many may run at once, over all processes together; at least 1.
    pub fn max_concurrent(mut self, count: u32) -> Self {
        self.max_concurrent = Some(count.max(1));
        self
    }

    /// Stores no second job with an equal payload while one is waiting or running.
    pub fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    pub(crate) fn own_retry(&self) -> Option<&RetryPolicy> {
        self.retry.as_ref()
    }

    pub(crate) fn limit(&self) -> Option<Duration> {
        self.timeout
    }

    pub(crate) fn budget(&self) -> Option<u32> {
        self.max_concurrent
    }

    pub(crate) fn is_unique(&self) -> bool {
        self.unique
    }
}
