//! Firing schedules: each slot once, whoever fires and however often, and what an earlier job means to it.

use std::time::Duration;

use futures::future::BoxFuture;
use outhaul_core::id::JobId;
use outhaul_core::job::{JobStatus, NewJob};
use outhaul_core::schedule::{
    Advance, Deleted, Overlap, Put, Schedule, ScheduleFire, ScheduleFired, SlotOutcome, SlotPlan,
};
use outhaul_core::state::ChunkState;
use outhaul_core::store::Redriven;

use super::bench::{Kit, LONG, SETTINGS, at_once, custom, eventually, job, keyed};
use super::schedules::{
    finish_next, fire, fire_next, fired, firing, get, jobs, new, next, put, run, says, slot, slots, stored,
    waits,
};

pub(super) async fn a_firing_is_recorded_and_moves_on(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let schedule = stored(&bench, &new("s")).await;
    let wanted = job(2);
    let id = wanted.job_id.clone();
    let plans = vec![
        (0, SlotPlan::Missed("no scheduler ran".to_owned())),
        (1, run(wanted)),
        (2, SlotPlan::Refused("it's \"wrong\"".to_owned())),
    ];
    let rows = fire(&bench, firing(&schedule, plans)).await;
    let told: Vec<_> =
        rows.iter().map(|row| (row.slot, row.outcome, row.job_id.as_ref(), row.detail.as_deref())).collect();
    assert_eq!(
        told,
        [
            (slot(0), SlotOutcome::Missed, None, Some("no scheduler ran")),
            (slot(1), SlotOutcome::Fired, Some(&id), None),
            (slot(2), SlotOutcome::Refused, None, Some("it's \"wrong\"")),
        ]
    );
    let mut newest_first = rows;
    newest_first.reverse();
    assert_eq!(slots(&bench, "s").await, newest_first);
    let two = bench.other.schedule_slots("s", 2).await.expect("schedule_slots");
    assert_eq!(two, newest_first[..2]);
    assert_eq!(bench.states(&id).await, [ChunkState::Queued; 2], "the job is there with its chunks");
    let after = get(&bench, "s").await;
    assert_eq!(after, Schedule { next: Some(next(3)), ..schedule }, "nothing else about it has changed");

    let last = ScheduleFire {
        advance: Some(Advance { from: slot(3), to: None }),
        ..firing(&after, vec![(3, SlotPlan::Missed("the last".to_owned()))])
    };
    fire(&bench, last).await;
    assert_eq!(get(&bench, "s").await.next, None, "its time will not come");
}

pub(super) async fn a_firing_that_lost_stores_nothing(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let store = &bench.store;
    let first = stored(&bench, &new("s")).await;
    let as_it_was = || firing(&first, vec![(0, run(job(1)))]);
    let lost = |what: &'static str, fire: ScheduleFire| {
        let bench = &bench;
        async move {
            let answer = bench.store.schedule_fire(fire).await.expect("schedule_fire");
            assert_eq!(answer, ScheduleFired::Lost, "{what}");
            assert_eq!(jobs(bench).await, 0, "{what}");
            let rows = bench.probe.number("select count(*) from schedule_slot").await;
            assert_eq!(rows, 0, "{what}");
        }
    };
    let wrong_slot =
        ScheduleFire { advance: Some(Advance { from: slot(1), to: Some(next(2)) }), ..as_it_was() };
    lost("it waits for another slot", wrong_slot).await;
    lost("it said something else", ScheduleFire { version: first.version + 1, ..as_it_was() }).await;
    assert_eq!(get(&bench, "s").await, first);

    store.schedule_pause("s").await.expect("schedule_pause");
    lost("it is paused", as_it_was()).await;
    assert_eq!(get(&bench, "s").await.next, first.next);
    store.schedule_resume("s", Some(next(0))).await.expect("schedule_resume");

    assert_eq!(put(&bench, &says(|spec| spec.catch_up_limit = 7)).await, Put::Replaced);
    lost("it says something else now", as_it_was()).await;
    let by_hand = ScheduleFire { advance: None, ..as_it_was() };
    lost("also by hand", by_hand.clone()).await;
    assert_eq!(get(&bench, "s").await.next, first.next);

    assert_eq!(store.schedule_delete("s").await.expect("schedule_delete"), Deleted::Yes);
    lost("it is deleted", as_it_was()).await;
    lost("also by hand", by_hand).await;
    let again = stored(&bench, &new("s")).await;
    lost("it is another of that name", as_it_was()).await;
    assert_eq!(get(&bench, "s").await, again);
    assert_eq!(slots(&bench, "s").await, []);
}

