//! Memory for uploads, and how large their parts are. Every file has one part of its own in memory, being
//! filled or sent; what makes it faster (more parts at once) comes from a shared reserve, which nobody
//! ever waits for. So a file whose source hangs, whatever it holds, cannot keep another from going on.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const MIB: usize = 1024 * 1024;

/// The largest file that is published by one PUT.
pub(super) const SMALL: usize = 8 * MIB;
/// The size of an upload's first parts: the least that object stores take, since each file has one.
pub(super) const PART: usize = 5 * MIB;
/// What a file holds before it gets a buffer of a part's size; most files never hold more.
pub(super) const FREE: usize = MIB / 4;
/// What a file may hold beyond its first part before it is known to be a large one.
pub(super) const TAIL: usize = SMALL - PART;
/// What object stores allow in one upload.
pub(super) const MAX_PARTS: usize = 10_000;
/// The shared reserve. Four large files at once hold 30 MiB with it, which leaves their process well
/// below 64.
const RESERVE: usize = 2 * PART;
/// Buffers that are kept for later files: what those four hold, so that they never take new ones.
const MOST_IDLE: usize = 4 + RESERVE / PART;

/// Buffers to use again. The allocator would keep freed ones as well, but not count them.
static IDLE: Mutex<Vec<BytesMut>> = Mutex::new(Vec::new());

/// The size of an upload's part: 5 MiB for the first 3,000 (some stores want equal parts), then
/// doubling every 1,000, so that 10,000 parts hold 1 TB.
pub(super) fn part_size(index: usize) -> usize {
    PART << (index.saturating_sub(2_000) / 1_000)
}

/// The reserve that the files of one storage share.
pub(super) fn reserve() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(RESERVE))
}

/// Memory of the reserve, if there is any now; it is given back when the permit is dropped. Never waits:
/// whoever holds it may be waiting for a source.
pub(super) fn spare(reserve: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    let permits = u32::try_from(bytes).ok()?;
    Arc::clone(reserve).try_acquire_many_owned(permits).ok()
}

/// An empty buffer for a part of this size.
pub(super) fn buffer(size: usize) -> BytesMut {
    let idle = if size == PART { idle().pop() } else { None };
    idle.unwrap_or_else(|| BytesMut::with_capacity(size))
}

/// Keeps a buffer for a later part.
pub(super) fn recycle(bytes: Bytes) {
    if let Ok(mut buffer) = bytes.try_into_mut()
        && buffer.capacity() == PART
    {
        buffer.clear();
        let mut idle = idle();
        if idle.len() < MOST_IDLE {
            idle.push(buffer);
        }
    }
}

fn idle() -> std::sync::MutexGuard<'static, Vec<BytesMut>> {
    // A list of buffers is valid at every moment, also after a panic.
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_parts_hold_a_terabyte_and_most_are_small() {
        assert_eq!(part_size(0), PART);
        assert_eq!(part_size(2_999), PART);
        assert_eq!(part_size(3_000), 2 * PART);
        let total: usize = (0..MAX_PARTS).map(part_size).sum();
        assert!(total > 1_000_000_000_000, "{total}");
    }

    #[test]
    fn full_buffers_are_used_again_and_small_ones_are_not_kept() {
        let mut full = buffer(PART);
        full.resize(PART, 1);
        let bytes = full.freeze();
        let place = bytes.as_ptr();
        recycle(bytes);
        recycle(Bytes::from_static(b"a"));
        recycle(Bytes::from(vec![1, 2, 3]));
        let again = buffer(PART);
        assert_eq!((again.as_ptr(), again.len(), again.capacity()), (place, 0, PART));
        assert!(idle().is_empty());
        for buffer in (0..2 * MOST_IDLE).map(|_| BytesMut::zeroed(PART)) {
            recycle(buffer.freeze());
        }
        assert_eq!(std::mem::take(&mut *idle()).len(), MOST_IDLE);
    }

    #[test]
    fn the_reserve_is_shared_and_never_waited_for() {
        let reserve = reserve();
        let (first, second) = (spare(&reserve, PART), spare(&reserve, PART));
        assert!(first.is_some() && second.is_some());
        assert!(spare(&reserve, 1).is_none());
        drop(first);
        assert!(spare(&reserve, PART).is_some());
    }
}
