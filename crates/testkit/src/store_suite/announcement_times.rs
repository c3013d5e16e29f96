//! How long announcements last: until they are confirmed, and then longer with every repetition; shorter
//! when they were cleared or a broker may have lost them.

use std::time::Duration;

use outhaul_core::announcement::{
    ANNOUNCEMENT_DEFERRED, ANNOUNCEMENT_DOUBTED, ANNOUNCEMENT_HELD, ANNOUNCEMENT_LONGEST, Announcement,
    ChunkName, NotClaimed, NotNow,
};
use outhaul_core::id::ChunkId;
use outhaul_core::worker::Want;

use super::announcements::{announce, chunks, name, take};
use super::bench::{Bench, Kit, LONG, MAIL, SETTINGS, job};

const MINUTE: Duration = Duration::from_secs(60);

/// Lets the announcements of these chunks run out.
pub(super) async fn run_out(bench: &Bench, chunks: &[ChunkId]) {
    for chunk in chunks {
        let past = bench.probe.moment(0);
        let sql = format!("update announcement set until = {past} where chunk_id = {chunk}");
        assert_eq!(bench.probe.execute(&sql).await, 1);
    }
}

/// When the announcement runs out, in the database's time.
pub(super) async fn until(bench: &Bench, chunk: ChunkId) -> i64 {
    let column = bench.probe.micros("until");
    bench.probe.number(&format!("select {column} from announcement where chunk_id = {chunk}")).await
}

/// The announcement lasts for so long from a moment after `since`, in the database's time.
pub(super) async fn lasts(bench: &Bench, chunk: ChunkId, wait: Duration, since: i64) {
    let until = until(bench, chunk).await;
    let (wait, now) = (wait.as_micros() as i64, bench.probe.now().await);
    // A millisecond either way for what databases round.
    let range = since + wait - 1000..=now + wait + 1000;
    let off = Duration::from_micros((until - since).max(0).unsigned_abs());
    assert!(range.contains(&until), "it lasts {off:?} instead of {:?}", Duration::from_micros(wait as u64));
}

/// Takes the one chunk that there is.
async fn take_one(bench: &Bench) -> Vec<Announcement> {
    let taken = take(bench, 10, 10).await;
    assert_eq!(taken.len(), 1, "{taken:?}");
    taken
}

pub(super) async fn every_repetition_lasts_twice_as_long(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.submit(job(1)).await;
    for times in [1, 2, 4, 8, 16, 32, 32, 32] {
        let before = bench.probe.now().await;
        let taken = take_one(&bench).await;
        lasts(&bench, taken[0].chunk, ANNOUNCEMENT_HELD, before).await;
        let before = bench.probe.now().await;
        bench.store.announcements_confirm(&taken, MINUTE).await.expect("announcements_confirm");
        lasts(&bench, taken[0].chunk, MINUTE * times, before).await;
        assert_eq!(take(&bench, 10, 10).await, []);
        run_out(&bench, &[taken[0].chunk]).await;
    }
    let taken = take_one(&bench).await;
    let before = bench.probe.now().await;
    bench.store.announcements_confirm(&taken, Duration::MAX).await.expect("announcements_confirm");
    lasts(&bench, taken[0].chunk, ANNOUNCEMENT_LONGEST * 32, before).await;
    let before = bench.probe.now().await;
    bench.store.announcements_defer(&[taken[0].chunk], Duration::MAX).await.expect("announcements_defer");
    lasts(&bench, taken[0].chunk, ANNOUNCEMENT_LONGEST, before).await;

    let claimed = bench.claim_one().await;
    bench.store.chunks_return(&[claimed.lease]).await.expect("chunks_return");
    let taken = take_one(&bench).await;
    let before = bench.probe.now().await;
    bench.store.announcements_confirm(&taken, MINUTE).await.expect("announcements_confirm");
    lasts(&bench, taken[0].chunk, MINUTE, before).await;
}

/// A relay that was too slow must not speak for what was marked since: under another fence, or when its own
/// mark had run out or was cleared. The one that marked it may have died before it published anything.
pub(super) async fn only_ones_own_mark_is_confirmed(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.submit(job(1)).await;
    bench.store.announcements_confirm(&[], LONG).await.expect("announcements_confirm");
    let old = take_one(&bench).await;
    let claimed = bench.claim_one().await;
    bench.store.chunks_return(&[claimed.lease]).await.expect("chunks_return");
    let before = bench.probe.now().await;
    let new = take_one(&bench).await;
    bench.other.announcements_confirm(&old, LONG).await.expect("announcements_confirm");
    lasts(&bench, new[0].chunk, ANNOUNCEMENT_HELD, before).await;

    run_out(&bench, &[new[0].chunk]).await;
    let before = bench.probe.now().await;
    let newer = take_one(&bench).await;
    assert_eq!(newer[0].fence, new[0].fence);
    bench.other.announcements_confirm(&new, LONG).await.expect("announcements_confirm");
    lasts(&bench, newer[0].chunk, ANNOUNCEMENT_HELD, before).await;

    bench.store.announcements_clear(&[newer[0].chunk]).await.expect("announcements_clear");
    let before = bench.probe.now().await;
    let newest = take_one(&bench).await;
    let late = [&new[..], &newer].concat();
    bench.other.announcements_confirm(&late, LONG).await.expect("announcements_confirm");
    lasts(&bench, newest[0].chunk, ANNOUNCEMENT_HELD, before).await;
    let before = bench.probe.now().await;
    let all = [&late[..], &newest].concat();
    bench.store.announcements_confirm(&all, LONG).await.expect("announcements_confirm");
    lasts(&bench, newest[0].chunk, LONG, before).await;
}

