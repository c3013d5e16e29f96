//! What a job type is to the engine: a name, its queues, and how one of its chunks is run.

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::file::{FileOutcome, FileRecord, Leftover};
use outhaul_core::id::Lease;
use outhaul_core::json::Json;
use outhaul_core::queue::QueueSpec;
use outhaul_core::retry::RetryPolicy;

use crate::context::ChunkContext;
use crate::descriptors::none_left;

/// How an attempt ended well.
#[expect(clippy::large_enum_variant, reason = "one per attempt; a box would cost more than the copy")]
pub enum Outcome {
    /// Record SUCCESS, with the file if the chunk has one.
    Done {
        /// The file to record.
        file: Option<FileOutcome>,
        /// Why the file was reused or generated; empty for chunks without one.
        reason: String,
        /// What a custom job leaves for its client, as JSON text.
        result: Option<String>,
    },
    /// Come back after this time; the attempt is not counted.
    Snooze(Duration),
}

impl fmt::Debug for Outcome {
    /// Without the result: it is the client's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { file, reason, result } => {
                let bytes = result.as_ref().map(String::len);
                f.debug_struct("Done")
                    .field("file", file)
                    .field("reason", reason)
                    .field("result_bytes", &bytes)
                    .finish()
            }
            Self::Snooze(wait) => f.debug_tuple("Snooze").field(wait).finish(),
        }
    }
}

/// Why an attempt failed: a short sentence for people, without a secret, without SQL. Everybody who
/// may see the job can read `text`, so addresses, file paths and settings stand only in `detail`.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Cause {
    /// The sentence that the job and its chunk show.
    pub text: String,
    /// The sentence for operators, if it says more: dead letters, history, parking messages and the log
    /// show it instead of `text`.
    pub detail: Option<String>,
    /// The step that failed, for custom jobs.
    pub step: Option<String>,
    /// Not to be tried again sooner than this, because somebody asked for it.
    pub retry_in: Option<Duration>,
    /// Whether this process had no file descriptor left. Such an attempt is not counted.
    pub no_descriptors: bool,
}

impl Cause {
    /// A cause with more detail for operators than for the submitter of the job.
    pub fn with_detail(text: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..Self::from(text) }
    }

    /// Notes whether `error` says that no file descriptor was left.
    #[must_use]
    pub fn of(self, error: &(dyn Error + 'static)) -> Self {
        Self { no_descriptors: self.no_descriptors || none_left(error), ..self }
    }

    /// What operators are told.
    pub fn for_operators(&self) -> &str {
        self.detail.as_deref().unwrap_or(&self.text)
    }
}

impl<T: Into<String>> From<T> for Cause {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// How an attempt ended badly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// Worth another attempt.
    #[error("{0}")]
    Retryable(Cause),
    /// No attempt can help.
    #[error("{0}")]
    Fatal(Cause),
    /// The context said [`crate::Stop`], and the handler stopped. The engine knows why.
    #[error("stopped")]
    Stopped,
}

/// A step that is known before it runs, for people who look at a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepSpec {
    /// Its name.
    pub name: String,
    /// The steps that must be done before it.
    pub needs: Vec<String>,
}

/// Runs the chunks of one job type.
#[async_trait]
pub trait Handler: Send + Sync {
    /// The job type, such as `EXPORT`.
    fn job_type(&self) -> &str;

    /// The queues its chunks may wait in, with their budgets.
    fn queues(&self) -> Vec<QueueSpec>;

    /// How often and how fast failed chunks are tried again.
    fn retry(&self, dataset: Option<&str>) -> RetryPolicy;

    /// How long one attempt may take; `None`: as long as its lease is renewed.
    fn timeout(&self, dataset: Option<&str>) -> Option<Duration>;

    /// How long an attempt may go without [`ChunkContext::progress`]; `None`: for ever.
    fn stall_timeout(&self, dataset: Option<&str>) -> Option<Duration>;

    /// Runs one attempt. Must return soon after [`ChunkContext::stopped`] fires.
    async fn run(&self, context: &ChunkContext) -> Result<Outcome, Failed>;

    /// Removes the recorded open upload of a writer that never finished. Job types that write no
    /// files leave nothing.
    async fn remove_leftover(&self, _leftover: &Leftover) -> Result<(), String> {
        Ok(())
    }

    /// The attempts that have staged files in a place that the engine does not know, whether they still run or not.
    async fn staged_attempts(&self) -> Result<HashSet<Lease>, String> {
        Ok(HashSet::new())
    }

    /// Removes the staged files of attempts that have ended for good; returns how many there were.
    async fn remove_staged(&self, _ended: HashSet<Lease>) -> Result<u64, String> {
        Ok(0)
    }

    /// Whether the storage still holds the recorded file. Asked after the last writer of the file's identity ended
    /// without recording a file.
    async fn is_published(&self, _record: &FileRecord) -> Result<bool, String> {
        Ok(true)
    }

    /// The steps that are known before they run, in the order in which they are shown.
    fn steps(&self) -> Vec<StepSpec> {
        Vec::new()
    }

    /// Under which key at most one job with this payload may be SUBMITTED or IN_PROGRESS; `None`: any
    /// number may.
    fn unique_key(&self, _payload: &Json) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_not_shown() {
        let result = Some("\"hunter2\"".to_owned());
        let shown = format!("{:?}", Outcome::Done { file: None, reason: String::new(), result });
        assert!(!shown.contains("hunter2") && shown.contains("result_bytes"), "{shown}");
    }
}
