//! `GET /workers`: the processes that are alive, and what they run.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use outhaul_core::worker::WorkerRow;
use serde::Serialize;
use utoipa::ToSchema;

use super::page::{Cursors, PageView};
use super::problem::Problem;
use super::problem::described::BadRequest;
use super::query::Query;
use super::{AppState, access};
use crate::auth::{Act, Caller};

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
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200, description = "Items per page; 50 unless said"),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{16,}$", description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "The processes by id", body = PageView<WorkerView>), BadRequest)
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    mut query: Query,
) -> Result<Json<PageView<WorkerView>>, Problem> {
    access::allow(&caller, Act::Operate)?;
    let cursors = Cursors::new(state.store.installation(), "workers", "");
    let wanted = cursors.take(&mut query);
    query.finish()?;
    let rows = state.store.workers_list(SEEN_WITHIN).await?;
    let all = rows.into_iter().map(WorkerView::from).collect();
    Ok(Json(cursors.cut(all, |one: &WorkerView| &one.id, wanted)))
}
