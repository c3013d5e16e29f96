//! A job: one submission, what a client sees and waits for.

use std::collections::BTreeMap;
use std::fmt;

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};

use crate::id::{ChunkId, JobId};
use crate::identity::Identity;
use crate::json::Json;
use crate::progress::{ChunkProgress, Moving};
use crate::state::ChunkState;

/// The job type of data exports.
pub const EXPORT: &str = "EXPORT";

/// What clients see of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobStatus {
    /// Nothing has started.
    Submitted,
    /// Something has started, and not everything is settled.
    InProgress,
    /// Every chunk is DONE.
    Completed,
    /// A chunk failed for good.
    Failed,
    /// A person cancelled it.
    Cancelled,
}

impl JobStatus {
    /// All statuses.
    pub const ALL: [Self; 5] =
        [Self::Submitted, Self::InProgress, Self::Completed, Self::Failed, Self::Cancelled];

    /// The word in SQL and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "SUBMITTED",
            Self::InProgress => "IN_PROGRESS",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether the job has come to an end that only a person can change.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// What a dead chunk does to the rest of its job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// The job is FAILED at once; chunks that have not started are held.
    #[default]
    Stop,
    /// The others go on; the job is FAILED when all are settled.
    Continue,
}

impl OnFailure {
    /// The word in SQL and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Continue => "continue",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Stop, Self::Continue].into_iter().find(|word| word.as_str() == text)
    }
}

/// What a job does whose parent came to a bad end: FAILED or CANCELLED.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnParentFailure {
    /// It waits until the parent completes after all.
    #[default]
    Hold,
    /// It is CANCELLED.
    Cancel,
    /// It runs all the same.
    Run,
    /// It is FAILED.
    Fail,
}

impl OnParentFailure {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::Hold, Self::Cancel, Self::Run, Self::Fail];

    /// The word in SQL and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Cancel => "cancel",
            Self::Run => "run",
            Self::Fail => "fail",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.as_str() == text)
    }
}

/// A client's name for one logical request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// Unique per owner while it is held.
    pub key: String,
    /// SHA-256 of the validated request with defaults filled in, in hex.
    pub request_hash: String,
}

/// A job to be stored, with all its chunks, in one transaction. `Debug` shows no payload.
#[derive(Clone)]
pub struct NewJob {
    /// Its id, made by the submitter.
    pub job_id: JobId,
    /// `EXPORT`, or the name of a custom job type.
    pub job_type: String,
    /// The dataset of an export.
    pub dataset: Option<String>,
    /// Who asked.
    pub owner: String,
    /// The client's key, if it sent one.
    pub idempotency: Option<Idempotency>,
    /// While a job of the same type with the same key is SUBMITTED or IN_PROGRESS, no second is stored.
    pub unique_key: Option<String>,
    /// The validated request as it was understood, for audit; without the payload of a custom job.
    pub request: Json,
    /// What every chunk's handler gets of the request. Read with every claim, so small for jobs of many
    /// chunks; the payload of a custom job, which has one.
    pub params: Json,
    /// 0–9, higher first.
    pub priority: u8,
    /// What a dead chunk does to the rest.
    pub on_failure: OnFailure,
    /// Free text for the client's own use.
    pub labels: BTreeMap<String, String>,
    /// The jobs that must end before this one may start; each once.
    pub parents: Vec<JobId>,
    /// What happens when one of them comes to a bad end.
    pub on_parent_failure: OnParentFailure,
    /// Not before this moment; a past one means now.
    pub run_at: Option<DateTime<Utc>>,
    /// Where its files go, as the client sees it.
    pub base_path: Option<String>,
    /// What was kept of who asked, where callers can be told apart.
    pub identity: Option<Identity>,
    /// What its rows depend on, as a hash; empty: on nobody.
    pub scope: String,
    /// What made it where nobody asked for it, for the audit trail: `schedule <name>`, `trigger <name>`.
    pub made_by: Option<String>,
    /// The most chunks that its owner may have open, with its own; `None`: any number.
    pub quota: Option<u64>,
    /// The work; never empty.
    pub chunks: Vec<NewChunk>,
}

impl fmt::Debug for NewJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewJob")
            .field("job_id", &self.job_id)
            .field("job_type", &self.job_type)
            .field("dataset", &self.dataset)
            .field("owner", &self.owner)
            .field("priority", &self.priority)
            .field("run_at", &self.run_at)
            .field("chunks", &self.chunks.len())
            .finish_non_exhaustive()
    }
}

