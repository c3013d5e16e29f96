//! Triggers: every set of completed parents fires once, whoever judges it and however often, and nothing
//! goes round in a cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outhaul_core::id::JobId;
use outhaul_core::job::{JobStatus, NewJob};
use outhaul_core::json::Json;
use outhaul_core::schedule::{Deleted, Origin, Put};
use outhaul_core::store::Redriven;
use outhaul_core::trigger::{
    FirePlan, NewTrigger, Trigger, TriggerFire, TriggerPut, TriggerSpec, TriggerWait,
};
use serde_json::json;

use super::bench::{Bench, Kit, SETTINGS, at_once, job};
use super::upkeep::repair;

/// A trigger of these terms; those of several must have the same `day`.
pub(super) fn new(name: &str, after: &[&str], produces: &str) -> NewTrigger {
    NewTrigger {
        name: name.to_owned(),
        spec: TriggerSpec {
            after: after.iter().map(|term| (*term).to_owned()).collect(),
            match_label: (after.len() > 1).then(|| "day".to_owned()),
            within: None,
            job: json!({ "jobType": "SEND_EMAIL", "payload": { "of": "{{label.day}}" } }).into(),
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
    given.spec.job = json!({ "payload": "it's \"quoted\" \\ ü {{parents.0.jobId}}" }).into();
    let found = stored(&bench, &given).await;
    assert_eq!((&found.name, &found.spec, &found.owner), (&given.name, &given.spec, &given.owner));
    assert_eq!((found.origin, found.created_at), (Origin::Api, found.updated_at));
    let single = stored(&bench, &new("Single", &["job:PAYROLL"], "dataset:x")).await;
    assert_eq!((single.spec.match_label.as_deref(), single.spec.within), (None, None));
    let all = bench.other.triggers_list().await.expect("triggers_list");
    let without = |mut trigger: Trigger| {
        trigger.spec.job = Json::null();
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
        ("job", |new| new.spec.job = json!({}).into()),
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
    repair(&bench).await;
    assert_eq!(bench.job(&id).await.status, JobStatus::Completed);
    assert_eq!(sets(&bench, "one").await, [[id]]);
}
