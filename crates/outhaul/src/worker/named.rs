//! The look of a worker with a broker: it claims what messages name, and nothing else. What cannot run
//! now keeps no message and no place: it waits here for a slot, or is announced again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outhaul_core::announcement::{ANNOUNCEMENT_DEFERRED, ChunkName, NamedClaims, NotClaimed, NotNow};
use outhaul_core::delivery::Message;
use outhaul_core::id::QueueId;
use outhaul_core::store::StoreResult;
use outhaul_core::worker::Want;
use tracing::{debug, warn};

use super::later::{Later, SOON};
use super::waiting::{Waiter, Waiting};
use super::{Round, SLOTS_PASS_ON, Worker, park};
use crate::owned::OwnedChunk;

/// How long a process may be full before messages that it was handed all the same go to others.
const HELD_UP: Duration = Duration::from_secs(1);

/// What a worker with a broker remembers between two looks.
#[derive(Default)]
pub(crate) struct Named {
    /// Messages are what this process is fed by.
    pub(super) brokered: bool,
    /// Taken, and not yet answered by the store: empty, except while that cannot be reached.
    inbox: Vec<Message>,
    waiting: Waiting,
    later: Later,
    /// Whose turn a single free place is: a message's, or that of a name that waits.
    messages_first: bool,
    /// Since when there has been no free place.
    full_since: Option<Instant>,
    /// Queues of others that messages named; each was told of once.
    strange: HashSet<QueueId>,
}

impl Drop for Named {
    /// The process stops or its claim loop panicked, and the store was never asked about these messages. The
    /// broker gives them to other workers.
    fn drop(&mut self) {
        self.inbox.drain(..).for_each(|message| message.receipt.abandon());
        self.later.abandon();
    }
}

impl Named {
    /// Keeps messages that the store could not be asked about, for the next look.
    pub(super) fn keep(&mut self, messages: Vec<Message>) {
        self.inbox.extend(messages);
    }
}

/// What became of one claim.
#[derive(Default)]
struct Settled {
    /// A chunk that must run alone.
    alone: Option<Arc<OwnedChunk>>,
    /// Whether anything was claimed.
    claimed: bool,
    /// A look at once may find more.
    again: bool,
}

/// A name in a claim, and what it came from.
struct Asked {
    name: ChunkName,
    /// `None`: it waited.
    message: Option<Message>,
    /// The queue that slots were asked of for it, if it was known.
    queue: Option<QueueId>,
}

impl Worker {
    /// How many messages to take: names that wait, and have a free slot, come first, but never all the time. A
    /// thousand of them must not keep a message of another queue from being looked at.
    pub(super) fn places(&mut self, free: u32) -> usize {
        let slots = &self.owned.slots;
        let waiting = self.named.waiting.counts().into_iter();
        let ready: u32 = waiting.map(|(queue, count)| count.min(slots.count(queue).1)).sum();
        self.named.messages_first ^= true;
        let least = u32::from(free > 1 || (free == 1 && self.named.messages_first));
        (free.saturating_sub(ready).max(least) as usize).saturating_sub(self.named.inbox.len())
    }

    /// One look: claims what the messages name, and what waits for a slot that is free now.
    pub(super) async fn claim_named(
        &mut self,
        free: u32,
        places: usize,
        messages: Vec<Message>,
    ) -> StoreResult<Round> {
        let taken = messages.len();
        self.named.brokered = true;
        self.named.keep(messages);
        let settled = if free > 0 { self.claim_inbox(free).await } else { Ok(Settled::default()) };
        self.pass_on_what_is_held_up(free).await;
        if let Err(error) = self.named.later.tell(self.store.as_ref()).await {
            debug!(%error, "announcements could not be deferred: their messages are kept until they can be");
        }
        let Settled { alone, claimed, again } = settled?;
        // Messages that cannot be taken must not wake it; a place that frees up does.
        let full = self.owned.room(self.settings.concurrency) == 0;
        // A slot whose chunk ends is for a name that waits here, or for others.
        let more = full || !self.named.waiting.is_empty() || !self.owned.slots.all().is_empty();
        // As many as were asked for: there may be more, and nothing may tell of them.
        let again = again || (!full && taken == places && (taken > 0 || claimed));
        Ok(Round { again, hint: !full, more, soon: self.slots_are_uneven(), alone })
    }

