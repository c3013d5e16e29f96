//! The history of chunks: transitions are appended in the transaction that makes them, and read
//! together with what a chunk's own row tells (see `outhaul_core::history`).

use std::collections::BTreeMap;

use outhaul_core::history::{HistoryCursor, Transition};
use outhaul_core::id::{JobId, Lease, WorkerId};
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Page, StoreResult};
use serde::Serialize;

use super::SqliteStore;
use super::convert::{json, leases as leases_json, time};
use super::counts::Moved;
use super::transaction::Write;
use crate::error::{corrupt, from_sqlx};
use crate::page::cut;

/// A transition to be remembered.
#[derive(Serialize)]
pub(super) struct Entry<'a> {
    pub(super) chunk: i64,
    pub(super) from: ChunkState,
    pub(super) to: ChunkState,
    pub(super) attempt: u32,
    pub(super) worker: Option<i64>,
    pub(super) step: Option<&'a str>,
    pub(super) cause: Option<&'a str>,
}

/// Appends transitions, in their order.
pub(super) async fn append(write: &mut Write, entries: &[Entry<'_>]) -> StoreResult<()> {
    if entries.is_empty() {
        return Ok(());
    }
    sqlx::query(include_str!("sql/history_append.sql"))
        .bind(json(entries))
        .bind(write.now)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(())
}

/// A chunk that nobody owns, as a sweep or a person finds it before moving it.
#[derive(sqlx::FromRow)]
pub(super) struct Waiting {
    pub(super) id: i64,
    pub(super) job_id: i64,
    state: String,
    pub(super) attempt: u32,
}

impl Waiting {
    pub(super) fn is(&self, state: ChunkState) -> bool {
        self.state == state.as_str()
    }
}

/// The ids of these chunks, as the statement that moves them takes them.
pub(super) fn ids(chunks: &[Waiting]) -> String {
    json(chunks.iter().map(|chunk| chunk.id).collect::<Vec<_>>())
}

/// Appends that these chunks went to `to`; one that was there already did not move.
pub(super) async fn append_moves(write: &mut Write, chunks: &[Waiting], to: ChunkState) -> StoreResult<()> {
    let mut entries = Vec::with_capacity(chunks.len());
    for chunk in chunks.iter().filter(|chunk| !chunk.is(to)) {
        entries.push(Entry {
            chunk: chunk.id,
            from: parse_state(&chunk.state)?,
            to,
            attempt: chunk.attempt,
            worker: None,
            step: None,
            cause: None,
        });
    }
    append(write, &entries).await
}

/// Who had which chunk at which attempt. Asked before the UPDATE that takes it from them: SQLite's
/// RETURNING knows only what it leaves.
pub(super) struct Owners(BTreeMap<i64, (u32, Option<i64>)>);

impl Owners {
    pub(super) async fn of(write: &mut Write, leases: &[Lease]) -> StoreResult<Self> {
        let rows: Vec<(i64, u32, Option<i64>)> = sqlx::query_as(include_str!("sql/chunks_owned.sql"))
            .bind(leases_json(leases))
            .fetch_all(write.connection())
            .await
            .map_err(from_sqlx)?;
        Ok(Self(rows.into_iter().map(|(chunk, attempt, worker)| (chunk, (attempt, worker))).collect()))
    }

    /// The entry of a chunk that its owner moved, or lost.
    pub(super) fn entry(&self, moved: &Moved, to: ChunkState) -> Entry<'static> {
        let (attempt, worker) = self.0.get(&moved.id).copied().unwrap_or_default();
        Entry { chunk: moved.id, from: ChunkState::Running, to, attempt, worker, step: None, cause: None }
    }
}

#[derive(sqlx::FromRow)]
struct TransitionRow {
    chunk_id: i64,
    chunk_key: String,
    at: i64,
    sequence: i64,
    from_state: Option<String>,
    to_state: String,
    attempt: u32,
    worker_id: Option<i64>,
    step: Option<String>,
    cause: Option<String>,
}

impl TransitionRow {
    fn cursor(&self) -> HistoryCursor {
        HistoryCursor { at_micros: self.at, chunk: self.chunk_id, sequence: self.sequence }
    }

    fn into_transition(self) -> StoreResult<Transition> {
        Ok(Transition {
            chunk_key: self.chunk_key,
            from: self.from_state.as_deref().map(parse_state).transpose()?,
            to: parse_state(&self.to_state)?,
            at: time(self.at),
            attempt: self.attempt,
            worker: self.worker_id.map(WorkerId),
            step: self.step,
            cause: self.cause,
        })
    }
}

pub(super) async fn list(
    store: &SqliteStore,
    job_id: &JobId,
    chunk_key: Option<&str>,
    after: Option<HistoryCursor>,
    limit: u32,
) -> StoreResult<Page<Transition, HistoryCursor>> {
    let rows: Vec<TransitionRow> = sqlx::query_as(include_str!("sql/history_list.sql"))
        .bind(job_id.as_str())
        .bind(chunk_key)
        .bind(after.map(|after| after.at_micros))
        .bind(after.map(|after| after.chunk))
        .bind(after.map(|after| after.sequence))
        .bind(i64::from(limit) + 1)
        .fetch_all(store.reader())
        .await
        .map_err(from_sqlx)?;
    let (rows, next) = cut(rows, limit, TransitionRow::cursor);
    Ok(Page {
        items: rows.into_iter().map(TransitionRow::into_transition).collect::<StoreResult<_>>()?,
        next,
    })
}

fn parse_state(text: &str) -> StoreResult<ChunkState> {
    ChunkState::parse(text).ok_or_else(|| corrupt("a chunk's state", text))
}
