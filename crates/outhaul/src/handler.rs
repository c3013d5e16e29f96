//! What a job type is to the engine: a name, its queues, and how one of its chunks is run.

use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::file::{FileOutcome, Leftover};
use outhaul_core::queue::QueueSpec;
use outhaul_core::retry::RetryPolicy;

use crate::context::ChunkContext;

/// How an attempt ended well.
#[expect(clippy::large_enum_variant, reason = "one per attempt; a box would cost more than the copy")]
#[derive(Debug)]
pub enum Outcome {
    /// Record SUCCESS, with the file if the chunk has one.
    Done {
        /// The file to record.
        file: Option<FileOutcome>,
        /// Why the file was reused or generated; empty for chunks without one.
        reason: String,
    },
    /// Come back after this time; the attempt is not counted.
    Snooze(Duration),
}

/// How an attempt ended badly. Causes are short, for people, and hold no secret and no SQL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// Worth another attempt.
    #[error("{0}")]
    Retryable(String),
    /// No attempt can help.
    #[error("{0}")]
    Fatal(String),
    /// The context said [`crate::Stop`], and the handler stopped. The engine knows why.
    #[error("stopped")]
    Stopped,
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

    /// Removes what a writer left that never finished: its staged file or open upload.
    async fn remove_leftover(&self, leftover: &Leftover) -> Result<(), String>;
}
