//! Queues, their budget slots, and the workers that hold them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outhaul_core::id::QueueId;
use outhaul_core::queue::QueueSpec;
use outhaul_core::worker::Slot;

use super::bench::{
    Bench, Kit, LONG, MAIL, QUEUE, SETTINGS, SHORT_LEASE, at_once, eventually, job, register,
};

/// A queue with this budget.
async fn budget(bench: &Bench, max_concurrent: Option<u32>) -> QueueId {
    let spec = QueueSpec { name: "source:ledger".to_owned(), max_concurrent };
    bench.store.queues_sync(&[spec]).await.expect("queues_sync")["source:ledger"]
}

fn numbers(mut slots: Vec<Slot>) -> Vec<i32> {
    slots.sort_by_key(|slot| slot.number);
    slots.into_iter().map(|slot| slot.number).collect()
}

pub(super) async fn queues_are_made_once_and_keep_their_keys(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let specs: Vec<QueueSpec> = [("source:a", Some(3)), (QUEUE, None), ("source:b", None)]
        .map(|(name, max_concurrent)| QueueSpec { name: name.to_owned(), max_concurrent })
        .to_vec();
    let acts = (0..6)
        .map(|n| {
            let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
            let mut specs = specs.clone();
            if n % 3 == 0 {
                specs.reverse();
            }
            async move { store.queues_sync(&specs).await.expect("queues_sync") }
        })
        .collect();
    let answers = at_once(acts).await;
    assert!(answers.iter().all(|keys| *keys == answers[0]), "every process gets the same keys");
    assert_eq!(answers[0].len(), 3);
    assert_eq!(answers[0][QUEUE], bench.queue);
    let mut names: Vec<_> =
        bench.store.queues_list().await.expect("queues_list").into_iter().map(|queue| queue.name).collect();
    names.sort();
    assert_eq!(names, [MAIL, "source:a", "source:b", QUEUE]);
}

pub(super) async fn slots_are_never_more_than_the_budget(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let queue = budget(&bench, Some(2)).await;
    let held = Arc::new(AtomicUsize::new(0));
    let takers = (0..6)
        .map(|n| {
            let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
            let held = held.clone();
            async move {
                let worker = register(&*store).await;
                let mut taken = 0;
                for _ in 0..40 {
                    let slots = store.slots_take(worker, queue, 1 + n % 3).await.expect("slots_take");
                    assert!(slots.iter().all(|slot| slot.queue == queue && (0..2).contains(&slot.number)));
                    let now = held.fetch_add(slots.len(), Ordering::SeqCst) + slots.len();
                    assert!(now <= 2, "{now} slots are held at once");
                    tokio::task::yield_now().await;
                    held.fetch_sub(slots.len(), Ordering::SeqCst);
                    store.slots_release(worker, &slots).await.expect("slots_release");
                    taken += slots.len();
                }
                taken
            }
        })
        .collect();
    let taken: usize = at_once(takers).await.into_iter().sum();
    assert!(taken > 0);
    let slots = bench.store.slots_take(bench.worker, queue, 10).await.expect("slots_take");
    assert_eq!(numbers(slots), [0, 1], "all were given back");
    let stranger = register(&*bench.other).await;
    assert_eq!(bench.other.slots_take(stranger, queue, 10).await.expect("slots_take"), []);
    assert_eq!(bench.store.slots_take(stranger, queue, 0).await.expect("slots_take"), []);
    let foreign = [Slot { queue, number: 0 }, Slot { queue, number: 1 }];
    bench.other.slots_release(stranger, &foreign).await.expect("slots_release");
    let taken = bench.other.slots_take(stranger, queue, 10).await.expect("slots_take");
    assert_eq!(taken, [], "nobody gives back what another holds");
}

pub(super) async fn a_slot_is_handed_over_when_its_lease_ran_out(kit: Kit) {
    let bench = kit.bench(SHORT_LEASE).await;
    let queue = budget(&bench, Some(1)).await;
    let gone = bench.worker;
    let slots = bench.store.slots_take(gone, queue, 1).await.expect("slots_take");
    assert_eq!(slots.len(), 1);
    let heir = register(&*bench.other).await;
    let other = &bench.other;
    let taken = eventually("the slot's lease runs out", || async move {
        let taken = other.slots_take(heir, queue, 1).await.expect("slots_take");
        (!taken.is_empty()).then_some(taken)
    })
    .await;
    assert_eq!(taken, slots);
    let beat = bench.store.chunks_heartbeat(gone, &[], &slots).await.expect("chunks_heartbeat");
    assert_eq!(beat.slots, [], "the former holder learns that it lost it");
    bench.store.slots_release(gone, &slots).await.expect("slots_release");
    let beat = bench.other.chunks_heartbeat(heir, &[], &slots).await.expect("chunks_heartbeat");
    assert_eq!(beat.slots, slots, "and cannot give it away");
}

