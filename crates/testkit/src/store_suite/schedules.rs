//! Schedules: a slot is fired once, by whoever finds the schedule as it was, and what stands in the way of
//! a job is recorded with its slot.

use std::time::Duration;

use chrono::{DateTime, TimeZone, Utc};
use outhaul_core::id::JobId;
use outhaul_core::job::NewJob;
use outhaul_core::json::Json;
use outhaul_core::schedule::{
    Advance, CatchUp, Deleted, NewSchedule, NextSlot, Origin, Overlap, Put, Schedule, ScheduleFire,
    ScheduleFired, ScheduleSpec, SlotOutcome, SlotPlan, SlotRow,
};
use outhaul_core::state::ChunkState;
use serde_json::json;

use super::bench::{Bench, Kit, SETTINGS, at_once};

/// A slot of the suite's schedules: every minute has one.
pub(super) fn slot(minute: i64) -> DateTime<Utc> {
    let first = Utc.with_ymd_and_hms(2025, 3, 15, 0, 0, 0).single().expect("a real moment");
    first + chrono::Duration::minutes(minute)
}

/// A slot with a share of the jitter.
pub(super) fn next(minute: i64) -> NextSlot {
    NextSlot { slot: slot(minute), fire_at: slot(minute) + chrono::Duration::microseconds(2_500_001) }
}

pub(super) fn new(name: &str) -> NewSchedule {
    NewSchedule {
        name: name.to_owned(),
        spec: ScheduleSpec {
            cron: "* * * * *".to_owned(),
            timezone: "Europe/Berlin".to_owned(),
            job: json!({ "dataset": "positions", "dates": ["{{slot - 1d}}"], "n": 1.5 }).into(),
            overlap: Overlap::Skip,
            catch_up: CatchUp::Last,
            catch_up_limit: 100,
            jitter: Duration::from_micros(5_000_001),
        },
        origin: Origin::Api,
        owner: "anonymous".to_owned(),
        next: Some(next(0)),
    }
}

pub(super) fn says(change: impl FnOnce(&mut ScheduleSpec)) -> NewSchedule {
    let mut schedule = new("s");
    change(&mut schedule.spec);
    schedule
}

pub(super) async fn put(bench: &Bench, schedule: &NewSchedule) -> Put {
    bench.store.schedule_put(schedule).await.expect("schedule_put")
}

pub(super) async fn get(bench: &Bench, name: &str) -> Schedule {
    bench.other.schedule_get(name).await.expect("schedule_get").expect("the schedule is there")
}

/// Stores a schedule that must be new.
pub(super) async fn stored(bench: &Bench, schedule: &NewSchedule) -> Schedule {
    assert_eq!(put(bench, schedule).await, Put::Created);
    get(bench, &schedule.name).await
}

pub(super) async fn names(bench: &Bench) -> Vec<(String, Origin)> {
    let all = bench.other.schedules_list().await.expect("schedules_list");
    all.into_iter().map(|schedule| (schedule.name, schedule.origin)).collect()
}

pub(super) async fn slots(bench: &Bench, name: &str) -> Vec<SlotRow> {
    bench.other.schedule_slots(name, 1000).await.expect("schedule_slots")
}

pub(super) async fn jobs(bench: &Bench) -> i64 {
    bench.probe.number("select count(*) from job").await
}

pub(super) fn run(job: NewJob) -> SlotPlan {
    SlotPlan::Run(Box::new(job))
}

/// Fires these slots, the first of which is the one that it waits for, as its schedule says.
pub(super) fn firing(schedule: &Schedule, slots: Vec<(i64, SlotPlan)>) -> ScheduleFire {
    let last = slots.last().expect("a slot").0;
    let from = schedule.next.expect("it waits for a slot").slot;
    ScheduleFire {
        id: schedule.id,
        version: schedule.version,
        advance: Some(Advance { from, to: Some(next(last + 1)) }),
        overlap: schedule.spec.overlap,
        slots: slots.into_iter().map(|(minute, plan)| (slot(minute), plan)).collect(),
    }
}

pub(super) async fn fire(bench: &Bench, fire: ScheduleFire) -> Vec<SlotRow> {
    match bench.store.schedule_fire(fire).await.expect("schedule_fire") {
        ScheduleFired::Yes(rows) => rows,
        ScheduleFired::Lost => panic!("nobody else is there"),
    }
}

