//! What the store in memory holds, and the one rule of every write: who does not own a chunk changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use outhaul::core::id::*;
use outhaul::core::progress::Progress;
use outhaul::core::queue::QueueSpec;
use outhaul::core::state::{self, Chunk, ChunkState, Event};
use outhaul::core::step::*;

/// One chunk of one job of its own.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) job_type: String,
    pub(crate) queue: QueueId,
    pub(crate) chunk: Chunk,
    pub(crate) expires: Instant,
    pub(crate) due: Instant,
    pub(crate) cause: String,
    pub(crate) job_cancelled: bool,
}

#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) chunks: Vec<Row>,
    pub(crate) queues: Vec<QueueSpec>,
    /// Who holds which slot.
    pub(crate) slots: BTreeMap<(i64, i32), i64>,
    pub(crate) workers: BTreeSet<i64>,
    /// Every accepted write by an owner: verb and lease.
    pub(crate) writes: Vec<(&'static str, Lease)>,
    pub(crate) hints: u32,
    /// Recorded steps of each chunk, in their order, with the fence of who recorded them.
    pub(crate) steps: Vec<(ChunkId, i64, StepRecord)>,
    /// The chunks that each accepted call for progress named, and what was taken of them.
    pub(crate) progress_calls: Vec<Vec<Lease>>,
    pub(crate) progress: Vec<Progress>,
    /// How many chunks each claim got, if any.
    pub(crate) claims: Vec<usize>,
    /// How often the queues were looked at, and the chunk keys of every claim by name.
    pub(crate) looks: usize,
    pub(crate) named: Vec<Vec<String>>,
    /// Queues that are paused.
    pub(crate) paused: BTreeSet<i64>,
    /// What is to be announced again, and when.
    pub(crate) deferred: Vec<(ChunkId, Duration)>,
    /// The most chunks that were RUNNING at once: of each queue, and of all.
    pub(crate) most_running: BTreeMap<i64, usize>,
    pub(crate) most_running_of_all: usize,
    pub(super) next_worker: i64,
}

impl Rows {
    pub(crate) fn row(&self, key: &str) -> &Row {
        self.chunks.iter().find(|row| row.key == key).expect("the test added this chunk")
    }

    /// Notes how many are RUNNING.
    pub(super) fn count_running(&mut self) {
        let mut counts = BTreeMap::new();
        for row in self.chunks.iter().filter(|row| row.chunk.state == ChunkState::Running) {
            *counts.entry(row.queue.0).or_insert(0) += 1;
        }
        self.most_running_of_all = self.most_running_of_all.max(counts.values().sum());
        for (queue, count) in counts {
            let most = self.most_running.entry(queue).or_insert(0);
            *most = count.max(*most);
        }
    }

    pub(crate) fn state(&self, key: &str) -> ChunkState {
        self.row(key).chunk.state
    }

    pub(super) fn owned(&mut self, lease: Lease) -> Option<&mut Row> {
        let row = self.chunks.get_mut(usize::try_from(lease.chunk.0).ok()?)?;
        (row.chunk.fence == lease.fence && row.chunk.state == ChunkState::Running).then_some(row)
    }

    pub(super) fn apply(&mut self, verb: &'static str, lease: Lease, event: Event) -> Option<ChunkState> {
        let row = self.owned(lease)?;
        row.chunk = state::apply(row.chunk, event).ok()?;
        let state = row.chunk.state;
        self.writes.push((verb, lease));
        Some(state)
    }
}
