//! The schedules of the simulated year: in six time zones, each at times that its clocks skip or show twice
//! where they do, with every policy for what was missed. Written twice: as a cron expression, and in the
//! words of the test's own calendar.

use chrono::{DateTime, Utc, Weekday};
use chrono_tz::Tz;
use outhaul_core::schedule::CatchUp;

use crate::calendar::{At, On, slots};

/// One schedule.
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) cron: &'static str,
    pub(crate) zone: Tz,
    pub(crate) catch_up: CatchUp,
    pub(crate) limit: usize,
    /// All its slots, past the end of the year.
    pub(crate) slots: Vec<DateTime<Utc>>,
}

type Row = (&'static str, On, At, CatchUp, usize);

/// All schedules, with their slots after `from` up to `to`.
pub(crate) fn plans(from: DateTime<Utc>, to: DateTime<Utc>) -> Vec<Plan> {
    let zones = [
        (Tz::Europe__Berlin, berlin()),
        (Tz::America__New_York, new_york()),
        (Tz::Africa__Cairo, cairo()),
        (Tz::Australia__Lord_Howe, lord_howe()),
        (Tz::Asia__Kolkata, unchanged()),
        (Tz::UTC, unchanged()),
    ];
    let mut plans = Vec::new();
    for (zone, rows) in zones {
        for (number, (cron, on, at, catch_up, limit)) in rows.into_iter().chain(everywhere()).enumerate() {
            let name = format!("{}-{number}", zone.name().replace('/', "-").to_lowercase());
            let slots = slots(&on, &at, zone, from, to);
            plans.push(Plan { name, cron, zone, catch_up, limit, slots });
        }
    }
    plans
}

fn everywhere() -> [Row; 2] {
    [
        ("0 6 * * 1", On::Weekday(Weekday::Mon), At::Times(&[(6, 0)]), CatchUp::None, 1),
        ("45 23 1 * *", On::DayOfMonth(1), At::Times(&[(23, 45)]), CatchUp::All, 100),
    ]
}

/// Clocks skip 02:00–03:00 in March and show it twice in October.
fn berlin() -> [Row; 2] {
    const MONTHS: &[u32] = &[3, 10];
    [
        ("30 2 * * *", On::EveryDay, At::Times(&[(2, 30)]), CatchUp::All, 3),
        ("*/30 * 25-31 3,10 *", On::Around(MONTHS, 25..=31), At::Minutes(&[0, 30]), CatchUp::Last, 1),
    ]
}

/// Clocks skip 02:00–03:00 in March and show 01:00–02:00 twice in November.
fn new_york() -> [Row; 2] {
    const MONTHS: &[u32] = &[3, 11];
    [
        ("30 1,2 * * *", On::EveryDay, At::Times(&[(1, 30), (2, 30)]), CatchUp::Last, 1),
        ("0 * 6-14 3,11 *", On::Around(MONTHS, 6..=14), At::Minutes(&[0]), CatchUp::All, 20),
    ]
}

/// Clocks skip the first hour of a day in April and show the last one of a day in October twice.
fn cairo() -> [Row; 2] {
    const MONTHS: &[u32] = &[4, 10];
    [
        ("30 0,23 * * *", On::EveryDay, At::Times(&[(0, 30), (23, 30)]), CatchUp::All, 4),
        ("15 * 24-31 4,10 *", On::Around(MONTHS, 24..=31), At::Minutes(&[15]), CatchUp::None, 1),
    ]
}

/// Clocks skip 02:00–02:30 in October and show 01:30–02:00 twice in April.
fn lord_howe() -> [Row; 2] {
    const MONTHS: &[u32] = &[4, 10];
    const TIMES: &[(u32, u32)] = &[(1, 15), (1, 45), (2, 15), (2, 45)];
    [
        ("15,45 1,2 * * 0", On::Weekday(Weekday::Sun), At::Times(TIMES), CatchUp::Last, 1),
        ("15,45 * 1-7 4,10 *", On::Around(MONTHS, 1..=7), At::Minutes(&[15, 45]), CatchUp::All, 100),
    ]
}

/// Clocks are never changed.
fn unchanged() -> [Row; 2] {
    const MONTHS: &[u32] = &[2];
    [
        ("0 */12 * * *", On::EveryDay, At::Times(&[(0, 0), (12, 0)]), CatchUp::Last, 1),
        ("30 * 27-31 2 *", On::Around(MONTHS, 27..=31), At::Minutes(&[30]), CatchUp::All, 10),
    ]
}
