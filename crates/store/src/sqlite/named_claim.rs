//! The claim of chunks by name, as a broker's messages name them. The same chunks may be claimed as by
//! `chunk::claim`, with the same effects; names are others' text, and decide nothing but which chunk is meant.

use std::collections::{BTreeMap, HashSet};

use outhaul_core::announcement::{ANNOUNCEMENT_DEFERRED, ChunkName, NamedClaims, NotClaimed, NotNow};
use outhaul_core::id::{ChunkId, QueueId, WorkerId};
use outhaul_core::store::StoreResult;
use outhaul_core::worker::Want;

use super::SqliteStore;
use super::chunk::{QueuedChunk, own};
use super::convert::{json, micros};
use super::transaction::Write;
use crate::error::from_sqlx;

#[derive(sqlx::FromRow)]
struct NamedChunk {
    /// The place of its name.
    at: i64,
    /// It is QUEUED, and its job lets it start.
    waits: bool,
    paused: bool,
    #[sqlx(flatten)]
    chunk: QueuedChunk,
}

pub(super) async fn claim(
    store: &SqliteStore,
    worker: WorkerId,
    names: &[ChunkName],
    wants: &[Want],
    total: u32,
) -> StoreResult<NamedClaims> {
    let (names, wants) = (names.to_vec(), wants.to_vec());
    store
        .write(move |write| Box::pin(async move { claim_in(write, worker, &names, &wants, total).await }))
        .await
}

async fn claim_in(
    write: &mut Write,
    worker: WorkerId,
    names: &[ChunkName],
    wants: &[Want],
    total: u32,
) -> StoreResult<NamedClaims> {
    let mut found: BTreeMap<usize, NamedChunk> = find(write, names).await?;
    let mut room: BTreeMap<i64, u32> = wants.iter().map(|want| (want.queue.0, want.limit)).collect();
    let mut total = total;
    let mut seen = HashSet::new();
    let (mut places, mut queued, mut left) = (Vec::new(), Vec::new(), Vec::new());
    let (mut over, mut slotless) = (Vec::new(), Vec::new());
    for place in 0..names.len() {
        let Some(NamedChunk { waits, paused, chunk, .. }) = found.remove(&place) else {
            left.push((place, NotClaimed::Unknown));
            continue;
        };
        // A second message of the same chunk has nothing to say that the first did not.
        if !waits {
            over.push(chunk.id);
        }
        if !waits || !seen.insert(chunk.id) {
            left.push((place, NotClaimed::Over));
            continue;
        }
        let not_now = match room.get_mut(&chunk.queue_id) {
            _ if paused => NotNow::Paused,
            None => NotNow::UnknownQueue,
            Some(0) => NotNow::NoSlot,
            Some(_) if total == 0 => NotNow::NoSlot,
            Some(room) => {
                *room -= 1;
                total -= 1;
                places.push(place);
                queued.push(chunk);
                continue;
            }
        };
        if not_now == NotNow::NoSlot {
            slotless.push(chunk.id);
        }
        let (chunk, queue) = (ChunkId(chunk.id), QueueId(chunk.queue_id));
        left.push((place, NotClaimed::NotNow { chunk, queue, because: not_now }));
    }
    if !over.is_empty() {
        // Their messages are gone with this: should one come to wait again (held, then redriven), it is
        // announced anew.
        let clear = sqlx::query(include_str!("sql/announcements_clear.sql")).bind(json(over));
        clear.execute(write.connection()).await.map_err(from_sqlx)?;
    }
    if !slotless.is_empty() {
        // They may wait with the worker, and come again should that die.
        let (now, wait) = (write.now, micros(ANNOUNCEMENT_DEFERRED));
        let defer = sqlx::query(include_str!("sql/announcements_defer.sql"));
        let defer = defer.bind(json(slotless)).bind(now).bind(wait).bind(wait);
        defer.execute(write.connection()).await.map_err(from_sqlx)?;
    }
    let claimed = own(write, worker, queued).await?;
    Ok(NamedClaims { claimed: places.into_iter().zip(claimed).collect(), left })
}

/// The chunks that there are, by the places of their names.
async fn find(write: &mut Write, names: &[ChunkName]) -> StoreResult<BTreeMap<usize, NamedChunk>> {
    let asked: Vec<(&str, &str)> = names.iter().map(|name| (&*name.job_id, &*name.chunk_key)).collect();
    let rows: Vec<NamedChunk> = sqlx::query_as(include_str!("sql/chunks_claim_named.sql"))
        .bind(json(asked))
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    Ok(rows.into_iter().map(|row| (row.at.unsigned_abs() as usize, row)).collect())
}
