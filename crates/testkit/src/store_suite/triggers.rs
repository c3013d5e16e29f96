//! Triggers: every set of completed parents fires once, whoever judges it and however often, and nothing
//! goes round in a cycle.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use futures::future::BoxFuture;
use outhaul_core::id::JobId;
use outhaul_core::job::{JobStatus, NewJob};
use outhaul_core::schedule::{Deleted, Origin, Put};
use outhaul_core::state::ChunkState;
use outhaul_core::store::Redriven;
use outhaul_core::trigger::{
    FirePlan, FireState, NewTrigger, Trigger, TriggerFire, TriggerPut, TriggerSpec, TriggerWait,
};
use serde_json::json;

use super::bench::{Bench, Kit, LONG, SETTINGS, at_once, custom, eventually, job, keyed, plain};

/// A trigger of these terms; those of several must have the same `day`.
fn new(name: &str, after: &[&str], produces: &str) -> NewTrigger {
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
fn pair() -> NewTrigger {
    new("pair", &["dataset:a", "dataset:b"], "job:SEND_EMAIL")
}

async fn put(bench: &Bench, trigger: &NewTrigger) -> TriggerPut {
    bench.store.trigger_put(trigger).await.expect("trigger_put")
}

async fn get(bench: &Bench, name: &str) -> Trigger {
    bench.other.trigger_get(name).await.expect("trigger_get").expect("the trigger is there")
}

/// Stores a trigger that must be new.
async fn stored(bench: &Bench, trigger: &NewTrigger) -> Trigger {
    assert_eq!(put(bench, trigger).await, TriggerPut::Put(Put::Created));
    get(bench, &trigger.name).await
}

async fn names(bench: &Bench) -> Vec<String> {
    let all = bench.other.triggers_list().await.expect("triggers_list");
    all.into_iter().map(|trigger| trigger.name).collect()
}

fn labels(day: Option<&str>) -> BTreeMap<String, String> {
    let other = ("region".to_owned(), "EU".to_owned());
    day.map(|day| ("day".to_owned(), day.to_owned())).into_iter().chain([other]).collect()
}

fn export(dataset: &str, day: Option<&str>) -> NewJob {
    NewJob { dataset: Some(dataset.to_owned()), labels: labels(day), ..job(1) }
}

/// Runs an export of this dataset until it is COMPLETED.
async fn completes(bench: &Bench, dataset: &str, day: &str) -> JobId {
    completes_of(bench, export(dataset, Some(day))).await
}

async fn completes_of(bench: &Bench, new: NewJob) -> JobId {
    let (id, chunks) = bench.running_of(new).await;
    assert_eq!(bench.finish(&chunks).await, chunks.len());
    assert_eq!(bench.job(&id).await.status, JobStatus::Completed);
    id
}

/// Judges whatever there is; returns how many jobs that were.
async fn judge(bench: &Bench) -> u64 {
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
async fn fires(bench: &Bench, name: &str) -> Vec<TriggerFire> {
    let id = get(bench, name).await.id;
    bench.other.trigger_fires(id, 1000).await.expect("trigger_fires")
}

/// The parents of all firings of a trigger, oldest first.
async fn sets(bench: &Bench, name: &str) -> Vec<Vec<JobId>> {
    judge(bench).await;
    let mut fires = fires(bench, name).await;
    fires.reverse();
    fires.into_iter().map(|fire| fire.parents).collect()
}

async fn waits(bench: &Bench, name: &str) -> Vec<TriggerWait> {
    let id = get(bench, name).await.id;
    bench.other.trigger_waits(id, 1000).await.expect("trigger_waits")
}

async fn count(bench: &Bench, table: &str) -> i64 {
    bench.probe.number(&format!("select count(*) from {table}")).await
}

fn run(job: NewJob) -> FirePlan {
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
    turned.spec.job = json!({ "jobType": "OTHER" });
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