/// Fires one slot after another of the schedule `s`.
pub(super) async fn fire_next(bench: &Bench, minute: i64, job: NewJob) -> SlotRow {
    let schedule = get(bench, "s").await;
    let mut rows = fire(bench, firing(&schedule, vec![(minute, run(job))])).await;
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

/// The job of a slot that must have been fired.
pub(super) fn fired(row: &SlotRow) -> JobId {
    assert_eq!((row.outcome, &row.detail), (SlotOutcome::Fired, &None), "{row:?}");
    row.job_id.clone().expect("a fired slot has a job")
}

/// Whether the job waits for another.
pub(super) async fn waits(bench: &Bench, id: &JobId) -> bool {
    bench.stage().await;
    bench.states(id).await == [ChunkState::Created]
}

pub(super) async fn finish_next(bench: &Bench) {
    let chunk = bench.claim_one().await;
    assert_eq!(bench.finish(&[chunk]).await, 1);
}

pub(super) async fn a_schedule_is_stored_and_read_back(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let given = new("s");
    let found = stored(&bench, &given).await;
    assert_eq!(found.name, "s");
    assert_eq!(found.spec, given.spec);
    assert_eq!((found.origin, found.owner.as_str(), found.paused), (Origin::Api, "anonymous", false));
    assert_eq!(found.next, given.next);
    assert_eq!(found.created_at, found.updated_at);

    let other = NewSchedule {
        spec: ScheduleSpec {
            cron: "0 0 29 2 *".to_owned(),
            job: json!("it's \"quoted\" \\ {{slot}} ü").into(),
            overlap: Overlap::Queue,
            catch_up: CatchUp::None,
            catch_up_limit: 1000,
            jitter: Duration::ZERO,
            ..given.spec.clone()
        },
        origin: Origin::Config,
        owner: "ops".to_owned(),
        next: None,
        ..new("S")
    };
    let found_other = stored(&bench, &other).await;
    assert_eq!((&found_other.spec, found_other.next), (&other.spec, None));
    assert_eq!((found_other.origin, found_other.owner.as_str()), (Origin::Config, "ops"));
    assert_ne!(found_other.id, found.id);
    let third = says(|spec| (spec.overlap, spec.catch_up) = (Overlap::Allow, CatchUp::All));
    let third = stored(&bench, &NewSchedule { name: "a.b-c_1".to_owned(), ..third }).await;

    let all = bench.other.schedules_list().await.expect("schedules_list");
    let without = |mut schedule: Schedule| {
        schedule.spec.job = Json::null();
        schedule
    };
    assert_eq!(all, [found_other, third, found].map(without), "by name, without what they submit");
    assert_eq!(bench.store.schedule_get("t").await.expect("schedule_get"), None);
    assert_eq!(slots(&bench, "s").await, []);
    assert_eq!(slots(&bench, "t").await, []);
}

pub(super) async fn a_repeated_put_changes_nothing(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let first = stored(&bench, &new("s")).await;
    let again = NewSchedule { next: Some(next(7)), ..new("s") };
    assert_eq!(put(&bench, &again).await, Put::Replaced);
    assert_eq!(get(&bench, "s").await, first);
    assert!(bench.store.schedule_pause("s").await.expect("schedule_pause"));
    let paused = get(&bench, "s").await;
    assert_eq!(put(&bench, &again).await, Put::Replaced);
    assert_eq!(get(&bench, "s").await, paused, "a pause is kept");
}

/// A scheduler that could not read its times left it without a next slot; whoever can, says it anew.
pub(super) async fn a_parked_schedule_goes_on_when_it_is_put_again(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    stored(&bench, &NewSchedule { next: None, ..new("s") }).await;
    assert_eq!(bench.store.schedule_put(&new("s")).await.expect("schedule_put"), Put::Replaced);
    let found = bench.store.schedule_get("s").await.expect("schedule_get").expect("it is there");
    assert_eq!((found.next, found.version), (new("s").next, 1));
}

pub(super) async fn what_it_says_raises_the_version(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let first = stored(&bench, &new("s")).await;
    let mut version = first.version;
    // Each step differs from the one before it in one thing only.
    let mut given = NewSchedule { next: Some(next(9)), ..new("s") };
    for (what, change) in [
        ("job", (|given| given.spec.job = json!({ "n": 2 }).into()) as fn(&mut NewSchedule)),
        ("overlap", |given| given.spec.overlap = Overlap::Allow),
        ("catch_up", |given| given.spec.catch_up = CatchUp::All),
        ("catch_up_limit", |given| given.spec.catch_up_limit = 3),
        ("owner", |given| given.owner = "ops".to_owned()),
    ] {
        change(&mut given);
        assert_eq!(put(&bench, &given).await, Put::Replaced, "{what}");
        let found = get(&bench, "s").await;
        version += 1;
        assert_eq!((found.version, found.next), (version, first.next), "{what}");
        assert_eq!((&found.spec, &found.owner), (&given.spec, &given.owner), "{what}");
        assert_eq!((found.id, found.created_at), (first.id, first.created_at), "{what}");
        assert!(found.updated_at > first.updated_at, "{what}");
    }
    for (minute, what, change) in [
        (10, "cron", (|given| given.spec.cron = "0 * * * *".to_owned()) as fn(&mut NewSchedule)),
        (11, "timezone", |given| given.spec.timezone = "UTC".to_owned()),
        (12, "jitter", |given| given.spec.jitter = Duration::from_secs(1)),
    ] {
        change(&mut given);
        given.next = Some(next(minute));
        assert_eq!(put(&bench, &given).await, Put::Replaced, "{what}");
        let found = get(&bench, "s").await;
        version += 1;
        assert_eq!((found.version, found.next), (version, given.next), "{what}: other times, another slot");
        assert_eq!(found.spec, given.spec, "{what}");
    }
    assert!(bench.store.schedule_pause("s").await.expect("schedule_pause"));
    given.spec.cron = "5 * * * *".to_owned();
    given.next = None;
    assert_eq!(put(&bench, &given).await, Put::Replaced);
    let found = get(&bench, "s").await;
    assert_eq!((found.paused, found.next, found.version), (true, None, version + 1), "a pause is kept");
}

pub(super) async fn the_configuration_goes_before_the_api(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let config = |name| NewSchedule { origin: Origin::Config, ..new(name) };
    let first = stored(&bench, &config("s")).await;
    let changed = says(|spec| spec.cron = "0 0 * * *".to_owned());
    assert_eq!(put(&bench, &changed).await, Put::ReadOnly);
    assert_eq!(put(&bench, &new("s")).await, Put::ReadOnly, "also when it says the same");
    assert_eq!(bench.store.schedule_delete("s").await.expect("schedule_delete"), Deleted::ReadOnly);
    assert_eq!(get(&bench, "s").await, first);
    assert_eq!(bench.store.schedule_delete("t").await.expect("schedule_delete"), Deleted::Unknown);

    let own = stored(&bench, &new("t")).await;
    let other_next = NewSchedule { next: Some(next(5)), ..config("t") };
    assert_eq!(put(&bench, &other_next).await, Put::Replaced);
    let taken = get(&bench, "t").await;
    assert_eq!((taken.origin, taken.id, taken.next), (Origin::Config, own.id, own.next));
    assert_eq!(taken.version, own.version, "it says what it said");
    assert_eq!(put(&bench, &new("t")).await, Put::ReadOnly);
}

pub(super) async fn configured_schedules_are_these_and_no_others(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let config = |name| NewSchedule { origin: Origin::Config, ..new(name) };
    stored(&bench, &new("api")).await;
    stored(&bench, &new("taken")).await;
    let three = [config("c"), config("b"), config("taken")];
    bench.store.schedules_configured(&three).await.expect("schedules_configured");
    use Origin::{Api, Config};
    let named = |list: &[(&str, Origin)]| -> Vec<(String, Origin)> {
        list.iter().map(|(name, origin)| ((*name).to_owned(), *origin)).collect()
    };
    assert_eq!(names(&bench).await, named(&[("api", Api), ("b", Config), ("c", Config), ("taken", Config)]));
    assert!(bench.store.schedule_pause("b").await.expect("schedule_pause"));
    let b = get(&bench, "b").await;
    let mut c = config("c");
    c.spec.overlap = Overlap::Queue;
    bench.store.schedules_configured(&[config("b"), c]).await.expect("schedules_configured");
    assert_eq!(names(&bench).await, named(&[("api", Api), ("b", Config), ("c", Config)]));
    assert_eq!(get(&bench, "b").await, b, "as it was, and still paused");
    assert_eq!(get(&bench, "c").await.spec.overlap, Overlap::Queue);
    bench.store.schedules_configured(&[]).await.expect("schedules_configured");
    assert_eq!(names(&bench).await, named(&[("api", Api)]));

    // Processes that start together say the same.
    let acts = (0..8)
        .map(|n| {
            let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
            let mut list = vec![config("x"), config("y"), config("z")];
            list.rotate_left(n % 3);
            async move { store.schedules_configured(&list).await.expect("schedules_configured") }
        })
        .collect();
    at_once(acts).await;
    assert_eq!(names(&bench).await, named(&[("api", Api), ("x", Config), ("y", Config), ("z", Config)]));
}

pub(super) async fn a_paused_schedule_is_not_due_until_resumed(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let store = &bench.store;
    let first = stored(&bench, &new("s")).await;
    let due = || async {
        let due = store.schedules_due(Some(slot(99)), 10).await.expect("schedules_due");
        due.schedules.len()
    };
    assert_eq!(due().await, 1);
    assert!(store.schedule_pause("s").await.expect("schedule_pause"));
    let paused = get(&bench, "s").await;
    assert!(paused.paused && paused.updated_at > first.updated_at);
    assert_eq!((paused.version, paused.next), (first.version, first.next));
    assert_eq!(due().await, 0);
    assert!(store.schedule_pause("s").await.expect("schedule_pause"), "twice is as good as once");
    assert_eq!(get(&bench, "s").await, paused);

    assert!(store.schedule_resume("s", Some(next(42))).await.expect("schedule_resume"));
    let resumed = get(&bench, "s").await;
    assert_eq!((resumed.paused, resumed.next), (false, Some(next(42))));
    assert!(resumed.updated_at > paused.updated_at);
    assert_eq!((resumed.version, due().await), (first.version, 1));
    assert!(store.schedule_resume("s", Some(next(50))).await.expect("schedule_resume"));
    assert_eq!(get(&bench, "s").await, resumed, "what is not paused is left as it is");
    assert!(store.schedule_pause("s").await.expect("schedule_pause"));
    assert!(store.schedule_resume("s", None).await.expect("schedule_resume"));
    assert_eq!((get(&bench, "s").await.next, due().await), (None, 0), "its time will not come");

    assert!(!store.schedule_pause("t").await.expect("schedule_pause"));
    assert!(!store.schedule_resume("t", Some(next(1))).await.expect("schedule_resume"));
}

pub(super) async fn the_longest_overdue_comes_first(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let store = &bench.store;
    for (name, next) in [("b", Some(next(2))), ("a", Some(next(3))), ("c", Some(next(1))), ("never", None)] {
        stored(&bench, &NewSchedule { next, ..new(name) }).await;
    }
    let far = Utc.with_ymd_and_hms(2999, 1, 1, 0, 0, 0).single().expect("a real moment");
    let later = Some(NextSlot { slot: slot(0), fire_at: far });
    stored(&bench, &NewSchedule { next: later, ..new("later") }).await;
    let look = |at, limit| async move {
        let due = store.schedules_due(at, limit).await.expect("schedules_due");
        let names: Vec<String> = due.schedules.into_iter().map(|schedule| schedule.name).collect();
        (due.now, names.join(" "))
    };
    for (at, limit, names) in [
        (slot(1), 10, ""),
        (next(1).fire_at - chrono::Duration::microseconds(1), 10, ""),
        (next(1).fire_at, 10, "c"),
        (slot(3), 10, "c b"),
        (slot(9), 10, "c b a"),
        (slot(9), 2, "c b"),
        (far, 10, "c b a later"),
    ] {
        assert_eq!(look(Some(at), limit).await, (at, names.to_owned()), "at {at}, {limit} at most");
    }
    let (now, names) = look(None, 10).await;
    assert_eq!(names, "c b a", "the database's now is later than those and before that");
    assert!(now > slot(9) && now < far, "{now}");
    let due = store.schedules_due(Some(slot(2)), 1).await.expect("schedules_due");
    assert_eq!(due.schedules, [get(&bench, "c").await], "whole schedules");
}
