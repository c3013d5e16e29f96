//! Dead letters: read, counted, and queued again.

use chrono::{DateTime, Utc};
use outhaul_core::dead_letter::{DeadLetter, DeadLetterCursor, DeadLetterFilter};
use outhaul_core::id::JobId;
use outhaul_core::store::{Page, Redriver, StoreResult};

use super::PostgresStore;
use super::history::moment;
use super::redrive::{Which, redrive};
use crate::error::from_sqlx;

#[derive(sqlx::FromRow)]
struct DeadLetterRow {
    id: i64,
    job_id: String,
    chunk_key: String,
    job_type: String,
    dataset: Option<String>,
    cause: String,
    step: Option<String>,
    attempt: i32,
    first_failed_at: DateTime<Utc>,
    last_failed_at: DateTime<Utc>,
}

impl DeadLetterRow {
    fn cursor(&self) -> DeadLetterCursor {
        DeadLetterCursor { at_micros: self.last_failed_at.timestamp_micros(), chunk: self.id }
    }
}

impl From<DeadLetterRow> for DeadLetter {
    fn from(row: DeadLetterRow) -> Self {
        Self {
            job_id: JobId::from_store(row.job_id),
            chunk_key: row.chunk_key,
            job_type: row.job_type,
            dataset: row.dataset,
            cause: row.cause,
            step: row.step,
            attempts: row.attempt.unsigned_abs(),
            first_failed_at: row.first_failed_at,
            last_failed_at: row.last_failed_at,
        }
    }
}

/// Binds a filter as the first six parameters of a query.
macro_rules! filtered {
    ($query:expr, $filter:expr) => {
        $query
            .bind($filter.job_id.as_ref().map(JobId::as_str))
            .bind($filter.job_type.as_deref())
            .bind($filter.dataset.as_deref())
            .bind($filter.text.as_deref())
            .bind($filter.after)
            .bind($filter.before)
    };
}

impl PostgresStore {
    pub(super) async fn list_dead_letters(
        &self,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: u32,
    ) -> StoreResult<Page<DeadLetter, DeadLetterCursor>> {
        let rows: Vec<DeadLetterRow> =
            filtered!(sqlx::query_as(self.sql(include_str!("sql/dead_letters_list.sql"))), filter)
                .bind(after.map(|after| moment(after.at_micros)))
                .bind(after.map(|after| after.chunk))
                .bind(i64::from(limit) + 1)
                .fetch_all(&self.pool())
                .await
                .map_err(from_sqlx)?;
        let (rows, next) = crate::page::cut(rows, limit, DeadLetterRow::cursor);
        Ok(Page { items: rows.into_iter().map(DeadLetter::from).collect(), next })
    }

    pub(super) async fn count_dead_letters(&self, filter: &DeadLetterFilter) -> StoreResult<u64> {
        let count: i64 =
            filtered!(sqlx::query_scalar(self.sql(include_str!("sql/dead_letters_count.sql"))), filter)
                .fetch_one(&self.pool())
                .await
                .map_err(from_sqlx)?;
        Ok(count.unsigned_abs())
    }

    pub(super) async fn redrive_dead_letters(
        &self,
        filter: &DeadLetterFilter,
        limit: u32,
        by: Option<&Redriver>,
    ) -> StoreResult<u64> {
        let jobs: Vec<(i64, Vec<i64>, Vec<i64>)> =
            filtered!(sqlx::query_as(self.sql(include_str!("sql/dead_letters_redrive.sql"))), filter)
                .bind(i64::from(limit))
                .fetch_all(&self.pool())
                .await
                .map_err(from_sqlx)?;
        let mut redriven = 0;
        for (job, chunks, fences) in jobs {
            let moved = redrive(self, job, Which::Dead { chunks, fences }, by.cloned()).await?;
            redriven += moved.map_or(0, |moved| moved.dead);
        }
        Ok(redriven)
    }
}
