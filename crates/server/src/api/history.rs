//! `GET /jobs/{jobId}/history`: every transition of a job's chunks, for operators.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use outhaul_core::history::{HistoryCursor, Transition};
use outhaul_core::state::ChunkState;
use serde::Serialize;
use utoipa::ToSchema;

use super::page::{Cursors, PageView};
use super::path::JobPath;
use super::problem::Problem;
use super::problem::described::{BadRequest, NotFound};
use super::query::Query;
use super::{AppState, access};
use crate::auth::{Act, Caller};

/// Where a chunk is, in the engine's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum ChunkStateView {
    /// Stored, but waits for a time, for others, or is held.
    Created,
    /// Any worker may take it.
    Queued,
    /// A worker owns it.
    Running,
    /// Failed, and waits to be tried again.
    Retry,
    /// Finished.
    Success,
    /// Failed for good.
    Dead,
    /// Its job was cancelled.
    Cancelled,
}

impl From<ChunkState> for ChunkStateView {
    fn from(state: ChunkState) -> Self {
        match state {
            ChunkState::Created => Self::Created,
            ChunkState::Queued => Self::Queued,
            ChunkState::Running => Self::Running,
            ChunkState::Retry => Self::Retry,
            ChunkState::Success => Self::Success,
            ChunkState::Dead => Self::Dead,
            ChunkState::Cancelled => Self::Cancelled,
        }
    }
}

/// One transition of one chunk.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TransitionView {
    /// Which chunk.
    #[schema(example = "main")]
    pub chunk_key: String,
    /// Where it was; null: it was inserted.
    #[schema(required)]
    pub from: Option<ChunkStateView>,
    /// Where it went.
    pub to: ChunkStateView,
    /// When.
    pub at: DateTime<Utc>,
    /// The attempt it had reached then.
    #[schema(minimum = 0)]
    pub attempt: u32,
    /// The worker that took, had or lost it; `GET /workers` calls it `id`.
    #[schema(required, example = "17")]
    pub worker: Option<String>,
    /// The step that failed.
    #[schema(required)]
    pub step: Option<String>,
    /// Why it failed, in a sentence.
    #[schema(required)]
    pub cause: Option<String>,
}

impl From<Transition> for TransitionView {
    fn from(transition: Transition) -> Self {
        Self {
            chunk_key: transition.chunk_key,
            from: transition.from.map(ChunkStateView::from),
            to: transition.to.into(),
            at: transition.at,
            attempt: transition.attempt,
            worker: transition.worker.map(|worker| worker.to_string()),
            step: transition.step,
            cause: transition.cause,
        }
    }
}

fn write_cursor(cursor: HistoryCursor) -> String {
    format!("{},{},{}", cursor.at_micros, cursor.chunk, cursor.sequence)
}

fn read_cursor(position: &str) -> Option<HistoryCursor> {
    let numbers: Option<Vec<i64>> = position.split(',').map(|number| number.parse().ok()).collect();
    let [at_micros, chunk, sequence] = numbers?.try_into().ok()?;
    Some(HistoryCursor { at_micros, chunk, sequence })
}

/// Lists the transitions of a job's chunks, oldest first.
#[utoipa::path(
    get, path = "/jobs/{jobId}/history", tag = "operations", operation_id = "listHistory",
    params(
        ("jobId" = String, Path, description = "The job", example = "J20260102_0123456789ABC"),
        ("chunkKey" = Option<String>, Query, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", description = "Only this chunk"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200, description = "Items per page; 50 unless said"),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{16,}$", description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "The transitions, oldest first", body = PageView<TransitionView>), BadRequest, NotFound)
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    JobPath(job_id): JobPath,
    mut query: Query,
) -> Result<Json<PageView<TransitionView>>, Problem> {
    let cursors = Cursors::new(state.store.installation(), "history", job_id.as_str());
    let chunk_key = query.take_text("chunkKey");
    let (limit, after) = cursors.take_as(&mut query, read_cursor);
    query.finish()?;
    access::job(&state, &caller, Act::History, &job_id).await?;
    let page = state.store.history_list(&job_id, chunk_key.as_deref(), after, limit).await?;
    Ok(Json(PageView {
        next_cursor: page.next.map(|position| cursors.make(&write_cursor(position))),
        items: page.items.into_iter().map(TransitionView::from).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outhaul_core::id::WorkerId;
    use serde_json::json;

    #[test]
    fn places_read_back() {
        let place = HistoryCursor { at_micros: -1, chunk: 7, sequence: i64::MAX };
        assert_eq!(read_cursor(&write_cursor(place)), Some(place));
        for wrong in ["", "1", "1,2", "1,2,3,4", "1,2,x", "1,,3"] {
            assert_eq!(read_cursor(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_transition_shows_every_member_and_states_by_their_own_words() {
        let at = outhaul_core::clock::now();
        let transition = Transition {
            chunk_key: "main".into(),
            from: Some(ChunkState::Running),
            to: ChunkState::Retry,
            at,
            attempt: 2,
            worker: Some(WorkerId(17)),
            step: Some("deliver".into()),
            cause: Some("503".into()),
        };
        let shown = serde_json::to_value(TransitionView::from(transition)).unwrap();
        let expected = json!({"chunkKey": "main", "from": "RUNNING", "to": "RETRY", "at": at, "attempt": 2,
            "worker": "17", "step": "deliver", "cause": "503"});
        assert_eq!(shown, expected);
        for state in ChunkState::ALL {
            assert_eq!(serde_json::to_value(ChunkStateView::from(state)).unwrap(), state.as_str());
        }
    }
}
