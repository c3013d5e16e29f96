//! Dead letters: DEAD chunks of jobs that are still there, as people look through them.

use outhaul_core::dead_letter::{DeadLetter, DeadLetterCursor, DeadLetterFilter};
use outhaul_core::id::JobId;
use outhaul_core::store::{Page, StoreResult};
use sqlx::query::QueryAs;
use sqlx::sqlite::{Sqlite, SqliteArguments};

use super::SqliteStore;
use super::convert::time;
use crate::error::from_sqlx;
use crate::page::cut;

#[derive(sqlx::FromRow)]
struct DeadRow {
    id: i64,
    job_id: String,
    chunk_key: String,
    job_type: String,
    dataset: Option<String>,
    cause: String,
    step: Option<String>,
    attempt: u32,
    first_failed_at: i64,
    last_failed_at: i64,
}

impl DeadRow {
    fn cursor(&self) -> DeadLetterCursor {
        DeadLetterCursor { at_micros: self.last_failed_at, chunk: self.id }
    }

    fn into_letter(self) -> DeadLetter {
        DeadLetter {
            job_id: JobId::from_store(self.job_id),
            chunk_key: self.chunk_key,
            job_type: self.job_type,
            dataset: self.dataset,
            cause: self.cause,
            step: self.step,
            attempts: self.attempt,
            first_failed_at: time(self.first_failed_at),
            last_failed_at: time(self.last_failed_at),
        }
    }
}

type Asking<'q, O> = QueryAs<'q, Sqlite, O, SqliteArguments>;

/// ?1 to ?6 of every statement on dead letters.
pub(super) fn bind<'q, O>(query: Asking<'q, O>, filter: &'q DeadLetterFilter) -> Asking<'q, O> {
    query
        .bind(filter.job_id.as_ref().map(JobId::as_str))
        .bind(&filter.job_type)
        .bind(&filter.dataset)
        .bind(&filter.text)
        .bind(filter.after.map(|at| at.timestamp_micros()))
        .bind(filter.before.map(|at| at.timestamp_micros()))
}

pub(super) async fn list(
    store: &SqliteStore,
    filter: &DeadLetterFilter,
    after: Option<DeadLetterCursor>,
    limit: u32,
) -> StoreResult<Page<DeadLetter, DeadLetterCursor>> {
    let rows: Vec<DeadRow> = bind(sqlx::query_as(include_str!("sql/dead_letters_list.sql")), filter)
        .bind(after.map(|after| after.at_micros))
        .bind(after.map(|after| after.chunk))
        .bind(i64::from(limit) + 1)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    let (rows, next) = cut(rows, limit, DeadRow::cursor);
    Ok(Page { items: rows.into_iter().map(DeadRow::into_letter).collect(), next })
}

pub(super) async fn count(store: &SqliteStore, filter: &DeadLetterFilter) -> StoreResult<u64> {
    let (count,): (i64,) = bind(sqlx::query_as(include_str!("sql/dead_letters_count.sql")), filter)
        .fetch_one(store.reader())
        .await
        .map_err(from_sqlx)?;
    Ok(count.unsigned_abs())
}
