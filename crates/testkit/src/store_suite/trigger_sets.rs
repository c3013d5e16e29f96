//! Sets of completed parents: which jobs make one, in which order they are judged, and that each is made once.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use outhaul_core::id::JobId;
use outhaul_core::job::{JobStatus, NewJob};
use outhaul_core::trigger::{FireState, NewTrigger, TriggerWait};

use super::bench::{Kit, LONG, SETTINGS, at_once, custom, job, plain};
use super::triggers::{completes, completes_of, export, fires, get, judge, new, pair, sets, stored, waits};

pub(super) async fn one_term_fires_for_every_job(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &new("export", &["dataset:a"], "job:OTHER")).await;
    stored(&bench, &new("mail", &["job:SEND_EMAIL"], "job:OTHER")).await;
    let mut by_day = new("by day", &["dataset:a"], "job:OTHER");
    by_day.spec.match_label = Some("day".to_owned());
    stored(&bench, &by_day).await;

    assert_eq!(judge(&bench).await, 0);
    completes(&bench, "b", "1").await;
    completes_of(&bench, NewJob { job_type: "OTHER".to_owned(), ..custom() }).await;
    assert_eq!(judge(&bench).await, 0, "nobody asks for those");
    let first = completes(&bench, "a", "1").await;
    let second = completes_of(&bench, export("a", None)).await;
    let mail = completes_of(&bench, custom()).await;
    assert_eq!(judge(&bench).await, 3);
    assert_eq!(judge(&bench).await, 0, "once is enough");
    assert_eq!(sets(&bench, "export").await, [[first.clone()], [second]]);
    assert_eq!(sets(&bench, "mail").await, [[mail]]);
    assert_eq!(sets(&bench, "by day").await, [[first]], "the other has no such label");
    let fire = &fires(&bench, "by day").await[0];
    assert_eq!((fire.value.as_str(), fire.state), ("1", FireState::Due));
    assert_eq!((&fire.job_id, &fire.detail), (&None, &None));
    assert_eq!(fires(&bench, "export").await[0].value, "");
    for name in ["export", "mail", "by day"] {
        assert_eq!(waits(&bench, name).await, [], "a single term never waits");
    }

    let (failed, chunks) = bench.running_of(export("a", Some("2"))).await;
    bench.fail(&chunks[0], None).await.expect("still owned");
    let cancelled = bench.submit(export("a", Some("2"))).await.job_id;
    bench.store.job_cancel(&cancelled).await.expect("job_cancel");
    bench.stage().await;
    assert_eq!(bench.job(&failed).await.status, JobStatus::Failed);
    assert_eq!(bench.job(&cancelled).await.status, JobStatus::Cancelled);
    let (_, half) = bench.running_of(NewJob { dataset: Some("a".to_owned()), ..job(2) }).await;
    bench.finish(&half[..1]).await;
    assert_eq!(judge(&bench).await, 0, "only what is COMPLETED counts");
}

pub(super) async fn a_pair_fires_in_either_order(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &pair()).await;
    let a = completes(&bench, "a", "1").await;
    assert_eq!(sets(&bench, "pair").await, [] as [Vec<JobId>; 0]);
    let at = bench.job(&a).await.completed_at.expect("it has completed");
    let waiting = TriggerWait {
        value: "1".to_owned(),
        arrived: vec![("dataset:a".to_owned(), a.clone(), at)],
        missing: vec!["dataset:b".to_owned()],
    };
    assert_eq!(waits(&bench, "pair").await, [waiting]);
    let b = completes(&bench, "b", "1").await;
    assert_eq!(sets(&bench, "pair").await, [[a, b]]);
    assert_eq!(waits(&bench, "pair").await, []);

    let b = completes(&bench, "b", "2").await;
    judge(&bench).await;
    let a = completes(&bench, "a", "2").await;
    let all = sets(&bench, "pair").await;
    assert_eq!(all[1..], [[a, b]], "the parents stand in the order of the terms");
    assert_eq!(fires(&bench, "pair").await[0].value, "2");
    let one = bench.other.trigger_fires(get(&bench, "pair").await.id, 1).await.expect("trigger_fires");
    assert_eq!(one, fires(&bench, "pair").await[..1], "newest first");
}

