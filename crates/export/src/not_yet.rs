//! Chunks that this worker cannot run yet, because its configuration differs from that of the process that accepted
//! the job: a change is being rolled out. The worker puts such a chunk back for other workers without counting the
//! attempt, as it does with unknown job types. A chunk that has waited too long fails for good.
//!
//! Only this process remembers when a chunk was first put back. A restarted worker has a new configuration, so the wait
//! starts again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use outhaul::{ChunkContext, Failed, Outcome};
use outhaul_core::duration;
use outhaul_core::id::ChunkId;

/// Why a chunk is not run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Another worker may be able to run it.
    NotYet(String),
    /// No worker can run it.
    Failed(Failed),
}

impl From<Failed> for Unfit {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

/// How long a chunk may wait for a worker that can run it.
const PATIENCE: Duration = Duration::from_secs(3600);
/// The shortest and the longest time between two looks at one chunk.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(120));
/// How many chunks are remembered. Chunks beyond this number are put back too, but never fail for having waited.
const MOST: usize = 10_000;

/// The chunks that this process has put back.
#[derive(Debug)]
pub(crate) struct NotYet {
    patience: Duration,
    met: Mutex<HashMap<ChunkId, Met>>,
}

#[derive(Clone, Copy, Debug)]
struct Met {
    first: DateTime<Utc>,
    last: DateTime<Utc>,
}

impl Default for NotYet {
    fn default() -> Self {
        Self::with_patience(PATIENCE)
    }
}

impl NotYet {
    pub(crate) fn with_patience(patience: Duration) -> Self {
        Self { patience, met: Mutex::default() }
    }

    /// Puts a chunk back, for longer each time; or fails it for good, when it has waited too long.
    pub(crate) fn put_back(&self, context: &ChunkContext, cause: String) -> Result<Outcome, Failed> {
        let chunk = context.chunk();
        let waited = self.waited(chunk.lease.chunk, chunk.claimed_at);
        if waited.is_none() {
            let job_id = &chunk.job_id;
            tracing::warn!(%job_id, "job {job_id}: {cause}: leaving it for others");
        }
        match waited {
            Some(waited) if waited >= self.patience => {
                let patience = duration::short(self.patience);
                Err(Failed::Fatal(format!("{cause}, and no other worker took it for {patience}").into()))
            }
            _ => Ok(Outcome::Snooze((waited.unwrap_or_default() / 2).clamp(WAITS.0, WAITS.1))),
        }
    }

    /// How long ago a chunk was first met; `None`: it is met for the first time.
    fn waited(&self, chunk: ChunkId, now: DateTime<Utc>) -> Option<Duration> {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = met.get_mut(&chunk) {
            known.last = now;
            let waited = (now - known.first).to_std().unwrap_or_default();
            if waited >= self.patience {
                // The chunk fails now. If it is redriven, its wait starts again.
                met.remove(&chunk);
            }
            return Some(waited);
        }
        if met.len() >= MOST {
            // Chunks that were not met for so long have run elsewhere.
            met.retain(|_, met| (now - met.last).to_std().is_ok_and(|quiet| quiet < PATIENCE));
        }
        if met.len() >= MOST {
            return Some(Duration::ZERO);
        }
        met.insert(chunk, Met { first: now, last: now });
        // Without patience a chunk fails when it is first met.
        self.patience.is_zero().then_some(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    #[test]
    fn a_chunk_waits_from_when_it_was_first_met() {
        let not_yet = NotYet::with_patience(Duration::from_secs(3600));
        assert_eq!(not_yet.waited(ChunkId(1), at(0)), None);
        assert_eq!(not_yet.waited(ChunkId(2), at(10)), None, "each for itself");
        assert_eq!(not_yet.waited(ChunkId(1), at(60)), Some(Duration::from_secs(60)));
        assert_eq!(not_yet.waited(ChunkId(1), at(-5)), Some(Duration::ZERO), "a clock that went back");
        assert_eq!(not_yet.waited(ChunkId(1), at(3600)), Some(Duration::from_secs(3600)));
        assert_eq!(not_yet.waited(ChunkId(1), at(3700)), None, "given up, and redriven");
    }

    #[test]
    fn only_so_many_are_remembered() {
        let not_yet = NotYet::default();
        for chunk in 0..MOST as i64 {
            assert_eq!(not_yet.waited(ChunkId(chunk), at(0)), None);
        }
        assert_eq!(not_yet.waited(ChunkId(-1), at(1)), Some(Duration::ZERO), "put back, and not remembered");
        assert_eq!(not_yet.waited(ChunkId(-1), at(4000)), None, "the others have run elsewhere");
        assert_eq!(not_yet.met.lock().unwrap().len(), 1);
    }
}
