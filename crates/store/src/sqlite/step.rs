//! Steps: what a chunk's attempts recorded, under the fence of the one that did it.

use outhaul_core::id::{JobId, Lease};
use outhaul_core::step::{StepRecord, StepRow};
use outhaul_core::store::StoreResult;

use super::SqliteStore;
use super::convert::time;
use crate::error::from_sqlx;

pub(super) async fn list(store: &SqliteStore, job_id: &JobId) -> StoreResult<Vec<StepRow>> {
    let rows: Vec<(String, i64)> = sqlx::query_as(include_str!("sql/steps_list.sql"))
        .bind(job_id.as_str())
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    Ok(rows.into_iter().map(|(name, at)| StepRow { name, completed_at: time(at) }).collect())
}

pub(super) async fn recorded(store: &SqliteStore, lease: Lease) -> StoreResult<Option<Vec<StepRecord>>> {
    type Row = (Option<String>, Option<String>, Option<i64>);
    let rows: Vec<Row> = sqlx::query_as(include_str!("sql/steps_recorded.sql"))
        .bind(lease.chunk.0)
        .bind(lease.fence)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    if rows.is_empty() {
        return Ok(None);
    }
    let step =
        |(name, result, at): Row| Some(StepRecord { name: name?, result: result?, completed_at: time(at?) });
    Ok(Some(rows.into_iter().filter_map(step).collect()))
}

/// A row of the same name under another fence stays as it is: what was done first was done.
pub(super) async fn record(store: &SqliteStore, lease: Lease, name: &str, result: &str) -> StoreResult<bool> {
    let (name, result) = (name.to_owned(), result.to_owned());
    store
        .write(move |write| {
            Box::pin(async move {
                let now = write.now;
                let done = sqlx::query(include_str!("sql/step_record.sql"))
                    .bind(lease.chunk.0)
                    .bind(lease.fence)
                    .bind(&name)
                    .bind(&result)
                    .bind(now)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                if done.rows_affected() == 0 {
                    return sqlx::query_scalar(include_str!("sql/step_record_again.sql"))
                        .bind(lease.chunk.0)
                        .bind(lease.fence)
                        .bind(&name)
                        .fetch_one(write.connection())
                        .await
                        .map_err(from_sqlx);
                }
                // Whoever watches the job sees that it moved.
                sqlx::query(include_str!("sql/step_record_job.sql"))
                    .bind(lease.chunk.0)
                    .bind(now)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(true)
            })
        })
        .await
}
