//! Time zones: names, and from clocks on the wall to moments. Wall clocks are set forward (a *hole*: times
//! that do not exist) and back (times that come twice).

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeDelta, TimeZone, Utc};
use chrono_tz::{GapInfo, TZ_VARIANTS, Tz};

/// No name in the database is longer.
const MAX_LENGTH: usize = 64;
/// Clocks have never been changed twice within this.
const STEADY: TimeDelta = TimeDelta::hours(12);

/// Reads the name of a zone; or says what is wrong with it, as the end of a sentence.
pub(super) fn parse(name: &str) -> Result<Tz, String> {
    if let Ok(zone) = name.parse() {
        return Ok(zone);
    }
    let advice = match nearest(name) {
        Some(known) => format!("did you mean `{known}`?"),
        None => "write a name of the IANA database, such as `Europe/Berlin`, or `UTC`".to_owned(),
    };
    Err(format!("is not a known time zone: {advice}"))
}

/// A name that may have been meant.
fn nearest(name: &str) -> Option<&'static str> {
    if !(3..=MAX_LENGTH).contains(&name.len()) {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace(' ', "_");
    let asked = plain(name);
    // The whole name counts before the city, and the fewest changes first.
    let known = TZ_VARIANTS.iter().map(|zone| zone.name()).flat_map(|known| {
        let city = known.rsplit('/').next().unwrap_or(known);
        [(distance(&asked, &plain(known)), 0, known), (distance(&asked, &plain(city)), 1, known)]
    });
    known.min().filter(|(changes, ..)| *changes <= 2).map(|(.., known)| known)
}

/// How many letters must be changed, added or left out to make one text of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, with) in other.iter().enumerate() {
            let changed = corner + usize::from(letter != *with);
            corner = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(corner + 1);
        }
    }
    row[other.len()]
}

/// How far the clocks are ahead of UTC.
fn ahead(zone: Tz, at: DateTime<Utc>) -> TimeDelta {
    TimeDelta::seconds(i64::from(zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc()))
}

/// What the clocks show.
pub(super) fn local(zone: Tz, at: DateTime<Utc>) -> Option<NaiveDateTime> {
    at.naive_utc().checked_add_signed(ahead(zone, at))
}

/// When the clocks show this: for the first time if twice, and if never, the moment at which they skip it.
pub(super) fn moment(zone: Tz, local: NaiveDateTime) -> Option<DateTime<Utc>> {
    match zone.from_local_datetime(&local) {
        MappedLocalTime::Single(at) | MappedLocalTime::Ambiguous(at, _) => Some(at.to_utc()),
        MappedLocalTime::None => Some(GapInfo::new(&local, &zone)?.end?.to_utc()),
    }
}

/// When the clocks would show this, were they not changed after `since`.
pub(super) fn unchanged(zone: Tz, since: DateTime<Utc>, local: NaiveDateTime) -> Option<DateTime<Utc>> {
    Some(local.checked_sub_signed(ahead(zone, since))?.and_utc())
}

/// The first moment after `from`, up to `to`, at which the clocks are changed. Both in whole seconds.
pub(super) fn change(zone: Tz, from: DateTime<Utc>, to: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let before = ahead(zone, from);
    let mut low = from;
    while low < to {
        let mut high = low.checked_add_signed(STEADY)?.min(to);
        if ahead(zone, high) != before {
            while high - low > TimeDelta::seconds(1) {
                let middle = low + TimeDelta::seconds((high - low).num_seconds() / 2);
                *(if ahead(zone, middle) == before { &mut low } else { &mut high }) = middle;
            }
            return Some(high);
        }
        low = high;
    }
    None
}
