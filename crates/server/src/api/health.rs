//! `/healthz`, `/readyz` and `/metrics`: what an orchestrator and a monitoring system ask. The API answers
//! them on its own port; a process without it has a listener for these three, if it was given an address.

mod broker;
mod readiness;
mod recent;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use metrics_exporter_prometheus::PrometheusHandle;
use outhaul_core::clock;
use outhaul_core::queue::QueueRow;
use outhaul_core::store::Store;
use outhaul_core::vacuum::VacuumLag;
use outhaul_core::vitals::Vitals;
use outhaul_export::storage::Storage;
use serde::Serialize;
use utoipa::ToSchema;

pub use self::broker::BrokerHealth;
use self::broker::DeliveryView;
use self::readiness::{Part, Readiness};
use self::recent::Recent;
use super::problem::{FieldError, Problem, ProblemBody, error_chain};
use super::{guard, not_so, refuse};
use crate::auth::{Auth, PROBED, Refusal, names_this_machine};

/// What these three are answered from.
pub struct Health {
    store: Arc<dyn Store>,
    storage: Storage,
    callers: Option<Arc<dyn Auth>>,
    broker: Option<BrokerHealth>,
    metrics: Option<PrometheusHandle>,
    queues: Recent<Vec<QueueRow>>,
    vitals: Vitals,
    ready: Recent<Readiness>,
    ready_age: Duration,
    store_part: Part,
    storage_part: Part,
    callers_part: Part,
    vacuum: Recent<Option<VacuumLag>>,
}

impl Health {
    /// Of a process with this database, storage and broker, and what it has counted.
    pub fn new(
        store: Arc<dyn Store>,
        storage: Storage,
        broker: Option<BrokerHealth>,
        metrics: Option<PrometheusHandle>,
    ) -> Self {
        let (store_part, storage_part, callers_part) = Default::default();
        let (queues, vacuum, ready) = (Recent::default(), Recent::default(), Recent::default());
        Self {
            store,
            storage,
            callers: None,
            broker,
            metrics,
            queues,
            vacuum,
            ready,
            ready_age: readiness::AGE,
            store_part,
            storage_part,
            callers_part,
            vitals: Vitals::default(),
        }
    }

    /// It is alive only as long as these parts are.
    #[must_use]
    pub fn with_vitals(self, vitals: Vitals) -> Self {
        Self { vitals, ..self }
    }

    /// Looks at everything that work needs.
    async fn look(&self) -> Readiness {
        let broker = async {
            let broker = self.broker.as_ref()?;
            Some(broker.look(self.store.as_ref()).await)
        };
        let (store, storage, broker) = tokio::join!(self.store.ready(), self.storage.check(), broker);
        let (delivery, problem) = broker.unzip();
        let mut errors = Vec::new();
        let store = store.err().map(|error| error_chain(&error));
        if !self.store_part.saw("api.store", store.as_deref()) {
            errors.push(FieldError::new("store", "the database is not available"));
        }
        let storage = storage.err().map(|error| error_chain(&error));
        if !self.storage_part.saw("api.storage", storage.as_deref()) {
            errors.push(FieldError::new("storage", "the storage of files is not available"));
        }
        let callers = self.callers.as_ref().and_then(|callers| callers.ready(clock::now()).err());
        if !self.callers_part.saw("api.auth", callers.as_deref()) {
            errors.push(FieldError::new("auth", "the keys that tokens are verified with are not available"));
        }
        errors.extend(problem.flatten().map(|problem| FieldError::new("delivery", problem)));
        Readiness { delivery, errors }
    }

    /// It also has to tell callers apart.
    #[must_use]
    pub fn with_callers(self, callers: Arc<dyn Auth>) -> Self {
        Self { callers: Some(callers), ..self }
    }
}

/// The routes of a process without the API: these three, for everybody, and nothing else.
///
/// `local`: only this machine can reach them, so a name of the web that points here gets nothing but `/healthz`.
pub fn health_router(health: Arc<Health>, request_timeout: Duration, local: bool) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(nothing_else)
        .method_not_allowed_fallback(not_so)
        .with_state(health)
        .layer(from_fn_with_state(local, own_names))
        .layer(from_fn_with_state(request_timeout, guard::guard))
}

