//! What runs, what is missed and what comes next: by examples, and against a model that goes through all
//! slots one by one.

use outhaul_core::json::Json;
use outhaul_core::schedule::Overlap;
use proptest::prelude::*;

use super::*;

const NAME: &str = "nightly";

fn utc(text: &str) -> DateTime<Utc> {
    format!("{text}Z").parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn spec(cron: &str, catch_up: CatchUp, limit: u32, jitter: Duration) -> ScheduleSpec {
    ScheduleSpec {
        cron: cron.to_owned(),
        timezone: "Europe/Berlin".to_owned(),
        job: Json::null(),
        overlap: Overlap::Skip,
        catch_up,
        catch_up_limit: limit,
        jitter,
    }
}

fn times(spec: &ScheduleSpec) -> Times {
    Times::parse(&spec.cron, &spec.timezone).unwrap()
}

/// What a schedule of the hour does that waits for noon.
fn hourly(catch_up: CatchUp, limit: u32, now: &str) -> Due {
    let spec = spec("0 * * * *", catch_up, limit, Duration::ZERO);
    let noon = utc("2026-01-01T12:00:00");
    judge(&times(&spec), NAME, &spec, NextSlot { slot: noon, fire_at: noon }, utc(now))
}

fn next(at: &str) -> Option<NextSlot> {
    Some(NextSlot { slot: utc(at), fire_at: utc(at) })
}

#[test]
fn nothing_is_done_before_the_time_has_come() {
    for catch_up in CatchUp::ALL {
        let due = hourly(catch_up, 100, "2026-01-01T11:59:59.999");
        assert_eq!(due, Due { missed: None, run: vec![], next: next("2026-01-01T12:00:00") });
    }
}

#[test]
fn a_punctual_slot_runs_whatever_the_policy() {
    for catch_up in CatchUp::ALL {
        let due = hourly(catch_up, 1, "2026-01-01T12:01:00");
        let run = vec![utc("2026-01-01T12:00:00")];
        assert_eq!(due, Due { missed: None, run, next: next("2026-01-01T13:00:00") });
    }
}

#[test]
fn a_late_slot_is_missed_where_nothing_is_made_up_for() {
    let due = hourly(CatchUp::None, 100, "2026-01-01T12:01:00.000001");
    let missed = Some((utc("2026-01-01T12:00:00"), "no scheduler ran".to_owned()));
    assert_eq!(due, Due { missed, run: vec![], next: next("2026-01-01T13:00:00") });
    // The newest is in time, the others were not.
    let due = hourly(CatchUp::None, 100, "2026-01-01T14:00:30");
    let missed =
        Some((utc("2026-01-01T13:00:00"), "no scheduler ran; 1 earlier slot was missed too".to_owned()));
    assert_eq!(due, Due { missed, run: vec![utc("2026-01-01T14:00:00")], next: next("2026-01-01T15:00:00") });
}

#[test]
fn the_newest_is_made_up_for_and_those_before_it_are_missed() {
    let due = hourly(CatchUp::Last, 100, "2026-01-01T17:30:00");
    let missed =
        Some((utc("2026-01-01T16:00:00"), "no scheduler ran; 4 earlier slots were missed too".to_owned()));
    assert_eq!(due, Due { missed, run: vec![utc("2026-01-01T17:00:00")], next: next("2026-01-01T18:00:00") });
}

#[test]
fn all_are_made_up_for_up_to_the_limit() {
    let due = hourly(CatchUp::All, 3, "2026-01-01T15:30:00");
    let run = ["2026-01-01T13:00:00", "2026-01-01T14:00:00", "2026-01-01T15:00:00"].map(utc).to_vec();
    let missed = Some((utc("2026-01-01T12:00:00"), "no scheduler ran".to_owned()));
    assert_eq!(due, Due { missed, run, next: next("2026-01-01T16:00:00") });
    let due = hourly(CatchUp::All, 4, "2026-01-01T15:30:00");
    assert_eq!((due.missed, due.run.len(), due.run[0]), (None, 4, utc("2026-01-01T12:00:00")));
}

/// Were these slots gone through one by one, this would take days.
#[test]
fn a_long_outage_costs_no_more_than_a_short_one() {
    for cron in ["* * * * *", "* * * * * *", "0 0 29 2 *", "* * * 1 *", "* * * * 1 *"] {
        for (catch_up, limit) in [(CatchUp::None, 1), (CatchUp::Last, 1), (CatchUp::All, 1000)] {
            let spec = spec(cron, catch_up, limit, Duration::ZERO);
            let times = times(&spec);
            let awaited = next_slot(&times, NAME, Duration::ZERO, utc("2026-01-01T00:00:00")).unwrap();
            let now = utc("2326-06-01T00:00:00.5");
            let due = judge(&times, NAME, &spec, awaited, now);
            assert!(due.run.is_sorted() && due.run.iter().all(|slot| *slot <= now));
            assert!(due.next.is_some_and(|next| next.slot > now));
            if cron != "0 0 29 2 *" {
                assert_eq!(
                    due.run.len(),
                    if catch_up == CatchUp::None && cron.contains('1') { 0 } else { limit as usize }
                );
                assert!(due.missed.unwrap().1.contains("1000 or more"));
            }
        }
    }
}

#[test]
fn jitter_is_the_same_for_all_and_different_for_each() {
    let spec = spec("0 * * * *", CatchUp::Last, 1, Duration::from_secs(600));
    let times = times(&spec);
    let share = |name: &str, slot: DateTime<Utc>| fire_at(&times, name, spec.jitter, slot) - slot;
    let slots: Vec<_> = times.from(utc("2026-01-01T00:00:00")).take(200).collect();
    let shares: Vec<_> = slots.iter().map(|slot| share(NAME, *slot)).collect();
    assert!(shares.iter().all(|share| (TimeDelta::zero()..TimeDelta::minutes(10)).contains(share)));
    let early = shares.iter().filter(|share| **share < TimeDelta::minutes(5)).count();
    assert!((60..140).contains(&early), "spread over the whole: {early} of 200 in the first half");
    assert_eq!(shares, slots.iter().map(|slot| share(NAME, *slot)).collect::<Vec<_>>());
    assert_ne!(shares, slots.iter().map(|slot| share("another", *slot)).collect::<Vec<_>>());
    // The day has one slot that is moved to within five minutes of the next; it still is fired before it.
    let moved = Times::parse("30 2,3 * * *", "Europe/Berlin").unwrap();
    let slot = utc("2026-03-29T01:00:00");
    assert_eq!(moved.next_after(slot), Some(utc("2026-03-29T01:30:00")));
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        assert!(fire_at(&moved, name, Duration::from_secs(3599), slot) < utc("2026-03-29T01:30:00"));
    }
}

