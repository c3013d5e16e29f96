//! Progress of running chunks. A row goes in the transaction that settles its chunk, so whatever is
//! there belongs to a chunk that is not settled, and a job's sum needs no second look.

use outhaul_core::progress::Progress;
use outhaul_core::store::StoreResult;

use super::SqliteStore;
use super::convert::json;
use super::transaction::Write;
use crate::error::from_sqlx;

pub(super) async fn record(store: &SqliteStore, progress: &[Progress]) -> StoreResult<()> {
    if progress.is_empty() {
        return Ok(());
    }
    let rows = json(progress.iter().map(row).collect::<Vec<_>>());
    store
        .write(move |write| {
            Box::pin(async move {
                let now = write.now;
                sqlx::query(include_str!("sql/progress_record.sql"))
                    .bind(rows)
                    .bind(now)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(())
            })
        })
        .await
}

/// One row of the batch. What is not a number would be NULL in JSON, and refuse the whole batch.
fn row(one: &Progress) -> (i64, i64, i64, i64, f64) {
    let fraction = if one.fraction.is_finite() { one.fraction } else { 0.0 };
    (one.lease.chunk.0, one.lease.fence, one.rows, one.bytes, fraction)
}

/// Forgets the progress of chunks that this transaction settles.
pub(super) async fn forget(write: &mut Write, chunks: impl Iterator<Item = i64>) -> StoreResult<()> {
    let chunks: Vec<i64> = chunks.collect();
    if chunks.is_empty() {
        return Ok(());
    }
    sqlx::query(include_str!("sql/progress_forget.sql"))
        .bind(json(&chunks))
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(())
}
