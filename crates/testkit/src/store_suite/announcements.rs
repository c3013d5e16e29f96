//! Announcements: which chunks a relay is given to announce, in which order, and how many at most.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::BoxFuture;
use outhaul_core::announcement::{ANNOUNCEMENT_HELD, Announcement, ChunkName, NotClaimed};
use outhaul_core::id::{ChunkId, QueueId};
use outhaul_core::job::{JobStatus, NewChunk, NewJob};
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Cancelled, Prioritised, Redriven, StoreSettings};
use outhaul_core::worker::Want;

use super::announcement_times::{lasts, run_out, until};
use super::bench::{Bench, Kit, LONG, MAIL, QUEUE, SETTINGS, at_once, chunk, custom, day, job};

/// Takes of both queues.
pub(super) async fn take(bench: &Bench, window: u32, limit: u32) -> Vec<Announcement> {
    let queues = [bench.queue, bench.mail];
    bench.store.announcements_take(&queues, window, limit).await.expect("announcements_take")
}

/// The same, confirmed: they stay announced however slow the case is.
pub(super) async fn announce(bench: &Bench, window: u32, limit: u32) -> Vec<Announcement> {
    let taken = take(bench, window, limit).await;
    bench.store.announcements_confirm(&taken, LONG).await.expect("announcements_confirm");
    taken
}

/// Which chunks they are of.
pub(super) fn chunks(announcements: &[Announcement]) -> Vec<ChunkId> {
    announcements.iter().map(|announcement| announcement.chunk).collect()
}

/// What the message of an announcement says.
pub(super) fn name(announcement: &Announcement) -> ChunkName {
    ChunkName { job_id: announcement.job_id.to_string(), chunk_key: announcement.chunk_key.clone() }
}

/// A job of so many chunks in each queue.
fn mixed(chunks: usize) -> NewJob {
    let mut new = job(chunks);
    let mail = |n: usize| NewChunk { queue: MAIL.to_owned(), ..chunk(&format!("M{n:05}")) };
    new.chunks.extend((0..chunks).map(mail));
    new
}

/// How many of each queue.
fn per_queue(bench: &Bench, taken: &[Announcement]) -> (usize, usize) {
    let of = |queue| taken.iter().filter(|announcement| announcement.queue == queue).count();
    (of(bench.queue), of(bench.mail))
}

async fn rows(bench: &Bench) -> i64 {
    bench.probe.number("select count(*) from announcement").await
}

async fn announced(bench: &Bench) -> u64 {
    bench.other.delivery_lag().await.expect("delivery_lag").announced
}

pub(super) async fn an_announcement_tells_all_that_a_message_needs(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (export, mail) = (job(1), custom());
    bench.submit(export.clone()).await;
    bench.submit(mail.clone()).await;
    let before = bench.probe.now().await;
    let taken = take(&bench, 10, 10).await;
    assert_eq!(taken.len(), 2);
    let expected = Announcement {
        chunk: taken[0].chunk,
        fence: 0,
        mark: taken[0].mark,
        queue: bench.queue,
        job_id: export.job_id.clone(),
        chunk_key: export.chunks[0].chunk_key.clone(),
        key: Some("K00000".to_owned()),
        effective_date: Some(day()),
    };
    assert_eq!(taken[0], expected);
    let expected = Announcement {
        chunk: taken[1].chunk,
        mark: taken[1].mark,
        job_id: mail.job_id.clone(),
        chunk_key: "main".to_owned(),
        key: None,
        effective_date: None,
        ..expected
    };
    assert_eq!(taken[1], expected);
    for one in &taken {
        lasts(&bench, one.chunk, ANNOUNCEMENT_HELD, before).await;
        assert_eq!(until(&bench, one.chunk).await, one.mark.timestamp_micros());
    }
    // So that they stay so however slow the case is.
    bench.store.announcements_confirm(&taken, LONG).await.expect("announcements_confirm");
    assert_eq!(announced(&bench).await, 2);
    assert_eq!(take(&bench, 10, 10).await, [], "they are announced");
    let claimed = bench.claim(10).await;
    assert_eq!(claimed.iter().map(|chunk| chunk.lease.chunk).collect::<Vec<_>>(), chunks(&taken));
}