/// One unit of work to be stored with its job. Its position in the list decides its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewChunk {
    /// What clients call it; unique in its job.
    pub chunk_key: String,
    /// The queue it waits in, by name; must have been made by `queues_sync`.
    pub queue: String,
    /// The key of an export.
    pub key: Option<String>,
    /// The date of an export.
    pub effective_date: Option<NaiveDate>,
}

/// A job as it is now. Costs the same to read for 10 chunks and for 1,000,000.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// What clients call it.
    pub job_id: JobId,
    /// `EXPORT`, or the name of a custom job type.
    pub job_type: String,
    /// The dataset of an export.
    pub dataset: Option<String>,
    /// Who asked.
    pub owner: String,
    /// What was kept of who asked, where callers can be told apart. Never shown.
    pub identity: Option<Identity>,
    /// What its rows depend on, as a hash; empty: on nobody.
    pub scope: String,
    /// Where it stands.
    pub status: JobStatus,
    /// What a dead chunk does to the rest.
    pub on_failure: OnFailure,
    /// 0–9, higher first.
    pub priority: u8,
    /// Free text for the client's own use.
    pub labels: BTreeMap<String, String>,
    /// Where its files go.
    pub base_path: Option<String>,
    /// Why it failed, in a sentence.
    pub error_message: Option<String>,
    /// What a custom job left for its client. Not in lists: it may be large.
    pub result: Option<Json>,
    /// Chunk counts.
    pub counts: Counts,
    /// What its unsettled chunks have done so far.
    pub moving: Moving,
    /// Rises with every change of the job's row.
    pub version: i64,
    /// Rises with every change of the job as it is shown, also with claims and progress, which do not write the
    /// job's row.
    pub shown_version: i64,
    /// Not before this moment.
    pub run_at: Option<DateTime<Utc>>,
    /// When it was submitted.
    pub created_at: DateTime<Utc>,
    /// When something last changed.
    pub updated_at: DateTime<Utc>,
    /// When the first chunk started.
    pub started_at: Option<DateTime<Utc>>,
    /// When the last chunk settled.
    pub completed_at: Option<DateTime<Utc>>,
}

/// A job's chunks by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All chunks.
    pub total: i64,
    /// Owned by a worker right now.
    pub running: i64,
    /// Finished.
    pub done: i64,
    /// Failed for good.
    pub failed: i64,
    /// Cancelled.
    pub cancelled: i64,
    /// Of the finished ones, those answered by a file that was already there.
    pub reused: i64,
    /// Rows in the files of finished chunks.
    pub rows: i64,
    /// Bytes in the files of finished chunks.
    pub bytes: i64,
}

impl Counts {
    /// What is neither running nor settled.
    pub fn pending(&self) -> i64 {
        (self.total - self.running - self.done - self.failed - self.cancelled).max(0)
    }

    /// The part of the whole that is behind us, 0 to 1, with what runs in it. 1 only when all is settled.
    pub fn progress(&self, moving: &Moving) -> f64 {
        if self.total == 0 {
            return 0.0;
        }
        let settled = self.done + self.failed + self.cancelled;
        if settled >= self.total {
            return 1.0;
        }
        ((settled as f64 + moving.chunks) / self.total as f64).clamp(0.0, 0.999_999)
    }
}

/// A chunk as clients may see it, with its internal id for paging.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkRow {
    /// Internal key.
    pub id: ChunkId,
    /// What clients call it.
    pub chunk_key: String,
    /// The key of an export.
    pub key: Option<String>,
    /// The date of an export.
    pub effective_date: Option<NaiveDate>,
    /// Where it is.
    pub state: ChunkState,
    /// Its file, once it has one.
    pub file: Option<ChunkFile>,
    /// How far it is while it runs, once its worker has told.
    pub progress: Option<ChunkProgress>,
    /// The last failure, in a sentence.
    pub error_message: Option<String>,
    /// When it first ran.
    pub started_at: Option<DateTime<Utc>>,
    /// When it settled.
    pub completed_at: Option<DateTime<Utc>>,
}

/// The file that a finished chunk produced or reused, as recorded then.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkFile {
    /// Full key in the storage.
    pub path: String,
    /// Rows, without the header.
    pub rows: i64,
    /// Size in bytes.
    pub bytes: i64,
    /// Checksum in hex.
    pub sha256: String,
    /// The storage's ETag, where it has one.
    pub etag: Option<String>,
    /// `CSV` and the like.
    pub format: String,
    /// Whether it was there already.
    pub reused: bool,
    /// Why it was reused or generated.
    pub reason: String,
    /// When it was generated.
    pub generated_at: DateTime<Utc>,
    /// Which generation of its identity it is.
    pub generation: i64,
}
