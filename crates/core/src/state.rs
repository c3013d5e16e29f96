//! The state machine of a chunk as one pure function. The stores enforce the same again by guarded
//! SQL; the conformance suite compares the two.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a chunk is. Each state says who moves a chunk out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ChunkState {
    /// Stored but not eligible: waits for a time, for others, or is held. The stager moves it on.
    Created,
    /// Eligible; nobody owns it. Any worker may claim it.
    Queued,
    /// Owned by exactly one worker under a lease. The owner moves it on, or the reaper when the lease ran out.
    Running,
    /// Failed, and will be tried again after its backoff. The stager moves it on.
    Retry,
    /// Finished; its outcome is recorded. Nothing leaves this state.
    Success,
    /// Failed for good. Only a redrive moves it on.
    Dead,
    /// Its job was cancelled. Nothing leaves this state.
    Cancelled,
}

impl ChunkState {
    /// All states, in the order of a chunk's life.
    pub const ALL: [Self; 7] =
        [Self::Created, Self::Queued, Self::Running, Self::Retry, Self::Success, Self::Dead, Self::Cancelled];

    /// The word in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Queued => "QUEUED",
            Self::Running => "RUNNING",
            Self::Retry => "RETRY",
            Self::Success => "SUCCESS",
            Self::Dead => "DEAD",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// Reads the word in SQL.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// What clients see of it.
    pub fn status(self) -> ChunkStatus {
        match self {
            Self::Created | Self::Queued | Self::Retry => ChunkStatus::Pending,
            Self::Running => ChunkStatus::Running,
            Self::Success => ChunkStatus::Done,
            Self::Dead => ChunkStatus::Failed,
            Self::Cancelled => ChunkStatus::Cancelled,
        }
    }
}

impl fmt::Display for ChunkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What clients see of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ChunkStatus {
    /// Not started, or waiting to be tried again.
    Pending,
    /// A worker is on it.
    Running,
    /// Its output is available.
    Done,
    /// It failed for good.
    Failed,
    /// Its job was cancelled.
    Cancelled,
}

impl ChunkStatus {
    /// The states behind this word.
    pub fn states(self) -> Vec<ChunkState> {
        ChunkState::ALL.into_iter().filter(|state| state.status() == self).collect()
    }
}

/// What may happen to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It became eligible: its time came, nothing is left to wait for, its backoff is over.
    Stage,
    /// A worker takes it.
    Claim,
    /// Its owner finished it.
    Finish,
    /// Its owner failed and it may be tried again.
    FailRetryable,
    /// Its owner failed for good: a fatal error, or attempts are used up.
    FailFinal,
    /// Its lease ran out and it may be tried again.
    ExpireRetryable,
    /// Its lease ran out and attempts are used up.
    ExpireFinal,
    /// Its owner shuts down and gives it back.
    GiveBack,
    /// Its owner lets it sleep or wait.
    Snooze,
    /// Its job FAILED, so it must not start.
    Hold,
    /// What it waits for failed and the policy is `fail`.
    ParentFailed,
    /// Its job was cancelled.
    Cancel,
    /// A person or a resubmission wants it run after all.
    Redrive,
}

impl Event {
    /// All events.
    pub const ALL: [Self; 13] = [
        Self::Stage,
        Self::Claim,
        Self::Finish,
        Self::FailRetryable,
        Self::FailFinal,
        Self::ExpireRetryable,
        Self::ExpireFinal,
        Self::GiveBack,
        Self::Snooze,
        Self::Hold,
        Self::ParentFailed,
        Self::Cancel,
        Self::Redrive,
    ];
}

/// A chunk may be given back this often in a row without its attempt being counted.
pub const MAX_RETURNS: u32 = 3;

/// A chunk that lost this many leases in a row runs alone in its worker.
pub const LOST_LEASES_TO_ISOLATE: u32 = 2;

/// What the state machine knows of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where it is.
    pub state: ChunkState,
    /// Attempts since it was submitted or redriven.
    pub attempt: u32,
    /// Raised by every claim, never reset.
    pub fence: i64,
    /// How often in a row it was given back.
    pub returned: u32,
    /// How often in a row its lease was lost.
    pub lost: u32,
    /// Whether it is CREATED because its job failed.
    pub held: bool,
}

impl Chunk {
    /// A chunk as it is inserted.
    pub fn new(eligible: bool) -> Self {
        let state = if eligible { ChunkState::Queued } else { ChunkState::Created };
        Self { state, attempt: 0, fence: 0, returned: 0, lost: 0, held: false }
    }
}

/// The event is not possible in this state; nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} is not possible for a chunk that is {state}")]
pub struct Refused {
    /// The state that the chunk keeps.
    pub state: ChunkState,
    /// The event that was refused.
    pub event: Event,
}

/// The whole state machine: what `event` makes of `chunk`.
pub fn apply(chunk: Chunk, event: Event) -> Result<Chunk, Refused> {
    use ChunkState as S;
    use Event as E;
    let after = match (chunk.state, event) {
        (S::Created, E::Stage) if !chunk.held => Chunk { state: S::Queued, ..chunk },
        (S::Retry, E::Stage) => Chunk { state: S::Queued, ..chunk },
        (S::Queued, E::Claim) => {
            Chunk { state: S::Running, attempt: chunk.attempt + 1, fence: chunk.fence + 1, ..chunk }
        }
        (S::Running, E::Finish) => Chunk { state: S::Success, returned: 0, lost: 0, ..chunk },
        (S::Running, E::FailRetryable) => Chunk { state: S::Retry, returned: 0, lost: 0, ..chunk },
        (S::Running, E::FailFinal) => Chunk { state: S::Dead, returned: 0, lost: 0, ..chunk },
        (S::Running, E::ExpireRetryable) => {
            Chunk { state: S::Retry, returned: 0, lost: chunk.lost + 1, ..chunk }
        }
        (S::Running, E::ExpireFinal) => Chunk { state: S::Dead, returned: 0, lost: chunk.lost + 1, ..chunk },
        (S::Running, E::GiveBack) if chunk.returned < MAX_RETURNS => {
            Chunk { state: S::Queued, attempt: chunk.attempt - 1, returned: chunk.returned + 1, ..chunk }
        }
        // Lost leases stay counted: a chunk that must run alone must do so after a sleep, too.
        (S::Running, E::Snooze) => {
            Chunk { state: S::Created, attempt: chunk.attempt - 1, returned: 0, ..chunk }
        }
        (S::Queued | S::Retry, E::Hold) => Chunk { state: S::Created, held: true, ..chunk },
        (S::Created, E::Hold) if !chunk.held => Chunk { held: true, ..chunk },
        (S::Created, E::ParentFailed) => Chunk { state: S::Dead, ..chunk },
        (S::Created | S::Queued | S::Retry | S::Running, E::Cancel) => {
            Chunk { state: S::Cancelled, held: false, ..chunk }
        }
        (S::Dead, E::Redrive) => Chunk { state: S::Queued, attempt: 0, returned: 0, lost: 0, ..chunk },
        (S::Created, E::Redrive) if chunk.held => {
            Chunk { state: S::Queued, attempt: 0, returned: 0, lost: 0, held: false, ..chunk }
        }
        (state, event) => return Err(Refused { state, event }),
    };
    Ok(after)
}

#[cfg(test)]
mod tests;