pub(super) async fn the_window_holds_per_queue(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.submit(mixed(20)).await;
    let store = &bench.store;
    for (queues, window, limit) in [
        (vec![], 10, 10),
        (vec![QueueId(999_999)], 10, 10),
        (vec![bench.queue], 0, 10),
        (vec![bench.queue], 10, 0),
    ] {
        let taken = store.announcements_take(&queues, window, limit).await.expect("announcements_take");
        assert_eq!(taken, [], "{queues:?} {window} {limit}");
    }
    assert_eq!(per_queue(&bench, &announce(&bench, 3, 100).await), (3, 3));
    assert_eq!(take(&bench, 3, 100).await, [], "the window is full");
    assert_eq!(take(&bench, 2, 100).await, [], "and more than full, if it is made smaller");
    assert_eq!(per_queue(&bench, &announce(&bench, 5, 100).await), (2, 2));
    assert_eq!(announce(&bench, 8, 4).await.len(), 4, "no more than the limit");
    assert_eq!(announce(&bench, 8, 100).await.len(), 2);
    let again =
        store.announcements_take(&[bench.mail, bench.mail], 9, 100).await.expect("announcements_take");
    assert_eq!(per_queue(&bench, &again), (0, 1), "only of these queues, and of one named twice once");
    assert_eq!(announced(&bench).await, 17);
    assert_eq!(per_queue(&bench, &announce(&bench, u32::MAX, u32::MAX).await), (12, 11), "what is left");
}

pub(super) async fn the_window_counts_only_what_is_announced(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.submit(job(20)).await;
    let first = announce(&bench, 6, 100).await;
    assert_eq!(first.len(), 6);
    let claimed = bench.claim(2).await;
    assert_eq!(announced(&bench).await, 4, "what is claimed is no longer announced");
    bench.store.chunks_return(&[claimed[0].lease]).await.expect("chunks_return");
    assert_eq!(announced(&bench).await, 4, "nor is what came back, under another fence");
    let claimed = [bench.claim_one().await, claimed[1].clone()];
    assert_eq!(announce(&bench, 6, 100).await.len(), 2);
    bench.finish(&claimed[..1]).await;
    bench.fail(&claimed[1], Some(LONG)).await.expect("still owned");
    assert_eq!(take(&bench, 6, 100).await, [], "and made room once");

    let gone = [first[3].chunk, first[4].chunk];
    run_out(&bench, &gone).await;
    assert_eq!(announced(&bench).await, 4, "what ran out is not announced either");
    let again = announce(&bench, 6, 100).await;
    assert_eq!(chunks(&again), gone, "in claim order");
    assert_eq!(announced(&bench).await, 6);
}

/// The order is that of claims, also between the queues: none starves the other.
pub(super) async fn announcements_go_in_claim_order(kit: Kit) {
    let bench = kit.bench(StoreSettings { fairness_step: LONG, ..SETTINGS }).await;
    for priority in [5, 0, 9, 5] {
        bench.submit(NewJob { priority, ..mixed(3) }).await;
        bench.submit(NewJob { priority, ..job(2) }).await;
    }
    let mut order: Vec<ChunkId> = Vec::new();
    let mut sizes = [1, 2, 3, 5].into_iter().cycle();
    loop {
        let taken = announce(&bench, 1000, sizes.next().expect("endless")).await;
        if taken.is_empty() {
            break;
        }
        order.extend(chunks(&taken));
    }
    let mut claims: Vec<ChunkId> = Vec::new();
    let wants = [bench.mail, bench.queue].map(|queue| Want { queue, limit: 1 });
    while let Some(one) = bench.store.chunks_claim(bench.worker, &wants, 1).await.expect("chunks_claim").pop()
    {
        claims.push(one.lease.chunk);
    }
    assert_eq!((order.len(), order), (32, claims));
}

