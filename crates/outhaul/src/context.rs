//! What a running chunk may know and do. Everything it writes goes through its lease.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use outhaul_core::file::{FileBegin, FileBegun, FileIdentity, Upload};
use outhaul_core::reuse::Reuse;
use outhaul_core::store::{Store, StoreResult};
use outhaul_core::worker::{ClaimedChunk, Slot};
use tokio::sync::watch;

use crate::handler::Failed;
use crate::lease::LocalLease;

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
    /// How long this process may believe in the lease.
    pub(crate) lease: LocalLease,
    /// Set when the handler starts, which may be a while after the claim.
    born: OnceLock<Instant>,
    last_micros: AtomicI64,
    rows: AtomicI64,
    bytes: AtomicI64,
    publishing: AtomicBool,
}

impl Pulse {
    pub(crate) fn new(lease: LocalLease) -> Self {
        Self {
            lease,
            born: OnceLock::new(),
            last_micros: AtomicI64::new(0),
            rows: AtomicI64::new(0),
            bytes: AtomicI64::new(0),
            publishing: AtomicBool::new(false),
        }
    }

    /// The handler starts now.
    pub(crate) fn start(&self) {
        self.born.get_or_init(Instant::now);
    }

    /// How long ago the chunk started.
    pub(crate) fn age(&self) -> Duration {
        self.born.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// How long ago it last made progress.
    pub(crate) fn silent_for(&self) -> Duration {
        let last = Duration::from_micros(self.last_micros.load(Ordering::Relaxed).unsigned_abs());
        self.age().saturating_sub(last)
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
        let told = *self.stop.borrow();
        // After a pause of the whole process the keeper may not have looked yet; the clock has.
        if self.pulse.lease.is_over() { Some(Stop::LeaseLost) } else { told }
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
        let age = i64::try_from(self.pulse.age().as_micros()).unwrap_or(i64::MAX);
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
        let store = self.store.clone();
        match unbroken(async move { store.file_begin(&begin).await }).await? {
            FileBegun::LeaseLost => Err(Failed::Stopped),
            begun => Ok(begun),
        }
    }

    /// Records a multipart upload before its first part is sent.
    pub async fn record_upload(&self, identity: &FileIdentity, upload: &Upload) -> Result<(), Failed> {
        let (store, lease) = (self.store.clone(), self.chunk.lease);
        let (identity, upload) = (identity.clone(), upload.clone());
        let recorded = unbroken(async move { store.file_upload(lease, &identity, &upload).await }).await?;
        if recorded { Ok(()) } else { Err(Failed::Stopped) }
    }

    /// Proves the lease right before publishing. From an `Ok` on, a cancellation comes too late.
    pub async fn may_publish(&self) -> Result<(), Failed> {
        // Set first: a cancellation noticed from here on waits for the store's answer.
        self.pulse.publishing.store(true, Ordering::Release);
        let (store, lease) = (self.store.clone(), self.chunk.lease);
        let answer = unbroken(async move { store.chunk_may_publish(lease).await }).await;
        let refusal = match answer {
            Ok(true) if self.should_stop() != Some(Stop::LeaseLost) => return Ok(()),
            Ok(_) => Failed::Stopped,
            Err(failed) => failed,
        };
        self.pulse.publishing.store(false, Ordering::Release);
        Err(refusal)
    }
}

/// Runs a store call to its end even if the handler is dropped meanwhile: a call that is cut off
/// half-way can leave a transaction open in the pool.
async fn unbroken<T: Send + 'static>(
    call: impl Future<Output = StoreResult<T>> + Send + 'static,
) -> Result<T, Failed> {
    match tokio::spawn(call).await {
        Ok(answer) => answer.map_err(|error| Failed::Retryable(error.to_string())),
        Err(_) => Err(Failed::Retryable("a database call broke off".to_owned())),
    }
}
