//! When a schedule is due: a cron expression on the clocks of a time zone. The library finds matching times
//! on clocks that are never changed; what a change of the clocks means is decided here.

use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, SecondsFormat, TimeDelta, Timelike, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

use super::{fields, zone};

/// The last year in which anything is due.
const LAST_YEAR: i32 = 4999;
/// Days on which a schedule is due that are looked at for its shortest distance.
const DAYS_LOOKED_AT: usize = 2000;
const DAY: u64 = 24 * 3600;

/// The times of a schedule.
///
/// What happens when clocks are changed:
/// - An expression that names hours (`30 2 * * *`, `0 9-17 * * *`, `0 */6 * * *`) is due once for each of its
///   times of a day. One that the clocks skip is due at the moment they skip it, and one that they show
///   twice is due the first time.
/// - An expression for every hour (`*/15 * * * *`) is due whenever the clocks show one of its times, so also
///   twice; what they skip is left out. So `*/15` is due every 15 minutes that pass.
///
/// Two slots are never the same moment.
#[derive(Clone, Debug)]
pub struct Times {
    cron: Cron,
    zone: Tz,
    every_hour: bool,
}

/// What is wrong with an expression, a time zone, or both, each as the end of a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct TimesError {
    /// Of the expression.
    pub cron: Option<String>,
    /// Of the time zone.
    pub timezone: Option<String>,
}

impl TimesError {
    fn sentence(&self) -> String {
        let cron = self.cron.iter().map(|problem| format!("cron {problem}"));
        let timezone = self.timezone.iter().map(|problem| format!("timezone {problem}"));
        cron.chain(timezone).collect::<Vec<_>>().join("; ")
    }
}

impl Times {
    /// Reads an expression of 5 fields, or 6 with seconds first, and the name of a time zone.
    pub fn parse(cron: &str, timezone: &str) -> Result<Self, TimesError> {
        match (read(cron), zone::parse(timezone)) {
            (Ok(cron), Ok(zone)) => {
                let every_hour = cron.pattern.hours.values().len() == 24;
                Ok(Self { cron, zone, every_hour })
            }
            (cron, zone) => Err(TimesError { cron: cron.err(), timezone: zone.err() }),
        }
    }

    /// Whose clocks it means.
    pub fn zone(&self) -> Tz {
        self.zone
    }

    /// The moment as RFC 3339 with the zone's offset.
    pub fn shown(&self, at: DateTime<Utc>) -> String {
        at.with_timezone(&self.zone).to_rfc3339_opts(SecondsFormat::Secs, true)
    }

    /// The first slot after a moment; `None`: none comes any more. Nothing is due before 1970.
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if after.year() > LAST_YEAR {
            return None;
        }
        let after = DateTime::from_timestamp(after.timestamp().max(-1), 0)?;
        if self.every_hour { self.shown_after(after) } else { self.meant_after(after) }
    }

    /// All slots from a moment on, it included.
    pub fn from(&self, at: DateTime<Utc>) -> impl Iterator<Item = DateTime<Utc>> {
        let before = at.checked_sub_signed(TimeDelta::nanoseconds(1)).unwrap_or(at);
        std::iter::successors(self.next_after(before), |slot| self.next_after(*slot))
    }

    /// The shortest time between two slots, on clocks that are not changed in between.
    pub fn shortest_distance(&self) -> Duration {
        let pattern = &self.cron.pattern;
        let mut times = Vec::new();
        for hour in pattern.hours.values() {
            for minute in pattern.minutes.values() {
                let minute = (u64::from(hour) * 60 + u64::from(minute)) * 60;
                times.extend(pattern.seconds.values().into_iter().map(|second| minute + u64::from(second)));
            }
        }
        let on_one_day = times.windows(2).map(|pair| pair[1] - pair[0]).min();
        let span = times.last().zip(times.first()).map_or(0, |(last, first)| last - first);
        let over_night = self.days_apart().map(|days| days * DAY - span);
        let seconds = on_one_day.into_iter().chain(over_night).min();
        seconds.map_or(Duration::MAX, Duration::from_secs)
    }

    /// How far apart the nearest two days are on which it is due; `None`: there are no two.
    fn days_apart(&self) -> Option<u64> {
        let next_day = |day: &NaiveDate| {
            Some(self.next_local(day.succ_opt()?.and_time(Default::default()), true)?.date())
        };
        let first = self.next_local(epoch(), true)?.date();
        let mut shortest: Option<u64> = None;
        let mut day = first;
        for next in std::iter::successors(next_day(&first), next_day).take(DAYS_LOOKED_AT) {
            let apart = u64::try_from((next - day).num_days()).unwrap_or(1);
            shortest = Some(shortest.map_or(apart, |known| known.min(apart)));
            if apart == 1 {
                break;
            }
            day = next;
        }
        shortest
    }

    /// The first slot after a moment, where times of a day are meant: each once, whatever the clocks do.
    fn meant_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        // No time up to what the clocks show now is due later: `moment` never goes back.
        let mut shown = zone::local(self.zone, after)?;
        loop {
            shown = self.next_local(shown, false)?;
            let slot = zone::moment(self.zone, shown)?;
            if slot > after {
                return Some(slot);
            }
        }
    }

    /// The first slot after a moment, where what the clocks show counts.
    fn shown_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut from = after.checked_add_signed(TimeDelta::seconds(1))?;
        loop {
            let shown = self.next_local(zone::local(self.zone, from)?, true)?;
            let slot = zone::unchanged(self.zone, from, shown)?;
            match zone::change(self.zone, from, slot) {
                None => return Some(slot),
                Some(change) => from = change,
            }
        }
    }

    /// The first match on clocks that are never changed.
    fn next_local(&self, from: NaiveDateTime, inclusive: bool) -> Option<NaiveDateTime> {
        self.cron.find_next_occurrence(&from.with_nanosecond(0)?, inclusive).ok()
    }
}

/// Reads an expression; or says what is wrong with it.
fn read(text: &str) -> Result<Cron, String> {
    fields::check(text).map_err(|why| format!("is not a cron expression: {why}"))?;
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let cron = parser.parse(text).map_err(|error| format!("is not a cron expression: {error}"))?;
    match cron.find_next_occurrence(&epoch(), true) {
        Ok(_) => Ok(cron),
        Err(_) => Err("never comes: no year has such a date".to_owned()),
    }
}

fn epoch() -> NaiveDateTime {
    DateTime::UNIX_EPOCH.naive_utc()
}

#[cfg(test)]
mod tests;
