//! The lease keeper: renews every lease and slot of the process, stops chunks whose lease cannot be
//! proved, and writes down how far the others are. It has a thread, a runtime and connections of its own,
//! so that busy handlers cannot starve it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use outhaul_core::fault;
use outhaul_core::id::{Lease, WorkerId};
use outhaul_core::progress::{Progress, fraction};
use outhaul_core::store::{Store, StoreResult};
use outhaul_core::vitals::Part;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::claims::Unknown;
use crate::context::Stop;
use crate::duty::{Outage, jitter};
use crate::owned::{Owned, OwnedChunk};
use crate::settings::WorkerSettings;

/// How often cancellations are looked for.
const CANCELLATIONS: Duration = Duration::from_secs(1);
/// How often progress is written. Chunks that do not live that long write none.
const PROGRESS: Duration = Duration::from_secs(1);
/// How often rows that others had locked are asked for again within one beat, and how long apart.
const BUSY_TRIES: u32 = 20;
const BUSY_WAIT: Duration = Duration::from_millis(10);

/// Keeps the leases of one process.
pub(crate) struct Keeper {
    id: WorkerId,
    store: Arc<dyn Store>,
    owned: Arc<Owned>,
    settings: WorkerSettings,
    /// Held by every call but the heartbeat: the keeper's store has two connections, and one of them must
    /// be free for that.
    beside: Mutex<()>,
}

impl Keeper {
    pub(crate) fn new(
        id: WorkerId,
        store: Arc<dyn Store>,
        owned: Arc<Owned>,
        settings: WorkerSettings,
    ) -> Self {
        Self { id, store, owned, settings, beside: Mutex::new(()) }
    }

