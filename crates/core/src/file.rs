//! Files: what was published, under which identity, and who may write it next.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};

use crate::id::{ChunkId, JobId, Lease};
use crate::reuse::Reuse;

/// What makes two requests ask for the same file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileIdentity {
    /// The dataset's name.
    pub dataset: String,
    /// Hash of what the caller may see; empty where rows do not depend on the caller.
    pub scope: String,
    /// The client's key.
    pub key: String,
    /// The date.
    pub effective_date: NaiveDate,
    /// Hash of output options other than the defaults; empty for the defaults.
    pub variant: String,
}

/// The published file of an identity, as `file_cache` records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
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
    /// Hash of the dataset's definition it was made by.
    pub definition: String,
    /// 1 for the first file, one more for every one that replaced it.
    pub generation: i64,
    /// When it was recorded.
    pub generated_at: DateTime<Utc>,
    /// When the chunk that made it was claimed.
    pub claimed_at: DateTime<Utc>,
    /// The job that made it.
    pub job_id: JobId,
}

/// Where the file of an identity goes under the present configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePlace {
    /// The dataset's base path; ends with `/` or is empty. It belongs to the first dataset that publishes there.
    pub base_path: String,
    /// Full key in the storage.
    pub path: String,
}

/// A base path, and the dataset that alone may publish there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasePathOwner {
    /// Ends with `/` or is empty.
    pub path: String,
    /// The dataset's name.
    pub dataset: String,
}

/// A chunk's wish to answer for an identity.
#[derive(Clone, Debug)]
pub struct FileBegin {
    /// The claim it acts under.
    pub lease: Lease,
    /// The identity.
    pub identity: FileIdentity,
    /// Where the identity's file goes now; files at another path are not reused.
    pub place: FilePlace,
    /// Hash of the dataset's present definition; files of another are not reused.
    pub definition: String,
    /// What the dates allow.
    pub reuse: Reuse,
}

impl FileBegin {
    /// Whether a recorded file can be reused: it is at the present path, was made by the present definition, and is
    /// recent enough for its dates.
    pub fn may_reuse(&self, record: &FileRecord) -> bool {
        record.path == self.place.path
            && record.definition == self.definition
            && match self.reuse {
                Reuse::Any => true,
                Reuse::ClaimedAfter(moment) => record.claimed_at > moment,
                Reuse::Never => false,
            }
    }
}

/// The answer to [`FileBegin`].
#[derive(Clone, Debug, PartialEq)]
pub enum FileBegun {
    /// This recorded file may be reused, if it is really there.
    Reusable(FileRecord),
    /// The chunk is now the one writer of the identity.
    Write(WriteGrant),
    /// Another running chunk writes it; come back later.
    Busy,
    /// The base path belongs to this other dataset: nothing may be published there.
    Foreign(String),
    /// The chunk is no longer owned under this lease.
    LeaseLost,
}

/// What a writer must know before it publishes.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteGrant {
    /// The file that is published now, if any.
    pub recorded: Option<FileRecord>,
    /// What the previous writer left; to be removed first, so that its late publish fails.
    pub leftover: Option<Leftover>,
}

/// Staged output of a writer that never finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Internal key of the identity.
    pub file: i64,
    /// The claim that staged it.
    pub lease: Lease,
    /// Its multipart upload, if it began one.
    pub upload: Option<Upload>,
}

/// An identity whose last writer ended without recording a file. The writer may still have published one, if it was
/// killed after publishing, or if its lease ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// What the writer staged.
    pub leftover: Leftover,
    /// The file that is recorded. If the writer published, the storage holds another file by now.
    pub recorded: Option<FileRecord>,
}

/// A multipart upload that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// The key it would complete to.
    pub path: String,
    /// The storage's id for it.
    pub upload_id: String,
}

/// A file newly published by a chunk, to be recorded with its SUCCESS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedFile {
    /// The identity the chunk is the writer of.
    pub identity: FileIdentity,
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
    /// Hash of the dataset's definition it was made by.
    pub definition: String,
}

/// How a chunk of an export was answered.
#[derive(Clone, Debug, PartialEq)]
pub enum FileOutcome {
    /// A new file was published.
    Generated(PublishedFile),
    /// A recorded file was reused.
    Reused {
        /// The identity that both stand for.
        identity: FileIdentity,
        /// The file as it was recorded.
        record: FileRecord,
    },
}

/// One row of a job's manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestRow {
    /// Internal key of the chunk it belongs to, and so of the row.
    pub id: ChunkId,
    /// The client's key.
    pub key: Option<String>,
    /// The date.
    pub effective_date: Option<NaiveDate>,
    /// The file as it was recorded for this job.
    pub file: crate::job::ChunkFile,
    /// Whether the storage still holds these bytes: this generation, or a later one with the same bytes. Path and
    /// ETag of `file` are then those of the generation that is there now.
    pub current: bool,
    /// The job whose file the storage holds now; `None` if that file was never recorded.
    pub current_job: Option<JobId>,
}