pub(super) async fn only_what_may_start_is_announced(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let failed = bench.submit(job(3)).await.job_id;
    let dead = bench.claim_one().await;
    bench.fail(&dead, None).await.expect("still owned");
    assert_eq!(bench.job(&failed).await.status, JobStatus::Failed);
    assert_eq!(take(&bench, 10, 10).await, [], "chunks of a FAILED job, before any sweep");
    bench.stage().await;
    assert_eq!(take(&bench, 10, 10).await, [], "held chunks");

    let cancelled = bench.submit(job(3)).await.job_id;
    assert_eq!(bench.store.job_cancel(&cancelled).await.expect("job_cancel"), Cancelled::Yes);
    assert_eq!(take(&bench, 10, 10).await, [], "chunks of a CANCELLED job, before any sweep");

    let later = outhaul_core::clock::now() + LONG;
    bench.submit(NewJob { run_at: Some(later), ..job(1) }).await;
    assert_eq!(take(&bench, 10, 10).await, [], "a chunk whose time has not come");
    let (_, running) = bench.running(2).await;
    bench.fail(&running[0], Some(LONG)).await.expect("still owned");
    assert_eq!(take(&bench, 10, 10).await, [], "a chunk that runs, and one that waits for its next attempt");

    bench.submit(mixed(2)).await;
    bench.store.queue_pause(QUEUE, true).await.expect("queue_pause");
    assert_eq!(per_queue(&bench, &announce(&bench, 10, 10).await), (0, 2), "a paused queue");
    bench.store.queue_pause(QUEUE, false).await.expect("queue_pause");
    assert_eq!(per_queue(&bench, &announce(&bench, 10, 10).await), (2, 0), "resumed");
    assert_eq!(bench.store.job_redrive(&failed).await.expect("job_redrive"), Redriven::Yes(3));
    assert_eq!(take(&bench, 10, 10).await.len(), 3, "redriven");
}

/// A claim raises the fence: what comes back after it is announced anew, whatever was announced before.
pub(super) async fn what_comes_back_is_announced_at_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.submit(job(1)).await;
    let comes_back = async |fence: i64| {
        let taken = announce(&bench, 1, 10).await;
        assert_eq!(taken.iter().map(|taken| taken.fence).collect::<Vec<_>>(), [fence]);
        assert_eq!(take(&bench, 1, 10).await, []);
        bench.claim_one().await
    };
    let claimed = comes_back(0).await;
    bench.store.chunks_return(&[claimed.lease]).await.expect("chunks_return");
    let claimed = comes_back(1).await;
    bench.fail(&claimed, Some(Duration::ZERO)).await.expect("still owned");
    bench.stage().await;
    let claimed = comes_back(2).await;
    assert!(bench.store.chunk_snooze(claimed.lease, Duration::ZERO).await.expect("chunk_snooze"));
    bench.stage().await;
    let claimed = comes_back(3).await;
    bench.fail(&claimed, None).await.expect("still owned");
    bench.store.job_redrive(&claimed.job_id).await.expect("job_redrive");
    let claimed = comes_back(4).await;
    assert_eq!(bench.finish(&[claimed]).await, 1);
    assert_eq!((take(&bench, 1, 10).await, announced(&bench).await), (vec![], 0));
    assert_eq!(rows(&bench).await, 0, "nothing stays of what is over");
}

/// A message that comes while its chunk must not start is dropped: should the chunk wait again under the same
/// fence, there must be another.
pub(super) async fn what_was_told_in_vain_is_announced_again(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for held in [false, true] {
        let job_id = bench.submit(job(2)).await.job_id;
        let taken = announce(&bench, 10, 10).await;
        let dead = bench.claim_one().await;
        bench.fail(&dead, None).await.expect("still owned");
        if held {
            bench.stage().await;
        }
        let waits = taken.iter().find(|taken| taken.chunk != dead.lease.chunk).expect("two were announced");
        let wants = [Want { queue: bench.queue, limit: 5 }];
        let claims = bench.store.chunks_claim_named(bench.worker, &[name(waits)], &wants, 5).await;
        assert_eq!(claims.expect("chunks_claim_named").left, [(0, NotClaimed::Over)]);
        assert!(matches!(bench.store.job_redrive(&job_id).await.expect("job_redrive"), Redriven::Yes(_)));
        bench.stage().await;
        assert!(chunks(&take(&bench, 10, 10).await).contains(&waits.chunk), "held: {held}");
        let claimed = bench.claim(5).await;
        assert_eq!(bench.finish(&claimed).await, 2);
    }
}

