//! `GET /queues`, and pausing and resuming one.

use axum::Json;
use axum::extract::State;
use outhaul_core::clock;
use outhaul_core::queue::QueueRow;
use serde::Serialize;
use utoipa::ToSchema;

use super::page::{Cursors, PageView};
use super::path::QueuePath;
use super::problem::Problem;
use super::problem::described::{BadRequest, NotFound};
use super::query::{NoQuery, Query};
use super::{AppState, access};
use crate::auth::{Act, Caller};

/// What a queue's chunks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum QueueKind {
    /// Exports and reports from one source.
    Source,
    /// Custom jobs of one type.
    Job,
}

/// Where chunks wait.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueView {
    /// `source:<name>` or `job:<TYPE>`.
    #[schema(example = "source:warehouse")]
    pub name: String,
    /// What its chunks are.
    pub kind: QueueKind,
    /// Chunks that wait for a worker.
    pub depth: i64,
    /// How long the first in line has waited; null when the queue is empty.
    #[schema(required)]
    pub oldest_seconds: Option<i64>,
    /// Chunks that run.
    pub running: i64,
    /// How many may run at once across all workers; null: as many as workers have room for.
    #[schema(required)]
    pub max_concurrent: Option<u32>,
    /// Whether nothing new is started.
    pub paused: bool,
}

impl From<QueueRow> for QueueView {
    fn from(row: QueueRow) -> Self {
        let kind = if row.name.starts_with("job:") { QueueKind::Job } else { QueueKind::Source };
        Self {
            kind,
            depth: row.depth,
            // A turn may lie in the future; whoever waits for it has not waited yet.
            oldest_seconds: row.oldest.map(|oldest| (clock::now() - oldest).num_seconds().max(0)),
            running: row.running,
            max_concurrent: row.max_concurrent,
            paused: row.paused,
            name: row.name,
        }
    }
}

/// Lists all queues.
#[utoipa::path(
    get, path = "/queues", tag = "operations", operation_id = "listQueues",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200, description = "Items per page; 50 unless said"),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{16,}$", description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "All queues by name", body = PageView<QueueView>), BadRequest)
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    mut query: Query,
) -> Result<Json<PageView<QueueView>>, Problem> {
    access::allow(&caller, Act::Operate)?;
    let cursors = Cursors::new(state.store.installation(), "queues", "");
    let wanted = cursors.take(&mut query);
    query.finish()?;
    let rows = state.store.queues_list().await?;
    let all = rows.into_iter().map(QueueView::from).collect();
    Ok(Json(cursors.cut(all, |one: &QueueView| &one.name, wanted)))
}

/// Lets no further chunk of a queue start; those that run go on.
#[utoipa::path(
    post, path = "/queues/{name}/pause", tag = "operations", operation_id = "pauseQueue",
    params(("name" = String, Path, description = "The queue", example = "source:warehouse")),
    responses((status = 200, description = "The queue, paused", body = QueueView), BadRequest, NotFound)
)]
pub(super) async fn pause(
    State(state): State<AppState>,
    caller: Caller,
    QueuePath(name): QueuePath,
    _: NoQuery,
) -> Result<Json<QueueView>, Problem> {
    set_paused(&state, &caller, &name, true).await
}

/// Lets chunks of a queue start again.
#[utoipa::path(
    post, path = "/queues/{name}/resume", tag = "operations", operation_id = "resumeQueue",
    params(("name" = String, Path, description = "The queue", example = "source:warehouse")),
    responses((status = 200, description = "The queue, running", body = QueueView), BadRequest, NotFound)
)]
pub(super) async fn resume(
    State(state): State<AppState>,
    caller: Caller,
    QueuePath(name): QueuePath,
    _: NoQuery,
) -> Result<Json<QueueView>, Problem> {
    let queue = set_paused(&state, &caller, &name, false).await?;
    state.delivery.announce();
    Ok(queue)
}

async fn set_paused(
    state: &AppState,
    caller: &Caller,
    name: &str,
    paused: bool,
) -> Result<Json<QueueView>, Problem> {
    access::allow(caller, Act::Operate)?;
    let word = if paused { "pause" } else { "resume" };
    find(state, name).await?;
    let recorded = access::record_operation(state, caller, format!("{word} queue {name}")).await?;
    if !state.store.queue_pause(name, paused).await? {
        return Err(recorded.refused(unknown()).await);
    }
    tracing::info!(queue = name, paused, "api.queue_paused");
    Ok(Json(find(state, name).await?.into()))
}

async fn find(state: &AppState, name: &str) -> Result<QueueRow, Problem> {
    let rows = state.store.queues_list().await?;
    rows.into_iter().find(|row| row.name == name).ok_or_else(unknown)
}

fn unknown() -> Problem {
    Problem::not_found("there is no such queue")
}
