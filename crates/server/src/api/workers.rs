//! `GET /workers`: the processes that are alive, and what they run.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use outhaul_core::worker::WorkerRow;
use serde::Serialize;
use utoipa::ToSchema;

use super::AppState;
use super::page::PageView;
use super::problem::Problem;
use super::problem::described::BadRequest;
use super::query::NoQuery;

/// A process that has been silent for longer is not shown.
const SEEN_WITHIN: Duration = Duration::from_secs(300);

/// A process that takes part in the work.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkerView {
    /// Its identity, of this one start.
    pub id: String,
    /// The machine's name.
    pub host: String,
    /// What it does.
    #[schema(example = json!(["worker", "scheduler"]))]
    pub roles: Vec<String>,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// Its last heartbeat.
    pub last_seen_at: DateTime<Utc>,
    /// How many chunks it may run at once.
    pub concurrency: u32,
    /// How many it runs.
    pub running: i64,
    /// How many of which queue.
    pub queues: BTreeMap<String, i64>,
}

impl From<WorkerRow> for WorkerView {
    fn from(row: WorkerRow) -> Self {
        let roles = row.roles.split(',').map(str::trim).filter(|role| !role.is_empty());
        Self {
            id: row.id.to_string(),
            host: row.host,
            roles: roles.map(str::to_owned).collect(),
            started_at: row.started_at,
            last_seen_at: row.last_seen_at,
            concurrency: row.concurrency,
            running: row.running.iter().map(|(_, count)| count).sum(),
            queues: row.running.into_iter().collect(),
        }
    }
}

/// Lists the processes seen in the last minutes.
#[utoipa::path(
    get, path = "/workers", tag = "operations", operation_id = "listWorkers",
    responses((status = 200, description = "The processes", body = PageView<WorkerView>), BadRequest)
)]
pub(super) async fn list(
    State(state): State<AppState>,
    _: NoQuery,
) -> Result<Json<PageView<WorkerView>>, Problem> {
    let rows = state.store.workers_list(SEEN_WITHIN).await?;
    Ok(Json(PageView::whole(rows.into_iter().map(WorkerView::from).collect())))
}
