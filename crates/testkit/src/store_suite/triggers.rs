//! Triggers: every set of completed parents fires once, whoever judges it and however often, and nothing
//! goes round in a cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::BoxFuture;
use outhaul_core::id::JobId;
use outhaul_core::job::{JobStatus, NewJob};
use outhaul_core::schedule::{Deleted, Origin, Put};
use outhaul_core::store::Redriven;
use outhaul_core::trigger::{
    FirePlan, FireState, NewTrigger, Trigger, TriggerFire, TriggerPut, TriggerSpec, TriggerWait,
};
use serde_json::json;

use super::bench::{Bench, Kit, LONG, SETTINGS, at_once, custom, eventually, job, plain};

/// A trigger of these terms; those of several must have the same `day`.
pub(super) fn new(name: &str, after: &[&str], produces: &str) -> NewTrigger {
    NewTrigger {
        name: name.to_owned(),
        spec: TriggerSpec {
            after: after.iter().map(|term| (*term).to_owned()).collect(),
            match_label: (after.len() > 1).then(|| "day".to_owned()),
            within: None,
            job: json!({ "jobType": "SEND_EMAIL", "payload": { "of": "{{label.day}}" } }),
            produces: produces.to_owned(),
        },
        origin: Origin::Api,
        owner: "anonymous".to_owned(),
    }
}

/// What most cases wait for.
pub(super) fn pair() -> NewTrigger {
    new("pair", &["dataset:a", "dataset:b"], "job:SEND_EMAIL")
}

pub(super) async fn put(bench: &Bench, trigger: &NewTrigger) -> TriggerPut {
    bench.store.trigger_put(trigger).await.expect("trigger_put")
}

pub(super) async fn get(bench: &Bench, name: &str) -> Trigger {
    bench.other.trigger_get(name).await.expect("trigger_get").expect("the trigger is there")
}

/// Stores a trigger that must be new.
pub(super) async fn stored(bench: &Bench, trigger: &NewTrigger) -> Trigger {
    assert_eq!(put(bench, trigger).await, TriggerPut::Put(Put::Created));
    get(bench, &trigger.name).await
}

pub(super) async fn names(bench: &Bench) -> Vec<String> {
    let all = bench.other.triggers_list().await.expect("triggers_list");
    all.into_iter().map(|trigger| trigger.name).collect()
}

pub(super) fn labels(day: Option<&str>) -> BTreeMap<String, String> {
    let other = ("region".to_owned(), "EU".to_owned());
    day.map(|day| ("day".to_owned(), day.to_owned())).into_iter().chain([other]).collect()
}

pub(super) fn export(dataset: &str, day: Option<&str>) -> NewJob {
    NewJob { dataset: Some(dataset.to_owned()), labels: labels(day), ..job(1) }
}

/// Runs an export of this dataset until it is COMPLETED.
pub(super) async fn completes(bench: &Bench, dataset: &str, day: &str) -> JobId {
    completes_of(bench, export(dataset, Some(day))).await
}

pub(super) async fn completes_of(bench: &Bench, new: NewJob) -> JobId {
    let (id, chunks) = bench.running_of(new).await;
    assert_eq!(bench.finish(&chunks).await, chunks.len());
    assert_eq!(bench.job(&id).await.status, JobStatus::Completed);
    id
}

/// Judges whatever there is; returns how many jobs that were.
pub(super) async fn judge(bench: &Bench) -> u64 {
    let mut judged = 0;
    for _ in 0..1000 {
        match bench.store.triggers_match(100).await.expect("triggers_match") {
            0 => return judged,
            round => judged += round,
        }
    }
    panic!("judging never ends");
}

/// All firings of a trigger, newest first.
pub(super) async fn fires(bench: &Bench, name: &str) -> Vec<TriggerFire> {
    let id = get(bench, name).await.id;
    bench.other.trigger_fires(id, 1000).await.expect("trigger_fires")
}

/// The parents of all firings of a trigger, oldest first.
pub(super) async fn sets(bench: &Bench, name: &str) -> Vec<Vec<JobId>> {
    judge(bench).await;
    let mut fires = fires(bench, name).await;
    fires.reverse();
    fires.into_iter().map(|fire| fire.parents).collect()
}

pub(super) async fn waits(bench: &Bench, name: &str) -> Vec<TriggerWait> {
    let id = get(bench, name).await.id;
    bench.other.trigger_waits(id, 1000).await.expect("trigger_waits")
}

pub(super) async fn count(bench: &Bench, table: &str) -> i64 {
    bench.probe.number(&format!("select count(*) from {table}")).await
}

