//! Three schedulers that are killed, stopped and away, in six time zones, for the two months in which clocks go
//! forward or those in which they go back (the whole year at full size): every slot has the one fate that the policy
//! gives it, and every fired one has one job.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use chrono::{DateTime, Months, SecondsFormat, TimeDelta, Utc};
use outhaul_core::queue::QueueSpec;
use outhaul_core::schedule::{CatchUp, NewSchedule, NextSlot, Origin, Overlap, Put, ScheduleSpec};
use outhaul_core::store::Store;
use outhaul_testkit::size::size;
use outhaul_testkit::test_db::TestDb;
use rand::RngExt as _;
use serde_json::json;
use sqlx::{Connection, PgConnection};

use crate::almanac::{Plan, plans};
use crate::common::PATIENCE;
use crate::disorder::Disorder;
use crate::policy::{Fate, fates};
use crate::process::{JOB_TYPE, came_up, schedule_if_started, set_clock, store, winners};

/// Nothing moves for so long only if somebody was stopped inside a transaction.
const STUCK: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread")]
async fn each_slot_has_the_fate_that_its_policy_says() {
    // The schedulers are this very test in other processes; they end here.
    schedule_if_started().await;
    let seed: u64 = std::env::var("OUTHAUL_TEST_SEED")
        .map_or_else(|_| rand::random(), |seed| seed.parse().expect("a number"));
    eprintln!("OUTHAUL_TEST_SEED={seed} looks and kills at the same moments again");
    let season = if seed.is_multiple_of(2) { "2027-03-01T00:00:00Z" } else { "2027-10-01T00:00:00Z" };
    let (start, months) = size((season, 2), ("2027-01-01T00:00:00Z", 12));
    let start: DateTime<Utc> = start.parse().expect("a moment");
    let end = start + Months::new(months);
    // A year more, so that there is a slot after the end for those that come once a year, too.
    let plans = plans(start, end + Months::new(12));
    let db = TestDb::migrated().await;
    let folder = tempfile::tempdir().expect("a folder");
    for inner in ["up", "won"] {
        std::fs::create_dir(folder.path().join(inner)).expect("a folder in it");
    }
    let store = store(db.url(), true).await;
    make(&*store, &plans).await;
    set_clock(folder.path(), start);

    let mut disorder = Disorder::new(db.url(), folder.path().to_owned(), seed);
    let mut connection = PgConnection::connect(db.url()).await.expect("the database answers");
    let moments: Vec<DateTime<Utc>> =
        plans.iter().flat_map(|plan| &plan.slots).copied().collect::<BTreeSet<_>>().into_iter().collect();
    let mut looks = vec![start];
    while let Some(now) = next_look(&mut disorder, &plans, &moments, looks[looks.len() - 1], end) {
        looks.push(now);
        set_clock(folder.path(), now);
        disorder.strike();
        all_have_looked(&mut disorder, &mut connection, now, folder.path()).await;
    }
    let (kills, pauses, outages) = (disorder.kills, disorder.pauses, disorder.outages);
    drop(disorder);
    let (came_up, winners) = (came_up(folder.path()), winners(folder.path()));
    eprintln!("{} looks, {kills} kills, {pauses} pauses, {outages} outages", looks.len());
    eprintln!("{winners} winners of {came_up} that came up");

    each_has_its_fate(&mut connection, &plans, &looks).await;
    each_fired_slot_has_its_job(&mut connection, &plans).await;
    let (some_kills, some_pauses, some_outages) = size((6, 8, 1), (30, 40, 6));
    assert!(kills >= some_kills && pauses >= some_pauses && outages >= some_outages, "little happened");
    // On a slow machine many are killed before they can look.
    assert!(winners > 0 && winners >= 20.min(came_up / 2), "few took part");
}

async fn make(store: &dyn Store, plans: &[Plan]) {
    let queue = QueueSpec { name: outhaul::queue_of(JOB_TYPE), max_concurrent: None };
    store.queues_sync(&[queue]).await.expect("the queue is made");
    for plan in plans {
        let spec = ScheduleSpec {
            cron: plan.cron.to_owned(),
            timezone: plan.zone.name().to_owned(),
            job: json!({ "payload": {}, "labels": { "schedule": plan.name, "slot": "{{slot | iso}}" } })
                .into(),
            overlap: Overlap::Allow,
            catch_up: plan.catch_up,
            catch_up_limit: u32::try_from(plan.limit).expect("small"),
            jitter: Duration::ZERO,
        };
        let next = NextSlot { slot: plan.slots[0], fire_at: plan.slots[0] };
        let (name, owner) = (plan.name.clone(), "anonymous".to_owned());
        let new = NewSchedule { name, spec, origin: Origin::Api, owner, next: Some(next) };
        assert_eq!(store.schedule_put(&new).await.expect("the schedule is stored"), Put::Created);
    }
}

/// The next moment at which somebody looks: mostly at the next slot or a little later, sometimes a few
/// slots later, and after an outage hours or days later. `None`: the end is reached.
fn next_look(
    disorder: &mut Disorder,
    plans: &[Plan],
    moments: &[DateTime<Utc>],
    now: DateTime<Utc>,
    end: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let after = moments.partition_point(|moment| *moment <= now);
    let random = &mut disorder.random;
    let late = if random.random_bool(0.3) { random.random_range(1..60) } else { 0 };
    let then = match random.random_range(0..1000) {
        0..6 => {
            let hours = if random.random_bool(0.6) { 1..24 } else { 24..240 };
            let later = now + TimeDelta::hours(random.random_range(hours));
            let edge = random.random_bool(0.5).then(|| edge(plans, later, now, random.random_range(59..63)));
            disorder.outage();
            edge.flatten().unwrap_or(later)
        }
        6..26 => moments[after + random.random_range(1..5)] + TimeDelta::seconds(late),
        _ => moments[after] + TimeDelta::seconds(late),
    };
    (then <= end).then_some(then)
}