pub(super) async fn by_hand_it_fires_also_while_paused(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let schedule = stored(&bench, &new("s")).await;
    bench.store.schedule_pause("s").await.expect("schedule_pause");
    let paused = get(&bench, "s").await;
    let now = slot(30) + chrono::Duration::microseconds(123_456);
    let by_hand = |job| ScheduleFire {
        id: schedule.id,
        version: schedule.version,
        advance: None,
        overlap: Overlap::Allow,
        slots: vec![(now, run(job))],
    };
    let rows = fire(&bench, by_hand(job(1))).await;
    assert_eq!(rows[0].slot, now, "to the microsecond");
    let first = fired(&rows[0]);
    assert_eq!(fire(&bench, by_hand(job(1))).await, [], "that slot has a row");
    assert_eq!(jobs(&bench).await, 1);
    assert_eq!(get(&bench, "s").await, paused);

    bench.store.schedule_resume("s", Some(next(0))).await.expect("schedule_resume");
    let row = fire_next(&bench, 0, job(1)).await;
    assert_eq!(
        (row.outcome, row.job_id),
        (SlotOutcome::Skipped, Some(first)),
        "its job counts like any other"
    );
}

pub(super) async fn eight_at_once_fire_a_slot_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &says(|spec| spec.overlap = Overlap::Allow)).await;
    for round in 0..10 {
        let schedule = get(&bench, "s").await;
        let (a, b) = (2 * round, 2 * round + 1);
        let acts = (0..8)
            .map(|n| {
                let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
                let fire = firing(&schedule, vec![(a, run(job(1))), (b, run(job(1)))]);
                async move { store.schedule_fire(fire).await.expect("schedule_fire") }
            })
            .collect();
        let answers = at_once(acts).await;
        let won: Vec<_> = answers.iter().filter(|answer| **answer != ScheduleFired::Lost).collect();
        assert_eq!(won.len(), 1, "one of eight: {answers:?}");
        assert_eq!(jobs(&bench).await, 2 * (round + 1), "one job per slot");
    }
    let rows = slots(&bench, "s").await;
    assert_eq!(
        rows.iter().map(|row| row.slot).collect::<Vec<_>>(),
        (0..20).rev().map(slot).collect::<Vec<_>>()
    );
    assert_eq!(rows.iter().map(fired).collect::<std::collections::HashSet<_>>().len(), 20);
}

/// Fired and changed at the same moment: a job is there if and only if its slot is.
pub(super) async fn firing_against_changes(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for round in 0..12 {
        let schedule = stored(&bench, &new("s")).await;
        let before = jobs(&bench).await;
        let mut acts: Vec<BoxFuture<'static, bool>> = Vec::new();
        for n in 0..4 {
            let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
            let fire = firing(&schedule, vec![(0, run(job(1)))]);
            acts.push(Box::pin(async move {
                store.schedule_fire(fire).await.expect("schedule_fire") != ScheduleFired::Lost
            }));
        }
        let store = bench.other.clone();
        acts.push(Box::pin(async move {
            match round % 3 {
                0 => assert!(store.schedule_pause("s").await.expect("schedule_pause")),
                1 => {
                    let changed = says(|spec| spec.cron = "0 * * * *".to_owned());
                    store.schedule_put(&changed).await.expect("schedule_put");
                }
                _ => {
                    let gone = store.schedule_delete("s").await.expect("schedule_delete");
                    assert_eq!(gone, Deleted::Yes);
                }
            }
            false
        }));
        let won = at_once(acts).await.into_iter().filter(|won| *won).count() as i64;
        assert!(won <= 1);
        assert_eq!(jobs(&bench).await, before + won);
        if round % 3 == 2 {
            assert_eq!(bench.probe.number("select count(*) from schedule_slot").await, 0);
        } else {
            assert_eq!(slots(&bench, "s").await.len() as i64, won);
            bench.store.schedule_delete("s").await.expect("schedule_delete");
        }
    }
}

