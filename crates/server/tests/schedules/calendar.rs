//! When something is due, found the slow way: by looking at the clocks of a time zone every quarter of an
//! hour. It knows nothing of cron expressions, and shares no code with what it judges.

use std::ops::RangeInclusive;

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveDateTime, TimeDelta, Timelike, Utc, Weekday};
use chrono_tz::Tz;

/// Clocks of the zones here are ahead of UTC by whole quarters, are changed at whole quarters, and all
/// times here are whole quarters too.
const QUARTER: TimeDelta = TimeDelta::minutes(15);

/// The days on which something is due.
pub(crate) enum On {
    EveryDay,
    Weekday(Weekday),
    DayOfMonth(u32),
    /// Days of some months.
    Around(&'static [u32], RangeInclusive<u32>),
}

impl On {
    fn has(&self, day: NaiveDate) -> bool {
        match self {
            Self::EveryDay => true,
            Self::Weekday(weekday) => day.weekday() == *weekday,
            Self::DayOfMonth(number) => day.day() == *number,
            Self::Around(months, days) => months.contains(&day.month()) && days.contains(&day.day()),
        }
    }
}

/// What is due on such a day.
pub(crate) enum At {
    /// These times of the day, each once: at the first moment at which the clocks show it or a later time.
    Times(&'static [(u32, u32)]),
    /// Whenever the clocks show one of these minutes.
    Minutes(&'static [u32]),
}

/// All moments after `from` up to `to`, in order.
pub(crate) fn slots(
    on: &On,
    at: &At,
    zone: Tz,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> Vec<DateTime<Utc>> {
    let mut slots = match at {
        At::Times(times) => named(on, times, zone, from.date_naive(), to.date_naive()),
        At::Minutes(minutes) => quarters(from, to)
            .filter(|moment| {
                let shown = shown(*moment, zone);
                on.has(shown.date()) && minutes.contains(&shown.minute())
            })
            .collect(),
    };
    slots.retain(|slot| from < *slot && *slot <= to);
    slots.sort();
    slots.dedup();
    slots
}

fn named(on: &On, times: &[(u32, u32)], zone: Tz, from: NaiveDate, to: NaiveDate) -> Vec<DateTime<Utc>> {
    // A day more at both ends, because theirs is another day than ours.
    let (first, last) = (from - Days::new(1), to + Days::new(1));
    let days = first.iter_days().take_while(|day| *day <= last).filter(|day| on.has(*day));
    let meant = days.flat_map(|day| {
        times.iter().map(move |(hour, minute)| day.and_hms_opt(*hour, *minute, 0).expect("a time of day"))
    });
    meant.map(|time| shows_first(time, zone)).collect()
}

/// The first moment at which the clocks show this time or a later one.
fn shows_first(time: NaiveDateTime, zone: Tz) -> DateTime<Utc> {
    // No clock is further ahead than 14 hours, or further behind than 12.
    let (earliest, latest) = (time.and_utc() - TimeDelta::hours(15), time.and_utc() + TimeDelta::hours(15));
    quarters(earliest, latest).find(|moment| shown(*moment, zone) >= time).expect("it comes")
}

fn shown(moment: DateTime<Utc>, zone: Tz) -> NaiveDateTime {
    moment.with_timezone(&zone).naive_local()
}

fn quarters(from: DateTime<Utc>, to: DateTime<Utc>) -> impl Iterator<Item = DateTime<Utc>> {
    std::iter::successors(Some(from), |moment| Some(*moment + QUARTER))
        .take_while(move |moment| *moment <= to)
}

#[test]
fn a_time_that_is_skipped_or_shown_twice_is_meant_once() {
    let on = |day: &str, times: &'static [(u32, u32)], zone: Tz| {
        let from: DateTime<Utc> = format!("{day}T00:00:00Z").parse().expect("a moment");
        let slots = slots(&On::EveryDay, &At::Times(times), zone, from, from + TimeDelta::hours(23));
        slots.into_iter().map(|slot| slot.format("%H:%M").to_string()).collect::<Vec<_>>()
    };
    // At 01:00 UTC clocks go from 02:00 to 03:00, and half a year later from 03:00 to 02:00.
    assert_eq!(on("2027-03-28", &[(2, 30), (4, 0)], Tz::Europe__Berlin), ["01:00", "02:00"]);
    assert_eq!(on("2027-10-31", &[(2, 30), (4, 0)], Tz::Europe__Berlin), ["00:30", "03:00"]);
    // At 15:00 UTC clocks go forward by half an hour: a quarter past is skipped, a quarter to is not.
    assert_eq!(on("2027-10-02", &[(2, 15), (2, 45)], Tz::Australia__Lord_Howe), ["15:30", "15:45"]);
}

#[test]
fn what_the_clocks_show_twice_is_due_twice() {
    let hours = |day: &str| {
        let from: DateTime<Utc> = format!("{day}T00:00:00Z").parse().expect("a moment");
        let to = from + TimeDelta::hours(4);
        slots(&On::EveryDay, &At::Minutes(&[30]), Tz::Europe__Berlin, from, to).len()
    };
    assert_eq!([hours("2027-03-28"), hours("2027-10-31")], [4, 4], "every hour that passes");
}
