//! `/jobs`: look at jobs, cancel them, have their failed chunks run again. Submitting is in `submit`.

use axum::Json;
use axum::extract::State;
use axum::http::header::{LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use outhaul_core::audit::AuditAct;
use outhaul_core::clock;
use outhaul_core::id::JobId;
use outhaul_core::job::{Job, JobStatus};
use outhaul_core::store::{Cancelled, JobFilter, Redriven};

use super::job_view::{JobStatusView, JobView, shown};
use super::page::{Cursors, PageView};
use super::path::JobPath;
use super::problem::Problem;
use super::problem::described::{BadRequest, Conflict, NotFound};
use super::query::{NoQuery, Query};
use super::{AppState, access, steps};
use crate::auth::{Act, Caller, visible};

/// Shows one job.
#[utoipa::path(
    get, path = "/jobs/{jobId}", tag = "jobs", operation_id = "getJob",
    params(
        ("jobId" = String, Path, description = "The job", example = "J20260102_0123456789ABC"),
        ("If-None-Match" = Option<String>, Header, description = "An `ETag` that the client has"),
    ),
    responses(
        (status = 200, description = "The job, whatever its status", body = JobView, headers(
            ("ETag" = String, description = "Changes with the job; a weak tag, for `etaSeconds` does not count"),
            ("Retry-After" = Option<u32>, description = "While it is unfinished: seconds until another look is worth it"),
        )),
        (status = 304, description = "Nothing changed since the `ETag` that the client has"),
        BadRequest, NotFound,
    )
)]
pub(super) async fn get(
    State(state): State<AppState>,
    caller: Caller,
    JobPath(job_id): JobPath,
    _: NoQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let job = access::job(&state, &caller, Act::Read, &job_id).await?;
    let steps = steps::of(&state, &job).await?;
    Ok(shown(&headers, job, steps, clock::now()))
}

/// Lists jobs, newest first; `result` is null and `steps` empty here, `GET /jobs/{jobId}` has them.
#[utoipa::path(
    get, path = "/jobs", tag = "jobs", operation_id = "listJobs",
    params(
        ("status" = inline(Option<JobStatusView>), Query, description = "Only jobs of this status"),
        ("jobType" = Option<String>, Query, max_length = 255, description = "Only jobs of this type", example = "EXPORT"),
        ("dataset" = Option<String>, Query, max_length = 255, description = "Only exports of this dataset"),
        ("report" = Option<String>, Query, max_length = 255, description = "Only jobs of this report"),
        ("owner" = Option<String>, Query, max_length = 255, description = "Only jobs of this owner"),
        ("createdAfter" = Option<chrono::DateTime<chrono::Utc>>, Query, description = "Only jobs created at or after this time"),
        ("createdBefore" = Option<chrono::DateTime<chrono::Utc>>, Query, description = "Only jobs created before this time"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200, description = "Items per page; 50 unless said"),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{16,}$", description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "The jobs; without their `result` and `steps`", body = PageView<JobView>), BadRequest)
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    mut query: Query,
) -> Result<Json<PageView<JobView>>, Problem> {
    access::allow(&caller, Act::Read)?;
    let cursors = Cursors::new(state.store.installation(), "jobs", access::reader(&caller));
    let status = query.take_with("status", |text| {
        JobStatus::parse(text)
            .ok_or_else(|| "must be SUBMITTED, IN_PROGRESS, COMPLETED, FAILED or CANCELLED".to_owned())
    });
    let job_type = query.take_text("jobType");
    let dataset = query.take_text("dataset");
    let report = query.take_text("report");
    let owner = query.take_text("owner");
    let created_after = query.take_time("createdAfter");
    let created_before = query.take_time("createdBefore");
    let (limit, before) = cursors.take_as(&mut query, |position| position.parse().ok());
    query.finish()?;
    if report.is_some() {
        // There are no reports yet, so no job is one of this report.
        return Ok(Json(PageView { items: Vec::new(), next_cursor: None }));
    }
    let filter = JobFilter {
        status,
        job_type,
        dataset,
        owner,
        visible: visible(&caller),
        created_after,
        created_before,
        before,
        limit,
    };
    let page = state.store.jobs_list(&filter).await?;
    let now = clock::now();
    Ok(Json(PageView {
        next_cursor: page.next.map(|position| cursors.make(&position.to_string())),
        items: page.items.into_iter().map(|job| JobView::new(job, now)).collect(),
    }))
}