#[test]
fn a_slot_whose_share_of_the_jitter_has_not_passed_is_waited_for() {
    let spec = spec("0 * * * *", CatchUp::All, 100, Duration::from_secs(1800));
    let times = times(&spec);
    let awaited = next_slot(&times, NAME, spec.jitter, utc("2026-01-01T11:30:00")).unwrap();
    let second = next_slot(&times, NAME, spec.jitter, awaited.slot).unwrap();
    let due = judge(&times, NAME, &spec, awaited, second.fire_at - TimeDelta::milliseconds(1));
    assert_eq!((due.run, due.next), (vec![awaited.slot], Some(second)));
    let due = judge(&times, NAME, &spec, awaited, second.fire_at);
    assert_eq!(due.run, vec![awaited.slot, second.slot]);
}

/// A slot was promised: that the rules of the zone have changed since does not take it back.
#[test]
fn the_awaited_slot_is_due_as_it_was_stored() {
    let spec = spec("0 * * * *", CatchUp::Last, 1, Duration::ZERO);
    let awaited = NextSlot { slot: utc("2026-01-01T12:17:00"), fire_at: utc("2026-01-01T12:20:00") };
    let at = |now| judge(&times(&spec), NAME, &spec, awaited, utc(now));
    assert_eq!(at("2026-01-01T12:19:00").next, Some(awaited));
    assert_eq!(at("2026-01-01T12:20:00").run, vec![awaited.slot]);
    assert_eq!(at("2026-01-01T12:20:00").next, next("2026-01-01T13:00:00"));
}

/// The policies, slot by slot.
fn model(times: &Times, spec: &ScheduleSpec, awaited: NextSlot, now: DateTime<Utc>) -> Due {
    let at = |slot| fire_at(times, NAME, spec.jitter, slot);
    let mut due: Vec<_> = times.from(awaited.slot).take_while(|slot| at(*slot) <= now).collect();
    let Some(&newest) = due.last() else { return Due { missed: None, run: due, next: Some(awaited) } };
    let keep = match spec.catch_up {
        CatchUp::None if now - at(newest) > TimeDelta::seconds(60) => 0,
        CatchUp::None | CatchUp::Last => 1,
        CatchUp::All => spec.catch_up_limit as usize,
    };
    let run = due.split_off(due.len().saturating_sub(keep));
    let missed = due.last().map(|slot| (*slot, detail(due.len() - 1)));
    let slot = times.next_after(newest).unwrap();
    Due { missed, run, next: Some(NextSlot { slot, fire_at: at(slot) }) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn what_is_due_is_what_the_model_says(
        cron in prop::sample::select(vec![
            "* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "0,1 0 * * *", "*/20 2,3 * * *",
            "0 0 1 * *",
        ]),
        catch_up in prop::sample::select(CatchUp::ALL.to_vec()),
        limit in 1..300_u32,
        jitter in prop_oneof![Just(0), 1..60_000_u64],
        start in prop::sample::select(vec![
            "2026-03-28T20:00:00", "2026-10-24T20:00:00", "2026-06-30T23:59:00",
        ]),
        outage in prop_oneof![0..100_000_i64, 0..400_000_000_i64],
    ) {
        let spec = spec(cron, catch_up, limit, Duration::from_millis(jitter));
        let times = times(&spec);
        let awaited = next_slot(&times, NAME, spec.jitter, utc(start)).unwrap();
        let now = awaited.slot + TimeDelta::milliseconds(outage);
        prop_assert_eq!(judge(&times, NAME, &spec, awaited, now), model(&times, &spec, awaited, now));
    }

    /// Whoever looks whenever, every slot is dealt with in one look: run, missed, or counted as missed.
    #[test]
    fn every_slot_is_dealt_with_once(
        limit in 1..20_u32, jitter in 0..3600_u64, looks in prop::collection::vec(1..20_000_i64, 1..60),
    ) {
        let spec = spec("0 * * * *", CatchUp::All, limit, Duration::from_secs(jitter));
        let times = times(&spec);
        let mut now = utc("2026-10-24T00:00:00");
        let first = next_slot(&times, NAME, spec.jitter, now).unwrap();
        let (mut awaited, mut seen) = (first, Vec::new());
        for look in looks {
            now += TimeDelta::seconds(look);
            let due = judge(&times, NAME, &spec, awaited, now);
            let before = seen.len();
            seen.extend(due.missed.iter().map(|(slot, _)| *slot).chain(due.run.iter().copied()));
            awaited = due.next.unwrap();
            prop_assert!(awaited.fire_at > now && seen[before..].iter().all(|slot| *slot < awaited.slot));
        }
        prop_assert!(seen.is_sorted_by(|one, next| one < next));
    }
}
