//! `GET /jobs/{jobId}/events`: a job as it changes, as Server-Sent Events. Every event is the whole job,
//! so a client that missed some has lost nothing.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt as _, stream};
use outhaul_core::clock;

use super::path::JobPath;
use super::problem::Problem;
use super::problem::described::{BadRequest, NotFound};
use super::query::NoQuery;
use super::watch::Seen;
use super::{AppState, access, steps};
use crate::auth::{Act, Caller};

/// How long a stream may be silent: proxies close connections on which nothing moves.
const SILENCE: Duration = Duration::from_secs(15);
/// Tells proxies to pass every event on at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Sends a job as it is, then whenever it changed, at most four times a second, and ends after the job has.
///
/// Every event is called `job`; its `id` is the job's version, its `data` the job as `GET /jobs/{jobId}`
/// shows it, on one line. A client whose connection broke connects again and first gets the present state,
/// whatever it has seen before. In between there are comments, so that the connection is not taken for dead.
#[utoipa::path(
    get, path = "/jobs/{jobId}/events", tag = "jobs", operation_id = "watchJob",
    params(
        ("jobId" = String, Path, description = "The job", example = "J20260102_0123456789ABC"),
        ("Last-Event-ID" = Option<String>, Header, description = "What browsers send when they connect again; makes no difference"),
    ),
    responses(
        (status = 200, description = "The stream; it ends when the job has", body = String, content_type = "text/event-stream",
            example = json!("event: job\nid: 7\ndata: {\"jobId\":\"J20260102_0123456789ABC\",\"status\":\"IN_PROGRESS\"}\n\n")),
        BadRequest, NotFound,
    )
)]
pub(super) async fn watch(
    State(state): State<AppState>,
    caller: Caller,
    JobPath(job_id): JobPath,
    _: NoQuery,
) -> Result<Response, Problem> {
    let job = access::job(&state, &caller, Act::Read, &job_id).await?;
    let place = state.watch.place(caller.subject()).ok_or_else(|| {
        Problem::unavailable("too many clients watch jobs here now; `GET /jobs/{jobId}` still answers")
    })?;
    let steps = steps::of(&state, &job).await?;
    let watcher = state.watch.follow(place, job, steps);
    let events = stream::unfold(watcher, async |mut watcher| {
        let seen = watcher.next().await?;
        Some((Ok::<_, Infallible>(event(&seen)), watcher))
    });
    // Whoever wants to see more than their token allows comes again with another.
    let left = caller.until.map(|until| (until - clock::now()).to_std().unwrap_or_default());
    let events = events.take_until(async move {
        match left {
            Some(left) => tokio::time::sleep(left).await,
            None => std::future::pending().await,
        }
    });
    let sse = Sse::new(events).keep_alive(KeepAlive::new().interval(SILENCE).text("keep-alive"));
    let headers = [
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (X_ACCEL_BUFFERING, HeaderValue::from_static("no")),
    ];
    Ok((headers, sse).into_response())
}

fn event(seen: &Seen) -> Event {
    Event::default().event("job").id(seen.version.to_string()).data(&seen.json)
}
