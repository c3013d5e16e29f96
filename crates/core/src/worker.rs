//! Workers: processes that run chunks, and what passes between one and the store.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};

use crate::file::FileOutcome;
use crate::id::{JobId, Lease, QueueId, WorkerId};
use crate::json::Json;
use crate::state::ChunkState;

/// A process that makes itself known.
#[derive(Clone, Debug)]
pub struct NewWorker {
    /// The machine's name, for people.
    pub host: String,
    /// The roles it runs, comma-separated, for people.
    pub roles: String,
    /// How many chunks it may run at once.
    pub concurrency: u32,
}

/// A process as it is known.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerRow {
    /// Its identity, of this one start.
    pub id: WorkerId,
    /// The machine's name.
    pub host: String,
    /// Its roles.
    pub roles: String,
    /// How many chunks it may run at once.
    pub concurrency: u32,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// Its last heartbeat.
    pub last_seen_at: DateTime<Utc>,
    /// Chunks it owns, by queue name.
    pub running: Vec<(String, i64)>,
}

/// A budget slot that a worker holds: the right to run one chunk of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The queue.
    pub queue: QueueId,
    /// Which of its slots, from 0.
    pub number: i32,
}

/// How many chunks a worker wants of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// The queue.
    pub queue: QueueId,
    /// At most this many.
    pub limit: u32,
}

/// A chunk that a worker now owns. `Debug` shows no payload.
#[derive(Clone, PartialEq)]
pub struct ClaimedChunk {
    /// The key to every further write.
    pub lease: Lease,
    /// The queue it came from.
    pub queue: QueueId,
    /// Its job.
    pub job_id: JobId,
    /// Its job's type.
    pub job_type: String,
    /// Its job's dataset.
    pub dataset: Option<String>,
    /// Who asked for it.
    pub owner: String,
    /// The small part of the request.
    pub params: Json,
    /// What clients call it.
    pub chunk_key: String,
    /// The key of an export.
    pub key: Option<String>,
    /// The date of an export.
    pub effective_date: Option<NaiveDate>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Leases lost in a row; at [`crate::state::LOST_LEASES_TO_ISOLATE`] it must run alone.
    pub lost: u32,
    /// When its job was submitted.
    pub submitted_at: DateTime<Utc>,
    /// When this claim was made, by the database's clock.
    pub claimed_at: DateTime<Utc>,
}

impl fmt::Debug for ClaimedChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimedChunk")
            .field("lease", &self.lease)
            .field("queue", &self.queue)
            .field("job_id", &self.job_id)
            .field("job_type", &self.job_type)
            .field("chunk_key", &self.chunk_key)
            .field("attempt", &self.attempt)
            .field("lost", &self.lost)
            .field("claimed_at", &self.claimed_at)
            .finish_non_exhaustive()
    }
}

/// What one heartbeat found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// Leases that were renewed; what was asked for and is not here is lost (or was busy: ask again at once).
    pub renewed: Vec<Lease>,
    /// Slots that were renewed.
    pub slots: Vec<Slot>,
    /// Rows that another transaction had locked; neither renewed nor lost.
    pub skipped: Vec<Lease>,
}

/// A chunk's success, to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    /// The claim.
    pub lease: Lease,
    /// When the claim was made.
    pub claimed_at: DateTime<Utc>,
    /// Its file, for chunks that have one.
    pub file: Option<FileOutcome>,
    /// Why the file was reused or generated.
    pub reason: String,
    /// What a custom job leaves for its client, as JSON text.
    pub result: Option<String>,
}

/// A chunk's failure, to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The claim.
    pub lease: Lease,
    /// Whether the lease ran out, rather than the owner reporting; then the store checks that it really did.
    pub expired: bool,
    /// Try again after this; `None`: give up.
    pub retry_in: Option<Duration>,
    /// A short human cause, never a stack trace or a secret. Everybody who may see the job can read it.
    pub cause: String,
    /// The step that failed, for custom jobs.
    pub step: Option<String>,
    /// The cause for operators (dead letters, history, parking messages), if it says more than `cause`: addresses,
    /// file paths, settings.
    pub detail: Option<String>,
}

/// A RUNNING chunk whose lease ran out.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpiredChunk {
    /// The claim that is over.
    pub lease: Lease,
    /// Its job's type.
    pub job_type: String,
    /// Its job's dataset.
    pub dataset: Option<String>,
    /// Which attempt it was.
    pub attempt: u32,
    /// Whether its job was cancelled meanwhile.
    pub cancelled: bool,
    /// How long ago the lease ran out.
    pub overdue: Duration,
}

/// What became of a chunk that was written; `None` in a list means the lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The chunk.
    pub lease: Lease,
    /// Its state now.
    pub state: ChunkState,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ChunkId;

    #[test]
    fn a_claimed_chunk_shows_nothing_of_its_payload() {
        let chunk = ClaimedChunk {
            lease: Lease { chunk: ChunkId(1), fence: 1 },
            queue: QueueId(1),
            job_id: JobId::new(DateTime::UNIX_EPOCH, 1),
            job_type: "SEND_EMAIL".to_owned(),
            dataset: None,
            owner: "anonymous".to_owned(),
            params: serde_json::json!({ "password": "hunter2" }).into(),
            chunk_key: "main".to_owned(),
            key: None,
            effective_date: None,
            attempt: 1,
            lost: 0,
            submitted_at: DateTime::UNIX_EPOCH,
            claimed_at: DateTime::UNIX_EPOCH,
        };
        let shown = format!("{chunk:?}");
        assert!(shown.contains("SEND_EMAIL") && !shown.contains("hunter2"), "{shown}");
    }
}
