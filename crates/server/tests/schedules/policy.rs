//! What must become of slots, given the moments at which schedulers looked. Written from the manual, not
//! from the program.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use outhaul_core::schedule::CatchUp;

/// What became of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has a job.
    Fired,
    /// It has none, and neither have so many before it.
    Missed { earlier: usize },
}

/// The fates of all slots that have one, and how many slots were seen: the next one is waited for.
pub(crate) fn fates(
    slots: &[DateTime<Utc>],
    looks: &[DateTime<Utc>],
    catch_up: CatchUp,
    limit: usize,
) -> (BTreeMap<DateTime<Utc>, Fate>, usize) {
    let mut fates = BTreeMap::new();
    let mut seen = 0;
    for now in looks {
        let due = slots[seen..].iter().take_while(|slot| *slot <= now).count();
        let Some(newest) = due.checked_sub(1).map(|last| slots[seen + last]) else { continue };
        let wanted = match catch_up {
            CatchUp::None if *now - newest > TimeDelta::seconds(60) => 0,
            CatchUp::None | CatchUp::Last => 1,
            CatchUp::All => limit,
        };
        let (left_out, run) = slots[seen..seen + due].split_at(due - wanted.min(due));
        fates.extend(run.iter().map(|slot| (*slot, Fate::Fired)));
        if let Some((last, earlier)) = left_out.split_last() {
            fates.insert(*last, Fate::Missed { earlier: earlier.len() });
        }
        seen += due;
    }
    (fates, seen)
}
