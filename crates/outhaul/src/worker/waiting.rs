//! Names of chunks that a message told of and that wait here for a budget slot. Their messages are
//! acknowledged, so that they keep nobody's place; a slot that frees up takes the next name without a broker.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use outhaul_core::announcement::{ANNOUNCEMENT_DEFERRED, ChunkName};
use outhaul_core::id::{ChunkId, QueueId};

/// How long a name is kept: a little longer than its chunk goes unannounced, so that the next message of it
/// finds it here. Should this process die, that message goes to another.
const KEPT: Duration = ANNOUNCEMENT_DEFERRED.saturating_add(Duration::from_secs(2));
/// The most names. The window of announcements is smaller, so more are rare.
const MOST: usize = 1000;

/// A chunk that waits for a slot of its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) name: ChunkName,
    pub(super) chunk: ChunkId,
    pub(super) queue: QueueId,
    pub(super) until: Instant,
}

impl Waiter {
    pub(super) fn new(name: ChunkName, chunk: ChunkId, queue: QueueId, now: Instant) -> Self {
        Self { name, chunk, queue, until: now + KEPT }
    }
}

/// All names that wait, in the order of their messages.
#[derive(Default)]
pub(super) struct Waiting {
    waiters: VecDeque<Waiter>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Adds a name, unless there are too many.
    pub(super) fn add(&mut self, waiter: Waiter) {
        if self.waiters.len() < MOST {
            self.waiters.push_back(waiter);
        }
    }

    /// A message came for a name that waits already: it keeps its place, and is kept for longer.
    pub(super) fn refresh(&mut self, name: &ChunkName, now: Instant) -> Option<ChunkId> {
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.name == *name)?;
        waiter.until = now + KEPT;
        Some(waiter.chunk)
    }

    /// Forgets names that waited too long; their chunks were announced again, or will be.
    pub(super) fn expire(&mut self, now: Instant) {
        self.waiters.retain(|waiter| now < waiter.until);
    }

    /// How many wait for each queue.
    pub(super) fn counts(&self) -> HashMap<QueueId, u32> {
        let mut counts = HashMap::new();
        self.waiters.iter().for_each(|waiter| *counts.entry(waiter.queue).or_default() += 1);
        counts
    }

    /// Takes out the first names that fit: at most `room`, and of no queue more than it has slots.
    pub(super) fn choose(&mut self, room: usize, mut slots: HashMap<QueueId, u32>) -> Vec<Waiter> {
        let mut chosen = Vec::new();
        self.waiters.retain(|waiter| {
            let slots = slots.get_mut(&waiter.queue).filter(|slots| **slots > 0);
            let fits = slots.filter(|_| chosen.len() < room);
            if let Some(slots) = fits {
                *slots -= 1;
                chosen.push(waiter.clone());
                return false;
            }
            true
        });
        chosen
    }

    /// Puts back what was chosen and could not be asked for.
    pub(super) fn put_back(&mut self, chosen: Vec<Waiter>) {
        chosen.into_iter().rev().for_each(|waiter| self.waiters.push_front(waiter));
    }

    /// Takes all of them out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = ChunkId> {
        self.waiters.drain(..).map(|waiter| waiter.chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: i64) -> ChunkName {
        ChunkName { job_id: "J".to_owned(), chunk_key: number.to_string() }
    }

    fn waiting(queues: &[i64], now: Instant) -> Waiting {
        let mut waiting = Waiting::default();
        for (&queue, number) in queues.iter().zip(0..) {
            waiting.add(Waiter::new(name(number), ChunkId(number), QueueId(queue), now));
        }
        waiting
    }

    fn ids(waiters: &[Waiter]) -> Vec<i64> {
        waiters.iter().map(|waiter| waiter.chunk.0).collect()
    }

    fn slots(of: &[(i64, u32)]) -> HashMap<QueueId, u32> {
        of.iter().map(|&(queue, count)| (QueueId(queue), count)).collect()
    }

    #[test]
    fn the_first_that_fit_are_chosen_and_can_be_put_back() {
        let mut waiting = waiting(&[1, 1, 2, 1, 2], Instant::now());
        let chosen = waiting.choose(3, slots(&[(1, 1), (2, 5)]));
        assert_eq!(ids(&chosen), [0, 2, 4], "one of the first queue, whatever there is of the second");
        waiting.put_back(chosen);
        assert_eq!(ids(&waiting.choose(2, slots(&[(1, 9), (2, 9)]))), [0, 2], "no more than there is room");
        assert_eq!(waiting.counts(), slots(&[(1, 2), (2, 1)]));
        assert_eq!(waiting.choose(9, slots(&[(3, 9)])), []);
    }

    #[test]
    fn names_are_forgotten_after_a_while_unless_they_come_again() {
        let now = Instant::now();
        let mut waiting = waiting(&[1, 1], now);
        let soon = Duration::from_secs(1);
        assert_eq!(waiting.refresh(&name(1), now + soon), Some(ChunkId(1)));
        assert_eq!(waiting.refresh(&name(7), now), None);
        waiting.expire(now + KEPT - soon);
        assert_eq!(waiting.waiters.len(), 2);
        waiting.expire(now + KEPT);
        assert_eq!(ids(&waiting.choose(9, slots(&[(1, 9)]))), [1]);
    }

    #[test]
    fn there_are_never_too_many_names() {
        let waiting = waiting(&[1; MOST + 1], Instant::now());
        assert_eq!(waiting.waiters.len(), MOST);
    }
}
