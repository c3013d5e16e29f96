//! Firing triggers: each set once, whoever submits it, and what stands in the way of its job.

use std::collections::HashSet;

use outhaul_core::id::JobId;
use outhaul_core::job::{JobStatus, NewJob};
use outhaul_core::state::ChunkState;
use outhaul_core::trigger::{FirePlan, FireState, NewTrigger, TriggerFire};
use serde_json::json;

use super::bench::{Kit, LONG, SETTINGS, at_once, custom, job, keyed, plain};
use super::triggers::{
    completes, completes_of, count, export, fires, judge, new, pair, put, run, sets, stored, waits,
};

pub(super) async fn a_job_that_is_gone_fires_nothing(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &new("one", &["dataset:a"], "job:X")).await;
    completes(&bench, "a", "1").await;
    bench.probe.execute("delete from job_chunk").await;
    bench.probe.execute("delete from job").await;
    let next = completes(&bench, "a", "1").await;
    assert_eq!(judge(&bench).await, 2);
    assert_eq!(sets(&bench, "one").await, [[next]]);
}

pub(super) async fn a_due_firing_submits_its_job_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let store = &bench.store;
    let trigger = stored(&bench, &new("one", &["dataset:a"], "job:SEND_EMAIL")).await;
    let mut parents = Vec::new();
    for day in ["1", "2", "3"] {
        parents.push(completes(&bench, "a", day).await);
    }
    judge(&bench).await;
    let due = bench.other.trigger_fires_due(10).await.expect("trigger_fires_due");
    assert!(due.iter().all(|due| due.trigger == trigger));
    let waiting: Vec<_> = due.iter().map(|due| due.fire.parents.clone()).collect();
    assert_eq!(waiting, parents.into_iter().map(|parent| vec![parent]).collect::<Vec<_>>(), "oldest first");
    let mut all = fires(&bench, "one").await;
    all.reverse();
    assert_eq!(due.iter().map(|due| due.fire.clone()).collect::<Vec<_>>(), all);
    let two = store.trigger_fires_due(2).await.expect("trigger_fires_due");
    assert_eq!(two.iter().map(|due| due.fire.id).collect::<Vec<_>>(), [all[0].id, all[1].id]);

    let wanted = custom();
    let id = wanted.job_id.clone();
    let fired = store.trigger_fire(all[0].id, run(wanted)).await.expect("trigger_fire").expect("it was due");
    assert_eq!((fired.id, fired.state, &fired.detail), (all[0].id, FireState::Fired, &None));
    assert_eq!((fired.job_id.as_ref(), &fired.parents), (Some(&id), &all[0].parents));
    assert_eq!(bench.states(&id).await, [ChunkState::Queued]);
    assert_eq!(fires(&bench, "one").await[2], fired);
    let jobs = count(&bench, "job").await;
    for plan in [run(custom()), FirePlan::Refused("late".to_owned())] {
        assert_eq!(bench.other.trigger_fire(fired.id, plan).await.expect("trigger_fire"), None);
    }
    assert_eq!(store.trigger_fire(999_999, run(custom())).await.expect("trigger_fire"), None);
    assert_eq!(count(&bench, "job").await, jobs, "nothing was done");
    assert_eq!(fires(&bench, "one").await[2], fired);

    let refused = store.trigger_fire(all[1].id, FirePlan::Refused("it's \"wrong\"".to_owned())).await;
    let refused = refused.expect("trigger_fire").expect("it was due");
    assert_eq!((refused.state, &refused.job_id), (FireState::Refused, &None));
    assert_eq!(refused.detail.as_deref(), Some("it's \"wrong\""));
    let due = store.trigger_fires_due(10).await.expect("trigger_fires_due");
    assert_eq!(due.iter().map(|due| due.fire.id).collect::<Vec<_>>(), [all[2].id]);

    let acts = (0..8)
        .map(|n| {
            let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
            let id = all[2].id;
            async move { store.trigger_fire(id, run(custom())).await.expect("trigger_fire") }
        })
        .collect();
    let won: Vec<TriggerFire> = at_once(acts).await.into_iter().flatten().collect();
    assert_eq!(won.len(), 1, "one of eight");
    assert_eq!(count(&bench, "job").await, jobs + 1);
    let made = won[0].job_id.clone().expect("a job");
    assert_eq!(bench.job(&made).await.status, JobStatus::Submitted);
    assert_eq!(judge(&bench).await, 0);
    assert_eq!(store.trigger_fires_due(10).await.expect("trigger_fires_due").len(), 0);
}

