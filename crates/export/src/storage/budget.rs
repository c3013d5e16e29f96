//! Memory for uploads, bounded for the whole process, and how large the parts of an upload are.
//! A file asks for memory only while it holds none that it could still need, so files never wait
//! for each other in a circle.

use std::sync::{Arc, LazyLock};

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

    #[tokio::test]
    async fn a_part_larger_than_the_budget_is_not_stuck() {
        drop(take(10 * TOTAL).await);
        drop(take(TOTAL).await);
    }
}
