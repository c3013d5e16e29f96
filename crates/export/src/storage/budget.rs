//! Memory for uploads, bounded for the whole process, and how large the parts of an upload are.
//! A file asks for memory only while it holds none that it could still need, so files never wait
//! for each other in a circle.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const MIB: usize = 1024 * 1024;

/// The largest file that is published by one PUT, and the size of an upload's first parts.
pub(super) const SMALL: usize = 8 * MIB;
/// What every file may buffer without asking; most files never hold more.
pub(super) const FREE: usize = MIB / 4;
/// Parts of one file that are under way at once.
pub(super) const PARTS_IN_FLIGHT: usize = 2;
/// What object stores allow in one upload.
pub(super) const MAX_PARTS: usize = 10_000;
/// Bytes buffered or under way in the whole process.
const TOTAL: usize = 32 * MIB;

static MEMORY: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(TOTAL)));

/// Buffers to use again. The allocator would keep freed ones as well, but not count them.
static IDLE: Mutex<Vec<BytesMut>> = Mutex::new(Vec::new());

/// The size of an upload's part: 8 MiB for the first 4,000 (some stores want equal parts), then
/// doubling every 1,000, so that 10,000 parts hold 1 TB.
pub(super) fn part_size(index: usize) -> usize {
    SMALL << (index.saturating_sub(3_000) / 1_000)
}

/// Waits for memory for a buffer of this size; it is given back when the permit is dropped.
pub(super) async fn take(bytes: usize) -> OwnedSemaphorePermit {
    // A part larger than everything takes everything, rather than waiting for ever.
    let permits = u32::try_from(bytes.min(TOTAL)).expect("the budget fits 32 bits");
    Arc::clone(&MEMORY).acquire_many_owned(permits).await.expect("the budget is never closed")
}

/// An empty buffer of this size, for whoever has taken the memory for it.
pub(super) fn buffer(size: usize) -> BytesMut {
    let idle = if size == SMALL { idle().pop() } else { None };
    idle.unwrap_or_else(|| BytesMut::with_capacity(size))
}

/// Keeps a buffer for the next part; called before its memory is given back, so that there are never
/// more buffers than the budget has room for.
pub(super) fn recycle(bytes: Bytes) {
    if let Ok(mut buffer) = bytes.try_into_mut()
        && buffer.capacity() == SMALL
    {
        buffer.clear();
        idle().push(buffer);
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
        assert_eq!(part_size(0), SMALL);
        assert_eq!(part_size(3_999), SMALL);
        assert_eq!(part_size(4_000), 2 * SMALL);
        let total: usize = (0..MAX_PARTS).map(part_size).sum();
        assert!(total > 1_000_000_000_000, "{total}");
    }

    #[test]
    fn full_buffers_are_used_again_and_small_ones_are_not_kept() {
        let mut full = buffer(SMALL);
        full.resize(SMALL, 1);
        let bytes = full.freeze();
        let place = bytes.as_ptr();
        recycle(bytes);
        recycle(Bytes::from_static(b"a"));
        recycle(Bytes::from(vec![1, 2, 3]));
        let again = buffer(SMALL);
        assert_eq!((again.as_ptr(), again.len(), again.capacity()), (place, 0, SMALL));
        assert!(idle().is_empty());
    }

    #[tokio::test]
    async fn a_part_larger_than_the_budget_is_not_stuck() {
        drop(take(10 * TOTAL).await);
        drop(take(TOTAL).await);
    }
}
