//! The words in a schedule's job: `{{slot}}`, moved by a while (`{{slot - 1d}}`), in a format
//! (`{{slot | yyyy-MM-dd}}`). All in the schedule's time zone.

use chrono::{DateTime, Datelike, Days, SecondsFormat, TimeDelta, Utc};
use chrono_tz::Tz;
use outhaul_core::json::Json;

use super::zone;
use crate::planner::PlanProblem;
use crate::template;

const DEFAULT_FORMAT: &str = "yyyyMMdd";
const ISO: &str = "iso";
/// What a format may consist of, and how chrono writes it.
const PARTS: [(&str, &str); 6] =
    [("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H"), ("mm", "%M"), ("ss", "%S")];
const SEPARATORS: &str = "-_./:T ";
/// The most characters of a format.
const MAX_FORMAT: usize = 64;
/// Dates have four digits of the year.
const YEARS: std::ops::RangeInclusive<i32> = 0..=9999;

/// The job of a slot; or everything that is wrong with its words, with pointers into `job`.
pub fn render(job: &Json, slot: DateTime<Utc>, zone: Tz) -> Result<Json, Vec<PlanProblem>> {
    template::render(job, &mut |word| meaning(word, slot, zone))
}

fn meaning(word: &str, slot: DateTime<Utc>, zone: Tz) -> Result<String, String> {
    let (moment, format) = word.split_once('|').unwrap_or((word, DEFAULT_FORMAT));
    let shift = moment.trim().strip_prefix("slot");
    let shift = shift.filter(|shift| !shift.starts_with(|next: char| next.is_alphanumeric() || next == '_'));
    let shift = shift
        .map(str::trim)
        .ok_or("is unknown here: write `{{slot}}`, `{{slot - 1d}}` or `{{slot | yyyy-MM-dd}}`")?;
    let moved = if shift.is_empty() { slot } else { moved(shift, slot, zone)? };
    let moved = moved.with_timezone(&zone);
    if !YEARS.contains(&moved.year()) {
        return Err("is too far away".to_owned());
    }
    match format.trim() {
        ISO => Ok(moved.to_rfc3339_opts(SecondsFormat::Secs, true)),
        format => Ok(moved.format(&pattern(format)?).to_string()),
    }
}

/// The slot and a while more or less.
fn moved(shift: &str, slot: DateTime<Utc>, zone: Tz) -> Result<DateTime<Utc>, String> {
    let form = || "must be moved by a number of w, d, h, m or s, as in `{{slot - 1d}}`".to_owned();
    let (back, amount) = match shift.split_at_checked(1) {
        Some(("-", amount)) => (true, amount.trim()),
        Some(("+", amount)) => (false, amount.trim()),
        _ => return Err(form()),
    };
    let (count, unit) = amount.split_at_checked(amount.len().saturating_sub(1)).ok_or_else(form)?;
    let whole = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    let count: u32 = whole.then(|| count.parse().ok()).flatten().ok_or_else(form)?;
    let moved = match unit {
        "w" => days(slot, zone, back, u64::from(count) * 7),
        "d" => days(slot, zone, back, u64::from(count)),
        "h" => elapsed(slot, back, i64::from(count) * 3600),
        "m" => elapsed(slot, back, i64::from(count) * 60),
        "s" => elapsed(slot, back, i64::from(count)),
        _ => return Err(form()),
    };
    moved.ok_or_else(|| "is too far away".to_owned())
}

/// The same time of another day, by the zone's calendar and clocks.
fn days(slot: DateTime<Utc>, zone: Tz, back: bool, count: u64) -> Option<DateTime<Utc>> {
    let local = zone::local(zone, slot)?;
    let count = Days::new(count);
    zone::moment(zone, if back { local.checked_sub_days(count)? } else { local.checked_add_days(count)? })
}

fn elapsed(slot: DateTime<Utc>, back: bool, seconds: i64) -> Option<DateTime<Utc>> {
    slot.checked_add_signed(TimeDelta::try_seconds(if back { -seconds } else { seconds })?)
}

