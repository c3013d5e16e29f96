//! The chunks that this process owns: claimed, and not yet recorded. Worker, runner, recorder and
//! lease keeper meet here; a chunk leaves only when its outcome is recorded or its lease is lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use outhaul_core::delivery::Receipt;
use outhaul_core::id::Lease;
use outhaul_core::retry::RetryPolicy;
use outhaul_core::worker::{ClaimedChunk, Slot};
use tokio::sync::watch;
use tracing::warn;

use crate::claims::Claims;
use crate::context::{Pulse, Stop};
use crate::handler::Handler;
use crate::lease::LocalLease;
use crate::slots::Slots;

/// One chunk that this process owns.
pub(crate) struct OwnedChunk {
    pub(crate) chunk: ClaimedChunk,
    /// `None`: a job type that this process does not know.
    pub(crate) handler: Option<Arc<dyn Handler>>,
    pub(crate) slot: Option<Slot>,
    pub(crate) pulse: Arc<Pulse>,
    stop: watch::Sender<Option<Stop>>,
    recording: AtomicBool,
    /// Of the message that named it, with a broker.
    receipt: Mutex<Option<Receipt>>,
}

impl OwnedChunk {
    pub(crate) fn new(
        chunk: ClaimedChunk,
        handler: Option<Arc<dyn Handler>>,
        slot: Option<Slot>,
        lease: LocalLease,
        receipt: Option<Receipt>,
    ) -> Arc<Self> {
        Arc::new(Self {
            chunk,
            handler,
            slot,
            pulse: Arc::new(Pulse::new(lease)),
            stop: watch::channel(None).0,
            recording: AtomicBool::new(false),
            receipt: Mutex::new(receipt),
        })
    }

    /// Acknowledges the message that named it.
    fn acknowledge(&self) {
        let receipt = self.receipt.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(receipt);
    }

    pub(crate) fn lease(&self) -> Lease {
        self.chunk.lease
    }

    /// Tells the handler to stop; the first reason stays, except that a lost lease outdoes all others.
    /// `false`: nothing new.
    pub(crate) fn tell(&self, reason: Stop) -> bool {
        self.stop.send_if_modified(|told| {
            let news = told.is_none() || (reason == Stop::LeaseLost && *told != Some(Stop::LeaseLost));
            if news {
                *told = Some(reason);
            }
            news
        })
    }

    /// Its lease is gone, or can no longer be proved: stop it, and say so once.
    pub(crate) fn lose(&self, why: &str) {
        if self.tell(Stop::LeaseLost) {
            let (job_id, chunk_key, fence) =
                (&self.chunk.job_id, &self.chunk.chunk_key, self.chunk.lease.fence);
            warn!(%job_id, %chunk_key, fence, "lease lost: job {job_id} {chunk_key} fence {fence}, {why}");
            metrics::counter!("outhaul_leases_lost_total").increment(1);
        }
    }

    /// Why it was told to stop.
    pub(crate) fn told(&self) -> Option<Stop> {
        *self.stop.borrow()
    }

    pub(crate) fn stop_signal(&self) -> watch::Receiver<Option<Stop>> {
        self.stop.subscribe()
    }

    /// Whether its outcome is on its way to the store. From then on only the recorder decides whether
    /// the lease held: a heartbeat may meet the chunk right after its outcome was committed.
    pub(crate) fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Acquire)
    }

    /// Whether heartbeats should go on: not for a chunk that overran its limits and still runs.
    pub(crate) fn wants_renewal(&self) -> bool {
        match self.told() {
            None | Some(Stop::Cancelled | Stop::Shutdown) => true,
            Some(Stop::TimedOut | Stop::Stalled) => self.is_recording(),
            Some(Stop::LeaseLost) => false,
        }
    }

    /// How its failures are judged.
    pub(crate) fn retry(&self) -> RetryPolicy {
        let dataset = self.chunk.dataset.as_deref();
        self.handler.as_ref().map_or_else(RetryPolicy::default, |handler| handler.retry(dataset))
    }
}

