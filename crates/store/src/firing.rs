//! What schedules and triggers tell of jobs that they did not submit; the same sentences in both stores.

use outhaul_core::id::JobId;

/// The job's idempotency key was used before, for the same request.
pub(crate) const KEY_NAMES: &str = "its idempotency key names this job, which was there already";
/// The job type allows one such job at a time.
pub(crate) const EQUAL_RUNS: &str = "this job, which is equal, had not ended";
/// The job's idempotency key was used before, for something else.
pub(crate) const KEY_CONFLICT: &str = "the idempotency key was used for a different request";
/// A trigger asks for something else since its firing became due.
pub(crate) const CHANGED: &str = "what the trigger waits for was changed before its job was submitted";

/// A job of an earlier slot is in the way.
pub(crate) fn earlier_runs(job: &JobId) -> String {
    format!("job {job} of an earlier slot had not ended")
}

/// Parents that are not there, or are another's.
pub(crate) fn no_such_parents(missing: &[JobId]) -> String {
    let missing: Vec<&str> = missing.iter().map(JobId::as_str).collect();
    format!("dependsOn: the owner has no job {}", missing.join(", "))
}

/// The owner has no room for more.
pub(crate) fn over_quota(open: u64) -> String {
    format!("the owner has {open} chunks open, and no room for more")
}