    /// Whether there are slots without a name here, or names without the slots that others may give back.
    fn slots_are_uneven(&self) -> bool {
        let waiting = self.named.waiting.counts();
        self.queues.iter().any(|queue| {
            let (held, unused) = self.owned.slots.count(queue.id);
            unused > 0
                || (waiting.contains_key(&queue.id) && queue.budget.is_some_and(|budget| held < budget))
        })
    }

    /// Chunks that run without a message, because its connection ended or they waited here, leave the broker to
    /// hand more to a process that has no place for them. Others may have.
    async fn pass_on_what_is_held_up(&mut self, free: u32) {
        if free > 0 {
            self.named.full_since = None;
            return;
        }
        let since = *self.named.full_since.get_or_insert_with(Instant::now);
        if since.elapsed() < HELD_UP {
            return;
        }
        let mut held_up = std::mem::take(&mut self.named.inbox);
        held_up.extend(self.delivery.take(usize::MAX).unwrap_or_default());
        if let Err(error) = self.pass_on(&mut held_up).await {
            debug!(%error, messages = held_up.len(), "messages could not be passed on, trying again");
        }
        self.named.keep(held_up);
    }

    async fn claim_inbox(&mut self, free: u32) -> StoreResult<Settled> {
        self.drop_known();
        let wants = self.wants_named(free).await?;
        let slots = wants.iter().map(|want| (want.queue, want.limit)).collect();
        let room = (free as usize).saturating_sub(self.named.inbox.len());
        let chosen = self.named.waiting.choose(room, slots);
        let names = chosen.iter().map(|waiter| &waiter.name);
        let names = names.chain(self.named.inbox.iter().map(|message| &message.name));
        let names: Vec<ChunkName> = names.cloned().collect();
        if names.is_empty() {
            return Ok(Settled::default());
        }
        let asked_at = Instant::now();
        self.owned.claims.began(asked_at);
        let claims = match self.store.chunks_claim_named(self.id, &names, &wants, free).await {
            Ok(claims) => claims,
            Err(error) => {
                self.owned.claims.failed();
                self.named.waiting.put_back(chosen);
                return Err(error);
            }
        };
        let waited = chosen.into_iter().map(|waiter| (None, Some(waiter.queue)));
        let inbox = std::mem::take(&mut self.named.inbox);
        let sent = inbox.into_iter().map(|message| {
            let queue = self.hinted(&message);
            (Some(message), queue)
        });
        let asked = names.into_iter().zip(waited.chain(sent));
        let asked = asked.map(|(name, (message, queue))| Some(Asked { name, message, queue })).collect();
        let settled = self.settle(claims, asked, asked_at);
        self.owned.claims.answered();
        Ok(settled)
    }

    /// Drops messages whose chunks wait here already.
    fn drop_known(&mut self) {
        let Named { inbox, waiting, later, .. } = &mut self.named;
        let now = Instant::now();
        waiting.expire(now);
        for message in std::mem::take(inbox) {
            match waiting.refresh(&message.name, now) {
                Some(chunk) => later.add(chunk, ANNOUNCEMENT_DEFERRED, Some(message)),
                None => inbox.push(message),
            }
        }
    }

    /// The queue that a message says its chunk is of, if it is one of ours.
    fn hinted(&self, message: &Message) -> Option<QueueId> {
        let name = message.queue.as_deref()?;
        self.queues.iter().find(|queue| queue.name == name).map(|queue| queue.id)
    }

    /// How much may be claimed of each queue. Slots are taken only for what is asked for.
    async fn wants_named(&mut self, free: u32) -> StoreResult<Vec<Want>> {
        let mut demand: HashMap<QueueId, u32> = self.named.waiting.counts();
        let hinted = self.named.inbox.iter().filter_map(|message| self.hinted(message));
        hinted.for_each(|queue| *demand.entry(queue).or_default() += 1);
        let mut wants = Vec::with_capacity(self.queues.len());
        for queue in &mut self.queues {
            let asked = demand.get(&queue.id).copied().unwrap_or(0).min(free);
            let limit = match queue.budget {
                None => free,
                Some(budget) => {
                    let slots = &self.owned.slots;
                    let store = self.store.as_ref();
                    let unused = queue.hold(budget, asked, slots, self.id, store, &self.settings).await?;
                    queue.ask_within(SLOTS_PASS_ON);
                    unused.min(free)
                }
            };
            // Also without a slot: the answer then says that this is what is missing.
            wants.push(Want { queue: queue.id, limit });
        }
        Ok(wants)
    }