pub(super) async fn overlap_skip_leaves_slots_out(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &new("s")).await;
    let first = fired(&fire_next(&bench, 0, job(1)).await);
    let schedule = get(&bench, "s").await;
    let plans = vec![(1, SlotPlan::Missed("missed".to_owned())), (2, run(job(1))), (3, run(job(1)))];
    let rows = fire(&bench, firing(&schedule, plans)).await;
    assert_eq!(rows[0].outcome, SlotOutcome::Missed);
    for row in &rows[1..] {
        assert_eq!((row.outcome, row.job_id.as_ref()), (SlotOutcome::Skipped, Some(&first)));
        assert!(row.detail.as_ref().is_some_and(|detail| detail.contains(first.as_str())), "{row:?}");
    }
    assert_eq!(jobs(&bench).await, 1);

    let chunk = bench.claim_one().await;
    assert_eq!(fire_next(&bench, 4, job(1)).await.outcome, SlotOutcome::Skipped, "running is not ended");
    bench.finish(&[chunk]).await;
    let second = fired(&fire_next(&bench, 5, job(1)).await);

    let chunk = bench.claim_one().await;
    bench.fail(&chunk, None).await.expect("still owned");
    bench.stage().await;
    assert_eq!(bench.job(&second).await.status, JobStatus::Failed);
    let third = fired(&fire_next(&bench, 6, job(1)).await);
    assert_eq!(bench.store.job_redrive(&second).await.expect("job_redrive"), Redriven::Yes(1));
    bench.store.job_cancel(&third).await.expect("job_cancel");
    let row = fire_next(&bench, 7, job(1)).await;
    assert_eq!(row.job_id, Some(second), "redriven: not the newest of its jobs, but unfinished again");
    assert_eq!(row.outcome, SlotOutcome::Skipped);

    // Of several the newest.
    let schedule = get(&bench, "s").await;
    let beside = ScheduleFire { overlap: Overlap::Allow, ..firing(&schedule, vec![(8, run(job(1)))]) };
    let newest = fired(&fire(&bench, beside).await[0]);
    assert_eq!(fire_next(&bench, 9, job(1)).await.job_id, Some(newest));

    // Another's jobs mean nothing to it, not even one that kept a slot of its own out.
    let other = stored(&bench, &new("t")).await;
    let unique = || NewJob { unique_key: Some("k".to_owned()), ..custom() };
    bench.submit(unique()).await;
    let rows = fire(&bench, firing(&other, vec![(0, run(unique()))])).await;
    assert_eq!(rows[0].outcome, SlotOutcome::Skipped);
    let other = get(&bench, "t").await;
    fired(&fire(&bench, firing(&other, vec![(1, run(job(1)))])).await[0]);
}

pub(super) async fn overlap_queue_waits_for_the_earlier_job(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &says(|spec| spec.overlap = Overlap::Queue)).await;
    let first = fired(&fire_next(&bench, 0, job(1)).await);
    assert_eq!(bench.states(&first).await, [ChunkState::Queued]);
    let second = fired(&fire_next(&bench, 1, job(1)).await);
    let schedule = get(&bench, "s").await;
    let rows = fire(&bench, firing(&schedule, vec![(2, run(job(1))), (3, run(job(1)))])).await;
    let (third, fourth) = (fired(&rows[0]), fired(&rows[1]));
    for id in [&second, &third, &fourth] {
        assert!(waits(&bench, id).await);
    }
    let chunk = bench.claim_one().await;
    assert_eq!(chunk.job_id, first);
    assert!(bench.claim(9).await.is_empty());
    bench.fail(&chunk, None).await.expect("still owned");
    bench.stage().await;
    assert!(!waits(&bench, &second).await, "a bad end is an end");
    assert!(waits(&bench, &third).await);
    finish_next(&bench).await;
    assert!(!waits(&bench, &third).await);
    assert!(waits(&bench, &fourth).await, "one after the other");
    finish_next(&bench).await;
    assert!(!waits(&bench, &fourth).await);
    finish_next(&bench).await;
    let fifth = fired(&fire_next(&bench, 4, job(1)).await);
    assert_eq!(bench.states(&fifth).await, [ChunkState::Queued], "all others have ended");
}

