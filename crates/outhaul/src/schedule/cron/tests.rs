//! The times of schedules in real zones, on the days on which clocks were or will be changed, and against
//! a model that looks at every minute.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn times(cron: &str, zone: &str) -> Times {
    Times::parse(cron, zone).unwrap_or_else(|error| panic!("{cron} in {zone}: {error}"))
}

fn utc(text: &str) -> DateTime<Utc> {
    format!("{text}Z").parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The slots from one moment to another, with the zone's offsets.
fn shown(cron: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    let (times, to) = (times(cron, zone), utc(to));
    times.from(utc(from)).take_while(|slot| *slot < to).map(|slot| times.shown(slot)).collect()
}

#[track_caller]
fn refused(cron: &str, says: &str) {
    let error = Times::parse(cron, "UTC").expect_err(cron);
    let message = error.cron.expect("the expression is at fault");
    assert!(message.contains(says), "{cron}: {message}");
    assert_eq!(error.timezone, None);
}

#[test]
fn a_time_that_the_clocks_skip_is_due_when_they_skip_it() {
    let day = ("2026-03-28T12:00:00", "2026-03-30T00:00:00");
    assert_eq!(
        shown("30 2 * * *", "Europe/Berlin", day.0, day.1),
        ["2026-03-29T03:00:00+02:00"],
        "once, and again at half past two the next day"
    );
    // Several times in the hole, or one at its end, are one slot: it is the same moment.
    assert_eq!(
        shown("*/20 2,3 * * *", "Europe/Berlin", day.0, day.1),
        ["2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00", "2026-03-29T03:40:00+02:00"]
    );
    // Steps of hours name hours, too.
    assert_eq!(
        shown("0 */2 * * *", "Europe/Berlin", "2026-03-28T22:30:00", "2026-03-29T04:30:00"),
        [
            "2026-03-29T00:00:00+01:00",
            "2026-03-29T03:00:00+02:00",
            "2026-03-29T04:00:00+02:00",
            "2026-03-29T06:00:00+02:00"
        ]
    );
    // A hole of half an hour.
    assert_eq!(
        shown("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00", "2026-10-04T00:00:00"),
        ["2026-10-04T02:30:00+11:00"]
    );
    // Holes at midnight.
    assert_eq!(
        shown("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00:00", "2026-04-25T12:00:00"),
        ["2026-04-24T01:00:00+03:00", "2026-04-25T00:00:00+03:00"]
    );
    assert_eq!(
        shown("0 0 * * *", "Asia/Beirut", "2026-03-28T12:00:00", "2026-03-29T12:00:00"),
        ["2026-03-29T01:00:00+03:00"]
    );
    assert_eq!(
        shown("0 0 * * SUN", "America/Sao_Paulo", "2018-11-03T12:00:00", "2018-11-05T00:00:00"),
        ["2018-11-04T01:00:00-02:00"]
    );
    // A whole day was skipped: its slot and that of the next day's first moment are one.
    assert_eq!(
        shown("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00", "2011-12-31T12:00:00"),
        ["2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"]
    );
}

#[test]
fn a_time_that_the_clocks_show_twice_is_due_once() {
    let day = ("2026-10-24T12:00:00", "2026-10-26T00:00:00");
    assert_eq!(shown("30 2 * * *", "Europe/Berlin", day.0, day.1), ["2026-10-25T02:30:00+02:00"]);
    assert_eq!(
        shown("0,30 1-3 * * *", "Europe/Berlin", day.0, day.1),
        [
            "2026-10-25T01:00:00+02:00",
            "2026-10-25T01:30:00+02:00",
            "2026-10-25T02:00:00+02:00",
            "2026-10-25T02:30:00+02:00",
            "2026-10-25T03:00:00+01:00",
            "2026-10-25T03:30:00+01:00",
        ]
    );
    assert_eq!(
        shown("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00", "2026-04-05T00:00:00"),
        ["2026-04-05T01:45:00+11:00"]
    );
    assert_eq!(
        shown("30 23 * * *", "Africa/Cairo", "2026-10-29T12:00:00", "2026-10-30T12:00:00"),
        ["2026-10-29T23:30:00+03:00"]
    );
    assert_eq!(
        shown("30 23 * * *", "America/Sao_Paulo", "2018-02-17T12:00:00", "2018-02-18T12:00:00"),
        ["2018-02-17T23:30:00-02:00"]
    );
    // Asked from within the second pass, the first has gone by.
    let times = times("30 2 * * *", "Europe/Berlin");
    assert_eq!(times.next_after(utc("2026-10-25T01:10:00")), Some(utc("2026-10-26T01:30:00")));
}

#[test]
fn an_expression_for_every_hour_follows_the_time_that_passes() {
    for (zone, from, to) in [
        ("Europe/Berlin", "2026-03-28T20:00:00", "2026-03-29T08:00:00"),
        ("Europe/Berlin", "2026-10-24T20:00:00", "2026-10-25T08:00:00"),
        ("Australia/Lord_Howe", "2026-04-04T08:00:00", "2026-04-05T08:00:00"),
        ("Australia/Lord_Howe", "2026-10-03T08:00:00", "2026-10-04T08:00:00"),
        ("Africa/Cairo", "2026-10-29T12:00:00", "2026-10-30T12:00:00"),
        ("America/Sao_Paulo", "2018-11-03T12:00:00", "2018-11-05T00:00:00"),
        ("Asia/Kolkata", "2026-03-28T20:00:00", "2026-03-29T08:00:00"),
    ] {
        let times = times("*/15 * * * *", zone);
        let slots: Vec<_> = times.from(utc(from)).take_while(|slot| *slot <= utc(to)).collect();
        let quarters = (utc(to) - utc(from)).num_minutes() / 15 + 1;
        assert_eq!(slots.len() as i64, quarters, "{zone} {from}");
        assert!(slots.windows(2).all(|pair| pair[1] - pair[0] == TimeDelta::minutes(15)), "{zone} {from}");
    }
    // An hourly one is due by the clock on the wall: half an hour later or earlier in absolute time.
    assert_eq!(
        shown("0 * * * *", "Australia/Lord_Howe", "2026-10-03T14:00:00", "2026-10-03T17:00:00"),
        ["2026-10-04T01:00:00+10:30", "2026-10-04T03:00:00+11:00"]
    );
}

#[test]
fn dates_of_the_calendar() {
    let at = ("2026-01-01T00:00:00", "2036-01-01T00:00:00");
    assert_eq!(
        shown("0 6 29 2 *", "UTC", at.0, at.1),
        ["2028-02-29T06:00:00Z", "2032-02-29T06:00:00Z"],
        "leap days only"
    );
    // 2100 has none.
    assert_eq!(
        times("0 0 29 2 *", "UTC").next_after(utc("2096-03-01T00:00:00")),
        Some(utc("2104-02-29T00:00:00"))
    );
    let march = ("2026-02-15T00:00:00", "2026-03-15T00:00:00");
    assert_eq!(shown("0 0 L * *", "UTC", march.0, march.1), ["2026-02-28T00:00:00Z"]);
    assert_eq!(shown("0 0 * * 5L", "UTC", march.0, march.1), ["2026-02-27T00:00:00Z"]);
    assert_eq!(shown("0 0 * * mon#2", "UTC", march.0, march.1), ["2026-03-09T00:00:00Z"]);
    assert_eq!(shown("0 0 15W * ?", "UTC", march.0, march.1), ["2026-02-16T00:00:00Z"], "a Sunday");
    assert_eq!(shown("30 0 0 1 MAR *", "UTC", march.0, march.1), ["2026-03-01T00:00:30Z"]);
    assert_eq!(shown("@monthly", "Asia/Tokyo", march.0, march.1), ["2026-03-01T00:00:00+09:00"]);
    // A day of the month and one of the week: either.
    assert_eq!(
        shown("0 0 13 * FRI", "UTC", "2026-03-01T00:00:00", "2026-03-15T00:00:00"),
        ["2026-03-06T00:00:00Z", "2026-03-13T00:00:00Z"]
    );
}

#[test]
fn nonsense_is_refused_with_its_reason() {
    refused("", "it has 0 fields, not 5 or 6");
    refused("* * * *", "it has 4 fields");
    refused("0 0 0 * * * 2026", "it has 7 fields");
    refused("every day", "is not a cron expression: it has 2 fields");
    refused("@reboot", "the short forms are @yearly");
    refused("60 * * * *", "the minute cannot be `60`: it is 0 to 59");
    refused("* 24 * * *", "the hour cannot be `24`");
    refused("* * 0 * *", "the day of the month cannot be `0`");
    refused("* * * 13 *", "the month cannot be `13`: it is 1 to 12, or JAN to DEC");
    refused("* * * * 8", "the day of the week cannot be `8`");
    refused("1,,2 * * * *", "the minute cannot be ``");
    refused(", * * * *", "the minute cannot be ``");
    refused("*/0 * * * *", "a step is a whole number from 1");
    refused("5/10 * * * *", "only `*` and a range can have a step");
    refused("30-10 * * * *", "it ends before it begins");
    refused("0 0 * MON *", "the month cannot be `MON`");
    refused("0 0 * * JAN", "the day of the week cannot be `JAN`");
    refused("0 0 1MON * *", "the day of the month cannot be `1MON`");
    refused("0 0 * * L", "the day of the week cannot be");
    refused("0 0 * * 1#6", "after `#` stands 1 to 5");
    refused("0 0 * * +1", "the day of the week cannot be `+1`");
    refused("-1 * * * *", "the minute cannot be ``");
    refused("٣ * * * *", "the minute cannot be `٣`");
    refused(&"0,".repeat(200), "it is longer than 256 characters");
}

#[test]
fn dates_that_never_come_are_refused() {
    for cron in ["0 0 31 2 *", "0 0 30 feb *", "0 0 31 4,6,9,11 *"] {
        refused(cron, "never comes: no year has such a date");
    }
    assert!(Times::parse("0 0 31 2 MON", "UTC").is_ok(), "or any Monday in February");
}

#[test]
fn both_problems_are_told_at_once() {
    let error = Times::parse("61 * * * *", "Europe/Berlni").unwrap_err();
    assert!(error.cron.as_deref().unwrap().starts_with("is not a cron expression"));
    assert_eq!(error.timezone.as_deref(), Some("is not a known time zone: did you mean `Europe/Berlin`?"));
    assert!(error.to_string().starts_with("cron is not") && error.to_string().contains("; timezone is not"));
}

#[test]
fn a_zone_that_may_have_been_meant_is_named() {
    let hint = |name| Times::parse("* * * * *", name).unwrap_err().timezone.unwrap();
    assert!(hint("europe/berlin").contains("`Europe/Berlin`"));
    assert!(hint("Berlin").contains("`Europe/Berlin`"));
    assert!(hint("new york").contains("`America/New_York`"));
    assert!(hint("Mars/Olympus").contains("such as `Europe/Berlin`"));
    assert!(hint("").contains("such as"));
    assert!(hint(&"Berlin".repeat(1000)).contains("such as"));
}

#[test]
fn the_shortest_distance_is_found_wherever_it_is() {
    let distance = |cron: &str| times(cron, "Europe/Berlin").shortest_distance().as_secs();
    assert_eq!(distance("* * * * *"), 60);
    assert_eq!(distance("* * * * * *"), 1);
    assert_eq!(distance("*/10 * * * * *"), 10);
    assert_eq!(distance("0,1 0 1 1 *"), 60, "once a year");
    assert_eq!(distance("59,0 0,23 * * *"), 60, "over midnight");
    assert_eq!(distance("59,0 0,23 1 * *"), 59 * 60, "not over midnight: the next day is not due");
    assert_eq!(distance("0,59 0,23 L,1 * *"), 60, "over the end of a month");
    assert_eq!(distance("0 0,23 28,1 2,3 *"), 3600, "over the end of February");
    assert_eq!(distance("0 12 * * *"), DAY, "the day of the change is no exception");
    assert_eq!(distance("30 2 * * MON,THU"), 3 * DAY);
    assert_eq!(distance("0 0 1 * *"), 28 * DAY);
    assert_eq!(distance("0 0 29 2 *"), 4 * 365 * DAY + DAY);
    assert_eq!(distance("*/7 * * * *"), 4 * 60, "from minute 56 to the full hour");
}

#[test]
fn the_ends_of_time_are_no_trouble() {
    for cron in ["* * * * *", "0 0 29 2 *", "30 2 * * *"] {
        let times = times(cron, "Europe/Berlin");
        assert!(times.next_after(DateTime::<Utc>::MIN_UTC).is_some_and(|slot| slot >= DateTime::UNIX_EPOCH));
        assert_eq!(times.next_after(DateTime::<Utc>::MAX_UTC), None);
        assert_eq!(times.from(DateTime::<Utc>::MAX_UTC).next(), None);
        assert!(times.from(DateTime::<Utc>::MIN_UTC).next().is_some());
    }
}

/// Every slot in a stretch, found by looking at every minute of it.
fn model(times: &Times, from: DateTime<Utc>, to: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    model_by(TimeDelta::minutes(1), times, from, to)
}

/// The same for expressions and zones that know nothing smaller than a step.
fn model_by(step: TimeDelta, times: &Times, from: DateTime<Utc>, to: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    let show = |at: DateTime<Utc>| at.with_timezone(&times.zone).naive_local();
    let matches = |local: NaiveDateTime| times.cron.is_time_matching(&local).unwrap();
    // A day before, so that what the clocks show for the second time is known.
    let (mut at, mut slots) = (from - TimeDelta::days(2), Vec::new());
    let mut seen = BTreeSet::from([show(at - step)]);
    while at < to {
        let (before, local) = (show(at - step), show(at));
        let mut skipped =
            std::iter::successors(Some(before + step), |t| Some(*t + step)).take_while(|t| *t < local);
        let first = seen.insert(local);
        let due =
            if times.every_hour { matches(local) } else { first && matches(local) || skipped.any(matches) };
        if due && at >= from {
            slots.push(at);
        }
        at += step;
    }
    slots
}

/// Zones with changes of all kinds, and moments near which clocks were or will be changed.
fn near_a_change() -> impl Strategy<Value = (&'static str, DateTime<Utc>)> {
    let changes = prop::sample::select(vec![
        ("Europe/Berlin", "2026-03-29T01:00:00"),
        ("Europe/Berlin", "2026-10-25T01:00:00"),
        ("America/New_York", "2026-03-08T07:00:00"),
        ("America/New_York", "2026-11-01T06:00:00"),
        ("Australia/Lord_Howe", "2026-04-04T15:00:00"),
        ("Australia/Lord_Howe", "2026-10-03T15:30:00"),
        ("Africa/Cairo", "2026-04-23T22:00:00"),
        ("Africa/Cairo", "2026-10-29T21:00:00"),
        ("Asia/Beirut", "2026-03-28T22:00:00"),
        ("Asia/Beirut", "2026-10-24T21:00:00"),
        ("America/Sao_Paulo", "2018-02-18T02:00:00"),
        ("America/Sao_Paulo", "2018-11-04T03:00:00"),
        ("Africa/Casablanca", "2026-02-15T02:00:00"),
        ("Africa/Casablanca", "2026-03-22T02:00:00"),
        ("America/Havana", "2026-11-01T05:00:00"),
        ("Pacific/Apia", "2011-12-30T10:00:00"),
        ("Asia/Kathmandu", "2026-06-01T00:00:00"),
        ("UTC", "2028-02-29T00:00:00"),
    ]);
    (changes, -2000..2000_i64).prop_map(|((zone, at), minutes)| (zone, utc(at) + TimeDelta::minutes(minutes)))
}

/// Expressions of minutes and hours of all forms, on any or some days.
fn expression() -> impl Strategy<Value = String> {
    let field = |high: u32| {
        prop_oneof![
            Just("*".to_owned()),
            (1..=high).prop_map(|step| format!("*/{step}")),
            prop::collection::vec(0..=high, 1..4)
                .prop_map(|list| { list.iter().map(u32::to_string).collect::<Vec<_>>().join(",") }),
            (0..=high, 0..=high).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        ]
    };
    let days = prop::sample::select(vec![
        "* * *",
        "* * *",
        "* * SUN",
        "* * SAT,SUN",
        "L * *",
        "29-31 * *",
        "1-10 * MON",
    ]);
    (field(59), field(23), days).prop_map(|(minute, hour, days)| format!("{minute} {hour} {days}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn slots_are_those_of_the_model_whatever_the_clocks_do(
        cron in expression(), (zone, from) in near_a_change(),
    ) {
        let (times, to) = (times(&cron, zone), from + TimeDelta::days(3));
        let slots: Vec<_> = times.from(from).take_while(|slot| *slot < to).collect();
        prop_assert_eq!(&slots, &model(&times, from, to), "{} in {}", cron, zone);
        prop_assert!(slots.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn the_next_slot_is_the_same_from_wherever_one_asks(
        cron in expression(), (zone, from) in near_a_change(), ahead in 0..200_000_i64, nanos in 0..2_i64,
    ) {
        let times = times(&cron, zone);
        let after = from + TimeDelta::seconds(ahead) + TimeDelta::nanoseconds(nanos);
        let next = times.next_after(after).unwrap();
        prop_assert!(next > after);
        prop_assert_eq!(times.from(from).find(|slot| *slot > after), Some(next));
        prop_assert_eq!(times.from(next).next(), Some(next), "a slot is a slot, asked from itself");
    }

    #[test]
    fn slots_are_no_nearer_than_the_shortest_distance(cron in expression(), from in 0..40_000_i64) {
        let times = times(&cron, "UTC");
        let shortest = TimeDelta::from_std(times.shortest_distance()).unwrap();
        let slots: Vec<_> = times.from(DateTime::UNIX_EPOCH + TimeDelta::days(from)).take(200).collect();
        prop_assert!(slots.windows(2).all(|pair| pair[1] - pair[0] >= shortest));
    }

    #[test]
    fn no_text_is_too_much(
        cron in "[-0-9*/,LW#?+@ A-Za-z]{0,40}|\\PC{0,30}", zone in "\\PC{0,30}", days in -70_000_000..70_000_000_i64,
    ) {
        let _ = Times::parse(&cron, &zone);
        if let Ok(times) = Times::parse(&cron, "Europe/Berlin") {
            let at = DateTime::UNIX_EPOCH + TimeDelta::days(days);
            prop_assert!(times.next_after(at).is_none_or(|next| next > at));
            prop_assert!(times.shortest_distance() >= Duration::from_secs(1));
        }
    }

    #[test]
    fn fields_of_the_right_form_are_judged_in_no_time(
        fields in prop::collection::vec(
            "[*?L]|[0-9]{1,2}([-/][0-9]{1,2})?(,[0-9]{1,2}[LW]?)?|(MON|JAN|FEB)(#[1-5]|L)?", 5..7,
        ),
    ) {
        if let Ok(times) = Times::parse(&fields.join(" "), "America/New_York") {
            let first = times.next_after(DateTime::UNIX_EPOCH);
            prop_assert!(first.is_some());
            prop_assert!(times.shortest_distance() >= Duration::from_secs(1));
        }
    }
}

#[test]
fn a_year_in_zones_of_all_kinds_is_as_the_model_says() {
    for zone in [
        "Europe/London",
        "America/St_Johns",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Asia/Beirut",
        "Pacific/Chatham",
    ] {
        for cron in ["30 2 * * *", "0 0 * * *", "*/30 * * * *", "45 1,2,3 * * *"] {
            let times = times(cron, zone);
            let (from, to) = (utc("2026-01-01T00:00:00"), utc("2027-01-01T00:00:00"));
            let slots: Vec<_> = times.from(from).take_while(|slot| *slot < to).collect();
            assert_eq!(slots, model_by(TimeDelta::minutes(15), &times, from, to), "{cron} in {zone}");
        }
    }
}
