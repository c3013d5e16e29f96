//! Claims: which chunks, in which order, how many, and what a worker is told.

use std::time::Duration;

use outhaul_core::job::{JobStatus, NewChunk, NewJob};
use outhaul_core::store::{Cancelled, StoreSettings};
use outhaul_core::turn::turn;
use outhaul_core::worker::{ClaimedChunk, Want};

use super::bench::{Bench, Kit, LONG, MAIL, SETTINGS, chunk, day, job};
use super::named_claims::names;
use crate::sample::register;

/// Claims one at a time until nothing is left; the keys in that order.
async fn order(bench: &Bench, at_most: usize) -> Vec<String> {
    let mut keys = Vec::new();
    while keys.len() < at_most {
        let Some(ClaimedChunk { key, .. }) = bench.claim(1).await.pop() else { break };
        keys.push(key.expect("exports have keys"));
    }
    keys
}

fn named(names: &[&str]) -> NewJob {
    NewJob { chunks: names.iter().map(|name| chunk(name)).collect(), ..job(0) }
}

pub(super) async fn a_worker_can_ask_what_runs_under_its_name(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (_, chunks) = bench.running(3).await;
    bench.finish(&chunks[..1]).await;
    let other = register(&*bench.store).await;
    bench.submit(job(1)).await;
    let wants = [Want { queue: bench.queue, limit: 1 }];
    let theirs = bench.store.chunks_claim(other, &wants, 1).await.expect("chunks_claim");
    let of_worker = async |worker| bench.store.chunks_of_worker(worker).await.expect("chunks_of_worker");
    assert_eq!(of_worker(bench.worker).await, [chunks[1].lease, chunks[2].lease]);
    assert_eq!(of_worker(other).await, [theirs[0].lease]);
    bench.store.chunks_return(&[chunks[1].lease]).await.expect("chunks_return");
    assert_eq!(of_worker(bench.worker).await, [chunks[2].lease]);
}

pub(super) async fn a_claim_tells_all_that_a_worker_needs(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let new = job(1);
    let created = bench.submit(new.clone()).await;
    let claimed = bench.claim_one().await;
    assert_eq!((claimed.lease.fence, claimed.attempt, claimed.lost), (1, 1, 0));
    assert_eq!((claimed.queue, &claimed.job_id), (bench.queue, &new.job_id));
    assert_eq!(
        (&claimed.job_type, &claimed.dataset, &claimed.owner),
        (&new.job_type, &new.dataset, &new.owner)
    );
    assert_eq!((&claimed.params, &claimed.chunk_key), (&new.params, &new.chunks[0].chunk_key));
    assert_eq!((claimed.key.as_deref(), claimed.effective_date), (Some("K00000"), Some(day())));
    assert_eq!(claimed.submitted_at, created.created_at);
    assert!(claimed.claimed_at >= claimed.submitted_at);

    let shown = bench.job(&new.job_id).await;
    assert_eq!((shown.status, shown.counts.running, shown.counts.pending()), (JobStatus::InProgress, 1, 0));
    assert!(shown.started_at.is_some());
    assert_eq!(shown.version, created.version, "claims never touch the job row");
    let stored = bench.probe.texts("select status from job").await;
    assert_eq!(stored, ["SUBMITTED"], "claims never touch the job row");
}

/// So that the order of claims can be told from the times, whichever way a batch's rows were visited.
pub(super) async fn what_is_claimed_together_starts_together(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let new = job(20);
    bench.submit(new.clone()).await;
    let wants = [Want { queue: bench.queue, limit: 10 }];
    let named =
        bench.store.chunks_claim_named(bench.worker, &names(&new)[10..], &wants, 10).await.expect("by name");
    let named = named.claimed.into_iter().map(|(_, chunk)| chunk).collect();
    for claimed in [named, bench.claim(10).await] {
        assert_eq!(claimed.len(), 10);
        let at = claimed[0].claimed_at;
        assert!(claimed.iter().all(|chunk| chunk.claimed_at == at), "{claimed:?}");
        let rows = bench.store.chunks_list(&new.job_id, None, None, 20).await.expect("chunks_list").items;
        assert_eq!(rows.iter().filter(|row| row.started_at == Some(at)).count(), 10);
    }
}

pub(super) async fn limits_hold_per_queue_and_in_all(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mail = |n: usize| NewChunk { queue: MAIL.to_owned(), ..chunk(&format!("M{n}")) };
    let mut new = job(10);
    new.chunks.extend((0..10).map(mail));
    bench.submit(new).await;
    let count = async |warehouse: u32, mail: u32, total: u32| {
        let wants = [Want { queue: bench.queue, limit: warehouse }, Want { queue: bench.mail, limit: mail }];
        let claimed = bench.store.chunks_claim(bench.worker, &wants, total).await.expect("chunks_claim");
        let of = |queue| claimed.iter().filter(|chunk| chunk.queue == queue).count();
        (of(bench.queue), of(bench.mail), claimed.len())
    };
    assert_eq!(count(2, 3, 100).await, (2, 3, 5));
    assert_eq!(count(0, 1, 100).await, (0, 1, 1));
    assert_eq!(count(3, 3, 4).await.2, 4);
    assert_eq!(count(100, 100, 100).await.2, 10, "what is left");
    assert_eq!(count(100, 100, 100).await.2, 0);
}