pub(super) async fn overlap_queue_waits_whosever_the_earlier_job_is(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &says(|spec| spec.overlap = Overlap::Queue)).await;
    let anns = NewJob { owner: "ann".to_owned(), ..job(1) };
    let first = fired(&fire_next(&bench, 0, anns).await);
    let bobs = NewJob { owner: "bob".to_owned(), ..job(1) };
    let second = fired(&fire_next(&bench, 1, bobs).await);
    assert!(waits(&bench, &second).await);
    let chunk = bench.claim_one().await;
    assert_eq!(chunk.job_id, first);
    bench.finish(&[chunk]).await;
    bench.stage().await;
    assert!(!waits(&bench, &second).await);
}

pub(super) async fn overlap_allow_waits_for_nobody(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &says(|spec| spec.overlap = Overlap::Allow)).await;
    fired(&fire_next(&bench, 0, job(1)).await);
    let schedule = get(&bench, "s").await;
    let rows = fire(&bench, firing(&schedule, vec![(1, run(job(1))), (2, run(job(1)))])).await;
    rows.iter().for_each(|row| drop(fired(row)));
    assert_eq!(bench.claim(9).await.len(), 3);
}

pub(super) async fn slots_of_one_firing_do_not_skip_each_other(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let schedule = stored(&bench, &new("s")).await;
    let plans =
        vec![(0, run(job(1))), (1, run(job(1))), (2, SlotPlan::Refused("no".to_owned())), (3, run(job(1)))];
    let rows = fire(&bench, firing(&schedule, plans)).await;
    let ids = [fired(&rows[0]), fired(&rows[1]), fired(&rows[3])];
    for n in 0..3 {
        assert!(!waits(&bench, &ids[n]).await);
        for later in &ids[n + 1..] {
            assert!(waits(&bench, later).await, "{later} comes later");
        }
        let chunk = bench.claim_one().await;
        assert_eq!(chunk.job_id, ids[n]);
        assert!(bench.claim(9).await.is_empty(), "no two of them at once");
        if n == 0 {
            bench.fail(&chunk, None).await.expect("still owned");
            bench.stage().await;
        } else {
            bench.finish(&[chunk]).await;
        }
    }
}

pub(super) async fn what_stands_in_the_way_of_a_job_is_recorded(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let schedule = stored(&bench, &says(|spec| spec.overlap = Overlap::Allow)).await;
    let keyed_one = bench.submit(keyed(job(1), "key", "hash")).await.job_id;
    let unique = || NewJob { unique_key: Some("k".to_owned()), ..custom() };
    let equal = bench.submit(unique()).await.job_id;
    let unknown = JobId::new(slot(0), 7);
    let orphan = NewJob { parents: vec![keyed_one.clone(), unknown.clone()], ..job(1) };
    let mut lost = job(2);
    lost.chunks[1].queue = "source:nowhere".to_owned();
    let lost = keyed(lost, "lost", "hash");
    let last = keyed(job(2), "lost", "hash");
    let last_id = last.job_id.clone();
    let plans = vec![
        (0, run(keyed(job(1), "key", "hash"))),
        (1, run(keyed(job(1), "key", "another"))),
        (2, run(unique())),
        (3, run(orphan)),
        (4, run(lost)),
        (5, run(last)),
    ];
    let rows = fire(&bench, firing(&schedule, plans)).await;
    let told: Vec<_> = rows.iter().map(|row| (row.outcome, row.job_id.clone())).collect();
    assert_eq!(
        told,
        [
            (SlotOutcome::Skipped, Some(keyed_one)),
            (SlotOutcome::Refused, None),
            (SlotOutcome::Skipped, Some(equal.clone())),
            (SlotOutcome::Refused, None),
            (SlotOutcome::Refused, None),
            (SlotOutcome::Fired, Some(last_id.clone())),
        ]
    );
    for (row, word) in [
        (0, "idempotency key"),
        (1, "idempotency key"),
        (2, "equal"),
        (3, unknown.as_str()),
        (4, "source:nowhere"),
    ] {
        let detail = rows[row].detail.as_deref().unwrap_or_default();
        assert!(detail.contains(word), "{row}: {detail}");
    }
    assert_eq!(rows[5].detail, None);
    assert_eq!(jobs(&bench).await, 3, "the two that were there and the last: nothing is half-stored");
    assert_eq!(bench.states(&last_id).await, [ChunkState::Queued; 2]);
    assert_eq!(bench.probe.number("select count(*) from job_chunk").await, 4);
    assert_eq!(get(&bench, "s").await.next, Some(next(6)), "the schedule goes on");
    bench.counts_hold().await;
}

