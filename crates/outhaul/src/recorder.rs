//! Writes outcomes down, in batches without artificial delay: whatever became ready while the last
//! flush was in flight goes into the next one. A chunk leaves `Owned` here and nowhere else.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use outhaul_core::delivery::Delivery;
use outhaul_core::fault;
use outhaul_core::file::FileOutcome;
use outhaul_core::id::Lease;
use outhaul_core::retry::{LONGEST_WAIT, Verdict};
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Store, StoreError, StoreResult};
use outhaul_core::vitals::Part;
use outhaul_core::worker::{ClaimedChunk, Failure, Finish};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::context::Stop;
use crate::duty::Outage;
use crate::handler::Cause;
use crate::owned::{Owned, OwnedChunk};

/// The most outcomes in one statement.
const BATCH: usize = 500;
/// When a chunk that may not be given back any more is looked at again.
const LATER: Duration = Duration::from_secs(1);
/// Why chunks lose their leases when the recorder has ended.
const NOBODY_RECORDS: &str = "the recorder ended, so that nobody records its outcome";
/// The longest cause that is stored.
const CAUSE_CHARS: usize = 500;

/// What to record of an attempt.
#[expect(clippy::large_enum_variant, reason = "one per attempt; a box would cost more than the copy")]
#[derive(Debug)]
pub(crate) enum Write {
    /// SUCCESS, with its file.
    Finish { file: Option<FileOutcome>, reason: String, result: Option<String> },
    /// RETRY or DEAD, as its policy says.
    Fail { cause: Cause, fatal: bool },
    /// CANCELLED.
    Cancel,
    /// QUEUED again, uncounted; `stopping`: because the process stops.
    Return { stopping: bool },
    /// CREATED for a while, uncounted.
    Snooze(Duration),
    /// The handler says that it was stopped, and nobody here told it: find out.
    Unexplained,
    /// Nothing: the lease is lost.
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Finish,
    Fail,
    Cancel,
    Return,
    Snooze,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Finish => "success",
            Self::Fail => "failure",
            Self::Cancel => "cancelled",
            Self::Return => "returned",
            Self::Snooze => "snoozed",
        }
    }
}

struct Entry {
    chunk: Arc<OwnedChunk>,
    write: Write,
}

/// Where ended attempts are handed in.
#[derive(Clone)]
pub(crate) struct Recorder {
    entries: mpsc::UnboundedSender<Entry>,
    owned: Arc<Owned>,
}

impl Recorder {
    /// Starts the task that writes; it ends when the last handle is gone and all is written.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        delivery: Arc<dyn Delivery>,
        owned: Arc<Owned>,
        lookout: Arc<Notify>,
        part: Part,
    ) -> (Self, JoinHandle<()>) {
        // As many entries as chunks are owned, at most.
        let (entries, handed_in) = mpsc::unbounded_channel();
        let flusher = Flusher { store, delivery, owned: owned.clone() };
        let unrecorded = Unrecorded { owned: owned.clone(), part };
        let task = tokio::spawn(async move {
            let _unrecorded = unrecorded;
            // Moved here so that it is dropped before `_unrecorded`: a later `send` then fails, and `send` itself gives
            // the chunk up.
            let mut waiting = handed_in;
            let mut batch = Vec::with_capacity(BATCH);
            while waiting.recv_many(&mut batch, BATCH).await > 0 {
                flusher.flush(std::mem::take(&mut batch)).await;
                // A job may have ended that others wait for, or a chunk may have got a time to run again.
                lookout.notify_one();
            }
        });
        (Self { entries, owned }, task)
    }

    /// Hands in how an attempt ended.
    pub(crate) fn send(&self, chunk: Arc<OwnedChunk>, write: Write) {
        self.owned.ended(&chunk);
        if let Err(mpsc::error::SendError(entry)) = self.entries.send(Entry { chunk, write }) {
            entry.chunk.lose(NOBODY_RECORDS);
            self.owned.remove(entry.chunk.lease());
        }
    }
}

/// Held by the recorder's task. When the task ends, nobody records outcomes any more, so all owned chunks lose their
/// leases, and other workers run them again. When the process stops in good order, no chunk is left by then.
struct Unrecorded {
    owned: Arc<Owned>,
    #[expect(dead_code, reason = "held for its end, which comes last")]
    part: Part,
}

impl Drop for Unrecorded {
    fn drop(&mut self) {
        for chunk in self.owned.all() {
            chunk.lose(NOBODY_RECORDS);
            if chunk.is_recording() {
                self.owned.remove(chunk.lease());
            }
        }
    }
}

struct Flusher {
    store: Arc<dyn Store>,
    delivery: Arc<dyn Delivery>,
    owned: Arc<Owned>,
}