pub(super) async fn waiting_is_shown_newest_first(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let three = stored(&bench, &new("three", &["dataset:c", "dataset:a", "dataset:b"], "job:X")).await;
    completes(&bench, "a", "1").await;
    completes(&bench, "b", "2").await;
    let newest = completes(&bench, "a", "2").await;
    let newer = completes(&bench, "a", "1").await;
    for dataset in ["a", "b", "c"] {
        completes(&bench, dataset, "full").await;
    }
    completes_of(&bench, export("c", None)).await;
    judge(&bench).await;
    let waits = waits(&bench, "three").await;
    let told: Vec<_> = waits
        .iter()
        .map(|wait| {
            let arrived: Vec<&str> = wait.arrived.iter().map(|(term, ..)| term.as_str()).collect();
            (wait.value.as_str(), arrived.join(" "), wait.missing.join(" "))
        })
        .collect();
    assert_eq!(
        told,
        [
            ("1", "dataset:a".to_owned(), "dataset:c dataset:b".to_owned()),
            ("2", "dataset:a dataset:b".to_owned(), "dataset:c".to_owned()),
        ]
    );
    assert_eq!((&waits[0].arrived[0].1, &waits[1].arrived[0].1), (&newer, &newest), "of each the newest");
    let first = bench.other.trigger_waits(three.id, 1).await.expect("trigger_waits");
    assert_eq!(first, waits[..1]);
}

pub(super) async fn values_that_differ_make_no_set(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &pair()).await;
    for (a, b) in [(Some("1"), Some("2")), (Some("3"), None), (None, Some("4")), (None, None)] {
        completes_of(&bench, export("a", a)).await;
        completes_of(&bench, export("b", b)).await;
    }
    for (a, b) in [("x", "X"), ("5", "05"), ("6", "6 ")] {
        completes(&bench, "a", a).await;
        completes(&bench, "b", b).await;
    }
    assert_eq!(sets(&bench, "pair").await, [] as [Vec<JobId>; 0]);
    let odd = "it's \"odd\" \\ ü 😀 % _";
    let a = completes(&bench, "a", odd).await;
    let b = completes(&bench, "b", odd).await;
    let (empty_a, empty_b) = (completes(&bench, "a", "").await, completes(&bench, "b", "").await);
    assert_eq!(sets(&bench, "pair").await, [[a, b], [empty_a, empty_b]], "an empty value is a value");
    assert_eq!(fires(&bench, "pair").await[1].value, odd);
}

pub(super) async fn what_is_too_far_apart_makes_no_set(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut near = pair();
    near.name = "near".to_owned();
    near.spec.within = Some(LONG / 2);
    stored(&bench, &near).await;
    stored(&bench, &pair()).await;
    let old = completes(&bench, "a", "1").await;
    judge(&bench).await;
    assert_eq!(waits(&bench, "near").await.len(), 1);
    let sql =
        format!("update trigger_arrival set completed_at = {}", bench.probe.an_hour_before("completed_at"));
    assert_eq!(bench.probe.execute(&sql).await, 2);
    assert_eq!(waits(&bench, "near").await, [], "it cannot be completed any more");
    assert_eq!(waits(&bench, "pair").await.len(), 1);

    let b = completes(&bench, "b", "1").await;
    assert_eq!(sets(&bench, "near").await, [] as [Vec<JobId>; 0]);
    assert_eq!(sets(&bench, "pair").await, [[old.clone(), b.clone()]]);
    assert_eq!(waits(&bench, "near").await[0].missing, ["dataset:a"]);
    let again = completes(&bench, "a", "1").await;
    assert_eq!(sets(&bench, "near").await, [[again, b]]);
    assert_eq!(waits(&bench, "near").await, []);
}

pub(super) async fn a_parent_that_ran_again_fires_a_new_set(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &pair()).await;
    let a1 = completes(&bench, "a", "1").await;
    let b1 = completes(&bench, "b", "1").await;
    let first = vec![a1, b1.clone()];
    assert_eq!(sets(&bench, "pair").await, std::slice::from_ref(&first));
    let a2 = completes(&bench, "a", "1").await;
    let second = vec![a2.clone(), b1];
    assert_eq!(sets(&bench, "pair").await, [first.clone(), second.clone()]);
    let b2 = completes(&bench, "b", "1").await;
    assert_eq!(sets(&bench, "pair").await, [first, second, vec![a2, b2]]);
}