/// So many seconds after the last slot before a moment that is not wanted later than a minute.
fn edge(plans: &[Plan], before: DateTime<Utc>, after: DateTime<Utc>, seconds: i64) -> Option<DateTime<Utc>> {
    let punctual = plans.iter().filter(|plan| plan.catch_up == CatchUp::None);
    let slots = punctual.flat_map(|plan| &plan.slots).filter(|slot| after < **slot && **slot <= before);
    slots.max().map(|slot| *slot + TimeDelta::seconds(seconds))
}

/// Waits until nothing is due any more at a moment.
async fn all_have_looked(
    disorder: &mut Disorder,
    connection: &mut PgConnection,
    now: DateTime<Utc>,
    folder: &Path,
) {
    let begin = Instant::now();
    let mut relented = Instant::now();
    loop {
        let due: i64 = sqlx::query_scalar("select count(*) from schedule where fire_at <= $1")
            .bind(now)
            .fetch_one(&mut *connection)
            .await
            .expect("the database answers");
        if due == 0 {
            return;
        }
        if relented.elapsed() > STUCK {
            disorder.relent();
            relented = Instant::now();
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain until nothing is due at {now}: {}", logs(folder));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn logs(folder: &Path) -> String {
    let files = std::fs::read_dir(folder).expect("the folder is there").flatten();
    files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
}

async fn each_has_its_fate(connection: &mut PgConnection, plans: &[Plan], looks: &[DateTime<Utc>]) {
    let rows: Vec<(String, DateTime<Utc>, String, Option<String>)> = sqlx::query_as(
        "select s.name, l.slot, l.outcome, l.detail from schedule_slot l join schedule s on s.id = l.schedule_id",
    )
    .fetch_all(&mut *connection)
    .await
    .expect("the database answers");
    let mut recorded: BTreeMap<String, BTreeMap<DateTime<Utc>, Fate>> = BTreeMap::new();
    for (name, slot, outcome, detail) in rows {
        let before = recorded.entry(name).or_default().insert(slot, fate(&outcome, detail.as_deref()));
        assert_eq!(before, None, "a row for each slot");
    }
    let mut counts = (0, 0);
    for plan in plans {
        let (expected, seen) = fates(&plan.slots, looks, plan.catch_up, plan.limit);
        let recorded = recorded.remove(&plan.name).unwrap_or_default();
        for slot in expected.keys().chain(recorded.keys()) {
            let (name, shown) = (&plan.name, slot.with_timezone(&plan.zone));
            assert_eq!(recorded.get(slot), expected.get(slot), "{name} at {slot}, which is {shown}");
        }
        let next: (DateTime<Utc>, DateTime<Utc>) =
            sqlx::query_as("select next_slot, fire_at from schedule where name = $1")
                .bind(&plan.name)
                .fetch_one(&mut *connection)
                .await
                .expect("the database answers");
        assert_eq!(next, (plan.slots[seen], plan.slots[seen]), "what {} waits for", plan.name);
        for fate in expected.values() {
            match fate {
                Fate::Fired => counts.0 += 1,
                Fate::Missed { earlier } => counts.1 += 1 + earlier,
            }
        }
    }
    assert_eq!(recorded, BTreeMap::new());
    eprintln!("{} fired, {} missed", counts.0, counts.1);
    assert!(counts.0 > size(400, 2000) && counts.1 > size(5, 100), "little was due: {counts:?}");
}

fn fate(outcome: &str, detail: Option<&str>) -> Fate {
    match (outcome, detail) {
        ("fired", None) => Fate::Fired,
        ("missed", Some(detail)) => {
            assert!(detail.starts_with("no scheduler ran"), "{detail}");
            let earlier = detail.split(' ').find_map(|word| word.parse().ok()).unwrap_or(0);
            Fate::Missed { earlier }
        }
        _ => panic!("{outcome}: {detail:?}"),
    }
}

/// Each fired slot has a job that was made for it, each job a slot.
async fn each_fired_slot_has_its_job(connection: &mut PgConnection, plans: &[Plan]) {
    let slots: Vec<(String, String, DateTime<Utc>)> = sqlx::query_as(
        "select l.job_id, s.name, l.slot from schedule_slot l join schedule s on s.id = l.schedule_id \
         where l.outcome = 'fired'",
    )
    .fetch_all(&mut *connection)
    .await
    .expect("the database answers");
    let zones: BTreeMap<&str, chrono_tz::Tz> =
        plans.iter().map(|plan| (plan.name.as_str(), plan.zone)).collect();
    let fired: BTreeSet<(String, String, String)> = slots
        .into_iter()
        .map(|(job, name, slot)| {
            let slot = slot.with_timezone(&zones[name.as_str()]).to_rfc3339_opts(SecondsFormat::Secs, true);
            (job, name, slot)
        })
        .collect();
    let jobs: Vec<(String, String, String)> =
        sqlx::query_as("select job_id, labels->>'schedule', labels->>'slot' from job")
            .fetch_all(&mut *connection)
            .await
            .expect("the database answers");
    let jobs_once: BTreeSet<(String, String, String)> = jobs.iter().cloned().collect();
    assert_eq!(jobs.len(), jobs_once.len());
    let alone: Vec<_> = fired.symmetric_difference(&jobs_once).collect();
    assert!(alone.is_empty(), "a job without its slot, or a slot without its job: {alone:?}");
}
