//! Announcements: which QUEUED chunks a broker was told of. There is one writer, so what is read at the
//! beginning of a transaction holds until its end, and the window needs no lock of its own.

use std::time::Duration;

use chrono::NaiveDate;
use outhaul_core::announcement::{
    ANNOUNCEMENT_DEFERRED, ANNOUNCEMENT_DOUBTED, ANNOUNCEMENT_HELD, ANNOUNCEMENT_LONGEST, Announcement,
};
use outhaul_core::id::{ChunkId, JobId, QueueId};
use outhaul_core::store::StoreResult;

use super::SqliteStore;
use super::convert::{json, micros, time};
use super::transaction::Write;
use crate::error::from_sqlx;

#[derive(sqlx::FromRow)]
struct Row {
    id: i64,
    fence: i64,
    queue_id: i64,
    chunk_key: String,
    key: Option<String>,
    effective_date: Option<NaiveDate>,
    job_id: String,
}

impl Row {
    fn into_announcement(self, mark: i64) -> Announcement {
        Announcement {
            chunk: ChunkId(self.id),
            fence: self.fence,
            mark: time(mark),
            queue: QueueId(self.queue_id),
            job_id: JobId::from_store(self.job_id),
            chunk_key: self.chunk_key,
            key: self.key,
            effective_date: self.effective_date,
        }
    }
}

pub(super) async fn take(
    store: &SqliteStore,
    queues: &[QueueId],
    window: u32,
    limit: u32,
) -> StoreResult<Vec<Announcement>> {
    let queues = json(queues);
    store.write(move |write| Box::pin(async move { take_in(write, &queues, window, limit).await })).await
}

async fn take_in(write: &mut Write, queues: &str, window: u32, limit: u32) -> StoreResult<Vec<Announcement>> {
    let (now, until) = (write.now, write.after(ANNOUNCEMENT_HELD));
    sqlx::query(include_str!("sql/announcements_take_stale.sql"))
        .bind(queues)
        .execute(write.connection())
        .await
        .map_err(from_sqlx)?;
    let announced: Vec<(i64, i64)> = sqlx::query_as(include_str!("sql/announcements_take_rooms.sql"))
        .bind(queues)
        .bind(now)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    let rooms: Vec<(i64, i64)> = announced
        .into_iter()
        .map(|(queue, announced)| (queue, i64::from(window) - announced))
        .filter(|(_, room)| *room > 0)
        .collect();
    let Some(largest) = rooms.iter().map(|(_, room)| *room).max() else {
        return Ok(Vec::new());
    };
    let taken: Vec<Row> = sqlx::query_as(include_str!("sql/announcements_take.sql"))
        .bind(json(rooms))
        .bind(limit)
        .bind(now)
        .bind(largest.min(limit.into()))
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    let taken: Vec<Announcement> = taken.into_iter().map(|row| row.into_announcement(until)).collect();
    if !taken.is_empty() {
        sqlx::query(include_str!("sql/announcements_take_mark.sql"))
            .bind(json(taken.iter().map(|taken| (taken.queue, taken.chunk, taken.fence)).collect::<Vec<_>>()))
            .bind(until)
            .execute(write.connection())
            .await
            .map_err(from_sqlx)?;
    }
    Ok(taken)
}

pub(super) async fn confirm(
    store: &SqliteStore,
    announcements: &[Announcement],
    expiry: Duration,
) -> StoreResult<()> {
    let told: Vec<_> =
        announcements.iter().map(|told| (told.queue, told.chunk, told.mark.timestamp_micros())).collect();
    store
        .write(move |write| {
            Box::pin(async move {
                let now = write.now;
                sqlx::query(include_str!("sql/announcements_confirm.sql"))
                    .bind(json(told))
                    .bind(now)
                    .bind(bounded(expiry))
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(())
            })
        })
        .await
}

pub(super) async fn clear(store: &SqliteStore, chunks: &[ChunkId]) -> StoreResult<()> {
    let chunks = json(chunks);
    store
        .write(move |write| {
            Box::pin(async move {
                sqlx::query(include_str!("sql/announcements_clear.sql"))
                    .bind(chunks)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(())
            })
        })
        .await
}

pub(super) async fn defer(store: &SqliteStore, chunks: &[ChunkId], wait: Duration) -> StoreResult<()> {
    let chunks = json(chunks);
    store
        .write(move |write| {
            Box::pin(async move {
                let now = write.now;
                sqlx::query(include_str!("sql/announcements_defer.sql"))
                    .bind(chunks)
                    .bind(now)
                    .bind(bounded(wait))
                    .bind(micros(ANNOUNCEMENT_DEFERRED))
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(())
            })
        })
        .await
}

pub(super) async fn doubt(store: &SqliteStore) -> StoreResult<()> {
    store
        .write(|write| {
            Box::pin(async move {
                let until = write.after(ANNOUNCEMENT_DOUBTED);
                sqlx::query(include_str!("sql/announcements_doubt.sql"))
                    .bind(until)
                    .execute(write.connection())
                    .await
                    .map_err(from_sqlx)?;
                Ok(())
            })
        })
        .await
}

/// A duration that may be doubled any number of times without an overflow.
fn bounded(duration: Duration) -> i64 {
    micros(duration.min(ANNOUNCEMENT_LONGEST))
}
