//! Why a file was reused or generated, in the words that clients read. All of them are here.

use outhaul_core::file::FileRecord;
use outhaul_core::reuse::Reuse;

/// Generated, because the client asked for it.
pub const FORCED: &str = "forced";
/// Generated, because none was recorded.
pub const NEW: &str = "not generated before";
/// Generated, because the recorded one answers another query.
pub const REDEFINED: &str = "the dataset's definition changed";
/// Generated, because the recorded one is not where the dataset's files go now.
pub const MOVED: &str = "the dataset's base path changed";
/// Generated, because the storage no longer holds the recorded one.
pub const GONE: &str = "the recorded file is gone";
/// Reused, although its date is inside the window.
pub const FRESH: &str = "generated after this job was submitted";

/// Generated, because its date is inside the window.
pub fn inside_window(days: u32) -> String {
    format!("inside the {days}-day window")
}

/// Reused.
pub fn outside_window(days: u32) -> String {
    format!("older than the {days}-day window and recorded")
}

/// Why a recorded file is reused under a rule.
pub fn reused(rule: Reuse, window_days: u32) -> String {
    match rule {
        Reuse::Any => outside_window(window_days),
        Reuse::ClaimedAfter(_) | Reuse::Never => FRESH.to_owned(),
    }
}

/// Why a file is generated at `path` under a rule, given the recorded file.
pub fn generated(rule: Reuse, window_days: u32, recorded: Option<&FileRecord>, path: &str) -> String {
    match (rule, recorded) {
        (Reuse::Never, _) => FORCED.to_owned(),
        (Reuse::ClaimedAfter(_), _) => inside_window(window_days),
        (Reuse::Any, None) => NEW.to_owned(),
        (Reuse::Any, Some(record)) if record.path != path => MOVED.to_owned(),
        (Reuse::Any, Some(_)) => REDEFINED.to_owned(),
    }
}
