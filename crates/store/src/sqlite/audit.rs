//! The audit trail: appended to, read by operators, pruned by age.

use std::time::Duration;

use outhaul_core::audit::{AuditAct, AuditEntry, AuditFilter, AuditRow};
use outhaul_core::id::JobId;
use outhaul_core::store::{Page, StoreResult};

use super::SqliteStore;
use super::convert::{json, time};
use super::transaction::Write;
use crate::error::{corrupt, from_sqlx};
use crate::page::cut;

pub(super) async fn record(store: &SqliteStore, entries: &[AuditEntry]) -> StoreResult<()> {
    let entries = entries.to_vec();
    store.write(move |write| Box::pin(async move { append(write, &entries).await })).await
}

/// As part of a transaction.
pub(super) async fn append(write: &mut Write, entries: &[AuditEntry]) -> StoreResult<()> {
    let rows: Vec<_> = entries
        .iter()
        .map(|entry| {
            (&entry.actor, entry.act.as_str(), entry.job_id.as_ref().map(JobId::as_str), &entry.detail)
        })
        .collect();
    let now = write.now;
    sqlx::query(include_str!("sql/audit_record.sql"))
        .bind(now)
        .bind(json(&rows))
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(())
}

pub(super) async fn list(
    store: &SqliteStore,
    filter: &AuditFilter,
    before: Option<i64>,
    limit: u32,
) -> StoreResult<Page<AuditRow, i64>> {
    type Columns = (i64, i64, String, String, Option<String>, Option<String>);
    let rows: Vec<Columns> = sqlx::query_as(include_str!("sql/audit_list.sql"))
        .bind(&filter.actor)
        .bind(filter.job_id.as_ref().map(JobId::as_str))
        .bind(filter.act.map(AuditAct::as_str))
        .bind(before)
        .bind(i64::from(limit) + 1)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    let (rows, next) = cut(rows, limit, |row| row.0);
    let row = |(id, at, actor, act, job_id, detail): Columns| {
        let act = AuditAct::parse(&act).ok_or_else(|| corrupt("audit.act", &act))?;
        let entry = AuditEntry { actor, act, job_id: job_id.map(JobId::from_store), detail };
        Ok(AuditRow { id, at: time(at), entry })
    };
    Ok(Page { items: rows.into_iter().map(row).collect::<StoreResult<_>>()?, next })
}

pub(super) async fn prune(store: &SqliteStore, keep: Duration, limit: u32) -> StoreResult<u64> {
    store
        .write(move |write| {
            Box::pin(async move {
                let before = write.before(keep);
                let prune = sqlx::query(include_str!("sql/audit_prune.sql")).bind(before).bind(limit);
                Ok(prune.execute(write.connection()).await.map_err(from_sqlx)?.rows_affected())
            })
        })
        .await
}
