//! Announcements: which QUEUED chunks a broker was told of, and the claim of chunks by name.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};
use outhaul_core::announcement::{
    ANNOUNCEMENT_DEFERRED, ANNOUNCEMENT_DOUBTED, ANNOUNCEMENT_HELD, ANNOUNCEMENT_LONGEST, Announcement,
    ChunkName, NamedClaims, NotClaimed, NotNow,
};
use outhaul_core::id::{ChunkId, JobId, QueueId, WorkerId};
use outhaul_core::store::{StoreError, StoreResult};
use outhaul_core::worker::Want;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row};

use super::PostgresStore;
use super::pool::{Pool, begin};
use super::row::{ClaimRow, interval, want_columns};
use super::schema::Schema;
use crate::error::from_sqlx;

impl PostgresStore {
    pub(super) async fn claim_named(
        &self,
        worker: WorkerId,
        names: &[ChunkName],
        wants: &[Want],
        total: u32,
    ) -> StoreResult<NamedClaims> {
        // PostgreSQL has no NUL in text, so no chunk has such a name.
        let nameable = |text: &str| if text.contains('\0') { String::new() } else { text.to_owned() };
        let (queues, limits) = want_columns(wants);
        let rows = sqlx::query(self.sql(include_str!("sql/chunks_claim_named.sql")))
            .bind(worker.0)
            .bind(names.iter().map(|name| nameable(&name.job_id)).collect::<Vec<_>>())
            .bind(names.iter().map(|name| nameable(&name.chunk_key)).collect::<Vec<_>>())
            .bind(queues)
            .bind(limits)
            .bind(i32::try_from(total).unwrap_or(i32::MAX))
            .bind(interval(self.settings.lease))
            .bind(interval(ANNOUNCEMENT_DEFERRED))
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        named_claims(&rows).map_err(from_sqlx)
    }

    pub(super) async fn take_announcements(
        &self,
        queues: &[QueueId],
        window: u32,
        limit: u32,
    ) -> StoreResult<Vec<Announcement>> {
        let schema = self.schema;
        let queues: Vec<i32> = queues.iter().map(|queue| i32::try_from(queue.0).unwrap_or(-1)).collect();
        let pool = self.pool();
        // Spawned, so that a caller who gives up cannot leave half a transaction behind.
        let work = tokio::spawn(async move { take(schema, &pool, &queues, window, limit).await });
        work.await.map_err(|error| StoreError::Refused(error.into()))?.map_err(from_sqlx)
    }

    pub(super) async fn confirm_announcements(
        &self,
        announcements: &[Announcement],
        expiry: Duration,
    ) -> StoreResult<()> {
        sqlx::query(self.sql(include_str!("sql/announcements_confirm.sql")))
            .bind(announcements.iter().map(|announced| announced.chunk.0).collect::<Vec<_>>())
            .bind(announcements.iter().map(|announced| announced.mark).collect::<Vec<_>>())
            .bind(interval(expiry.min(ANNOUNCEMENT_LONGEST)))
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }

    pub(super) async fn clear_announcements(&self, chunks: &[ChunkId]) -> StoreResult<()> {
        sqlx::query(self.sql(include_str!("sql/announcements_clear.sql")))
            .bind(chunks.iter().map(|chunk| chunk.0).collect::<Vec<_>>())
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }

    pub(super) async fn defer_announcements(&self, chunks: &[ChunkId], wait: Duration) -> StoreResult<()> {
        sqlx::query(self.sql(include_str!("sql/announcements_defer.sql")))
            .bind(chunks.iter().map(|chunk| chunk.0).collect::<Vec<_>>())
            .bind(interval(wait.min(ANNOUNCEMENT_LONGEST)))
            .bind(interval(ANNOUNCEMENT_DEFERRED))
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }

    pub(super) async fn doubt_announcements(&self) -> StoreResult<()> {
        sqlx::query(self.sql(include_str!("sql/announcements_doubt.sql")))
            .bind(interval(ANNOUNCEMENT_DOUBTED))
            .execute(&self.pool())
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }
}

/// Two statements: the second must see what the last holder of the lock announced.
async fn take(
    schema: Schema,
    pool: &Pool,
    queues: &[i32],
    window: u32,
    limit: u32,
) -> Result<Vec<Announcement>, sqlx::Error> {
    let mut connection = pool.acquire().await?;
    let mut transaction = begin(&mut connection).await?;
    let queues: Vec<i32> = sqlx::query_scalar(schema.sql(include_str!("sql/announcements_take_lock.sql")))
        .bind(queues)
        .fetch_all(&mut *transaction)
        .await?;
    if queues.is_empty() {
        transaction.rollback().await?;
        return Ok(Vec::new());
    }
    let rows: Vec<AnnouncementRow> = sqlx::query_as(schema.sql(include_str!("sql/announcements_take.sql")))
        .bind(queues)
        .bind(i64::from(window))
        .bind(i64::from(limit))
        .bind(interval(ANNOUNCEMENT_HELD))
        .fetch_all(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(rows.into_iter().map(Announcement::from).collect())
}

/// Reads what was claimed, which has no place, and then the names with their verdicts.
fn named_claims(rows: &[PgRow]) -> Result<NamedClaims, sqlx::Error> {
    let mut claimed = HashMap::new();
    let mut claims = NamedClaims::default();
    for row in rows {
        let Some(place) = row.try_get::<Option<i64>, _>("place")? else {
            claimed.insert(row.try_get::<i64, _>("seen_id")?, ClaimRow::from_row(row)?.into_chunk());
            continue;
        };
        let place = usize::try_from(place - 1).unwrap_or(usize::MAX);
        let not_now = |because| -> Result<NotClaimed, sqlx::Error> {
            let queue = QueueId(row.try_get::<i32, _>("seen_queue")?.into());
            Ok(NotClaimed::NotNow { chunk: ChunkId(row.try_get("seen_id")?), queue, because })
        };
        let left = match row.try_get("verdict")? {
            "claimed" => match claimed.remove(&row.try_get::<i64, _>("seen_id")?) {
                Some(chunk) => {
                    claims.claimed.push((place, chunk));
                    continue;
                }
                None => not_now(NotNow::Busy)?,
            },
            "unknown" => NotClaimed::Unknown,
            "over" => NotClaimed::Over,
            "paused" => not_now(NotNow::Paused)?,
            "unknown_queue" => not_now(NotNow::UnknownQueue)?,
            "busy" => not_now(NotNow::Busy)?,
            "no_slot" => not_now(NotNow::NoSlot)?,
            other => return Err(sqlx::Error::Decode(format!("`{other}` is no verdict on a claim").into())),
        };
        claims.left.push((place, left));
    }
    Ok(claims)
}

#[derive(FromRow)]
struct AnnouncementRow {
    id: i64,
    fence: i64,
    mark: DateTime<Utc>,
    queue_id: i32,
    chunk_key: String,
    key: Option<String>,
    effective_date: Option<NaiveDate>,
    job_id: String,
}

impl From<AnnouncementRow> for Announcement {
    fn from(row: AnnouncementRow) -> Self {
        Self {
            chunk: ChunkId(row.id),
            fence: row.fence,
            mark: row.mark,
            queue: QueueId(row.queue_id.into()),
            job_id: JobId::from_store(row.job_id),
            chunk_key: row.chunk_key,
            key: row.key,
            effective_date: row.effective_date,
        }
    }
}