pub(super) fn run(job: NewJob) -> FirePlan {
    FirePlan::Run(Box::new(job))
}

pub(super) async fn a_trigger_is_stored_and_read_back(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut given = pair();
    given.spec.within = Some(Duration::from_micros(86_400_000_001));
    given.spec.job = json!({ "payload": "it's \"quoted\" \\ ü {{parents.0.jobId}}" });
    let found = stored(&bench, &given).await;
    assert_eq!((&found.name, &found.spec, &found.owner), (&given.name, &given.spec, &given.owner));
    assert_eq!((found.origin, found.created_at), (Origin::Api, found.updated_at));
    let single = stored(&bench, &new("Single", &["job:PAYROLL"], "dataset:x")).await;
    assert_eq!((single.spec.match_label.as_deref(), single.spec.within), (None, None));
    let all = bench.other.triggers_list().await.expect("triggers_list");
    let without = |mut trigger: Trigger| {
        trigger.spec.job = serde_json::Value::Null;
        trigger
    };
    assert_eq!(all, [single, found.clone()].map(without), "by name, without what they submit");
    assert_eq!(bench.store.trigger_get("other").await.expect("trigger_get"), None);

    assert_eq!(put(&bench, &given).await, TriggerPut::Put(Put::Replaced));
    assert_eq!(get(&bench, "pair").await, found, "nothing has changed");
    for (what, change) in [
        ("after", (|new| new.spec.after.reverse()) as fn(&mut NewTrigger)),
        ("match", |new| new.spec.match_label = Some("date".to_owned())),
        ("within", |new| new.spec.within = None),
        ("job", |new| new.spec.job = json!({})),
        ("produces", |new| new.spec.produces = "job:OTHER".to_owned()),
        ("owner", |new| new.owner = "ops".to_owned()),
    ] {
        change(&mut given);
        let before = get(&bench, "pair").await;
        assert_eq!(put(&bench, &given).await, TriggerPut::Put(Put::Replaced), "{what}");
        let after = get(&bench, "pair").await;
        assert_eq!((&after.spec, &after.owner), (&given.spec, &given.owner), "{what}");
        assert_eq!((after.id, after.created_at), (found.id, found.created_at), "{what}");
        assert!(after.updated_at > before.updated_at, "{what}");
    }
}

pub(super) async fn the_configuration_goes_before_the_api(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let store = &bench.store;
    let config = |name: &str, term: &str| NewTrigger {
        origin: Origin::Config,
        ..new(name, &[term], "job:SEND_EMAIL")
    };
    stored(&bench, &new("api", &["dataset:a"], "job:SEND_EMAIL")).await;
    stored(&bench, &new("taken", &["dataset:a"], "job:SEND_EMAIL")).await;
    let three = [config("c", "dataset:c"), config("b", "dataset:b"), config("taken", "dataset:t")];
    assert_eq!(store.triggers_configured(&three).await.expect("triggers_configured"), None);
    assert_eq!(names(&bench).await, ["api", "b", "c", "taken"]);
    let taken = get(&bench, "taken").await;
    assert_eq!((taken.origin, taken.spec), (Origin::Config, three[2].spec.clone()));

    let c = get(&bench, "c").await;
    for given in [new("c", &["dataset:x"], "job:SEND_EMAIL"), new("c", &["dataset:c"], "job:SEND_EMAIL")] {
        assert_eq!(put(&bench, &given).await, TriggerPut::Put(Put::ReadOnly));
    }
    assert_eq!(store.trigger_delete("c").await.expect("trigger_delete"), Deleted::ReadOnly);
    assert_eq!(get(&bench, "c").await, c);
    assert_eq!(store.trigger_delete("d").await.expect("trigger_delete"), Deleted::Unknown);
    assert_eq!(store.trigger_delete("api").await.expect("trigger_delete"), Deleted::Yes);

    stored(&bench, &new("own", &["dataset:a"], "job:SEND_EMAIL")).await;
    let again = [config("c", "dataset:c"), config("new", "dataset:n")];
    assert_eq!(store.triggers_configured(&again).await.expect("triggers_configured"), None);
    assert_eq!(names(&bench).await, ["c", "new", "own"]);
    assert_eq!(get(&bench, "c").await, c, "as it was");
    assert_eq!(store.triggers_configured(&[]).await.expect("triggers_configured"), None);
    assert_eq!(names(&bench).await, ["own"]);
}

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