/// Cancels a job: nothing of it starts any more, and what runs stops at its next check.
#[utoipa::path(
    post, path = "/jobs/{jobId}/cancel", tag = "jobs", operation_id = "cancelJob",
    params(("jobId" = String, Path, description = "The job", example = "J20260102_0123456789ABC")),
    responses(
        (status = 202, description = "The job is cancelled, now or since before", body = JobView, headers(
            ("Location" = String, description = "The job"), ("Retry-After" = u32, description = "Seconds until a look is worth it"),
        )),
        BadRequest, NotFound, Conflict,
    )
)]
pub(super) async fn cancel(
    State(state): State<AppState>,
    caller: Caller,
    JobPath(job_id): JobPath,
    _: NoQuery,
) -> Result<Response, Problem> {
    let job = access::job(&state, &caller, Act::Change, &job_id).await?;
    let too_late = |status: JobStatus| {
        Problem::conflict(format!("the job is {} and cannot be cancelled", status.as_str()))
    };
    match job.status {
        JobStatus::Submitted | JobStatus::InProgress => {}
        JobStatus::Cancelled => return accepted(&state, job).await,
        status @ (JobStatus::Completed | JobStatus::Failed) => return Err(too_late(status)),
    }
    let recorded = access::record(&state, &caller, AuditAct::Cancel, Some(&job_id), None).await?;
    match state.store.job_cancel(&job_id).await? {
        Cancelled::Yes => {
            tracing::info!(job = %job_id, "api.job_cancelled");
            accepted(&state, find(&state, &job_id).await?).await
        }
        Cancelled::Already => {
            recorded.not_done("it was cancelled already").await;
            accepted(&state, find(&state, &job_id).await?).await
        }
        Cancelled::TooLate(status) => Err(recorded.refused(too_late(status)).await),
        Cancelled::Unknown => Err(recorded.refused(Problem::no_such_job()).await),
    }
}

/// Runs a job's failed chunks again, and those that were held back because of them.
#[utoipa::path(
    post, path = "/jobs/{jobId}/retry", tag = "jobs", operation_id = "retryJob",
    params(("jobId" = String, Path, description = "The job", example = "J20260102_0123456789ABC")),
    responses(
        (status = 202, description = "Its failed and held chunks wait for a worker again", body = JobView, headers(
            ("Location" = String, description = "The job"), ("Retry-After" = u32, description = "Seconds until a look is worth it"),
        )),
        BadRequest, NotFound, Conflict,
    )
)]
pub(super) async fn retry(
    State(state): State<AppState>,
    caller: Caller,
    JobPath(job_id): JobPath,
    _: NoQuery,
) -> Result<Response, Problem> {
    let job = access::job(&state, &caller, Act::Change, &job_id).await?;
    let nothing = || Problem::conflict("the job has no failed or held chunks");
    if !matches!(job.status, JobStatus::InProgress | JobStatus::Failed) {
        return Err(nothing());
    }
    let recorded = access::record(&state, &caller, AuditAct::Redrive, Some(&job_id), None).await?;
    let refusal = match state.store.job_redrive(&job_id).await? {
        Redriven::Yes(chunks) => {
            tracing::info!(job = %job_id, chunks, "api.job_retried");
            state.delivery.announce();
            return accepted(&state, find(&state, &job_id).await?).await;
        }
        Redriven::Nothing => nothing(),
        Redriven::Duplicate => Problem::conflict(
            "an equal job was submitted since and has not ended; this job type allows one at a time",
        ),
        Redriven::Unknown => Problem::no_such_job(),
    };
    Err(recorded.refused(refusal).await)
}

/// A job that the caller has just been let at.
pub(super) async fn find(state: &AppState, job_id: &JobId) -> Result<Job, Problem> {
    state.store.job_get(job_id).await?.ok_or_else(Problem::no_such_job)
}

/// 202 with the job; the same for a first and a repeated submission, whatever the job's state.
pub(super) async fn accepted(state: &AppState, job: Job) -> Result<Response, Problem> {
    let steps = steps::of(state, &job).await?;
    let location = format!("/jobs/{}", job.job_id);
    let location = HeaderValue::from_str(&location).expect("a job id is plain text");
    let headers = [(LOCATION, location), (RETRY_AFTER, HeaderValue::from_static("1"))];
    let view = JobView::new(job, clock::now()).with_steps(steps);
    Ok((StatusCode::ACCEPTED, headers, Json(view)).into_response())
}
