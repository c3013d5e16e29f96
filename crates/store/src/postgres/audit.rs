//! The audit trail: appended to, read by operators, pruned by age.

use std::time::Duration;

use chrono::{DateTime, Utc};
use outhaul_core::audit::{AuditAct, AuditEntry, AuditFilter, AuditRow};
use outhaul_core::id::JobId;
use outhaul_core::store::{Page, StoreResult};

use super::PostgresStore;
use super::row::interval;
use crate::error::{corrupt, from_sqlx};

impl PostgresStore {
    pub(super) async fn record_audit(&self, entries: &[AuditEntry]) -> StoreResult<()> {
        sqlx::query(self.sql(include_str!("sql/audit_record.sql")))
            .bind(entries.iter().map(|entry| entry.actor.as_str()).collect::<Vec<_>>())
            .bind(entries.iter().map(|entry| entry.act.as_str()).collect::<Vec<_>>())
            .bind(entries.iter().map(|entry| entry.job_id.as_ref().map(JobId::as_str)).collect::<Vec<_>>())
            .bind(entries.iter().map(|entry| entry.detail.as_deref()).collect::<Vec<_>>())
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }

    pub(super) async fn list_audit(
        &self,
        filter: &AuditFilter,
        before: Option<i64>,
        limit: u32,
    ) -> StoreResult<Page<AuditRow, i64>> {
        type Columns = (i64, DateTime<Utc>, String, String, Option<String>, Option<String>);
        let rows: Vec<Columns> = sqlx::query_as(self.sql(include_str!("sql/audit_list.sql")))
            .bind(&filter.actor)
            .bind(filter.job_id.as_ref().map(JobId::as_str))
            .bind(filter.act.map(AuditAct::as_str))
            .bind(before)
            .bind(i64::from(limit) + 1)
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let (rows, next) = crate::page::cut(rows, limit, |row| row.0);
        let row = |(id, at, actor, act, job_id, detail): Columns| {
            let act = AuditAct::parse(&act).ok_or_else(|| corrupt("audit.act", &act))?;
            let entry = AuditEntry { actor, act, job_id: job_id.map(JobId::from_store), detail };
            Ok(AuditRow { id, at, entry })
        };
        Ok(Page { items: rows.into_iter().map(row).collect::<StoreResult<_>>()?, next })
    }

    pub(super) async fn prune_audit(&self, keep: Duration, limit: u32) -> StoreResult<u64> {
        let prune = sqlx::query(self.sql(include_str!("sql/audit_prune.sql")))
            .bind(interval(keep))
            .bind(i64::from(limit));
        Ok(prune.execute(&self.pool()).await.map_err(from_sqlx)?.rows_affected())
    }
}