pub(super) async fn what_stands_in_the_way_of_a_job_is_recorded(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &new("one", &["dataset:a"], "job:SEND_EMAIL")).await;
    for day in ["1", "2", "3", "4", "5"] {
        completes(&bench, "a", day).await;
    }
    judge(&bench).await;
    let keyed_one = bench.submit(keyed(job(1), "key", "hash")).await.job_id;
    let unique = || NewJob { unique_key: Some("k".to_owned()), ..custom() };
    let equal = bench.submit(unique()).await.job_id;
    let unknown = JobId::new(outhaul_core::clock::now(), 7);
    let mut lost = job(2);
    lost.chunks[1].queue = "source:nowhere".to_owned();
    let (jobs, chunks) = (count(&bench, "job").await, count(&bench, "job_chunk").await);
    let plans = [
        (keyed(job(1), "key", "hash"), FireState::Fired, Some(keyed_one), Some("idempotency key".to_owned())),
        (unique(), FireState::Fired, Some(equal), Some("equal".to_owned())),
        (keyed(job(1), "key", "another"), FireState::Refused, None, Some("idempotency key".to_owned())),
        (
            NewJob { parents: vec![unknown.clone()], ..job(1) },
            FireState::Refused,
            None,
            Some(unknown.to_string()),
        ),
        (lost, FireState::Refused, None, Some("source:nowhere".to_owned())),
    ];
    let due = bench.store.trigger_fires_due(10).await.expect("trigger_fires_due");
    for (due, (new, state, job_id, word)) in due.iter().zip(plans) {
        let fire = bench.store.trigger_fire(due.fire.id, run(new)).await.expect("trigger_fire");
        let fire = fire.expect("it was due");
        assert_eq!((fire.state, &fire.job_id), (state, &job_id), "{fire:?}");
        match word {
            Some(word) => assert!(fire.detail.as_ref().is_some_and(|told| told.contains(&word)), "{fire:?}"),
            None => assert_eq!(fire.detail, None),
        }
    }
    assert_eq!(count(&bench, "job").await, jobs, "nothing is half-stored");
    assert_eq!(count(&bench, "job_chunk").await, chunks);
    assert_eq!(bench.store.trigger_fires_due(10).await.expect("trigger_fires_due").len(), 0);
}

/// What is due was made of what was asked for then; it never fires by what is asked for now.
pub(super) async fn what_is_due_does_not_outlive_what_was_asked_for(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &pair()).await;
    completes(&bench, "a", "1").await;
    completes(&bench, "b", "1").await;
    judge(&bench).await;
    let mut turned = pair();
    turned.spec.job = json!({ "jobType": "OTHER" }).into();
    put(&bench, &turned).await;
    assert_eq!(bench.store.trigger_fires_due(10).await.expect("trigger_fires_due").len(), 1, "only its job");
    turned.spec.after.reverse();
    put(&bench, &turned).await;
    assert_eq!(bench.store.trigger_fires_due(10).await.expect("trigger_fires_due").len(), 0);
    assert_eq!(fires(&bench, "pair").await[0].state, FireState::Refused);
}

/// A trigger without an identity of its own runs as the owner of its parents: another's job neither makes a set
/// with one's own nor takes the place of one.
pub(super) async fn sets_are_of_one_owner_unless_the_trigger_has_its_own(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &pair()).await;
    stored(
        &bench,
        &NewTrigger { owner: "identity:x".to_owned(), ..new("own", &["dataset:a", "dataset:b"], "job:X") },
    )
    .await;
    let of = |dataset: &str, owner: &str| NewJob { owner: owner.to_owned(), ..export(dataset, Some("1")) };
    let ann = completes_of(&bench, of("a", "ann")).await;
    let mallory = completes_of(&bench, of("a", "mallory")).await;
    let last = completes_of(&bench, of("b", "ann")).await;
    assert_eq!(sets(&bench, "pair").await, [[ann, last.clone()]]);
    assert_eq!(sets(&bench, "own").await, [[mallory, last]]);
}