    /// Starts the thread. It ends after the token was cancelled and no call of it is in flight.
    pub(crate) fn start(self, part: Part, stop: CancellationToken) -> std::io::Result<JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("outhaul-keeper".to_owned()).spawn(move || {
            let _part = part;
            // Four loops in one task: while one waits for the database, the others go on.
            runtime.block_on(async {
                tokio::join!(self.beats(&stop), self.limits(&stop), self.cancels(&stop), self.reports(&stop))
            });
        })
    }

    async fn beats(&self, stop: &CancellationToken) {
        let mut outage = Outage::new("the heartbeat");
        let mut unknown = Unknown::default();
        while !stop.is_cancelled() {
            let beat = async {
                self.beat().await?;
                self.give_back_unknown(&mut unknown).await
            };
            let wait = match beat.await {
                Ok(()) => {
                    outage.over();
                    jitter(self.settings.heartbeat)
                }
                // Sooner than the next regular one: the lease is running.
                Err(error) => outage.failed(&error).min(self.settings.heartbeat / 4),
            };
            pause(wait, stop).await;
        }
    }

    /// Renews everything once; rows that another transaction had locked are asked for again at once.
    pub(crate) async fn beat(&self) -> StoreResult<()> {
        // After a pause of the whole process: what ran out meanwhile is stopped, not revived.
        self.check_limits();
        // Taken before the lists: a chunk or slot that is claimed during the call is younger than `asked`, and the
        // answer does not cover it.
        let mut asked = Instant::now();
        let chunks = self.owned.all();
        let mut leases: Vec<Lease> =
            chunks.iter().filter(|chunk| chunk.wants_renewal()).map(|chunk| chunk.lease()).collect();
        if !leases.is_empty() {
            fault::point("keeper");
        }
        let mut slots = self.owned.slots.all();
        for _ in 0..BUSY_TRIES {
            let beat = self.store.chunks_heartbeat(self.id, &leases, &slots).await?;
            self.owned.renewed(&beat.renewed, asked);
            let known: HashSet<_> = beat.renewed.iter().chain(&beat.skipped).collect();
            let lost = leases.iter().filter(|lease| !known.contains(lease));
            // One that is being recorded may be gone because it was recorded; its recorder will know.
            let lost = lost.filter_map(|&lease| self.owned.get(lease)).filter(|chunk| !chunk.is_recording());
            lost.for_each(|chunk| chunk.lose("another process may own it"));
            for slot in self.owned.slots.beat(&slots, &beat.slots, asked) {
                warn!(queue = %slot.queue, slot = slot.number, "budget slot lost: no new chunk starts under it");
            }
            if beat.skipped.is_empty() {
                break;
            }
            (leases, slots) = (beat.skipped, Vec::new());
            tokio::time::sleep(BUSY_WAIT).await;
            asked = Instant::now();
        }
        Ok(())
    }

    /// After a claim without an answer: gives back chunks that run here according to the store and that this process
    /// does not know.
    async fn give_back_unknown(&self, unknown: &mut Unknown) -> StoreResult<()> {
        if !unknown.is_wanted(&self.owned.claims, self.settings.lease) {
            return Ok(());
        }
        let _beside = self.beside.lock().await;
        let looked = Instant::now();
        let mut running = self.store.chunks_of_worker(self.id).await?;
        running.retain(|&lease| self.owned.get(lease).is_none());
        let mut orphans = unknown.again(looked, running, &self.owned.claims);
        // A call that was under way may have been answered since: what it brought is known before it counts as answered.
        orphans.retain(|&lease| self.owned.get(lease).is_none());
        if !orphans.is_empty() {
            // Chunks that were given back too often are left to the reaper.
            let returned = self.store.chunks_return(&orphans).await?.len();
            warn!(returned, "the answer to a claim was lost: {returned} of its chunks are given back");
        }
        Ok(())
    }

    async fn limits(&self, stop: &CancellationToken) {
        let tick = (self.settings.lease / 40).clamp(Duration::from_millis(5), Duration::from_millis(250));
        while !stop.is_cancelled() {
            self.check_limits();
            pause(tick, stop).await;
        }
    }

    /// Stops chunks by this process's own clock: leases that were not renewed in time, and attempts
    /// that overran what their job type allows.
    pub(crate) fn check_limits(&self) {
        for chunk in self.owned.all() {
            if chunk.pulse.lease.is_over() {
                chunk.lose("it was not renewed in time");
                continue;
            }
            let Some(handler) = &chunk.handler else { continue };
            if chunk.is_recording() {
                continue;
            }
            // Without its slot it would run beside whoever takes the slot next: it goes back, uncounted.
            if chunk.slot.is_some_and(|slot| !self.owned.slots.is_held(slot, chunk.lease()))
                && chunk.tell(Stop::Shutdown)
            {
                let (job_id, chunk_key) = (&chunk.chunk.job_id, &chunk.chunk.chunk_key);
                warn!(%job_id, %chunk_key, "budget slot lost: job {job_id} {chunk_key} is given back");
            }
            let dataset = chunk.chunk.dataset.as_deref();
            if handler.timeout(dataset).is_some_and(|limit| chunk.pulse.age() > limit) {
                chunk.tell(Stop::TimedOut);
            } else if handler.stall_timeout(dataset).is_some_and(|limit| chunk.pulse.silent_for() > limit) {
                chunk.tell(Stop::Stalled);
            }
        }
    }

    async fn cancels(&self, stop: &CancellationToken) {
        let mut outage = Outage::new("looking for cancellations");
        while !stop.is_cancelled() {
            let wait = match self.cancel().await {
                Ok(()) => {
                    outage.over();
                    CANCELLATIONS
                }
                Err(error) => outage.failed(&error),
            };
            pause(wait, stop).await;
        }
    }

    /// Tells chunks of CANCELLED jobs to stop, unless publishing has begun.
    pub(crate) async fn cancel(&self) -> StoreResult<()> {
        let leases: Vec<Lease> = self.owned.running().iter().map(|chunk| chunk.lease()).collect();
        if leases.is_empty() {
            return Ok(());
        }
        let _beside = self.beside.lock().await;
        for lease in self.store.chunks_cancelled(&leases).await? {
            // Asked after the store: a chunk that was allowed to publish had its mark set before that.
            if let Some(chunk) = self.owned.get(lease).filter(|chunk| !chunk.pulse.is_publishing()) {
                chunk.tell(Stop::Cancelled);
            }
        }
        Ok(())
    }

    async fn reports(&self, stop: &CancellationToken) {
        let mut outage = Outage::new("reporting progress");
        let mut written = HashMap::new();
        while !stop.is_cancelled() {
            match self.report(&mut written).await {
                Ok(0) => {}
                Ok(_) => outage.over(),
                // What moved is still to be written, and one statement a second presses nobody.
                Err(error) => drop(outage.failed(&error)),
            }
            pause(PROGRESS, stop).await;
        }
    }

    /// Writes how far all chunks are that moved since they were `written` last, in one statement; returns
    /// how many did.
    pub(crate) async fn report(&self, written: &mut HashMap<Lease, Progress>) -> StoreResult<usize> {
        let _beside = self.beside.lock().await;
        let running = self.owned.running();
        let now = running.iter().filter(|chunk| chunk.pulse.age() >= PROGRESS).map(|chunk| progress(chunk));
        let now: HashMap<Lease, Progress> = now.map(|now| (now.lease, now)).collect();
        let still = |lease| Progress { lease, rows: 0, bytes: 0, fraction: 0.0 };
        let moved = now
            .values()
            .filter(|now| written.get(&now.lease).copied().unwrap_or_else(|| still(now.lease)) != **now);
        let moved: Vec<Progress> = moved.copied().collect();
        if !moved.is_empty() {
            self.store.progress_record(&moved).await?;
        }
        *written = now;
        Ok(moved.len())
    }
}

fn progress(chunk: &OwnedChunk) -> Progress {
    let (rows, bytes) = chunk.pulse.moved();
    Progress { lease: chunk.lease(), rows, bytes, fraction: fraction(rows, chunk.pulse.total()) }
}

async fn pause(wait: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(wait) => {}
        () = stop.cancelled() => {}
    }
}
