//! The history of a job's chunks, as it is read. It is written by the statements that make it.

use chrono::{DateTime, TimeDelta, Utc};
use outhaul_core::history::{HistoryCursor, Transition};
use outhaul_core::id::{JobId, WorkerId};
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Page, StoreResult};

use super::PostgresStore;
use crate::error::{corrupt, from_sqlx};

#[derive(sqlx::FromRow)]
struct HistoryRow {
    chunk_id: i64,
    chunk_key: String,
    at: DateTime<Utc>,
    sequence: i64,
    from_state: Option<String>,
    to_state: String,
    attempt: i32,
    worker_id: Option<i64>,
    step: Option<String>,
    cause: Option<String>,
}

impl HistoryRow {
    fn cursor(&self) -> HistoryCursor {
        let at_micros = self.at.timestamp_micros();
        HistoryCursor { at_micros, chunk: self.chunk_id, sequence: self.sequence }
    }

    fn into_transition(self) -> StoreResult<Transition> {
        let state =
            |text: String| ChunkState::parse(&text).ok_or_else(|| corrupt("chunk_history.state", &text));
        Ok(Transition {
            chunk_key: self.chunk_key,
            from: self.from_state.map(state).transpose()?,
            to: state(self.to_state)?,
            at: self.at,
            attempt: self.attempt.unsigned_abs(),
            worker: self.worker_id.map(WorkerId),
            step: self.step,
            cause: self.cause,
        })
    }
}

/// The moment of a cursor; one that nobody was given reads as the beginning of time.
pub(super) fn moment(micros: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH.checked_add_signed(TimeDelta::microseconds(micros)).unwrap_or(DateTime::UNIX_EPOCH)
}

impl PostgresStore {
    pub(super) async fn list_history(
        &self,
        job_id: &JobId,
        chunk_key: Option<&str>,
        after: Option<HistoryCursor>,
        limit: u32,
    ) -> StoreResult<Page<Transition, HistoryCursor>> {
        let rows: Vec<HistoryRow> = sqlx::query_as(self.sql(include_str!("sql/history_list.sql")))
            .bind(job_id.as_str())
            .bind(chunk_key)
            .bind(after.map(|after| moment(after.at_micros)))
            .bind(after.map(|after| after.chunk))
            .bind(after.map(|after| after.sequence))
            .bind(i64::from(limit) + 1)
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let (rows, next) = crate::page::cut(rows, limit, HistoryRow::cursor);
        let items = rows.into_iter().map(HistoryRow::into_transition).collect::<StoreResult<_>>()?;
        Ok(Page { items, next })
    }
}
