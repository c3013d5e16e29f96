//! What a schedule does at a moment: which of its slots run, which were missed, and what it waits for next.
//! Pure, and bounded work however long nobody looked.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use outhaul_core::schedule::{CatchUp, NextSlot, ScheduleSpec};
use sha2::{Digest, Sha256};

use super::cron::Times;

/// With `catch_up = none` a slot still runs if it is looked at this much too late.
const PUNCTUAL: TimeDelta = TimeDelta::seconds(60);
/// So many missed slots are counted.
const COUNTED: usize = 1000;
/// A slot is fired this long before the next one at the latest, so that a look in between finds it alone.
const APART: Duration = Duration::from_secs(1);
/// Stretches up to this are looked through slot by slot.
const LEAF: TimeDelta = TimeDelta::hours(1);

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The newest slot that is left out, and why, in a sentence. Older than all that run.
    pub missed: Option<(DateTime<Utc>, String)>,
    /// The slots that run, oldest first.
    pub run: Vec<DateTime<Utc>>,
    /// What is waited for afterwards.
    pub next: Option<NextSlot>,
}

/// The first slot after a moment, and when it is to be fired.
pub fn next_slot(times: &Times, name: &str, jitter: Duration, after: DateTime<Utc>) -> Option<NextSlot> {
    let slot = times.next_after(after)?;
    Some(NextSlot { slot, fire_at: fire_at(times, name, jitter, slot) })
}

/// What the schedule does now that waits for `awaited`.
pub fn judge(times: &Times, name: &str, spec: &ScheduleSpec, awaited: NextSlot, now: DateTime<Utc>) -> Due {
    if awaited.fire_at > now {
        return Due { missed: None, run: Vec::new(), next: Some(awaited) };
    }
    let keep = match spec.catch_up {
        CatchUp::None | CatchUp::Last => 1,
        CatchUp::All => usize::try_from(spec.catch_up_limit).unwrap_or(usize::MAX).max(1),
    };
    let fired_at = |slot| match slot == awaited.slot {
        true => awaited.fire_at,
        false => fire_at(times, name, spec.jitter, slot),
    };
    // One more than can be due, because the newest may have to wait for its share of the jitter.
    let enough = keep.saturating_add(COUNTED + 2);
    let mut due = Vec::new();
    newest_first(times, awaited.slot, now, enough, &mut due);
    if due.first().is_some_and(|newest| fired_at(*newest) > now) {
        due.remove(0);
    }
    if due.len() < enough {
        due.push(awaited.slot);
    }
    let newest = due[0];
    let too_late = spec.catch_up == CatchUp::None && now - fired_at(newest) > PUNCTUAL;
    let left_out = due.split_off(if too_late { 0 } else { keep.min(due.len()) });
    due.reverse();
    Due {
        missed: left_out.first().map(|slot| (*slot, detail(left_out.len() - 1))),
        run: due,
        next: next_slot(times, name, spec.jitter, newest),
    }
}

fn detail(earlier: usize) -> String {
    match earlier {
        0 => "no scheduler ran".to_owned(),
        1 => "no scheduler ran; 1 earlier slot was missed too".to_owned(),
        COUNTED.. => format!("no scheduler ran; {COUNTED} or more earlier slots were missed too"),
        _ => format!("no scheduler ran; {earlier} earlier slots were missed too"),
    }
}

/// The slot and its share of the jitter: the same in every process, and before the next slot.
fn fire_at(times: &Times, name: &str, jitter: Duration, slot: DateTime<Utc>) -> DateTime<Utc> {
    if jitter.is_zero() {
        return slot;
    }
    let next = times.next_after(slot).and_then(|next| (next - slot).to_std().ok()).unwrap_or(Duration::MAX);
    let room = jitter.min(next.saturating_sub(APART)).as_millis();
    let mut hash = Sha256::new();
    hash.update(name);
    hash.update(slot.timestamp_micros().to_be_bytes());
    let number = hash.finalize().iter().take(8).fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    let share = i64::try_from(number.checked_rem(room).unwrap_or(0)).unwrap_or(0);
    slot.checked_add_signed(TimeDelta::milliseconds(share)).unwrap_or(slot)
}

/// Collects slots after `from` up to `to`, the newest first, until there are `enough`. A stretch without
/// slots costs one look, so a long outage costs no more than its logarithm.
fn newest_first(
    times: &Times,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    enough: usize,
    found: &mut Vec<DateTime<Utc>>,
) {
    let Some(first) = times.next_after(from).filter(|first| *first <= to) else { return };
    let span = to - first;
    if span <= LEAF || times.next_after(first).is_none_or(|second| second > to) {
        let start = found.len();
        found.extend(times.from(first).take_while(|slot| *slot <= to));
        found[start..].reverse();
        return;
    }
    let middle = first + span / 2;
    newest_first(times, middle, to, enough, found);
    if found.len() < enough {
        newest_first(times, first - TimeDelta::seconds(1), middle, enough, found);
    }
}

#[cfg(test)]
mod tests;
