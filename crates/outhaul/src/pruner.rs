//! The pruner: deletes jobs that finished longer ago than they are kept, what schedules and triggers recorded
//! then, workers that are gone, and old parts of the audit trail, in small batches, so that no statement of it
//! holds others up.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::store::{Store, StoreResult};
use tracing::debug;

use crate::duty::{Duty, Next};

const BATCH: u32 = 1000;

/// How long the records of schedules and triggers are kept if jobs are kept for ever.
const FIRINGS: Duration = Duration::from_secs(365 * 24 * 3600);

/// Deletes what is past its retention.
pub(crate) struct Pruner {
    pub(crate) store: Arc<dyn Store>,
    /// How long jobs and the records of schedules and triggers are kept; `MAX`: jobs are kept for ever.
    pub(crate) keep: Duration,
    /// How long it is kept who did what.
    pub(crate) keep_audit: Duration,
}

#[async_trait]
impl Duty for Pruner {
    const NAME: &'static str = "the pruner";

    fn interval(&self) -> Duration {
        Duration::from_secs(300)
    }

    async fn run_once(&self) -> StoreResult<Next> {
        let (mut gone, mut acts) = (0, 0);
        if self.keep != Duration::MAX {
            gone = self.store.jobs_prune(self.keep, BATCH).await?;
            if gone > 0 {
                debug!(gone, "deleted rows of jobs past their retention");
            }
        }
        let keep = if self.keep == Duration::MAX { FIRINGS } else { self.keep };
        let fired = self.store.firings_prune(keep, BATCH).await?;
        if fired > 0 {
            debug!(fired, "deleted slots and firings past their retention");
        }
        let workers = self.store.workers_prune().await?;
        if workers > 0 {
            debug!(workers, "deleted workers that have not been heard of for a day");
        }
        if self.keep_audit != Duration::MAX {
            acts = self.store.audit_prune(self.keep_audit, BATCH).await?;
            if acts > 0 {
                debug!(acts, "deleted parts of the audit trail past their retention");
            }
        }
        Ok(if gone + fired + acts > 0 { Next::AtOnce } else { Next::Later })
    }
}

#[cfg(test)]
mod tests {
    use outhaul_core::audit::{AuditAct, AuditEntry, AuditFilter};
    use outhaul_core::worker::NewWorker;
    use sqlx::Connection as _;

    use super::*;
    use crate::testing::TempStore;

    #[tokio::test]
    async fn the_audit_trail_has_a_time_of_its_own() {
        let temporary = TempStore::open().await.unwrap();
        let store = temporary.store();
        let entry = AuditEntry { actor: "ann".into(), act: AuditAct::Operate, job_id: None, detail: None };
        store.audit_record(&[entry]).await.unwrap();
        let left = async || store.audit_list(&AuditFilter::default(), None, 10).await.unwrap().items.len();
        let pruner = |keep, keep_audit| Pruner { store: store.clone(), keep, keep_audit };
        assert!(matches!(pruner(Duration::ZERO, Duration::MAX).run_once().await, Ok(Next::Later)));
        assert_eq!(left().await, 1);
        assert!(matches!(pruner(Duration::MAX, Duration::ZERO).run_once().await, Ok(Next::AtOnce)));
        assert_eq!(left().await, 0);
    }

    #[tokio::test]
    async fn dead_workers_go_also_where_jobs_are_kept_for_ever() {
        let temporary = TempStore::open().await.unwrap();
        let store = temporary.store();
        let worker = NewWorker { host: "gone".into(), roles: "worker".into(), concurrency: 1 };
        store.worker_register(&worker).await.unwrap();
        let url = format!("sqlite:{}", temporary.file().display());
        let mut database = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::query("update worker set last_seen_at = 0").execute(&mut database).await.unwrap();
        Pruner { store, keep: Duration::MAX, keep_audit: Duration::MAX }.run_once().await.unwrap();
        let left = sqlx::query_scalar("select count(*) from worker").fetch_one(&mut database);
        let left: i64 = left.await.unwrap();
        assert_eq!(left, 0);
    }
}