impl Flusher {
    async fn flush(&self, batch: Vec<Entry>) {
        fault::point("recorder");
        let (mut finishes, mut failures, mut cancels, mut returns) = (vec![], vec![], vec![], vec![]);
        for mut entry in batch {
            if matches!(entry.write, Write::Unexplained) {
                entry.write = self.explain(entry.chunk.lease()).await;
            }
            match entry.write {
                Write::Finish { .. } => finishes.push(entry),
                Write::Fail { .. } => failures.push(entry),
                Write::Cancel => cancels.push(entry),
                Write::Return { .. } => returns.push(entry),
                Write::Snooze(_) => self.write(Kind::Snooze, vec![entry]).await,
                Write::Nothing | Write::Unexplained => self.discard(&entry.chunk, false),
            }
        }
        self.write(Kind::Finish, finishes).await;
        self.write(Kind::Fail, failures).await;
        self.write(Kind::Cancel, cancels).await;
        self.write(Kind::Return, returns).await;
    }

    /// Why the store told a handler to stop. The guarded write that follows settles it.
    async fn explain(&self, lease: Lease) -> Write {
        match self.store.chunks_cancelled(&[lease]).await {
            Ok(cancelled) if cancelled.contains(&lease) => Write::Cancel,
            _ => Write::Fail { cause: "stopped before it could record its outcome".into(), fatal: false },
        }
    }

    /// Writes entries of one kind in one statement, for as long as their leases live.
    async fn write(&self, kind: Kind, mut entries: Vec<Entry>) {
        let mut outage = Outage::new("recording of outcomes");
        let mut unsure = false;
        loop {
            entries.retain(|entry| {
                let lost = entry.chunk.told() == Some(Stop::LeaseLost);
                if lost {
                    self.discard(&entry.chunk, unsure);
                }
                !lost
            });
            if entries.is_empty() {
                return;
            }
            match self.send(kind, &entries).await {
                Ok(written) => {
                    outage.over();
                    return self.settle(kind, entries, &written.into_iter().collect(), unsure).await;
                }
                Err(failure @ StoreError::Unavailable(_)) => {
                    unsure = true;
                    tokio::time::sleep(outage.failed(&failure)).await;
                }
                Err(failure) => return self.one_by_one(kind, entries, &failure).await,
            }
        }
    }

    async fn send(&self, kind: Kind, entries: &[Entry]) -> StoreResult<Vec<Lease>> {
        let leases = || entries.iter().map(|entry| entry.chunk.lease()).collect::<Vec<_>>();
        match kind {
            Kind::Finish => {
                let finishes: Vec<Finish> = entries.iter().filter_map(finish).collect();
                self.store.chunks_finish(&finishes).await
            }
            Kind::Fail => {
                let failures: Vec<Failure> = entries.iter().filter_map(failure).collect();
                let settled = self.store.chunks_fail(&failures).await?;
                for dead in settled.iter().filter(|settled| settled.state == ChunkState::Dead) {
                    entries.iter().filter(|entry| entry.chunk.lease() == dead.lease).for_each(tell_of_death);
                }
                Ok(settled.into_iter().map(|settled| settled.lease).collect())
            }
            Kind::Cancel => self.store.chunks_cancel(&leases()).await,
            Kind::Return => self.store.chunks_return(&leases()).await,
            Kind::Snooze => {
                let mut written = Vec::new();
                for entry in entries {
                    let wait = if let Write::Snooze(wait) = entry.write { wait } else { LATER };
                    if self.store.chunk_snooze(entry.chunk.lease(), wait).await? {
                        written.push(entry.chunk.lease());
                    }
                }
                Ok(written)
            }
        }
    }

    /// Lets go of what was written, and deals with what was not.
    async fn settle(&self, kind: Kind, entries: Vec<Entry>, written: &HashSet<Lease>, unsure: bool) {
        let (mut recorded, mut refused) = (Vec::new(), Vec::new());
        for entry in entries {
            if written.contains(&entry.chunk.lease()) {
                count(kind, &entry.chunk);
                recorded.push(entry.chunk.lease());
            } else if kind == Kind::Return {
                // Lost, or given back too often: a guarded write finds out which.
                refused.push(entry);
            } else {
                self.discard(&entry.chunk, unsure);
            }
        }
        self.owned.remove_all(&recorded);
        if kind == Kind::Return {
            if !written.is_empty() {
                self.delivery.announce();
            }
            for Entry { chunk, write } in refused {
                let (kind, write) = match write {
                    Write::Return { stopping: false } => (Kind::Snooze, Write::Snooze(LATER)),
                    _ => (Kind::Fail, Write::Fail { cause: "the worker was stopped".into(), fatal: false }),
                };
                Box::pin(self.write(kind, vec![Entry { chunk, write }])).await;
            }
        }
    }