pub(super) async fn a_cycle_is_refused(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let store = &bench.store;
    let itself = new("self", &["job:A", "job:B"], "job:B");
    assert_eq!(put(&bench, &itself).await, TriggerPut::Cycle(vec!["self".to_owned()]));
    assert_eq!(names(&bench).await, [] as [String; 0]);

    stored(&bench, &new("one", &["job:A"], "job:B")).await;
    stored(&bench, &new("two", &["job:B", "dataset:x"], "job:C")).await;
    let round = |answer: TriggerPut| match answer {
        TriggerPut::Cycle(names) => names.into_iter().collect::<BTreeSet<_>>(),
        other => panic!("expected a cycle, got {other:?}"),
    };
    let all: BTreeSet<String> = ["one", "two", "three"].map(str::to_owned).into();
    assert_eq!(round(put(&bench, &new("three", &["dataset:y", "job:C"], "job:A")).await), all);
    assert_eq!(names(&bench).await, ["one", "two"]);
    let two = get(&bench, "two").await;
    let changed = new("two", &["job:B"], "job:A");
    assert_eq!(round(put(&bench, &changed).await), ["one", "two"].map(str::to_owned).into());
    assert_eq!(get(&bench, "two").await, two, "nothing is stored");

    let config = |name: &str, after: &str, produces: &str| NewTrigger {
        origin: Origin::Config,
        ..new(name, &[after], produces)
    };
    let given = [config("four", "dataset:z", "job:Z"), config("three", "job:C", "job:A")];
    let found = store.triggers_configured(&given).await.expect("triggers_configured");
    assert_eq!(found.map(BTreeSet::from_iter), Some(all));
    assert_eq!(names(&bench).await, ["one", "two"], "nor any other of them");
    let given = [config("four", "job:C", "job:Z"), config("two", "job:B", "job:C")];
    assert_eq!(store.triggers_configured(&given).await.expect("triggers_configured"), None);

    // It would close the ring, but `two` goes in the same breath.
    let given = [config("four", "job:C", "job:A")];
    assert_eq!(store.triggers_configured(&given).await.expect("triggers_configured"), None);
    assert_eq!(names(&bench).await, ["four", "one"]);
    assert_eq!(put(&bench, &new("one", &["dataset:z"], "job:Z")).await, TriggerPut::Put(Put::Replaced));
    assert_eq!(get(&bench, "one").await.spec.produces, "job:Z");
}

/// Two halves of a ring at the same moment: one of them is too late.
pub(super) async fn halves_of_a_cycle_at_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for round in 0..10 {
        let (x, y) = (format!("job:X{round}"), format!("job:Y{round}"));
        let halves = [new(&format!("{round} there"), &[&x], &y), new(&format!("{round} back"), &[&y], &x)];
        let acts = halves
            .into_iter()
            .zip([bench.store.clone(), bench.other.clone()])
            .map(|(half, store)| async move { store.trigger_put(&half).await.expect("trigger_put") })
            .collect();
        let answers = at_once(acts).await;
        let put = answers.iter().filter(|answer| **answer == TriggerPut::Put(Put::Created)).count();
        let refused = answers.iter().filter(|answer| matches!(answer, TriggerPut::Cycle(_))).count();
        assert_eq!((put, refused), (1, 1), "{answers:?}");
        assert_eq!(names(&bench).await.len(), round + 1);
    }
}

pub(super) async fn deleting_takes_arrivals_and_firings_along(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let trigger = stored(&bench, &pair()).await;
    stored(&bench, &NewTrigger { name: "other".to_owned(), ..pair() }).await;
    for (dataset, day) in [("a", "1"), ("b", "1"), ("a", "2")] {
        completes(&bench, dataset, day).await;
    }
    judge(&bench).await;
    let due = bench.store.trigger_fires_due(10).await.expect("trigger_fires_due");
    assert_eq!(due.len(), 2);
    let own = due.iter().find(|due| due.trigger.id == trigger.id).expect("one is its own").fire.id;
    let rows = (count(&bench, "trigger_arrival").await, count(&bench, "trigger_fire").await);
    let late = completes(&bench, "b", "2").await;

    assert_eq!(bench.store.trigger_delete("pair").await.expect("trigger_delete"), Deleted::Yes);
    assert_eq!(bench.store.trigger_get("pair").await.expect("trigger_get"), None);
    let left = (count(&bench, "trigger_arrival").await, count(&bench, "trigger_fire").await);
    assert_eq!(left, (rows.0 / 2, rows.1 / 2), "those of the other stay");
    let due = bench.store.trigger_fires_due(10).await.expect("trigger_fires_due");
    assert_eq!(due.iter().map(|due| due.trigger.name.as_str()).collect::<Vec<_>>(), ["other"]);
    let jobs = count(&bench, "job").await;
    assert_eq!(bench.store.trigger_fire(own, run(job(1))).await.expect("trigger_fire"), None);
    assert_eq!(count(&bench, "job").await, jobs, "its firing is not there any more");

    let again = stored(&bench, &pair()).await;
    assert_ne!(again.id, trigger.id);
    assert_eq!(sets(&bench, "other").await.len(), 2);
    assert_eq!(sets(&bench, "pair").await, [] as [Vec<JobId>; 0], "it knows nothing of the past");
    let a = completes(&bench, "a", "2").await;
    assert_eq!(sets(&bench, "other").await[2..], [[a, late]]);
    assert_eq!(sets(&bench, "pair").await, [] as [Vec<JobId>; 0]);
    assert_eq!(bench.store.trigger_delete("gone").await.expect("trigger_delete"), Deleted::Unknown);
}