pub(super) async fn a_recorded_slot_is_left_out(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let schedule = stored(&bench, &says(|spec| spec.overlap = Overlap::Allow)).await;
    let first = fire(&bench, firing(&schedule, vec![(0, run(job(1))), (1, run(job(1)))])).await;
    // As if its next slot had been set back.
    let back = next(0).slot.timestamp_micros();
    let moved = format!("update schedule set next_slot = {}", bench.probe.moment(back));
    assert_eq!(bench.probe.execute(&moved).await, 1);
    let schedule = get(&bench, "s").await;
    let plans = vec![(0, SlotPlan::Missed("again".to_owned())), (1, run(job(1))), (2, run(job(1)))];
    let rows = fire(&bench, firing(&schedule, plans)).await;
    assert_eq!(rows.iter().map(|row| row.slot).collect::<Vec<_>>(), [slot(2)]);
    fired(&rows[0]);
    assert_eq!(jobs(&bench).await, 3);
    assert_eq!(slots(&bench, "s").await[1..], [first[1].clone(), first[0].clone()], "as they were");
    assert_eq!(get(&bench, "s").await.next, Some(next(3)));
}

pub(super) async fn deleting_takes_the_slots_along(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &new("s")).await;
    let schedule = stored(&bench, &new("t")).await;
    fired(&fire(&bench, firing(&schedule, vec![(0, run(job(1)))])).await[0]);
    let id = fired(&fire_next(&bench, 0, job(1)).await);
    assert_eq!(bench.store.schedule_delete("s").await.expect("schedule_delete"), Deleted::Yes);
    assert_eq!(bench.store.schedule_get("s").await.expect("schedule_get"), None);
    assert_eq!(bench.probe.number("select count(*) from schedule_slot").await, 1, "those of the other stay");
    assert_eq!(bench.job(&id).await.status, JobStatus::Submitted, "what it submitted stays");
    let again = stored(&bench, &new("s")).await;
    assert_eq!(slots(&bench, "s").await, []);
    let rows = fire(&bench, firing(&again, vec![(0, run(job(1)))])).await;
    assert_eq!(rows[0].outcome, SlotOutcome::Fired, "the job of the one before it means nothing to it");
    assert_eq!(bench.store.schedule_delete("u").await.expect("schedule_delete"), Deleted::Unknown);
}

pub(super) async fn old_slots_are_pruned(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let store = &bench.store;
    let schedule = stored(&bench, &new("s")).await;
    let missed = |minute| (minute, SlotPlan::Missed("missed".to_owned()));
    fire(&bench, firing(&schedule, (0..5).map(missed).collect())).await;
    let aged = format!("update schedule_slot set at = {}", bench.probe.an_hour_before("at"));
    assert_eq!(bench.probe.execute(&aged).await, 5);
    let schedule = get(&bench, "s").await;
    fire(&bench, firing(&schedule, (5..8).map(missed).collect())).await;
    assert_eq!(store.firings_prune(2 * LONG, 10).await.expect("firings_prune"), 0, "nothing is that old");
    assert_eq!(store.firings_prune(LONG / 2, 3).await.expect("firings_prune"), 3, "in batches");
    assert_eq!(store.firings_prune(LONG / 2, 3).await.expect("firings_prune"), 2);
    assert_eq!(store.firings_prune(LONG / 2, 3).await.expect("firings_prune"), 0);
    let left: Vec<_> = slots(&bench, "s").await.into_iter().map(|row| row.slot).collect();
    assert_eq!(left, [slot(7), slot(6), slot(5)]);
    eventually("old enough", || async {
        store.firings_prune(Duration::ZERO, 10).await.expect("firings_prune");
        slots(&bench, "s").await.is_empty().then_some(())
    })
    .await;
    assert_eq!(get(&bench, "s").await.next, Some(next(8)), "the schedule itself stays");
}
