//! `GET /jobs/{jobId}/chunks`: what became of each unit of work.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use outhaul_core::job::ChunkRow;
use outhaul_core::progress::ChunkProgress;
use outhaul_core::state::ChunkStatus;
use serde::Serialize;
use utoipa::ToSchema;

use super::page::{Cursors, PageView};
use super::path::JobPath;
use super::problem::Problem;
use super::problem::described::{BadRequest, NotFound};
use super::query::Query;
use super::{AppState, access};
use crate::auth::{Act, Caller};

/// What clients see of a chunk's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum ChunkStatusView {
    /// Not started, or waiting to be tried again.
    Pending,
    /// A worker is on it.
    Running,
    /// Its output is available.
    Done,
    /// It failed for good.
    Failed,
    /// Its job was cancelled.
    Cancelled,
}

impl From<ChunkStatus> for ChunkStatusView {
    fn from(status: ChunkStatus) -> Self {
        match status {
            ChunkStatus::Pending => Self::Pending,
            ChunkStatus::Running => Self::Running,
            ChunkStatus::Done => Self::Done,
            ChunkStatus::Failed => Self::Failed,
            ChunkStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// How far a chunk is that runs.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChunkProgressView {
    /// Rows so far.
    pub rows: i64,
    /// Bytes so far.
    pub bytes: i64,
    /// The part that is done, 0 to 1; 0 where nobody knows how much there is.
    #[schema(minimum = 0, maximum = 1)]
    pub progress: f64,
}

impl From<ChunkProgress> for ChunkProgressView {
    fn from(so_far: ChunkProgress) -> Self {
        Self { rows: so_far.rows, bytes: so_far.bytes, progress: so_far.fraction }
    }
}

/// One independent unit of work in a job.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChunkView {
    /// What it is called; unique in its job.
    #[schema(example = "key=ABC:date=20250215")]
    pub chunk_key: String,
    /// The key of an export.
    #[schema(required)]
    pub key: Option<String>,
    /// The date of an export, `yyyyMMdd`.
    #[schema(required, example = "20250215")]
    pub effective_date: Option<String>,
    /// Where it stands.
    pub status: ChunkStatusView,
    /// How far it is while it runs, once its worker has told; null else.
    #[schema(required)]
    pub progress: Option<ChunkProgressView>,
    /// Its file's key in the storage; null also where rows depend on who asks, and the caller's are others.
    #[schema(required)]
    pub path: Option<String>,
    /// Rows in its file, without the header.
    #[schema(required)]
    pub rows: Option<i64>,
    /// Size of its file.
    #[schema(required)]
    pub bytes: Option<i64>,
    /// Checksum of its file, in hex; null where `path` is.
    #[schema(required)]
    pub sha256: Option<String>,
    /// Whether the file was there already.
    #[schema(required)]
    pub reused: Option<bool>,
    /// Why it was reused or generated.
    #[schema(required)]
    pub reason: Option<String>,
    /// The last failure, in a sentence.
    #[schema(required)]
    pub error_message: Option<String>,
    /// When it first ran.
    #[schema(required)]
    pub started_at: Option<DateTime<Utc>>,
    /// When it settled.
    #[schema(required)]
    pub completed_at: Option<DateTime<Utc>>,
}

impl From<ChunkRow> for ChunkView {
    fn from(row: ChunkRow) -> Self {
        let (path, rows, bytes, sha256, reused, reason) = match row.file {
            Some(file) => (
                Some(file.path),
                Some(file.rows),
                Some(file.bytes),
                Some(file.sha256),
                Some(file.reused),
                Some(file.reason),
            ),
            None => (None, None, None, None, None, None),
        };
        Self {
            chunk_key: row.chunk_key,
            key: row.key,
            effective_date: row.effective_date.map(|date| date.format("%Y%m%d").to_string()),
            status: row.state.status().into(),
            progress: row.progress.map(ChunkProgressView::from),
            path,
            rows,
            bytes,
            sha256,
            reused,
            reason,
            error_message: row.error_message,
            started_at: row.started_at,
            completed_at: row.completed_at,
        }
    }
}

impl ChunkView {
    /// Takes out what leads to its file and what tells of its content.
    fn hide_file(&mut self) {
        (self.path, self.sha256) = (None, None);
    }
}

fn read_status(text: &str) -> Result<ChunkStatus, String> {
    use ChunkStatus::{Cancelled, Done, Failed, Pending, Running};
    match text {
        "PENDING" => Ok(Pending),
        "RUNNING" => Ok(Running),
        "DONE" => Ok(Done),
        "FAILED" => Ok(Failed),
        "CANCELLED" => Ok(Cancelled),
        _ => Err("must be PENDING, RUNNING, DONE, FAILED or CANCELLED".into()),
    }
}

/// Lists a job's chunks.
#[utoipa::path(
    get, path = "/jobs/{jobId}/chunks", tag = "jobs", operation_id = "listChunks",
    params(
        ("jobId" = String, Path, description = "The job", example = "J20260102_0123456789ABC"),
        ("status" = inline(Option<ChunkStatusView>), Query, description = "Only chunks of this status"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200, description = "Items per page; 50 unless said"),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{16,}$", description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "The chunks by chunk key", body = PageView<ChunkView>), BadRequest, NotFound)
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    JobPath(job_id): JobPath,
    mut query: Query,
) -> Result<Json<PageView<ChunkView>>, Problem> {
    let cursors = Cursors::new(state.store.installation(), "chunks", job_id.as_str());
    let status = query.take_with("status", read_status);
    let (limit, after) = cursors.take(&mut query);
    query.finish()?;
    let job = access::job(&state, &caller, Act::Read, &job_id).await?;
    let page = state.store.chunks_list(&job_id, status, after.as_deref(), limit).await?;
    let mut items: Vec<ChunkView> = page.items.into_iter().map(ChunkView::from).collect();
    if !access::shares_rows(&state, &caller, &job) {
        items.iter_mut().for_each(ChunkView::hide_file);
    }
    Ok(Json(PageView { next_cursor: page.next.map(|position| cursors.make(&position)), items }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outhaul_core::state::ChunkState;

    #[test]
    fn what_runs_shows_how_far_it_is() {
        let row = |state, progress| ChunkRow {
            id: outhaul_core::id::ChunkId(1),
            chunk_key: "main".into(),
            key: None,
            effective_date: None,
            state,
            file: None,
            progress,
            error_message: None,
            started_at: None,
            completed_at: None,
        };
        let shown = |row: ChunkRow| serde_json::to_value(ChunkView::from(row)).unwrap()["progress"].take();
        let half = ChunkProgress { rows: 7, bytes: 70, fraction: 0.5 };
        let expected = serde_json::json!({"rows": 7, "bytes": 70, "progress": 0.5});
        assert_eq!(shown(row(ChunkState::Running, Some(half))), expected);
        assert_eq!(shown(row(ChunkState::Queued, None)), serde_json::Value::Null);
    }

    #[test]
    fn every_status_is_read_by_the_word_it_is_shown_with() {
        for word in ["PENDING", "RUNNING", "DONE", "FAILED", "CANCELLED"] {
            let shown = serde_json::to_value(ChunkStatusView::from(read_status(word).unwrap())).unwrap();
            assert_eq!(shown, word);
        }
        for word in ["", "done", "SUCCESS", "QUEUED", "DEAD"] {
            assert!(read_status(word).is_err());
        }
    }
}