/// Who waits for one kind of job remembers none of them for the day it waits for two.
pub(super) async fn one_term_remembers_no_arrivals(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut one = new("t", &["dataset:a"], "job:SEND_EMAIL");
    one.spec.match_label = Some("day".to_owned());
    stored(&bench, &one).await;
    completes(&bench, "a", "1").await;
    assert_eq!(sets(&bench, "t").await.len(), 1);
    put(&bench, &new("t", &["dataset:a", "dataset:b"], "job:SEND_EMAIL")).await;
    completes(&bench, "b", "1").await;
    assert_eq!(sets(&bench, "t").await.len(), 1);
    assert_eq!(waits(&bench, "t").await[0].missing, ["dataset:a"]);
}

/// A diamond by rules: the bottom runs once, whoever judges and fires.
pub(super) async fn a_diamond_of_triggers_closes_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for side in ["left", "right"] {
        stored(&bench, &new(side, &["dataset:top"], &format!("dataset:{side}"))).await;
    }
    stored(&bench, &new("bottom", &["dataset:left", "dataset:right"], "dataset:bottom")).await;
    for day in ["1", "2", "3"] {
        completes(&bench, "top", day).await;
        for _ in 0..3 {
            let acts = (0..8)
                .map(|n| {
                    let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
                    async move {
                        store.triggers_match(100).await.expect("triggers_match");
                        for due in store.trigger_fires_due(10).await.expect("trigger_fires_due") {
                            let new = export(&due.trigger.name, Some(day));
                            store.trigger_fire(due.fire.id, run(new)).await.expect("trigger_fire");
                        }
                    }
                })
                .collect();
            at_once(acts).await;
            let finishes = bench.claim(10).await;
            let acts = finishes
                .iter()
                .zip([bench.store.clone(), bench.other.clone()])
                .map(|(chunk, store)| {
                    let finish = plain(chunk);
                    async move { store.chunks_finish(&[finish]).await.expect("chunks_finish").len() }
                })
                .collect::<Vec<_>>();
            if !acts.is_empty() {
                at_once(acts).await;
            }
        }
    }
    judge(&bench).await;
    let sql =
        "select dataset || ' ' || count(*) from job where status = 'COMPLETED' group by dataset order by 1";
    assert_eq!(bench.probe.texts(sql).await, ["bottom 3", "left 3", "right 3", "top 3"]);
    assert_eq!(count(&bench, "job").await, 12);
    let values: HashSet<String> = fires(&bench, "bottom").await.into_iter().map(|fire| fire.value).collect();
    assert_eq!(values.len(), 3);
}

pub(super) async fn old_firings_are_pruned(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let store = &bench.store;
    stored(&bench, &pair()).await;
    for day in ["1", "2"] {
        completes(&bench, "a", day).await;
        completes(&bench, "b", day).await;
    }
    judge(&bench).await;
    let due = store.trigger_fires_due(10).await.expect("trigger_fires_due");
    let done = store.trigger_fire(due[0].fire.id, FirePlan::Refused("no".to_owned())).await;
    done.expect("trigger_fire").expect("it was due");
    let aged = [("trigger_fire", "at", 2), ("trigger_arrival", "completed_at", 4)];
    for (table, column, rows) in aged {
        let sql = format!("update {table} set {column} = {}", bench.probe.an_hour_before(column));
        assert_eq!(bench.probe.execute(&sql).await, rows);
    }
    completes(&bench, "a", "3").await;
    judge(&bench).await;
    let unjudged = completes(&bench, "b", "3").await;

    assert_eq!(store.firings_prune(2 * LONG, 10).await.expect("firings_prune"), 0, "nothing is that old");
    let mut rows = 0;
    for _ in 0..10 {
        rows += store.firings_prune(LONG / 2, 1).await.expect("firings_prune");
    }
    assert_eq!(rows, 5, "one firing and four arrivals, in batches");
    let left: Vec<_> = fires(&bench, "pair").await.into_iter().map(|fire| (fire.value, fire.state)).collect();
    assert_eq!(left, [("2".to_owned(), FireState::Due)], "what is due stays, however old");
    assert_eq!(waits(&bench, "pair").await.len(), 1);
    assert_eq!(judge(&bench).await, 1, "nor is anything lost that has not been judged");
    assert_eq!(fires(&bench, "pair").await[0].parents[1], unjudged);
}