/// A batch is confirmed whole, each at its own repetition, and nothing beside it.
pub(super) async fn a_batch_is_confirmed_whole(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.submit(job(4)).await;
    let since = bench.probe.now().await;
    let first = announce(&bench, 10, 2).await;
    run_out(&bench, &[first[1].chunk]).await;
    let repeated = take(&bench, 10, 1).await;
    assert_eq!(repeated[0].chunk, first[1].chunk);
    let before = bench.probe.now().await;
    let rest = take(&bench, 10, 10).await;
    let batch = [&first[..1], &repeated, &rest[..1]].concat();
    bench.store.announcements_confirm(&batch, MINUTE).await.expect("announcements_confirm");
    lasts(&bench, first[0].chunk, LONG, since).await;
    let until = [MINUTE * 2, MINUTE, ANNOUNCEMENT_HELD];
    for (one, until) in first[1..].iter().chain(&rest).zip(until) {
        lasts(&bench, one.chunk, until, before).await;
    }
}

pub(super) async fn what_is_cleared_is_announced_at_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.submit(job(2)).await;
    let taken = announce(&bench, 10, 10).await;
    run_out(&bench, &[taken[0].chunk]).await;
    let again = announce(&bench, 10, 10).await;
    assert_eq!(chunks(&again), [taken[0].chunk], "its second time");
    for chunks in [vec![], vec![ChunkId(999_999)]] {
        bench.store.announcements_clear(&chunks).await.expect("announcements_clear");
        bench.store.announcements_defer(&chunks, MINUTE).await.expect("announcements_defer");
    }
    assert_eq!(take(&bench, 10, 10).await, []);
    bench.store.announcements_clear(&[taken[0].chunk]).await.expect("announcements_clear");
    bench.store.announcements_confirm(&again, LONG).await.expect("announcements_confirm");
    let again = take(&bench, 10, 10).await;
    assert_eq!(chunks(&again), [taken[0].chunk], "a confirm brings back nothing that was cleared");
    let before = bench.probe.now().await;
    bench.store.announcements_confirm(&again, MINUTE).await.expect("announcements_confirm");
    lasts(&bench, taken[0].chunk, MINUTE, before).await;
}

pub(super) async fn what_is_deferred_waits_twice_as_long_each_time(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.submit(job(2)).await;
    let taken = take(&bench, 10, 10).await;
    let since = bench.probe.now().await;
    bench.store.announcements_confirm(&taken, 100 * LONG).await.expect("announcements_confirm");
    for seconds in [1, 2, 4, 8, 8] {
        let before = bench.probe.now().await;
        bench.store.announcements_defer(&[taken[0].chunk], Duration::from_secs(1)).await.expect("defer");
        lasts(&bench, taken[0].chunk, Duration::from_secs(seconds).min(ANNOUNCEMENT_DEFERRED), before).await;
        run_out(&bench, &[taken[0].chunk]).await;
        let again = take(&bench, 10, 10).await;
        assert_eq!(chunks(&again), [taken[0].chunk]);
        bench.store.announcements_confirm(&again, 100 * LONG).await.expect("announcements_confirm");
    }
    lasts(&bench, taken[1].chunk, 100 * LONG, since).await;

    let before = bench.probe.now().await;
    bench.store.announcements_defer(&[taken[0].chunk], MINUTE).await.expect("announcements_defer");
    lasts(&bench, taken[0].chunk, MINUTE, before).await;

    let before = bench.probe.now().await;
    bench.store.announcements_doubt().await.expect("announcements_doubt");
    bench.store.announcements_defer(&[taken[1].chunk], MINUTE).await.expect("announcements_defer");
    lasts(&bench, taken[1].chunk, ANNOUNCEMENT_DOUBTED, before).await;
    run_out(&bench, &[taken[1].chunk]).await;
    bench.store.announcements_defer(&[taken[1].chunk], MINUTE).await.expect("announcements_defer");
    let again = chunks(&take(&bench, 10, 10).await);
    assert_eq!(again, [taken[1].chunk], "never later than it would have been");
}

