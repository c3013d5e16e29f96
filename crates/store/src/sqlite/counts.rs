//! What settled chunks do to their jobs: counts move by differences, and `sql/job_counts.sql` alone
//! decides the status that follows. Always the last act before COMMIT.

use std::collections::BTreeMap;

use outhaul_core::id::Lease;
use outhaul_core::store::StoreResult;
use serde::Serialize;

use super::convert::{json, lease};
use super::transaction::Write;
use crate::error::from_sqlx;

/// A chunk that a guarded UPDATE moved.
#[derive(sqlx::FromRow)]
pub(super) struct Moved {
    pub(super) id: i64,
    pub(super) fence: i64,
    pub(super) job_id: i64,
    pub(super) started_at: Option<i64>,
}

impl Moved {
    pub(super) fn lease(&self) -> Lease {
        lease((self.id, self.fence))
    }
}

/// How one job's counts move.
#[derive(Default, Serialize, sqlx::FromRow)]
pub(super) struct Change {
    pub(super) job: i64,
    pub(super) done: i64,
    pub(super) failed: i64,
    pub(super) cancelled: i64,
    pub(super) reused: i64,
    pub(super) rows: i64,
    pub(super) bytes: i64,
    /// Whether chunks of the job stopped running. Fewer run than were shown, so the version rises.
    #[sqlx(default)]
    stopped: bool,
    #[sqlx(default)]
    started_at: Option<i64>,
    #[sqlx(default)]
    pub(super) error: Option<String>,
    #[sqlx(default)]
    pub(super) result: Option<String>,
}

/// The changes of one batch, by job.
#[derive(Default)]
pub(super) struct Changes(BTreeMap<i64, Change>);

impl Changes {
    /// The change of the job that `moved` belongs to; none yet, but the job has begun.
    pub(super) fn of(&mut self, moved: &Moved) -> &mut Change {
        let change =
            self.0.entry(moved.job_id).or_insert_with(|| Change { job: moved.job_id, ..Change::default() });
        change.stopped = true;
        change.started_at = [change.started_at, moved.started_at].into_iter().flatten().min();
        change
    }

    pub(super) async fn record(self, write: &mut Write) -> StoreResult<()> {
        record(write, &self.0.into_values().collect::<Vec<_>>()).await
    }
}

/// Writes changes to their job rows, and which of them triggers are to judge.
pub(super) async fn record(write: &mut Write, changes: &[Change]) -> StoreResult<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let written: Vec<Option<i64>> = sqlx::query_scalar(include_str!("sql/job_counts.sql"))
        .bind(json(changes))
        .bind(write.now)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    let completed: Vec<i64> = written.into_iter().flatten().collect();
    if completed.is_empty() {
        return Ok(());
    }
    sqlx::query(include_str!("sql/job_counts_due.sql"))
        .bind(json(&completed))
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(())
}