pub(super) async fn completions_are_judged_in_their_order(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &pair()).await;
    completes(&bench, "a", "1").await;
    let a = completes(&bench, "a", "1").await;
    let b = completes(&bench, "b", "1").await;
    assert_eq!(bench.store.triggers_match(100).await.expect("triggers_match"), 3);
    assert_eq!(sets(&bench, "pair").await, [[a, b]], "not the first: another had taken its place");

    completes(&bench, "a", "2").await;
    let a = completes(&bench, "a", "2").await;
    let b = completes(&bench, "b", "2").await;
    for _ in 0..3 {
        assert_eq!(bench.store.triggers_match(1).await.expect("triggers_match"), 1, "no more than asked for");
    }
    assert_eq!(sets(&bench, "pair").await[1..], [[a, b]]);

    // All at one moment, or nearly: what counts is when they completed.
    for round in 3..13 {
        let day = round.to_string();
        let before = sets(&bench, "pair").await.len();
        let mut jobs = Vec::new();
        for dataset in ["a", "b", "a"] {
            let id = bench.submit(export(dataset, Some(&day))).await.job_id;
            jobs.push((dataset, id));
        }
        let finishes: Vec<_> = bench.claim(3).await.iter().map(plain).collect();
        assert_eq!(bench.store.chunks_finish(&finishes).await.expect("chunks_finish").len(), 3);
        let mut order = Vec::new();
        for (place, (dataset, id)) in jobs.into_iter().enumerate() {
            let at = bench.job(&id).await.completed_at.expect("it has completed");
            order.push((at, place, dataset, id));
        }
        order.sort();
        let (mut a, mut b, mut expected) = (None, None, Vec::new());
        for (_, _, dataset, id) in order {
            if dataset == "a" {
                a = Some(id)
            } else {
                b = Some(id)
            }
            expected.extend(a.clone().zip(b.clone()).map(|(a, b)| vec![a, b]));
        }
        assert_eq!(sets(&bench, "pair").await[before..], expected);
    }
}

pub(super) async fn judging_at_once_fires_each_set_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for name in ["pair", "same"] {
        stored(&bench, &NewTrigger { name: name.to_owned(), ..pair() }).await;
    }
    let days: Vec<String> = (0..20).map(|day| day.to_string()).collect();
    let mut parents: BTreeMap<&str, Vec<JobId>> = BTreeMap::new();
    for day in &days {
        for dataset in ["a", "b"] {
            let id = bench.submit(export(dataset, Some(day))).await.job_id;
            parents.entry(day).or_default().push(id);
        }
    }
    let chunks = bench.claim(40).await;
    assert_eq!(chunks.len(), 40);
    let mut acts: Vec<BoxFuture<'static, u64>> = Vec::new();
    for (n, chunk) in chunks.iter().enumerate() {
        let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
        let finish = plain(chunk);
        acts.push(Box::pin(async move {
            assert_eq!(store.chunks_finish(&[finish]).await.expect("chunks_finish").len(), 1);
            0
        }));
    }
    for n in 0..8 {
        let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
        acts.push(Box::pin(async move {
            let mut judged = 0;
            for limit in [1, 3, 100, 2, 100] {
                judged += store.triggers_match(limit).await.expect("triggers_match");
            }
            judged
        }));
    }
    let judged: u64 = at_once(acts).await.into_iter().sum();
    assert_eq!(judged + judge(&bench).await, 40, "each job once");
    for name in ["pair", "same"] {
        let found: BTreeMap<String, Vec<JobId>> =
            fires(&bench, name).await.into_iter().map(|fire| (fire.value, fire.parents)).collect();
        assert_eq!(fires(&bench, name).await.len(), 20, "each set once");
        for (day, parents) in &parents {
            assert_eq!(found.get(*day), Some(parents), "{name}, day {day}");
        }
        assert_eq!(waits(&bench, name).await, []);
    }
}
