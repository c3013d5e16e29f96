//! The audit trail: who did what to which job. What a person asks for is recorded before it is done, so that
//! nothing happens unrecorded; a submission, and what is redriven of the dead letters, is recorded with its job.
//! Beside that, what decided whether a job might run for its submitter.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::id::JobId;

/// What somebody did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditAct {
    /// Submitted a job.
    Submit,
    /// Cancelled a job.
    Cancel,
    /// Ran dead and held chunks again.
    Redrive,
    /// Gave a job another priority.
    Prioritise,
    /// Downloaded a file.
    Download,
    /// Paused or resumed a queue, changed, paused, resumed or ran a schedule or a trigger.
    Operate,
    /// Was found to be still good for a job of theirs, before it ran.
    Verified,
    /// Was found to be no longer good for a job of theirs, which then did not run.
    Refused,
}

impl AuditAct {
    /// All acts.
    pub const ALL: [Self; 8] = [
        Self::Submit,
        Self::Cancel,
        Self::Redrive,
        Self::Prioritise,
        Self::Download,
        Self::Operate,
        Self::Verified,
        Self::Refused,
    ];

    /// The word in SQL and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Cancel => "cancel",
            Self::Redrive => "redrive",
            Self::Prioritise => "prioritise",
            Self::Download => "download",
            Self::Operate => "operate",
            Self::Verified => "verified",
            Self::Refused => "refused",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.as_str() == text)
    }
}

/// Something to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// The subject that did it, or that it was done to.
    pub actor: String,
    /// What it was.
    pub act: AuditAct,
    /// The job, where it was one.
    pub job_id: Option<JobId>,
    /// More about it: a file's path, a queue's name, a filter. Never a payload, never a secret.
    pub detail: Option<String>,
}

/// Something that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its place in the trail.
    pub id: i64,
    /// When, by the database's clock.
    pub at: DateTime<Utc>,
    /// What.
    pub entry: AuditEntry,
}

/// Which part of the trail is meant; what is `None` says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only what this subject did.
    pub actor: Option<String>,
    /// Only what was done to this job.
    pub job_id: Option<JobId>,
    /// Only this act.
    pub act: Option<AuditAct>,
}