async fn own_names(State(local): State<bool>, request: Request, next: Next) -> Response {
    if local && request.uri().path() != PROBED && !names_this_machine(request.headers()) {
        return refuse(Refusal::ForeignHost);
    }
    next.run(request).await
}

async fn nothing_else() -> Response {
    let detail = "this process has no API; `/healthz`, `/readyz` and `/metrics` are all there is";
    Problem::not_found(detail).into_response()
}

/// The process is alive.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HealthView {
    /// `ok`.
    status: &'static str,
}

/// Everything is as it should be.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReadyView {
    /// `ok`.
    status: &'static str,
    /// How work goes through the broker; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<DeliveryView>,
}

/// Says that the process is alive, and whole: a process of which a part has ended gives its work back and ends.
#[utoipa::path(
    get, path = "/healthz", tag = "operations", operation_id = "health",
    responses(
        (status = 200, description = "The process is alive", body = HealthView),
        (status = 503, description = "A part of the process has ended, and it should be started anew; `detail` names \
            what", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn healthz(State(health): State<Arc<Health>>) -> Result<Json<HealthView>, Problem> {
    match health.vitals.look() {
        None => Ok(Json(HealthView { status: "ok" })),
        Some(broken) => Err(Problem::unavailable(broken.to_string())),
    }
}

/// Says whether the database, the storage and the keys of tokens can be used, as of a second ago at most. A broker that is away
/// keeps no API from being ready: what it takes is handed out when the broker is back.
#[utoipa::path(
    get, path = "/readyz", tag = "operations", operation_id = "ready",
    responses(
        (status = 200, description = "Everything that work needs can be used", body = ReadyView),
        (status = 503, description = "Something cannot be used; `errors` names what", body = ProblemBody,
            content_type = "application/problem+json"),
    )
)]
pub(super) async fn readyz(State(health): State<Arc<Health>>) -> Result<Json<ReadyView>, Problem> {
    let look = async || Ok::<_, Infallible>(health.look().await);
    let Ok(Readiness { delivery, errors }) = health.ready.younger_than(health.ready_age, look).await;
    if errors.is_empty() {
        Ok(Json(ReadyView { status: "ok", delivery }))
    } else {
        Err(Problem::not_ready(errors))
    }
}

/// Shows what the process has counted, and the queues as they were at most a few seconds ago.
#[utoipa::path(
    get, path = "/metrics", tag = "operations", operation_id = "metrics",
    responses((status = 200, description = "Prometheus text", content_type = "text/plain", body = String))
)]
pub(super) async fn metrics(State(health): State<Arc<Health>>) -> Response {
    let store = health.store.as_ref();
    match health.queues.get(async || store.queues_list().await).await {
        Ok(queues) => queues.iter().for_each(count),
        // What this process counted is worth showing all the same, now more than ever.
        Err(error) => tracing::warn!(error = error_chain(&error), "api.queues_not_counted"),
    }
    match health.vacuum.get(async || store.vacuum_lag().await).await {
        Ok(Some(lag)) => {
            let oldest = lag.oldest_transaction.as_secs_f64();
            metrics::gauge!("outhaul_database_oldest_transaction_seconds").set(oldest);
            metrics::gauge!("outhaul_database_dead_chunk_rows").set(lag.dead_chunks as f64);
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(error = error_chain(&error), "api.vacuum_not_counted"),
    }
    if let Some(broker) = &health.broker {
        broker.count(store).await;
    }
    let text = health.metrics.as_ref().map_or_else(String::new, |handle| handle.render());
    let media_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, media_type)], text).into_response()
}

/// Sets the gauges of a queue.
fn count(queue: &QueueRow) {
    let oldest = queue.oldest.map_or(0, |oldest| (clock::now() - oldest).num_seconds().max(0));
    let gauge = |name: &'static str, value: f64| {
        metrics::gauge!(name, "queue" => queue.name.clone()).set(value);
    };
    gauge("outhaul_queue_depth", queue.depth as f64);
    gauge("outhaul_queue_oldest_seconds", oldest as f64);
    gauge("outhaul_queue_running", queue.running as f64);
    gauge("outhaul_queue_paused", if queue.paused { 1.0 } else { 0.0 });
}