/// A worker that cannot claim may be faster than the relay's confirm; and what it defers was not lost.
pub(super) async fn what_is_deferred_before_the_confirm_stays_so(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.submit(job(1)).await;
    for times in [1, 2, 4] {
        let taken = take_one(&bench).await;
        let before = bench.probe.now().await;
        bench.store.announcements_defer(&[taken[0].chunk], Duration::from_secs(1)).await.expect("defer");
        bench.store.announcements_defer(&[taken[0].chunk], MINUTE).await.expect("a second message");
        bench.other.announcements_confirm(&taken, MINUTE).await.expect("announcements_confirm");
        lasts(&bench, taken[0].chunk, Duration::from_secs(times), before).await;
        run_out(&bench, &[taken[0].chunk]).await;
    }
    let taken = take_one(&bench).await;
    let before = bench.probe.now().await;
    bench.store.announcements_confirm(&taken, MINUTE).await.expect("announcements_confirm");
    lasts(&bench, taken[0].chunk, MINUTE, before).await;
    bench.store.announcements_confirm(&taken, LONG).await.expect("announcements_confirm");
    lasts(&bench, taken[0].chunk, MINUTE, before).await;
}

pub(super) async fn a_doubt_shortens_all(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.store.announcements_doubt().await.expect("announcements_doubt");
    let mut new = job(4);
    new.chunks[0].queue = MAIL.to_owned();
    bench.submit(new).await;
    let taken = announce(&bench, 10, 10).await;
    let second = Duration::from_secs(1);
    let soon = bench.probe.now().await;
    bench.store.announcements_defer(&[taken[2].chunk], second).await.expect("announcements_defer");
    let after = bench.probe.now().await;
    run_out(&bench, &[taken[3].chunk]).await;
    let before = bench.probe.now().await;
    bench.other.announcements_doubt().await.expect("announcements_doubt");
    for one in &taken[..2] {
        lasts(&bench, one.chunk, ANNOUNCEMENT_DOUBTED, before).await;
    }
    let short = until(&bench, taken[2].chunk).await;
    assert!((soon + 999_000..=after + 1_001_000).contains(&short), "what ends sooner ends when it would");
    assert_eq!(until(&bench, taken[3].chunk).await, 0, "what ran out stays so");
}

/// What has no slot may wait with the worker that asked: the claim itself defers its announcement, never to a
/// later time, and touches nobody else's.
pub(super) async fn what_has_no_slot_is_deferred_with_the_claim(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut new = job(4);
    new.chunks[3].queue = MAIL.to_owned();
    bench.submit(new).await;
    let known = [bench.queue, bench.mail];
    let taken = bench.store.announcements_take(&known, 10, 10).await.expect("announcements_take");
    let since = bench.probe.now().await;
    bench.store.announcements_confirm(&taken, LONG).await.expect("announcements_confirm");
    let names: Vec<ChunkName> = taken.iter().map(name).collect();
    let wants = [Want { queue: bench.queue, limit: 1 }];
    let before = bench.probe.now().await;
    let claims = bench.store.chunks_claim_named(bench.worker, &names, &wants, 5).await;
    let claims = claims.expect("chunks_claim_named");
    let claimed: Vec<ChunkId> = claims.claimed.iter().map(|(_, chunk)| chunk.lease.chunk).collect();
    assert_eq!(claimed, [taken[0].chunk]);
    for chunk in [taken[1].chunk, taken[2].chunk] {
        lasts(&bench, chunk, ANNOUNCEMENT_DEFERRED, before).await;
    }
    lasts(&bench, taken[3].chunk, LONG, since).await;

    // Its relay was slower than its message, or it is asked for once more.
    let deferred = until(&bench, taken[1].chunk).await;
    bench.store.announcements_confirm(&taken, LONG).await.expect("announcements_confirm");
    let none = [Want { queue: bench.queue, limit: 0 }];
    let claims = bench.store.chunks_claim_named(bench.worker, &names[1..2], &none, 5).await;
    assert_eq!(claims.expect("chunks_claim_named").left.len(), 1);
    assert_eq!(until(&bench, taken[1].chunk).await, deferred);
    run_out(&bench, &[taken[1].chunk]).await;
    let again = take(&bench, 10, 10).await;
    assert_eq!(again[0].chunk, taken[1].chunk, "the other may have run out since, too");
    let before = bench.probe.now().await;
    bench.store.announcements_confirm(&again, LONG).await.expect("announcements_confirm");
    // Its message was consumed, so this is no repetition of one that nobody took.
    lasts(&bench, taken[1].chunk, LONG, before).await;
}

/// Somebody else is at the announcement of a chunk without a slot: the worker is told to come back to it, for
/// nothing was deferred.
pub(super) async fn what_could_not_be_deferred_is_busy(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.submit(job(1)).await;
    let taken = announce(&bench, 10, 10).await;
    let names = [name(&taken[0])];
    let none = [Want { queue: bench.queue, limit: 0 }];
    let because = async || {
        let claims = bench.store.chunks_claim_named(bench.worker, &names, &none, 5).await;
        match claims.expect("chunks_claim_named").left[..] {
            [(0, NotClaimed::NotNow { because, .. })] => because,
            ref other => panic!("{other:?}"),
        }
    };
    if let Some(lock) = bench.probe.lock("select 1 from announcement for update").await {
        assert_eq!(because().await, NotNow::Busy);
        drop(lock);
    }
    let before = bench.probe.now().await;
    assert_eq!(because().await, NotNow::NoSlot);
    lasts(&bench, taken[0].chunk, ANNOUNCEMENT_DEFERRED, before).await;
}