pub(super) async fn a_trigger_does_not_look_back(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    completes(&bench, "a", "1").await;
    stored(&bench, &new("one", &["dataset:a"], "job:X")).await;
    stored(&bench, &pair()).await;
    let b = completes(&bench, "b", "1").await;
    assert_eq!(sets(&bench, "one").await, [] as [Vec<JobId>; 0]);
    assert_eq!(sets(&bench, "pair").await, [] as [Vec<JobId>; 0]);
    // Also at what others asked for, and nobody has judged yet.
    let a = completes(&bench, "a", "1").await;
    stored(&bench, &new("late", &["dataset:a"], "job:X")).await;
    assert_eq!(sets(&bench, "late").await, [] as [Vec<JobId>; 0]);
    assert_eq!(sets(&bench, "one").await, [std::slice::from_ref(&a)]);
    assert_eq!(sets(&bench, "pair").await, [[a, b]]);
}

/// Values of one label mean nothing to another.
pub(super) async fn another_label_begins_anew(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &pair()).await;
    completes(&bench, "a", "EU").await;
    judge(&bench).await;
    let mut by_region = pair();
    by_region.spec.match_label = Some("region".to_owned());
    assert_eq!(put(&bench, &by_region).await, TriggerPut::Put(Put::Replaced));
    assert_eq!(waits(&bench, "pair").await, []);
    let b = completes(&bench, "b", "1").await;
    assert_eq!(sets(&bench, "pair").await, [] as [Vec<JobId>; 0]);
    let a = completes(&bench, "a", "2").await;
    assert_eq!(sets(&bench, "pair").await, [[a.clone(), b.clone()]]);

    let mut three = by_region;
    three.spec.after.push("dataset:c".to_owned());
    assert_eq!(put(&bench, &three).await, TriggerPut::Put(Put::Replaced));
    let c = completes(&bench, "c", "3").await;
    assert_eq!(sets(&bench, "pair").await[1..], [[a, b, c]], "the same label: what came before counts");
}

pub(super) async fn a_parent_that_completes_after_all_arrives(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &pair()).await;
    let (a, chunks) = bench.running_of(export("a", Some("1"))).await;
    bench.fail(&chunks[0], None).await.expect("still owned");
    bench.stage().await;
    let b = completes(&bench, "b", "1").await;
    assert_eq!(judge(&bench).await, 1, "a failed one does not arrive");
    assert_eq!(bench.store.job_redrive(&a).await.expect("job_redrive"), Redriven::Yes(1));
    let chunk = bench.claim_again().await;
    bench.finish(&[chunk]).await;
    assert_eq!(bench.job(&a).await.status, JobStatus::Completed);
    assert_eq!(sets(&bench, "pair").await, [[a, b]]);
}

pub(super) async fn a_job_that_a_repair_completes_arrives(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &new("one", &["dataset:positions"], "job:X")).await;
    let (id, chunks) = bench.running(2).await;
    bench.finish(&chunks[..1]).await;
    bench.probe.execute("update job set done = 0").await;
    bench.finish(&chunks[1..]).await;
    assert_eq!(bench.job(&id).await.status, JobStatus::InProgress, "stuck, as intended");
    assert_eq!(judge(&bench).await, 0);
    let store = &bench.store;
    eventually("quiet for long enough", || async move {
        (store.counts_repair(Duration::ZERO, 10).await.expect("counts_repair") > 0).then_some(())
    })
    .await;
    assert_eq!(bench.job(&id).await.status, JobStatus::Completed);
    assert_eq!(sets(&bench, "one").await, [[id]]);
}
