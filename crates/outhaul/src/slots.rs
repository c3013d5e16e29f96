//! The budget slots that this process holds. A chunk of a budgeted queue starts only under a slot of
//! its own; a slot that could not be renewed is forgotten at once, so that it is never used again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outhaul_core::id::{Lease, QueueId};
use outhaul_core::worker::Slot;

use crate::lease::LocalLease;

struct Held {
    slot: Slot,
    lease: LocalLease,
    use_of_it: Use,
}

/// What a slot is doing.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    /// Nothing, since then.
    FreeSince(Instant),
    /// This chunk runs under it.
    By(Lease),
}

impl Held {
    fn free_since(&self) -> Option<Instant> {
        match self.use_of_it {
            Use::FreeSince(since) => Some(since),
            Use::By(_) => None,
        }
    }
}

/// All slots of this process.
#[derive(Default)]
pub(crate) struct Slots {
    held: Mutex<Vec<Held>>,
}

impl Slots {
    fn lock(&self) -> MutexGuard<'_, Vec<Held>> {
        // No code that could panic half-way runs under this lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds slots that a call made at `asked` took.
    pub(crate) fn add(&self, slots: &[Slot], asked: Instant, span: Duration) {
        let mut held = self.lock();
        for &slot in slots {
            held.retain(|other| other.slot != slot);
            held.push(Held { slot, lease: LocalLease::new(asked, span), use_of_it: Use::FreeSince(asked) });
        }
    }

    /// How many slots of the queue are held, and how many of those are free.
    pub(crate) fn count(&self, queue: QueueId) -> (u32, u32) {
        let mut held = self.lock();
        held.retain(|held| !held.lease.is_over());
        let of_queue = held.iter().filter(|held| held.slot.queue == queue);
        of_queue.fold((0, 0), |(all, free), held| (all + 1, free + u32::from(held.free_since().is_some())))
    }

    /// Gives a free slot to a chunk: the one used last, so that surplus ones grow idle and are given back.
    pub(crate) fn assign(&self, queue: QueueId, chunk: Lease) -> Option<Slot> {
        let mut held = self.lock();
        held.retain(|held| !held.lease.is_over());
        let free = held.iter_mut().filter(|held| held.slot.queue == queue && held.free_since().is_some());
        let held = free.max_by_key(|held| held.free_since())?;
        held.use_of_it = Use::By(chunk);
        Some(held.slot)
    }

    /// The chunk that ran under the slot has ended. Nothing happens if the slot was lost meanwhile, or
    /// lost and taken again for another chunk.
    pub(crate) fn unassign(&self, slot: Slot, chunk: Lease) {
        let mut all = self.lock();
        if let Some(held) = all.iter_mut().find(|held| held.slot == slot && held.use_of_it == Use::By(chunk))
        {
            held.use_of_it = Use::FreeSince(Instant::now());
        }
    }

    /// Whether the chunk still has the slot it was started under.
    pub(crate) fn is_held(&self, slot: Slot, chunk: Lease) -> bool {
        let held =
            |held: &Held| held.slot == slot && held.use_of_it == Use::By(chunk) && !held.lease.is_over();
        self.lock().iter().any(held)
    }

    /// Forgets and returns the slots that were free for at least `idle`.
    pub(crate) fn drain_idle(&self, idle: Duration) -> Vec<Slot> {
        let mut drained = Vec::new();
        self.lock().retain(|held| {
            let keep = held.free_since().is_none_or(|since| since.elapsed() < idle);
            if !keep {
                drained.push(held.slot);
            }
            keep
        });
        drained
    }

    /// Everything held, for the heartbeat.
    pub(crate) fn all(&self) -> Vec<Slot> {
        self.lock().iter().map(|held| held.slot).collect()
    }

    /// Takes the result of a heartbeat, and returns the lost slots. `wanted` was read after `asked`. A slot that was
    /// given back and taken again during the call is therefore younger than `asked`, and is not lost.
    pub(crate) fn beat(&self, wanted: &[Slot], renewed: &[Slot], asked: Instant) -> Vec<Slot> {
        let mut lost = Vec::new();
        self.lock().retain(|held| {
            if renewed.contains(&held.slot) {
                held.lease.renewed(asked);
            } else if wanted.contains(&held.slot) && held.lease.asked() < asked {
                lost.push(held.slot);
                return false;
            }
            true
        });
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_was_given_back_and_taken_again_during_a_heartbeat_is_not_lost() {
        let (queue, span) = (QueueId(1), Duration::from_secs(60));
        let (first, second) = (Slot { queue, number: 0 }, Slot { queue, number: 1 });
        let at = |second| Instant::now() + Duration::from_secs(second);
        let slots = Slots::default();
        slots.add(&[first, second], at(0), span);
        let (asked, wanted) = (at(10), slots.all());
        assert_eq!(slots.drain_idle(Duration::ZERO).len(), 2);
        slots.add(&[first], at(20), span);
        // The store found neither slot: both had been given back.
        assert_eq!(slots.beat(&wanted, &[], asked), []);
        assert_eq!(slots.count(queue), (1, 1));

        // A slot that was held all the time is lost.
        assert_eq!(slots.beat(&slots.all(), &[], at(30)), [first]);
        assert_eq!(slots.count(queue), (0, 0));
    }
}
