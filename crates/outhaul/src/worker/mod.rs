//! The claim loop: arms the wake-up before it looks, claims in one statement for as many chunks as
//! it has free slots, never more, and polls as the fallback for every lost hint. With a broker it claims
//! what messages name instead (`named`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use outhaul_core::delivery::{Delivery, Message, NAMES_NOTHING, Receipt};
use outhaul_core::fault;
use outhaul_core::id::{QueueId, WorkerId};
use outhaul_core::state::LOST_LEASES_TO_ISOLATE;
use outhaul_core::store::{Store, StoreResult};
use outhaul_core::worker::{ClaimedChunk, Want};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::duty::{Outage, jitter};
use crate::lease::LocalLease;
use crate::owned::{Owned, OwnedChunk};
use crate::recorder::Write;
use crate::registry::Registry;
use crate::runner::{Ended, Runner};
use crate::settings::WorkerSettings;
use crate::slots::Slots;

mod later;
mod named;
mod passing;
mod waiting;

pub(crate) use named::Named;

/// With a broker each process has names of its own that wait for slots: one that has none left gives its slots
/// back after so long, and one that lacks slots asks for them as often.
const SLOTS_PASS_ON: Duration = Duration::from_millis(200);

/// A queue that this process claims from.
pub(crate) struct WorkQueue {
    pub(crate) id: QueueId,
    pub(crate) name: String,
    pub(crate) budget: Option<u32>,
    /// After slots were refused: not to be asked for again before this.
    pub(crate) slots_again: Option<Instant>,
}

impl WorkQueue {
    /// Whether slots may be asked for: not right after they were refused.
    fn may_ask(&self, now: Instant) -> bool {
        self.slots_again.is_none_or(|again| again <= now)
    }

    /// Asks for slots again after this at the latest.
    fn ask_within(&mut self, wait: Duration) {
        let soon = Instant::now() + wait;
        self.slots_again = self.slots_again.map(|again| again.min(soon));
    }

    /// Takes slots until `wanted` are free, as far as there are any; returns how many are free.
    async fn hold(
        &mut self,
        budget: u32,
        wanted: u32,
        slots: &Slots,
        worker: WorkerId,
        store: &dyn Store,
        settings: &WorkerSettings,
    ) -> StoreResult<u32> {
        let (held, unused) = slots.count(self.id);
        let missing = wanted.min(budget.saturating_sub(held) + unused).saturating_sub(unused);
        let asked = Instant::now();
        if missing > 0 && self.may_ask(asked) {
            let taken = store.slots_take(worker, self.id, missing).await?;
            slots.add(&taken, asked, settings.lease);
            let refused = taken.len() < missing as usize;
            self.slots_again = refused.then(|| asked + settings.poll_interval.mul_f64(0.9));
        }
        Ok(slots.count(self.id).1)
    }
}

/// What a look at the queues or at messages told.
#[derive(Default)]
struct Round {
    /// Look again at once.
    again: bool,
    /// Look again when the delivery says so.
    hint: bool,
    /// More may be waiting: look again when a chunk ends.
    more: bool,
    /// Slots are to be given back or asked for soon.
    soon: bool,
    /// A chunk that must run alone.
    alone: Option<Arc<OwnedChunk>>,
}

/// The claim loop of one process.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) delivery: Arc<dyn Delivery>,
    pub(crate) registry: Registry,
    pub(crate) settings: WorkerSettings,
    pub(crate) queues: Vec<WorkQueue>,
    pub(crate) owned: Arc<Owned>,
    pub(crate) runner: Runner,
    /// What is left of messages, with a broker.
    pub(crate) named: Named,
}