/// All chunks that this process owns.
pub(crate) struct Owned {
    chunks: Mutex<HashMap<Lease, Arc<OwnedChunk>>>,
    /// Rises whenever chunks are removed.
    freed: watch::Sender<u64>,
    /// The budget slots they run under, and those that wait for one.
    pub(crate) slots: Slots,
    /// The calls that claim new chunks.
    pub(crate) claims: Claims,
}

impl Owned {
    pub(crate) fn new() -> Self {
        Self {
            chunks: Mutex::default(),
            freed: watch::channel(0).0,
            slots: Slots::default(),
            claims: Claims::default(),
        }
    }

    fn chunks(&self) -> MutexGuard<'_, HashMap<Lease, Arc<OwnedChunk>>> {
        // No code that could panic half-way runs under this lock.
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, chunk: Arc<OwnedChunk>) {
        let mut chunks = self.chunks();
        chunks.insert(chunk.lease(), chunk);
        metrics::gauge!("outhaul_chunks_running").set(chunks.len() as f64);
    }

    /// The attempt of a chunk is over, and its outcome is being recorded. The chunk keeps its slot and its place until
    /// the outcome is recorded: the store shows it as RUNNING until then, and must never show more than are allowed.
    pub(crate) fn ended(&self, chunk: &OwnedChunk) {
        chunk.recording.store(true, Ordering::Release);
    }

    /// The outcome of a chunk is recorded or was discarded. Only now is the chunk's message acknowledged, and its slot
    /// and its place become free.
    pub(crate) fn remove(&self, lease: Lease) {
        self.remove_all(&[lease]);
    }

    /// The same for many chunks. They become free together, so that one claim can fill all the places.
    pub(crate) fn remove_all(&self, leases: &[Lease]) {
        let mut chunks = self.chunks();
        let removed: Vec<_> = leases.iter().filter_map(|lease| chunks.remove(lease)).collect();
        metrics::gauge!("outhaul_chunks_running").set(chunks.len() as f64);
        drop(chunks);
        if removed.is_empty() {
            return;
        }
        for chunk in removed {
            chunk.acknowledge();
            if let Some(slot) = chunk.slot {
                self.slots.unassign(slot, chunk.lease());
            }
        }
        self.freed.send_modify(|count| *count += 1);
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks().len()
    }

    /// How many more chunks may be claimed.
    pub(crate) fn room(&self, concurrency: u32) -> u32 {
        concurrency.saturating_sub(u32::try_from(self.len()).unwrap_or(u32::MAX))
    }

    pub(crate) fn get(&self, lease: Lease) -> Option<Arc<OwnedChunk>> {
        self.chunks().get(&lease).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<OwnedChunk>> {
        self.chunks().values().cloned().collect()
    }

    /// Those that run, and were not told to stop.
    pub(crate) fn running(&self) -> Vec<Arc<OwnedChunk>> {
        let mut chunks = self.all();
        chunks.retain(|chunk| chunk.told().is_none() && !chunk.is_recording());
        chunks
    }

    /// Notes that a lease was renewed by a call made at `asked`.
    pub(crate) fn renewed(&self, leases: &[Lease], asked: Instant) {
        let chunks = self.chunks();
        leases
            .iter()
            .filter_map(|lease| chunks.get(lease))
            .for_each(|chunk| chunk.pulse.lease.renewed(asked));
    }

    /// Changes whenever chunks are removed.
    pub(crate) fn freed(&self) -> watch::Receiver<u64> {
        self.freed.subscribe()
    }

    /// Waits until the process owns no chunk.
    pub(crate) async fn until_empty(&self) {
        let mut freed = self.freed();
        while self.len() > 0 {
            // Cannot fail: the sender lives in `self`.
            let _ = freed.changed().await;
        }
    }
}