pub(super) async fn priority_goes_first_then_turn(kit: Kit) {
    let bench = kit.bench(StoreSettings { fairness_step: LONG, ..SETTINGS }).await;
    for (priority, names) in [(5, ["a", "b"]), (0, ["y", "z"]), (9, ["1", "2"]), (5, ["c", "d"])] {
        bench.submit(NewJob { priority, ..named(&names) }).await;
    }
    assert_eq!(order(&bench, 100).await, ["1", "2", "a", "c", "b", "d", "y", "z"]);
}

/// A step of an hour, so that the speed of the machine has no say.
pub(super) async fn large_jobs_share_and_small_ones_do_not_wait(kit: Kit) {
    let bench = kit.bench(StoreSettings { fairness_step: LONG, ..SETTINGS }).await;
    let large = bench.submit(job(1000)).await;
    let second = bench.submit(job(1000)).await;
    bench.submit(named(&["small"])).await;
    let first = bench.claim(7).await;
    let small = first.iter().position(|chunk| chunk.key.as_deref() == Some("small"));
    assert!(small.is_some_and(|place| place <= 2), "a small job starts at once, not at {small:?}");
    let of = |id| first.iter().filter(|chunk| chunk.job_id == id).count();
    assert_eq!((of(large.job_id), of(second.job_id)), (3, 3), "two large jobs share the workers");
}

pub(super) async fn a_step_of_zero_is_first_come_first_served(kit: Kit) {
    let bench = kit.bench(StoreSettings { fairness_step: Duration::ZERO, ..SETTINGS }).await;
    bench.submit(named(&["a", "b", "c"])).await;
    bench.submit(named(&["d"])).await;
    bench.submit(named(&["e", "f"])).await;
    assert_eq!(order(&bench, 100).await, ["a", "b", "c", "d", "e", "f"]);
}

pub(super) async fn turns_are_those_of_core(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let created = bench.submit(job(50)).await;
    let sql = format!("select {} from job_chunk where position = ", bench.probe.micros("turn"));
    let first = bench.probe.number(&format!("{sql} 0")).await;
    let start = chrono::DateTime::from_timestamp_micros(first).expect("a time");
    for position in [1_u32, 7, 49] {
        let found = bench.probe.number(&format!("{sql} {position}")).await;
        let expected = turn(start, position, SETTINGS.fairness_step).timestamp_micros();
        assert_eq!(found, expected, "the turn of position {position} of {}", created.job_id);
    }
}

pub(super) async fn a_turn_is_kept_through_retries(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.submit(named(&["first"])).await;
    let failing = bench.claim_one().await;
    bench.submit(named(&["second"])).await;
    bench.fail(&failing, Some(Duration::ZERO)).await.expect("still owned");
    assert_eq!(bench.stage().await.queued, 1);
    assert_eq!(order(&bench, 100).await, ["first", "second"]);
}

pub(super) async fn stopped_jobs_and_paused_queues_give_nothing(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let failed = bench.submit(job(3)).await;
    let dead = bench.claim_one().await;
    bench.fail(&dead, None).await.expect("still owned");
    assert_eq!(bench.job(&failed.job_id).await.status, JobStatus::Failed);
    assert!(bench.claim(10).await.is_empty(), "chunks of a FAILED job, before any sweep");

    let cancelled = bench.submit(job(3)).await;
    assert_eq!(bench.store.job_cancel(&cancelled.job_id).await.expect("job_cancel"), Cancelled::Yes);
    assert!(bench.claim(10).await.is_empty(), "chunks of a CANCELLED job, before any sweep");

    bench.submit(job(3)).await;
    assert!(bench.store.queue_pause(super::bench::QUEUE, true).await.expect("queue_pause"));
    assert!(bench.claim(10).await.is_empty(), "a paused queue");
    let queues = bench.other.queues_list().await.expect("queues_list");
    assert!(queues.iter().all(|queue| queue.paused == (queue.id == bench.queue)));
    assert!(bench.store.queue_pause(super::bench::QUEUE, false).await.expect("queue_pause"));
    assert_eq!(bench.claim(10).await.len(), 3);
    assert!(!bench.store.queue_pause("source:nowhere", true).await.expect("queue_pause"));
}

pub(super) async fn wanting_nothing_gives_nothing(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.submit(job(2)).await;
    let none = outhaul_core::id::QueueId(999_999);
    for (wants, total) in [
        (vec![], 10),
        (vec![Want { queue: bench.queue, limit: 0 }], 10),
        (vec![Want { queue: bench.queue, limit: 10 }], 0),
        (vec![Want { queue: none, limit: 10 }], 10),
        (vec![Want { queue: bench.mail, limit: 10 }], 10),
    ] {
        let claimed = bench.store.chunks_claim(bench.worker, &wants, total).await.expect("chunks_claim");
        assert_eq!(claimed, [], "{wants:?} {total}");
    }
    bench.store.progress_record(&[]).await.expect("progress_record");
    assert!(bench.store.chunks_finish(&[]).await.expect("chunks_finish").is_empty());
    assert!(bench.store.chunks_fail(&[]).await.expect("chunks_fail").is_empty());
    assert!(bench.store.chunks_return(&[]).await.expect("chunks_return").is_empty());
    assert!(bench.store.chunks_cancel(&[]).await.expect("chunks_cancel").is_empty());
    assert!(bench.store.chunks_cancelled(&[]).await.expect("chunks_cancelled").is_empty());
    let beat = bench.store.chunks_heartbeat(bench.worker, &[], &[]).await.expect("chunks_heartbeat");
    assert_eq!(beat, outhaul_core::worker::Beat::default());
    assert_eq!(bench.claim(10).await.len(), 2, "nothing was touched");
}