    /// Starts what was claimed and deals with the rest.
    fn settle(&mut self, claims: NamedClaims, mut asked: Vec<Option<Asked>>, asked_at: Instant) -> Settled {
        let mut again = false;
        for (place, why) in claims.left {
            let Some(Asked { name, message, queue: asked_of }) = asked.get_mut(place).and_then(Option::take)
            else {
                continue;
            };
            // One that waited leaves its slot to the next that waits.
            again |= message.is_none() && !matches!(why, NotClaimed::NotNow { because: NotNow::NoSlot, .. });
            match why {
                NotClaimed::Unknown => park(self.delivery.as_ref(), message),
                NotClaimed::Over => drop(message),
                NotClaimed::NotNow { chunk, queue, because } => {
                    debug!(job_id = name.job_id, chunk_key = name.chunk_key, ?because, "cannot run here now");
                    if because == NotNow::UnknownQueue && self.named.strange.insert(queue) {
                        let hint = message.as_ref().and_then(|message| message.queue.as_deref());
                        let queue = hint.unwrap_or("a queue");
                        // Only others can run it; where there are none it comes and goes for ever.
                        warn!(
                            queue,
                            "messages name chunks of {queue}, which this worker does not \
                             know; they are passed on (do all workers of this broker have the same \
                             configuration?)"
                        );
                    }
                    let waiter = Waiter::new(name, chunk, queue, asked_at);
                    let unasked = asked_of != Some(queue);
                    let (wait, look_again) = self.not_now(waiter, because, unasked);
                    again |= look_again;
                    match wait {
                        Some(wait) => self.named.later.add(chunk, wait, message),
                        None => drop(message),
                    }
                }
            }
        }
        if claims.claimed.is_empty() {
            return Settled { again, ..Settled::default() };
        }
        self.delivery.claimed(claims.claimed.len());
        let claimed = claims.claimed.into_iter().map(|(place, chunk)| {
            let message = asked.get_mut(place).and_then(Option::take).and_then(|asked| asked.message);
            (chunk, message.map(|message| message.receipt))
        });
        Settled { alone: self.take(claimed.collect(), asked_at), claimed: true, again }
    }

    /// When a chunk that could not be claimed is announced again, unless it waits here and the claim has deferred
    /// its announcement; and whether a look at once may help.
    fn not_now(&mut self, waiter: Waiter, because: NotNow, unasked: bool) -> (Option<Duration>, bool) {
        let queue = self.queues.iter().find(|queue| queue.id == waiter.queue);
        let budgeted = queue.and_then(|queue| Some((queue, queue.budget?)));
        match (because, budgeted) {
            // The relay announces it when that is over.
            (NotNow::Paused, _) => (Some(Duration::ZERO), false),
            (NotNow::NoSlot, Some((queue, budget))) => {
                let held = self.owned.slots.count(queue.id).0;
                // Its message did not say that it needs a slot.
                let look_again = unasked && held < budget && queue.may_ask(Instant::now());
                self.named.waiting.add(waiter);
                // Who has all slots shall hear of it, too.
                let others = held == 0 && !look_again;
                (others.then_some(SOON), look_again)
            }
            (NotNow::NoSlot | NotNow::UnknownQueue | NotNow::Busy, _) => (Some(SOON), false),
        }
    }

    /// Nothing will be claimed here for a while: others shall have what was told to this process, and what would
    /// be.
    pub(super) async fn let_all_go(&mut self) {
        self.delivery.consume(false);
        let mut inbox = std::mem::take(&mut self.named.inbox);
        let passed = self.pass_on(&mut inbox).await;
        let Named { waiting, later, .. } = &mut self.named;
        waiting.drain().for_each(|chunk| later.add(chunk, SOON, None));
        if let Err(error) = passed.and(later.tell(self.store.as_ref()).await) {
            debug!(%error, messages = inbox.len(), "messages could not be passed on");
        }
        self.named.keep(inbox);
    }
}