impl Worker {
    /// Claims until the token is cancelled. Chunks that run then go on.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let delivery = self.delivery.clone();
        let mut outage = Outage::new("claiming");
        let mut freed = self.owned.freed();
        while !stop.is_cancelled() {
            // Before the look, so that what is queued or freed during it is not missed.
            let hint = delivery.arm();
            freed.mark_unchanged();
            let (round, wait) = match self.round().await {
                Ok(Round { alone: Some(chunk), .. }) => {
                    self.run_alone(chunk, &stop).await;
                    continue;
                }
                Ok(round) => {
                    outage.over();
                    if round.again {
                        continue;
                    }
                    let poll = self.settings.poll_interval;
                    let wait = if round.soon { poll.min(SLOTS_PASS_ON) } else { poll };
                    (round, jitter(wait))
                }
                Err(error) => (Round::default(), outage.failed(&error)),
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = hint, if round.hint => {}
                _ = freed.changed(), if round.more => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.let_all_go().await;
    }

    /// One look: claims what fits, starts it, and gives back slots that found nothing to do.
    async fn round(&mut self) -> StoreResult<Round> {
        let round = self.claim().await?;
        // After the claim, so that every look of an idle worker still is one at every queue.
        let poll = self.settings.poll_interval;
        self.release_idle(if self.named.brokered { poll.min(SLOTS_PASS_ON) } else { poll }).await;
        Ok(round)
    }

    /// Gives back slots that were free for so long, for other workers to have.
    async fn release_idle(&self, idle: Duration) {
        let idle = self.owned.slots.drain_idle(idle);
        if !idle.is_empty()
            && let Err(error) = self.store.slots_release(self.id, &idle).await
        {
            // Nothing depends on it, and a chunk claimed in this round must not be forgotten for it.
            debug!(%error, "idle slots could not be given back; their leases will run out");
        }
    }

    async fn claim(&mut self) -> StoreResult<Round> {
        let room = self.owned.room(self.settings.concurrency);
        let free = room.min(self.settings.claim_limit.unwrap_or(u32::MAX));
        let places = self.places(free);
        if let Some(messages) = self.delivery.take(places) {
            return self.claim_named(free, places, messages).await;
        }
        let wants = if free > 0 { self.wants(free).await? } else { Vec::new() };
        if wants.is_empty() {
            return Ok(Round { hint: true, more: true, ..Round::default() });
        }
        let asked = Instant::now();
        self.owned.claims.began(asked);
        let claimed = self.store.chunks_claim(self.id, &wants, free).await;
        let claimed = claimed.inspect_err(|_| self.owned.claims.failed())?;
        let filled =
            |want: &Want| claimed.iter().filter(|c| c.queue == want.queue).count() >= want.limit as usize;
        // A queue without a free slot was not looked at: it may have work when one frees up.
        let more =
            wants.len() < self.queues.len() || claimed.len() >= free as usize || wants.iter().any(filled);
        let claimed = claimed.into_iter().map(|chunk| (chunk, None)).collect();
        let alone = self.take(claimed, asked);
        self.owned.claims.answered();
        Ok(Round { hint: true, more, alone, ..Round::default() })
    }

    /// How much to ask of each queue; budgeted ones are limited by the slots held.
    async fn wants(&mut self, free: u32) -> StoreResult<Vec<Want>> {
        let mut wants = Vec::with_capacity(self.queues.len());
        for queue in &mut self.queues {
            let limit = match queue.budget {
                None => free,
                Some(budget) => {
                    let (slots, store) = (&self.owned.slots, self.store.as_ref());
                    queue.hold(budget, free, slots, self.id, store, &self.settings).await?.min(free)
                }
            };
            if limit > 0 {
                wants.push(Want { queue: queue.id, limit });
            }
        }
        Ok(wants)
    }

    /// Starts what was claimed; or, if one of it must run alone, gives the rest back and returns that one.
    fn take(&self, claimed: Vec<(ClaimedChunk, Option<Receipt>)>, asked: Instant) -> Option<Arc<OwnedChunk>> {
        if !claimed.is_empty() {
            fault::point("claims");
        }
        let alone = claimed.iter().position(|(chunk, _)| chunk.lost >= LOST_LEASES_TO_ISOLATE);
        let mut isolated = None;
        for (place, (chunk, receipt)) in claimed.into_iter().enumerate() {
            let dataset = chunk.dataset.clone().unwrap_or_default();
            metrics::counter!("outhaul_chunks_claimed_total",
                "job_type" => chunk.job_type.clone(), "dataset" => dataset)
            .increment(1);
            let given_back = alone.is_some_and(|alone| alone != place);
            let budgeted = self.queues.iter().any(|queue| queue.id == chunk.queue && queue.budget.is_some());
            let slot = if budgeted && !given_back {
                self.owned.slots.assign(chunk.queue, chunk.lease)
            } else {
                None
            };
            let handler = self.registry.get(&chunk.job_type).cloned();
            let lease = LocalLease::new(asked, self.settings.lease);
            let owned = OwnedChunk::new(chunk, handler, slot, lease, receipt);
            self.owned.insert(owned.clone());
            // A slot that was lost since the claim was sent leaves its chunk without one.
            if given_back || (budgeted && slot.is_none()) {
                let (job_id, chunk_key) = (&owned.chunk.job_id, &owned.chunk.chunk_key);
                debug!(%job_id, %chunk_key, beside_one_alone = given_back, "given back unstarted");
                self.runner.recorder.send(owned, Write::Return { stopping: false });
            } else if alone.is_some() {
                isolated = Some(owned);
            } else {
                self.runner.start(owned);
            }
        }
        isolated
    }

    /// Runs a chunk that lost its leases before with no other beside it, so that it cannot take
    /// neighbours with it. Nothing is claimed meanwhile, and messages go to others.
    async fn run_alone(&mut self, chunk: Arc<OwnedChunk>, stop: &CancellationToken) {
        self.let_all_go().await;
        self.alone(chunk, stop).await;
        self.delivery.consume(true);
    }

    async fn alone(&self, chunk: Arc<OwnedChunk>, stop: &CancellationToken) {
        let (job_id, chunk_key) = (&chunk.chunk.job_id, &chunk.chunk.chunk_key);
        info!(%job_id, %chunk_key, lost = chunk.chunk.lost, "job {job_id} {chunk_key} lost its leases: runs alone");
        let mut freed = self.owned.freed();
        let mut told = chunk.stop_signal();
        while self.owned.len() > 1 {
            self.release_idle(Duration::ZERO).await;
            tokio::select! {
                _ = freed.changed() => {}
                _ = told.wait_for(Option::is_some) => return self.runner.settle(chunk, Ended::NotStarted),
                () = stop.cancelled() => return self.runner.settle(chunk, Ended::NotStarted),
            }
        }
        self.release_idle(Duration::ZERO).await;
        self.runner.start(chunk.clone());
        while self.owned.get(chunk.lease()).is_some() && !stop.is_cancelled() {
            tokio::select! {
                _ = freed.changed() => {}
                () = stop.cancelled() => {}
            }
        }
    }
}

/// Puts a message aside that names nothing.
fn park(delivery: &dyn Delivery, message: Option<Message>) {
    if let Some(message) = message {
        delivery.park(message, NAMES_NOTHING);
    }
}
