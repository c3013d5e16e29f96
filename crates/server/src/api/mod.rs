//! The HTTP API: one file per noun. Handlers turn requests into store calls and core types into what
//! clients may see; nothing else in the server knows HTTP.

mod chunks;
mod custom_request;
mod datasets;
mod dead_letters;
mod docs;
mod etag;
mod events;
mod export_request;
mod files;
mod guard;
mod health;
mod history;
mod job_view;
mod jobs;
mod json;
mod openapi;
mod options;
mod page;
mod path;
mod priority;
mod problem;
mod query;
mod queues;
mod range;
mod redrive;
mod steps;
mod submit;
mod submit_view;
#[cfg(test)]
mod tests;
mod traceparent;
mod watch;
mod workers;

use std::sync::Arc;

use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use metrics_exporter_prometheus::PrometheusHandle;
use outhaul::Registry;
use outhaul_core::delivery::Delivery;
use outhaul_core::store::Store;
use outhaul_export::storage::Storage;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::config::Limits;
use problem::Problem;
pub use watch::Watch;

/// What the handlers work with. Cheap to clone.
#[derive(Clone)]
pub struct AppState {
    /// Jobs and chunks, on connections of the API's own.
    pub store: Arc<dyn Store>,
    /// Told when there is something to claim.
    pub delivery: Arc<dyn Delivery>,
    /// The job types that may be submitted, and what they announce.
    pub registry: Registry,
    /// The datasets.
    pub exports: Arc<outhaul_export::Exports>,
    /// Where files are.
    pub storage: Storage,
    /// What requests may ask for.
    pub limits: Limits,
    /// Whether every submission must carry a key.
    pub idempotency_required: bool,
    /// Looks at the jobs that clients watch.
    pub watch: Watch,
    /// What this process has counted.
    pub metrics: Option<PrometheusHandle>,
}

/// All routes, ready to serve.
pub fn router(state: AppState) -> Router {
    let (router, api) = described().split_for_parts();
    let description: Arc<str> =
        openapi::complete(api).to_json().expect("a description made of text and numbers").into();
    let limit = state.limits.request_timeout;
    router
        .fallback(nowhere)
        .method_not_allowed_fallback(not_so)
        .with_state(state)
        .layer(Extension(docs::Description(description)))
        .layer(from_fn_with_state(limit, guard::guard))
}

/// The routes with their descriptions.
fn described() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(openapi::Description::openapi())
        .routes(routes!(submit::submit, jobs::list))
        .routes(routes!(jobs::get))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::retry))
        .routes(routes!(priority::prioritise))
        .routes(routes!(events::watch))
        .routes(routes!(chunks::list))
        .routes(routes!(history::list))
        .routes(routes!(files::list))
        .routes(routes!(files::get))
        .routes(routes!(datasets::list))
        .routes(routes!(queues::list))
        .routes(routes!(queues::pause))
        .routes(routes!(queues::resume))
        .routes(routes!(workers::list))
        .routes(routes!(dead_letters::list))
        .routes(routes!(redrive::redrive))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(docs::openapi))
        .routes(routes!(docs::page))
        .routes(routes!(docs::asset))
}

async fn nowhere() -> Response {
    Problem::not_found("there is nothing here; `/docs` lists what there is").into_response()
}

async fn not_so() -> Response {
    let status = axum::http::StatusCode::METHOD_NOT_ALLOWED;
    Problem::new(status, "this method cannot be used here; `Allow` lists those that can").into_response()
}
