//! The HTTP API: one file per noun. Handlers turn requests into store calls and core types into what
//! clients may see; nothing else in the server knows HTTP.

mod access;
mod audit;
mod bodies;
mod chunks;
mod custom_request;
mod datasets;
mod dead_letters;
mod definitions;
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
pub(crate) mod json;
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
mod request;
mod schedule_view;
mod schedules;
mod shares;
mod steps;
mod submissions;
mod submit;
mod submit_view;
#[cfg(test)]
pub(crate) mod tests;
mod traceparent;
mod trigger_view;
mod triggers;
mod watch;
mod workers;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::FromRef;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use outhaul::schedule::Scheduler;
use outhaul::{Planner, Registry};
use outhaul_core::delivery::Delivery;
use outhaul_core::store::Store;
use outhaul_export::storage::Storage;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Auth, AuthSettings, Gate, Rate, Refusal, gate};
use crate::config::Limits;
use crate::definition::Judge;
use bodies::Bodies;
pub use health::{BrokerHealth, Health, health_router};
use problem::Problem;
pub(crate) use request::{Asker, plan};
use submissions::Submissions;
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
    /// Judges the jobs of schedules and triggers.
    pub planner: Arc<dyn Planner>,
    /// The terms that triggers may wait for.
    pub terms: Arc<BTreeSet<String>>,
    /// Fires schedules by hand.
    pub scheduler: Scheduler,
    /// Whether callers are told apart, and who schedules and triggers may run as.
    pub auth: Arc<AuthSettings>,
    /// Tells who a caller is.
    pub callers: Arc<dyn Auth>,
    /// What requests may ask for.
    pub limits: Limits,
    /// Whether every submission must carry a key.
    pub idempotency_required: bool,
    /// Looks at the jobs that clients watch.
    pub watch: Watch,
    /// How the process is, and what it has counted.
    pub health: Arc<Health>,
}

impl FromRef<AppState> for Arc<Health> {
    fn from_ref(state: &AppState) -> Self {
        state.health.clone()
    }
}

impl AppState {
    /// What schedules and triggers are judged by.
    fn judge(&self) -> Judge<'_> {
        Judge { planner: &*self.planner, min_interval: self.limits.min_schedule_interval, terms: &self.terms }
    }
}

/// All routes, ready to serve.
pub fn router(state: AppState) -> Router {
    let (router, api) = described().split_for_parts();
    let description: Arc<str> = openapi::complete(api, state.auth.jwt().is_some())
        .to_json()
        .expect("a description made of text and numbers")
        .into();
    let limits = state.limits;
    let rate = limits.requests_per_second.map(|rate| Arc::new(Rate::new(rate, limits.burst)));
    let submissions = Submissions::new(&*state.store, limits.request_timeout);
    let door = Gate { auth: state.callers.clone(), rate, refuse };
    router
        .fallback(nowhere)
        .method_not_allowed_fallback(not_so)
        .with_state(state)
        .layer(Extension(docs::Description(description)))
        .layer(Extension(submissions))
        .layer(Extension(Bodies::new(&limits)))
        .layer(from_fn_with_state(door, gate))
        .layer(from_fn_with_state(limits.request_timeout, guard::guard))
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
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::get, schedules::put, schedules::delete))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::run))
        .routes(routes!(triggers::list))
        .routes(routes!(triggers::get, triggers::put, triggers::delete))
        .routes(routes!(dead_letters::list))
        .routes(routes!(redrive::redrive))
        .routes(routes!(audit::list))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(docs::openapi))
        .routes(routes!(docs::page))
        .routes(routes!(docs::asset))
}

fn refuse(refusal: Refusal) -> Response {
    Problem::from(refusal).into_response()
}

async fn nowhere() -> Response {
    Problem::not_found("there is nothing here; `/docs` lists what there is").into_response()
}

async fn not_so() -> Response {
    let status = axum::http::StatusCode::METHOD_NOT_ALLOWED;
    Problem::new(status, "this method cannot be used here; `Allow` lists those that can").into_response()
}
