//! Schedules on a real store, at simulated moments.

use std::sync::atomic::Ordering;

use outhaul_core::job::JobStatus;
use outhaul_core::schedule::{CatchUp, Deleted, NewSchedule, Origin, ScheduleSpec};
use serde_json::json;

use super::*;
use crate::engine::Engine;
use crate::planner::fixture::{TestDelivery, TestPlanner, complete_all, jobs, store};
use crate::pruner::Pruner;
use crate::registry::Registry;
use crate::settings::{EngineSettings, Stores, WorkerSettings};

const START: &str = "2026-01-01T00:00:00";

fn utc(text: &str) -> DateTime<Utc> {
    format!("{text}Z").parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn hourly(name: &str, catch_up: CatchUp, overlap: Overlap) -> NewSchedule {
    let spec = ScheduleSpec {
        cron: "0 * * * *".to_owned(),
        timezone: "Europe/Berlin".to_owned(),
        job: json!({"jobType": "TOUCH", "labels": {"at": "{{slot - 1d | yyyy-MM-dd}} {{slot | HH}}"}}).into(),
        overlap,
        catch_up,
        catch_up_limit: 100,
        jitter: Duration::ZERO,
    };
    let times = Times::parse(&spec.cron, &spec.timezone).unwrap();
    let next = due::next_slot(&times, name, spec.jitter, utc(START));
    NewSchedule { name: name.to_owned(), spec, origin: Origin::Api, owner: "ada".to_owned(), next }
}

fn scheduler(
    store: &Arc<dyn Store>,
    planner: TestPlanner,
) -> (Scheduler, Arc<TestPlanner>, Arc<TestDelivery>) {
    let (planner, delivery) = (Arc::new(planner), Arc::new(TestDelivery::default()));
    (Scheduler::new(store.clone(), planner.clone(), delivery.clone()), planner, delivery)
}

fn outcomes(rows: &[SlotRow]) -> Vec<(String, SlotOutcome)> {
    rows.iter().map(|row| (row.slot.format("%H:%M").to_string(), row.outcome)).collect()
}

async fn slots(store: &Arc<dyn Store>, name: &str) -> Vec<SlotRow> {
    let mut rows = store.schedule_slots(name, 1000).await.unwrap();
    rows.reverse();
    rows
}

#[tokio::test]
async fn a_slot_becomes_a_job_with_its_words_filled_in() {
    let temporary = store().await;
    let store = temporary.store();
    let (scheduler, _, delivery) = scheduler(&store, TestPlanner::default());
    store.schedule_put(&hourly("tick", CatchUp::Last, Overlap::Skip)).await.unwrap();

    assert_eq!(scheduler.round(Some(utc("2026-01-01T00:59:59.9"))).await.unwrap(), Round::default());
    assert_eq!(delivery.0.load(Ordering::SeqCst), 0);
    let round = scheduler.round(Some(utc("2026-01-01T01:00:00"))).await.unwrap();
    assert_eq!(round.slots.len(), 1);
    assert_eq!(delivery.0.load(Ordering::SeqCst), 1);

    let jobs = jobs(&store).await;
    assert_eq!((jobs.len(), jobs[0].owner.as_str()), (1, "ada"));
    assert_eq!(jobs[0].labels["at"], "2025-12-31 02", "the slot by the clocks of Berlin");
    let (name, row) = &round.slots[0];
    assert_eq!((name.as_str(), row.job_id.as_ref()), ("tick", Some(&jobs[0].job_id)));
    let next = store.schedule_get("tick").await.unwrap().unwrap().next.unwrap();
    assert_eq!(next.slot, utc("2026-01-01T02:00:00"));
    assert_eq!(scheduler.round(Some(utc("2026-01-01T01:30:00"))).await.unwrap(), Round::default());
}

#[tokio::test]
async fn after_an_outage_the_policy_decides() {
    let temporary = store().await;
    let store = temporary.store();
    let (scheduler, ..) = scheduler(&store, TestPlanner::default());
    for (name, catch_up) in [("none", CatchUp::None), ("last", CatchUp::Last), ("all", CatchUp::All)] {
        store.schedule_put(&hourly(name, catch_up, Overlap::Allow)).await.unwrap();
    }
    scheduler.round(Some(utc("2026-01-01T03:30:00"))).await.unwrap();
    use SlotOutcome::{Fired, Missed};
    let at = |hour: &str, outcome| (format!("{hour}:00"), outcome);
    assert_eq!(outcomes(&slots(&store, "none").await), [at("03", Missed)]);
    assert_eq!(outcomes(&slots(&store, "last").await), [at("02", Missed), at("03", Fired)]);
    assert_eq!(outcomes(&slots(&store, "all").await), [at("01", Fired), at("02", Fired), at("03", Fired)]);
    let missed = &slots(&store, "none").await[0];
    assert_eq!(missed.detail.as_deref(), Some("no scheduler ran; 2 earlier slots were missed too"));
    assert_eq!(jobs(&store).await.len(), 4);
}

#[tokio::test]
async fn a_job_that_cannot_be_made_is_refused_and_the_schedule_goes_on() {
    let temporary = store().await;
    let store = temporary.store();
    let (scheduler, planner, delivery) = scheduler(&store, TestPlanner::default());
    store.schedule_put(&hourly("tick", CatchUp::Last, Overlap::Skip)).await.unwrap();
    planner.refuse.store(true, Ordering::SeqCst);
    scheduler.round(Some(utc("2026-01-01T01:00:00"))).await.unwrap();
    assert_eq!(delivery.0.load(Ordering::SeqCst), 0, "there is nothing to run");
    planner.refuse.store(false, Ordering::SeqCst);
    scheduler.round(Some(utc("2026-01-01T02:00:00"))).await.unwrap();

    let slots = slots(&store, "tick").await;
    assert_eq!(
        outcomes(&slots),
        [("01:00".to_owned(), SlotOutcome::Refused), ("02:00".to_owned(), SlotOutcome::Fired)]
    );
    assert_eq!(slots[0].detail.as_deref(), Some("no job could be made: /jobType is not what it was"));
    assert_eq!(jobs(&store).await.len(), 1);
}

#[tokio::test]
async fn what_nobody_can_read_is_refused_once_and_does_not_stop_the_others() {
    let temporary = store().await;
    let store = temporary.store();
    let (scheduler, ..) = scheduler(&store, TestPlanner::default());
    let mut broken = hourly("broken", CatchUp::Last, Overlap::Skip);
    broken.spec.cron = "61 * * * *".to_owned();
    broken.spec.timezone = "Nowhere".to_owned();
    let mut unknown = hourly("unknown-word", CatchUp::Last, Overlap::Skip);
    unknown.spec.job = json!({"jobType": "TOUCH", "payload": "{{tomorrow}}"}).into();
    for schedule in [&broken, &unknown, &hourly("sound", CatchUp::Last, Overlap::Skip)] {
        store.schedule_put(schedule).await.unwrap();
    }
    let round = scheduler.round(Some(utc("2026-01-01T01:00:00"))).await.unwrap();
    assert_eq!(round.slots.len(), 3);
    assert_eq!(outcomes(&slots(&store, "sound").await)[0].1, SlotOutcome::Fired);
    let detail = slots(&store, "broken").await.remove(0).detail.unwrap();
    assert!(
        detail.contains("cannot be read: cron is not a cron expression")
            && detail.contains("timezone is not")
    );
    assert_eq!(store.schedule_get("broken").await.unwrap().unwrap().next, None);
    let detail = slots(&store, "unknown-word").await.remove(0).detail.unwrap();
    assert!(detail.contains("/payload `{{tomorrow}}` is unknown here"), "{detail}");
    assert_eq!(scheduler.round(Some(utc("2026-01-01T02:00:00"))).await.unwrap().slots.len(), 2);
}

#[tokio::test]
async fn an_error_of_the_store_with_one_does_not_stop_the_others() {
    let temporary = store().await;
    let store = temporary.store();
    let (scheduler, _, delivery) = scheduler(&store, TestPlanner::default());
    let mut broken = hourly("broken", CatchUp::Last, Overlap::Skip);
    broken.spec.job = json!({"jobType": "TOUCH", "broken": true}).into();
    store.schedule_put(&broken).await.unwrap();
    store.schedule_put(&hourly("sound", CatchUp::Last, Overlap::Skip)).await.unwrap();
    let error = scheduler.round(Some(utc("2026-01-01T01:00:00"))).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused(_)), "{error}");
    assert_eq!(slots(&store, "sound").await.len(), 1);
    assert_eq!(delivery.0.load(Ordering::SeqCst), 1);
    // Nothing half-done: it is still due.
    assert_eq!(slots(&store, "broken").await, []);
    let next = store.schedule_get("broken").await.unwrap().unwrap().next;
    assert_eq!(next.map(|next| next.slot), Some(utc("2026-01-01T01:00:00")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_that_is_deleted_or_paused_while_it_fires_does_nothing() {
    for paused in [false, true] {
        let temporary = store().await;
        let store = temporary.store();
        let (deleting, runtime) = (store.clone(), tokio::runtime::Handle::current());
        let meanwhile = move || {
            tokio::task::block_in_place(|| {
                runtime.block_on(async {
                    if paused {
                        assert!(deleting.schedule_pause("tick").await.unwrap());
                    } else {
                        assert_eq!(deleting.schedule_delete("tick").await.unwrap(), Deleted::Yes);
                    }
                });
            });
        };
        let planner = TestPlanner { meanwhile: Some(Box::new(meanwhile)), ..TestPlanner::default() };
        let (scheduler, _, delivery) = scheduler(&store, planner);
        store.schedule_put(&hourly("tick", CatchUp::All, Overlap::Skip)).await.unwrap();
        let round = scheduler.round(Some(utc("2026-01-01T01:00:00"))).await.unwrap();
        assert_eq!(round, Round::default());
        assert!(jobs(&store).await.is_empty() && slots(&store, "tick").await.is_empty());
        assert_eq!(delivery.0.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn schedulers_that_race_fire_each_slot_once() {
    let temporary = store().await;
    let store = temporary.store();
    let mut jittered = hourly("jittered", CatchUp::All, Overlap::Allow);
    jittered.spec.jitter = Duration::from_secs(1200);
    let times = Times::parse(&jittered.spec.cron, &jittered.spec.timezone).unwrap();
    jittered.next = due::next_slot(&times, "jittered", jittered.spec.jitter, utc(START));
    let plain = hourly("plain", CatchUp::All, Overlap::Allow);
    store.schedule_put(&jittered).await.unwrap();
    store.schedule_put(&plain).await.unwrap();
    let racing = (0..3).map(|_| {
        let (scheduler, ..) = scheduler(&store, TestPlanner::default());
        tokio::spawn(async move {
            let mut recorded = 0;
            // Half an hour at a time, for a day and a little.
            for half_hours in 1..=49 {
                let at = utc(START) + TimeDelta::minutes(30 * half_hours);
                recorded += scheduler.round(Some(at)).await.unwrap().slots.len();
            }
            recorded
        })
    });
    let recorded: usize = futures::future::join_all(racing).await.into_iter().map(Result::unwrap).sum();
    for name in ["jittered", "plain"] {
        let slots = slots(&store, name).await;
        let expected: Vec<_> = times.from(utc("2026-01-01T01:00:00")).take(24).collect();
        assert_eq!(slots.iter().map(|row| row.slot).collect::<Vec<_>>(), expected, "{name}");
        assert!(slots.iter().all(|row| row.outcome == SlotOutcome::Fired));
    }
    assert_eq!(recorded, 48, "each was told to one of them");
    assert_eq!(jobs(&store).await.len(), 48);
}

#[tokio::test]
async fn by_hand_a_schedule_fires_now_and_its_slots_go_on() {
    let temporary = store().await;
    let store = temporary.store();
    let (scheduler, planner, delivery) = scheduler(&store, TestPlanner::default());
    assert_eq!(scheduler.run("tick").await.unwrap(), ByHand::Unknown);
    store.schedule_put(&hourly("tick", CatchUp::Last, Overlap::Skip)).await.unwrap();
    store.schedule_pause("tick").await.unwrap();
    let before = store.schedule_get("tick").await.unwrap();

    let mut moments = Vec::new();
    for _ in 0..2 {
        let ByHand::Slot(row) = scheduler.run("tick").await.unwrap() else { panic!("it is there") };
        assert_eq!(row.outcome, SlotOutcome::Fired, "though the one before it has not ended");
        assert!(store.job_get(row.job_id.as_ref().unwrap()).await.unwrap().is_some());
        moments.push(row.slot);
    }
    assert_ne!(moments[0], moments[1]);
    assert_eq!(delivery.0.load(Ordering::SeqCst), 2);
    planner.refuse.store(true, Ordering::SeqCst);
    let ByHand::Slot(row) = scheduler.run("tick").await.unwrap() else { panic!("it is there") };
    assert_eq!((row.outcome, row.job_id), (SlotOutcome::Refused, None));
    assert_eq!(slots(&store, "tick").await.len(), 3);
    assert_eq!(store.schedule_get("tick").await.unwrap(), before);
}

#[tokio::test]
async fn with_a_planner_an_engine_fires_and_runs_what_is_due() {
    let temporary = store().await;
    let store = temporary.store();
    // Overdue since years: the newest is made up for at once.
    store.schedule_put(&hourly("tick", CatchUp::Last, Overlap::Skip)).await.unwrap();
    let stores = Stores { api: store.clone(), engine: store.clone(), keeper: store.clone() };
    let settings = EngineSettings {
        worker_role: false,
        scheduler_role: true,
        host: "here".to_owned(),
        roles: "scheduler".to_owned(),
        worker: WorkerSettings::default(),
        retain_jobs: Duration::MAX,
        retain_audit: Duration::MAX,
    };
    let (planner, delivery) = (Arc::new(TestPlanner::default()), Arc::new(TestDelivery::default()));
    let engine =
        Engine::start_with(stores, delivery, Registry::new(), settings, Some(planner), Default::default())
            .await
            .unwrap();
    while jobs(&store).await.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    engine.stop().await;
    complete_all(&store).await;
    assert_eq!(jobs(&store).await[0].status, JobStatus::Completed);
}

#[tokio::test]
async fn slots_past_their_retention_are_deleted() {
    let temporary = store().await;
    let store = temporary.store();
    let (scheduler, ..) = scheduler(&store, TestPlanner::default());
    store.schedule_put(&hourly("tick", CatchUp::Last, Overlap::Skip)).await.unwrap();
    scheduler.round(Some(utc("2026-01-01T01:00:00"))).await.unwrap();
    let kept = Pruner { store: store.clone(), keep: Duration::from_secs(3600), keep_audit: Duration::MAX };
    kept.run_once().await.unwrap();
    assert_eq!(slots(&store, "tick").await.len(), 1);
    Pruner { store: store.clone(), keep: Duration::ZERO, keep_audit: Duration::MAX }
        .run_once()
        .await
        .unwrap();
    assert_eq!(slots(&store, "tick").await.len(), 0);
}
