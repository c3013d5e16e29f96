//! Dead letters: chunks that failed for good, each with its cause, waiting for a person.

use chrono::{DateTime, Utc};

use crate::id::JobId;

/// A chunk that failed for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its job.
    pub job_id: JobId,
    /// Which chunk of it.
    pub chunk_key: String,
    /// Its job's type.
    pub job_type: String,
    /// Its job's dataset, for exports.
    pub dataset: Option<String>,
    /// Why it failed, in a sentence.
    pub cause: String,
    /// The step that failed, for custom jobs.
    pub step: Option<String>,
    /// Attempts since it was submitted or last redriven.
    pub attempts: u32,
    /// When it first failed since then.
    pub first_failed_at: DateTime<Utc>,
    /// When it failed for good.
    pub last_failed_at: DateTime<Utc>,
}

/// Which dead letters are meant; what is `None` says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// Only this job.
    pub job_id: Option<JobId>,
    /// Only jobs of this type.
    pub job_type: Option<String>,
    /// Only exports of this dataset.
    pub dataset: Option<String>,
    /// Only those whose cause, step, job id or chunk key contains this text, whatever its case.
    pub text: Option<String>,
    /// Only those that failed for good at or after this moment.
    pub after: Option<DateTime<Utc>>,
    /// Only those that failed for good before this moment.
    pub before: Option<DateTime<Utc>>,
}

/// Where a page of dead letters ended; newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLetterCursor {
    /// Microseconds since 1970.
    pub at_micros: i64,
    /// The chunk.
    pub chunk: i64,
}
