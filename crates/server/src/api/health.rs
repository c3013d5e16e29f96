//! `/healthz`, `/readyz` and `/metrics`: what an orchestrator and a monitoring system ask.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use outhaul_core::clock;
use serde::Serialize;
use utoipa::ToSchema;

use super::AppState;
use super::problem::{FieldError, Problem, ProblemBody, error_chain};

/// Everything is as it should be.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HealthView {
    /// `ok`.
    pub status: &'static str,
}

/// Says that the process is alive.
#[utoipa::path(
    get, path = "/healthz", tag = "operations", operation_id = "health",
    responses((status = 200, description = "The process is alive", body = HealthView))
)]
pub(super) async fn healthz() -> Json<HealthView> {
    Json(HealthView { status: "ok" })
}

/// Says whether the database, the storage and the keys of tokens can be used now.
#[utoipa::path(
    get, path = "/readyz", tag = "operations", operation_id = "ready",
    responses(
        (status = 200, description = "Everything that work needs can be used", body = HealthView),
        (status = 503, description = "Something cannot be used; `errors` names what", body = ProblemBody,
            content_type = "application/problem+json"),
    )
)]
pub(super) async fn readyz(State(state): State<AppState>) -> Result<Json<HealthView>, Problem> {
    let (store, storage) = tokio::join!(state.store.ready(), state.storage.check());
    let mut errors = Vec::new();
    if let Err(error) = store {
        tracing::warn!(error = error_chain(&error), "api.store_not_ready");
        errors.push(FieldError::new("store", "the database is not available"));
    }
    if let Err(error) = storage {
        tracing::warn!(error = error_chain(&error), "api.storage_not_ready");
        errors.push(FieldError::new("storage", "the storage of files is not available"));
    }
    if let Err(error) = state.callers.ready(clock::now()) {
        tracing::warn!(error, "api.auth_not_ready");
        errors.push(FieldError::new("auth", "the keys that tokens are verified with are not available"));
    }
    if errors.is_empty() { Ok(Json(HealthView { status: "ok" })) } else { Err(Problem::not_ready(errors)) }
}

/// Shows what the process has counted, and the queues as they are now.
#[utoipa::path(
    get, path = "/metrics", tag = "operations", operation_id = "metrics",
    responses((status = 200, description = "Prometheus text", content_type = "text/plain", body = String))
)]
pub(super) async fn metrics(State(state): State<AppState>) -> Response {
    match state.store.queues_list().await {
        Ok(queues) => {
            for queue in queues {
                let oldest = queue.oldest.map_or(0, |oldest| (clock::now() - oldest).num_seconds().max(0));
                let gauge = |name: &'static str, value: f64| {
                    metrics::gauge!(name, "queue" => queue.name.clone()).set(value);
                };
                gauge("outhaul_queue_depth", queue.depth as f64);
                gauge("outhaul_queue_oldest_seconds", oldest as f64);
                gauge("outhaul_queue_running", queue.running as f64);
                gauge("outhaul_queue_paused", if queue.paused { 1.0 } else { 0.0 });
            }
        }
        // What this process counted is worth showing all the same, now more than ever.
        Err(error) => tracing::warn!(error = error_chain(&error), "api.queues_not_counted"),
    }
    let text = state.metrics.as_ref().map_or_else(String::new, |handle| handle.render());
    let media_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, media_type)], text).into_response()
}
