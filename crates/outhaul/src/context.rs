//! What a running chunk may know and do. Everything it writes goes through its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

use outhaul_core::file::{FileBegin, FileBegun, FileIdentity, Upload};
use outhaul_core::reuse::Reuse;
use outhaul_core::store::Store;
use outhaul_core::worker::{ClaimedChunk, Slot};
use tokio::sync::watch;

use crate::handler::Failed;

/// Why a chunk must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its job was cancelled.
    Cancelled,
    /// Its lease is lost or can no longer be proved.
    LeaseLost,
    /// The process shuts down.
    Shutdown,
    /// It took longer than it may.
    TimedOut,
    /// It made no progress for longer than it may.
    Stalled,
}

/// The side of a running chunk that its handler sees.
pub struct ChunkContext {
    chunk: ClaimedChunk,
    slot: Option<Slot>,
    slot_name: Option<String>,
    store: Arc<dyn Store>,
    stop: watch::Receiver<Option<Stop>>,
    pulse: Arc<Pulse>,
}

/// Signs of life of a running chunk, read by the lease keeper and the progress reports.
#[derive(Debug)]
pub(crate) struct Pulse {
    born: Instant,
    last_micros: AtomicI64,
    rows: AtomicI64,
    bytes: AtomicI64,
    publishing: AtomicBool,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self {
            born: Instant::now(),
            last_micros: AtomicI64::new(0),
            rows: AtomicI64::new(0),
            bytes: AtomicI64::new(0),
            publishing: AtomicBool::new(false),
        }
    }

    /// How long ago the chunk started.
    pub(crate) fn age(&self) -> std::time::Duration {
        self.born.elapsed()
    }

    /// How long ago it last made progress.
    pub(crate) fn silent_for(&self) -> std::time::Duration {
        let last = std::time::Duration::from_micros(self.last_micros.load(Ordering::Relaxed).unsigned_abs());
        self.born.elapsed().saturating_sub(last)
    }

    /// Whether publishing has begun, after which a cancellation comes too late.
    pub(crate) fn is_publishing(&self) -> bool {
        self.publishing.load(Ordering::Acquire)
    }

    /// Rows and bytes so far.
    pub(crate) fn moved(&self) -> (i64, i64) {
        (self.rows.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

impl ChunkContext {
    pub(crate) fn new(
        chunk: ClaimedChunk,
        slot: Option<Slot>,
        slot_name: Option<String>,
        store: Arc<dyn Store>,
        stop: watch::Receiver<Option<Stop>>,
        pulse: Arc<Pulse>,
    ) -> Self {
        Self { chunk, slot, slot_name, store, stop, pulse }
    }

    /// The chunk that runs.
    pub fn chunk(&self) -> &ClaimedChunk {
        &self.chunk
    }

    /// The budget slot it runs under, on queues that have a budget.
    pub fn slot(&self) -> Option<Slot> {
        self.slot
    }

    /// A name for its session on the source, the same for whoever holds the slot next:
    /// `outhaul:<installation>:<queue>:<slot>`.
    pub fn slot_name(&self) -> Option<&str> {
        self.slot_name.as_deref()
    }

    /// Whether and why to stop, without waiting.
    pub fn should_stop(&self) -> Option<Stop> {
        *self.stop.borrow()
    }

    /// Waits until the chunk must stop.
    pub async fn stopped(&self) -> Stop {
        let mut stop = self.stop.clone();
        match stop.wait_for(Option::is_some).await {
            Ok(reason) => reason.unwrap_or(Stop::Shutdown),
            // The engine is gone, and so is the lease.
            Err(_) => Stop::LeaseLost,
        }
    }

    /// Reports what was done so far; also the sign of life that `stall_timeout` watches for.
    pub fn progress(&self, rows: i64, bytes: i64) {
        self.pulse.rows.store(rows, Ordering::Relaxed);
        self.pulse.bytes.store(bytes, Ordering::Relaxed);
        let age = i64::try_from(self.pulse.born.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.pulse.last_micros.store(age, Ordering::Relaxed);
    }

    /// Finds a file to reuse, or becomes the one writer of the identity.
    pub async fn begin_file(
        &self,
        identity: FileIdentity,
        definition: String,
        reuse: Reuse,
    ) -> Result<FileBegun, Failed> {
        let begin = FileBegin { lease: self.chunk.lease, identity, definition, reuse };
        match self.store.file_begin(&begin).await {
            Ok(FileBegun::LeaseLost) => Err(Failed::Stopped),
            Ok(begun) => Ok(begun),
            Err(error) => Err(Failed::Retryable(error.to_string())),
        }
    }

    /// Records a multipart upload before its first part is sent.
    pub async fn record_upload(&self, identity: &FileIdentity, upload: &Upload) -> Result<(), Failed> {
        match self.store.file_upload(self.chunk.lease, identity, upload).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failed::Stopped),
            Err(error) => Err(Failed::Retryable(error.to_string())),
        }
    }

    /// Proves the lease right before publishing. From a `true` on, a cancellation comes too late.
    pub async fn may_publish(&self) -> Result<(), Failed> {
        // Set first: a cancellation noticed from here on waits for the store's answer.
        self.pulse.publishing.store(true, Ordering::Release);
        match self.store.chunk_may_publish(self.chunk.lease).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.pulse.publishing.store(false, Ordering::Release);
                Err(Failed::Stopped)
            }
            Err(error) => {
                self.pulse.publishing.store(false, Ordering::Release);
                Err(Failed::Retryable(error.to_string()))
            }
        }
    }
}