    /// The statement was refused for all: find the entry that is to blame, and let it fail its own attempt.
    async fn one_by_one(&self, kind: Kind, mut entries: Vec<Entry>, failure: &StoreError) {
        if entries.len() > 1 {
            warn!(error = %failure, "a batch of outcomes was refused: recording them one by one");
            for entry in entries {
                Box::pin(self.write(kind, vec![entry])).await;
            }
            return;
        }
        let Some(Entry { chunk, write }) = entries.pop() else { return };
        let (job_id, chunk_key) = (&chunk.chunk.job_id, &chunk.chunk.chunk_key);
        error!(%job_id, %chunk_key, error = %failure, "the outcome of job {job_id} {chunk_key} was refused");
        const CAUSE: &str = "its outcome could not be recorded";
        let fatal = matches!(write, Write::Fail { fatal: true, .. });
        if matches!(&write, Write::Fail { cause, .. } if cause.text == CAUSE) {
            // Nothing more can be written; the reaper moves it on when its lease has run out.
            return self.owned.remove(chunk.lease());
        }
        let write = Write::Fail { cause: CAUSE.into(), fatal };
        Box::pin(self.write(Kind::Fail, vec![Entry { chunk, write }])).await;
    }

    fn discard(&self, owned: &OwnedChunk, unsure: bool) {
        let (job_id, chunk_key) = (&owned.chunk.job_id, &owned.chunk.chunk_key);
        let fence = owned.chunk.lease.fence;
        if unsure {
            info!(%job_id, %chunk_key, fence,
                "job {job_id} {chunk_key} fence {fence}: recorded by a try whose answer was lost, or lease lost");
        } else {
            warn!(%job_id, %chunk_key, fence,
                "lease lost: outcome discarded (job {job_id} {chunk_key} fence {fence})");
            // Counted once: the keeper counts those that it told.
            if owned.told() != Some(Stop::LeaseLost) {
                metrics::counter!("outhaul_leases_lost_total").increment(1);
            }
        }
        self.owned.remove(owned.lease());
    }
}

/// Counts a recorded outcome.
fn count(kind: Kind, owned: &OwnedChunk) {
    let chunk = &owned.chunk;
    let dataset = chunk.dataset.clone().unwrap_or_default();
    metrics::counter!("outhaul_chunks_finished_total",
        "job_type" => chunk.job_type.clone(), "dataset" => dataset.clone(), "outcome" => kind.word())
    .increment(1);
    metrics::histogram!("outhaul_chunk_seconds",
        "job_type" => chunk.job_type.clone(), "dataset" => dataset, "outcome" => kind.word())
    .record(owned.pulse.age().as_secs_f64());
}

/// A person has to look at it, so the log says so once.
fn tell_of_death(entry: &Entry) {
    let Write::Fail { cause, .. } = &entry.write else { return };
    let ClaimedChunk { job_id, job_type, chunk_key, attempt, .. } = &entry.chunk.chunk;
    let (step, cause) = (cause.step.as_deref().unwrap_or_default(), clean(cause.for_operators()));
    warn!(%job_id, job_type, chunk_key, attempt, step, cause, "job {job_id} {chunk_key} failed for good: {cause}");
}

fn finish(entry: &Entry) -> Option<Finish> {
    let Write::Finish { file, reason, result } = &entry.write else { return None };
    let chunk = &entry.chunk.chunk;
    Some(Finish {
        lease: chunk.lease,
        claimed_at: chunk.claimed_at,
        file: file.clone(),
        reason: reason.clone(),
        result: result.clone(),
    })
}

fn failure(entry: &Entry) -> Option<Failure> {
    let Write::Fail { cause, fatal } = &entry.write else { return None };
    let chunk = &entry.chunk.chunk;
    let retry_in = match entry.chunk.retry().judge(chunk.attempt, *fatal, rand::random()) {
        Verdict::Retry(wait) => Some(wait.max(cause.retry_in.unwrap_or_default()).min(LONGEST_WAIT)),
        Verdict::Dead => None,
    };
    Some(recordable(chunk.lease, cause, retry_in))
}

/// A failure as it is stored.
pub(crate) fn recordable(lease: Lease, cause: &Cause, retry_in: Option<Duration>) -> Failure {
    let detail = cause.detail.as_deref().map(clean);
    Failure { lease, expired: false, retry_in, cause: clean(&cause.text), step: cause.step.clone(), detail }
}

/// A cause that every database takes: no control characters (PostgreSQL refuses NUL), not endless.
fn clean(cause: &str) -> String {
    cause.chars().map(|c| if c.is_control() { ' ' } else { c }).take(CAUSE_CHARS).collect()
}