/// A format in chrono's spelling.
fn pattern(format: &str) -> Result<String, String> {
    let unknown = || {
        let parts: Vec<&str> = PARTS.iter().map(|(part, _)| *part).collect();
        format!(
            "has an unknown format: write {ISO}, or {} with - _ . / : T or a space between",
            parts.join(" ")
        )
    };
    if format.is_empty() || format.len() > MAX_FORMAT {
        return Err(unknown());
    }
    let (mut pattern, mut rest) = (String::new(), format);
    while let Some(first) = rest.chars().next() {
        if let Some((part, chronos)) = PARTS.iter().find(|(part, _)| rest.starts_with(part)) {
            pattern.push_str(chronos);
            rest = &rest[part.len()..];
        } else if SEPARATORS.contains(first) {
            pattern.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            return Err(unknown());
        }
    }
    Ok(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn word(text: &str, slot: &str, zone: Tz) -> Result<String, String> {
        let rendered = render(&json!({ "payload": text }).into(), slot.parse().unwrap(), zone);
        let rendered = rendered.map_err(|problems| {
            assert!(problems.iter().all(|problem| problem.pointer == "/payload"));
            problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("; ")
        })?;
        Ok(rendered.read::<serde_json::Value>().unwrap()["payload"].as_str().unwrap().to_owned())
    }

    #[track_caller]
    fn shows(text: &str, slot: &str, zone: Tz, expected: &str) {
        assert_eq!(word(text, slot, zone).as_deref(), Ok(expected), "{text}");
    }

    #[test]
    fn the_slot_is_shown_in_the_zone_of_the_schedule() {
        let (slot, berlin) = ("2026-02-28T23:30:05Z", Tz::Europe__Berlin);
        shows("{{slot}}", slot, berlin, "20260301");
        shows("{{ slot }}", slot, Tz::UTC, "20260228");
        shows("{{slot|iso}}", slot, berlin, "2026-03-01T00:30:05+01:00");
        shows("{{slot | iso}}", slot, Tz::UTC, "2026-02-28T23:30:05Z");
        shows("{{slot | yyyy-MM-dd}}", slot, berlin, "2026-03-01");
        shows("{{slot | yyyy/MM/ddTHH:mm:ss}}", slot, berlin, "2026/03/01T00:30:05");
        shows("{{slot | HHmm_ss.dd MM}}", slot, berlin, "0030_05.01 03");
        shows("from {{slot - 1d}} to {{slot}}", slot, berlin, "from 20260228 to 20260301");
    }

    #[test]
    fn days_are_those_of_the_calendar_and_hours_those_that_pass() {
        let berlin = Tz::Europe__Berlin;
        // The day before a change of the clocks, at noon.
        let noon = "2026-03-29T10:00:00Z";
        shows("{{slot - 1d | iso}}", noon, berlin, "2026-03-28T12:00:00+01:00");
        shows("{{slot - 24h | iso}}", noon, berlin, "2026-03-28T11:00:00+01:00");
        shows("{{slot + 1w | iso}}", noon, berlin, "2026-04-05T12:00:00+02:00");
        shows("{{slot+90m|iso}}", noon, berlin, "2026-03-29T13:30:00+02:00");
        shows("{{slot - 3600s | HH}}", noon, berlin, "11");
        shows("{{slot - 1d}}", "2028-03-01T00:00:00Z", Tz::UTC, "20280229");
        shows("{{slot - 365d}}", "2026-01-01T00:00:00Z", Tz::UTC, "20250101");
        // A day on whose clocks that time was skipped.
        shows("{{slot + 1d | iso}}", "2026-03-28T01:30:00Z", berlin, "2026-03-29T03:00:00+02:00");
        shows("{{slot + 0d | iso}}", noon, berlin, "2026-03-29T12:00:00+02:00");
    }

    #[test]
    fn other_words_are_refused_with_what_to_write() {
        let slot = "2026-03-29T10:00:00Z";
        for (text, says) in [
            ("{{}}", "is unknown here: write `{{slot}}`"),
            ("{{date}}", "`{{date}}` is unknown here"),
            ("{{label.x}}", "is unknown here"),
            ("{{Slot}}", "is unknown here"),
            ("{{slots}}", "is unknown here"),
            ("{{slot 1d}}", "must be moved by a number of w, d, h, m or s"),
            ("{{slot - d}}", "must be moved"),
            ("{{slot - 1}}", "must be moved"),
            ("{{slot - 1y}}", "must be moved"),
            ("{{slot - 1d - 2h}}", "must be moved"),
            ("{{slot - -1d}}", "must be moved"),
            ("{{slot - 1ä}}", "must be moved"),
            ("{{slot ä}}", "must be moved"),
            ("{{slot - 99999999999d}}", "must be moved"),
            ("{{slot - 4000000000w}}", "is too far away"),
            ("{{slot + 900000w}}", "is too far away"),
            ("{{slot |}}", "has an unknown format: write iso, or yyyy MM dd HH mm ss"),
            ("{{slot | yy}}", "has an unknown format"),
            ("{{slot | %Y}}", "has an unknown format"),
            ("{{slot | yyyyMMdd | iso}}", "has an unknown format"),
            ("{{slot", "is not closed"),
        ] {
            let problem = word(text, slot, Tz::UTC).expect_err(text);
            assert!(problem.contains(says), "{text}: {problem}");
        }
    }

    proptest! {
        #[test]
        fn no_word_is_too_much(
            inner in "slot ?[-+] ?[0-9]{0,12}[wdhmsäx]?( ?\\| ?\\PC{0,12})?|\\PC{0,20}",
            days in -70_000_000..70_000_000_i64,
        ) {
            let slot = DateTime::UNIX_EPOCH + TimeDelta::days(days);
            let _ = render(&json!(format!("{{{{{inner}}}}}")).into(), slot, Tz::America__Sao_Paulo);
        }
    }
}
