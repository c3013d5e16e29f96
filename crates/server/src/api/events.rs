//! `GET /jobs/{jobId}/events`: a job as it changes, as Server-Sent Events. Every event is the whole job,
//! so a client that missed some has lost nothing.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt as _, stream};
use outhaul_core::clock;

use super::path::JobPath;
use super::problem::described::{BadRequest, NotFound};
use super::problem::{Problem, ProblemBody};
use super::query::NoQuery;
use super::watch::{Full, Seen};
use super::{AppState, access, steps};
use crate::auth::{Act, Caller};

/// How long a stream may be silent: proxies close connections on which nothing moves.
const SILENCE: Duration = Duration::from_secs(15);
/// Tells proxies to pass every event on at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Sends a job as it is, then whenever it changed, at most four times a second, and ends after the job has.
///
/// Every event is called `job`; its `data` is the job as `GET /jobs/{jobId}` shows it, on one line. Its `id`
/// is a number that rises with everything that is shown, so a larger one is a newer state. A client whose connection broke connects again and first gets the present state,
/// whatever it has seen before. In between there are comments, so that the connection is not taken for dead.
#[utoipa::path(
    get, path = "/jobs/{jobId}/events", tag = "jobs", operation_id = "watchJob",
    params(
        ("jobId" = String, Path, description = "The job", example = "J20260102_0123456789ABC"),
        ("Last-Event-ID" = Option<String>, Header, description = "What browsers send when they connect again; makes no difference"),
    ),
    responses(
        (status = 200, description = "The stream; it ends when the job has", body = String, content_type = "text/event-stream",
            example = json!("event: job\nid: 30064771073\ndata: {\"jobId\":\"J20260102_0123456789ABC\",\"status\":\"IN_PROGRESS\"}\n\n")),
        BadRequest, NotFound,
        (status = 429, description = "Too many requests, or too many streams of this caller; `Retry-After` says when to come back", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn watch(
    State(state): State<AppState>,
    caller: Caller,
    JobPath(job_id): JobPath,
    _: NoQuery,
) -> Result<Response, Problem> {
    let job = access::job(&state, &caller, Act::Read, &job_id).await?;
    let place = state.watch.place(caller.subject()).map_err(no_place)?;
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

fn no_place(full: Full) -> Problem {
    match full {
        Full::Callers => {
            let detail =
                "you watch as many jobs here as one caller may; end a stream, or use `GET /jobs/{jobId}`";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
                .with_header(RETRY_AFTER, HeaderValue::from_static("5"))
        }
        Full::All => {
            Problem::unavailable("too many clients watch jobs here now; `GET /jobs/{jobId}` still answers")
        }
    }
}

fn event(seen: &Seen) -> Event {
    Event::default().event("job").id(seen.version.to_string()).data(&seen.json)
}