/// What happens to chunks between a relay's take and its confirm.
pub(super) async fn a_confirm_that_comes_late_harms_nothing(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let confirm = async |taken: &[Announcement]| {
        bench.store.announcements_confirm(taken, LONG).await.expect("announcements_confirm");
    };
    let held = bench.submit(job(2)).await.job_id;
    let taken = take(&bench, 10, 10).await;
    let dead = bench.claim_one().await;
    bench.fail(&dead, None).await.expect("still owned");
    bench.stage().await;
    assert_eq!(announced(&bench).await, 0, "what is held is not announced");
    assert_eq!(take(&bench, 10, 10).await, []);
    confirm(&taken).await;
    assert_eq!(bench.store.job_redrive(&held).await.expect("job_redrive"), Redriven::Yes(2));
    let again = take(&bench, 10, 10).await;
    let fences: Vec<_> = again.iter().map(|again| (again.chunk, again.fence)).collect();
    assert_eq!(fences, [(taken[0].chunk, 1), (taken[1].chunk, 0)], "redriven after the hold");

    assert_eq!(bench.store.job_cancel(&held).await.expect("job_cancel"), Cancelled::Yes);
    bench.stage().await;
    confirm(&again).await;
    assert_eq!((take(&bench, 10, 10).await, announced(&bench).await, rows(&bench).await), (vec![], 0, 0));

    let low = bench.submit(job(1)).await.job_id;
    let high = bench.submit(job(2)).await.job_id;
    let taken = take(&bench, 1, 10).await;
    assert_eq!(taken.iter().map(|taken| &taken.job_id).collect::<Vec<_>>(), [&low]);
    assert_eq!(bench.store.job_prioritise(&high, 9).await.expect("job_prioritise"), Prioritised::Yes);
    confirm(&taken).await;
    assert_eq!(take(&bench, 1, 10).await, [], "it is announced whatever comes before it now");
    assert_eq!(bench.claim_one().await.job_id, high);
    assert_eq!(take(&bench, 2, 10).await.iter().map(|taken| &taken.job_id).collect::<Vec<_>>(), [&high]);
    assert_eq!(announced(&bench).await, 2);
}

/// A job that is gone leaves nothing behind that would count.
pub(super) async fn a_pruned_job_is_not_announced(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let id = bench.submit(job(3)).await.job_id;
    assert_eq!(take(&bench, 3, 10).await.len(), 3);
    bench.store.job_cancel(&id).await.expect("job_cancel");
    bench.stage().await;
    assert_eq!(bench.states(&id).await, [ChunkState::Cancelled; 3]);
    while bench.store.jobs_prune(Duration::ZERO, 10).await.expect("jobs_prune") > 0 {}
    assert_eq!(bench.probe.number("select count(*) from job_chunk").await, 0);
    assert_eq!(announced(&bench).await, 0);
    bench.submit(job(5)).await;
    assert_eq!(take(&bench, 3, 10).await.len(), 3);
    assert_eq!(rows(&bench).await, 3);
}

/// However many relays look at once, while workers claim and give back.
pub(super) async fn relays_at_once_never_pass_the_window(kit: Kit) {
    const WINDOW: u32 = 5;
    let bench = kit.bench(SETTINGS).await;
    bench.submit(mixed(100)).await;
    let queues = [bench.queue, bench.mail];
    let mut told: HashSet<(ChunkId, i64)> = HashSet::new();
    for round in 0..25 {
        let mut acts: Vec<BoxFuture<'static, Vec<Announcement>>> = Vec::new();
        for n in 0..6 {
            let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
            // Half of them in the other order, as locks must not cross.
            let queues = if n < 3 { queues } else { [queues[1], queues[0]] };
            acts.push(Box::pin(async move {
                let take = store.announcements_take(&queues, WINDOW, 4).await;
                let taken = take.expect("announcements_take");
                store.announcements_confirm(&taken, LONG).await.expect("announcements_confirm");
                taken
            }));
        }
        let (store, worker) = (bench.other.clone(), bench.worker);
        acts.push(Box::pin(async move {
            let wants = queues.map(|queue| Want { queue, limit: 3 });
            let claimed = store.chunks_claim(worker, &wants, 4).await.expect("chunks_claim");
            if let Some(one) = claimed.first().filter(|_| round % 2 == 0) {
                store.chunks_return(&[one.lease]).await.expect("chunks_return");
            }
            Vec::new()
        }));
        for taken in at_once(acts).await.into_iter().flatten() {
            let once = told.insert((taken.chunk, taken.fence));
            assert!(once, "round {round}: {taken:?} was announced twice at the same time");
        }
        for queue in queues {
            let sql = format!(
                "select count(*) from announcement a join job_chunk c on c.id = a.chunk_id
                 where c.state = 'QUEUED' and c.fence = a.fence and a.queue_id = {queue}"
            );
            let live = bench.probe.number(&sql).await;
            assert!(live <= i64::from(WINDOW), "round {round}: {live} announced of queue {queue}");
        }
    }
    assert!(told.len() > 60, "only {} were announced in 25 rounds", told.len());
    take(&bench, WINDOW, 100).await;
    assert_eq!(announced(&bench).await, u64::from(WINDOW) * 2, "and they fill it");
}