pub(super) async fn a_heartbeat_keeps_slots(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let queue = budget(&bench, Some(2)).await;
    let slots = bench.store.slots_take(bench.worker, queue, 2).await.expect("slots_take");
    let (_, chunks) = bench.running(1).await;
    let beat = bench
        .store
        .chunks_heartbeat(bench.worker, &[chunks[0].lease], &slots)
        .await
        .expect("chunks_heartbeat");
    assert_eq!(beat.renewed, [chunks[0].lease]);
    assert_eq!(numbers(beat.slots), [0, 1]);
    bench.store.slots_release(bench.worker, &slots[..1]).await.expect("slots_release");
    let beat = bench.store.chunks_heartbeat(bench.worker, &[], &slots).await.expect("chunks_heartbeat");
    assert_eq!(beat.slots, slots[1..], "what was given back is not held");
}

pub(super) async fn a_leaving_worker_frees_its_slots(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let queue = budget(&bench, Some(2)).await;
    bench.store.slots_take(bench.worker, queue, 2).await.expect("slots_take");
    bench.store.worker_leave(bench.worker).await.expect("worker_leave");
    assert!(bench.store.workers_list(LONG).await.expect("workers_list").is_empty());
    let next = register(&*bench.store).await;
    let slots = bench.store.slots_take(next, queue, 2).await.expect("slots_take");
    assert_eq!(numbers(slots), [0, 1]);
}

pub(super) async fn a_changed_budget_changes_the_slots(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let queue = budget(&bench, Some(1)).await;
    assert_eq!(bench.store.slots_take(bench.worker, queue, 10).await.expect("slots_take").len(), 1);
    assert_eq!(budget(&bench, Some(3)).await, queue);
    let more = bench.store.slots_take(bench.worker, queue, 10).await.expect("slots_take");
    assert_eq!(numbers(more.clone()), [1, 2]);
    budget(&bench, Some(1)).await;
    bench.store.slots_release(bench.worker, &more).await.expect("slots_release");
    let none = bench.store.slots_take(bench.worker, queue, 10).await.expect("slots_take");
    assert_eq!(none, [], "a lowered budget holds for every slot that is free");
}

pub(super) async fn queues_show_what_waits_and_runs(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.submit(job(5)).await;
    bench.claim(2).await;
    let queues = bench.other.queues_list().await.expect("queues_list");
    let warehouse = queues.iter().find(|queue| queue.id == bench.queue).expect("the queue is listed");
    assert_eq!((warehouse.name.as_str(), warehouse.depth, warehouse.running), (QUEUE, 3, 2));
    assert!(warehouse.oldest.is_some());
    let mail = queues.iter().find(|queue| queue.id == bench.mail).expect("the queue is listed");
    assert_eq!((mail.depth, mail.running, mail.oldest, mail.max_concurrent), (0, 0, None, None));
}

pub(super) async fn workers_are_known_by_their_start(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let second = register(&*bench.other).await;
    assert_ne!(second, bench.worker, "one host, two starts");
    bench.submit(job(3)).await;
    bench.claim(2).await;
    let workers = bench.other.workers_list(LONG).await.expect("workers_list");
    assert_eq!(workers.len(), 2);
    let one = workers.iter().find(|worker| worker.id == bench.worker).expect("it is listed");
    assert_eq!((one.host.as_str(), one.roles.as_str(), one.concurrency), ("host", "worker", 8));
    assert_eq!(one.running, [(QUEUE.to_owned(), 2)]);
    let other = workers.iter().find(|worker| worker.id == second).expect("it is listed");
    assert_eq!(other.running, []);
    bench.store.worker_leave(bench.worker).await.expect("worker_leave");
    let left = bench.store.workers_list(LONG).await.expect("workers_list");
    assert_eq!(left.iter().map(|worker| worker.id).collect::<Vec<_>>(), [second]);
    assert_ne!(register(&*bench.store).await, bench.worker, "an identity is never used again");
}
