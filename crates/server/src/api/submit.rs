//! `POST /jobs`. The request is judged whole before anything is stored; a repeated request with the
//! same key gets the same answer, and one for a FAILED job has its chunks run again.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use outhaul_core::audit::AuditAct;
use outhaul_core::id::JobId;
use outhaul_core::job::{Job, JobStatus};
use outhaul_core::store::{Redriven, Submitted};

use super::bodies::Bodies;
use super::job_view::JobView;
use super::problem::described::BadRequest;
use super::problem::{FieldError, Problem, ProblemBody};
use super::query::Query;
use super::request::Asker;
use super::submissions::Submissions;
use super::submit_view::{JobRequest, PlanView};
use super::{AppState, access, jobs, json as body, priority, request, traceparent};
use crate::auth::{Act, Caller};

/// Submits a job. A job type may allow only one unfinished job with the same payload; the answer to a
/// second one is then the first.
#[utoipa::path(
    post, path = "/jobs", tag = "jobs", operation_id = "submitJob",
    params(
        ("dryRun" = Option<bool>, Query, description = "Only say what would be done; store nothing"),
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, pattern = r"^[!-~]([ -~]*[!-~])?$",
            description = "The client's name for this request; the same as `idempotencyKey`"),
        ("traceparent" = Option<String>, Header,
            description = "W3C trace context; kept with a custom job for the calls it makes, and ignored where it is malformed"),
    ),
    request_body = JobRequest,
    responses(
        (status = 200, description = "`dryRun`: what would be done", body = PlanView),
        (status = 202, description = "The job; the same one for a repeated request with the same key, and the unfinished \
            one where the job type allows one at a time", body = JobView, headers(
            ("Location" = String, description = "The job"), ("Retry-After" = u32, description = "Seconds until a look is worth it"),
        )),
        BadRequest,
        (status = 403, description = "The caller may not submit jobs, lacks a claim that the dataset's rows depend on, or a \
            page of another site asks", body = ProblemBody, content_type = "application/problem+json"),
        (status = 408, description = "The body did not arrive in time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is larger than `limits.max_body_bytes`", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not sent as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "Somebody else's equal job has not ended, and the job type allows one at a time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The key was used for another request", body = ProblemBody, content_type = "application/problem+json"),
        (status = 429, description = "Too many requests, too many open chunks, too many submissions or too many bytes of bodies of this caller at once; \
            `Retry-After` says when to come back. A job with more chunks than the caller may ever have open is 400", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn submit(
    State(state): State<AppState>,
    Extension(submissions): Extension<Submissions>,
    Extension(bodies): Extension<Bodies>,
    caller: Caller,
    mut query: Query,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    access::allow(&caller, Act::Submit)?;
    let asker = access::asker(&state, &caller);
    let dry_run = query.take_flag("dryRun");
    let mut errors = query.into_errors();
    let held = bodies.read(&caller, &headers, sent).await?;
    // Wait for a turn before the body is parsed: a waiting request holds only the text that it sent.
    let turn = submissions.turn(caller.subject()).await?;
    let (sent, _room) = held.parse()?;
    let Some(mut members) = sent.object(&request::APART) else {
        errors.push(body::no_object(&sent));
        return Err(Problem::invalid(errors));
    };
    drop(sent);
    priority::hold(&caller, state.limits, &mut members.members, &mut errors);
    let required = state.idempotency_required;
    let (exports, registry) = (&state.exports, &state.registry);
    let judged = request::judge(exports, registry, &members, &headers, required, asker.identity, &mut errors);
    if dry_run
        && errors.is_empty()
        && let Ok(Some(judged)) = &judged
    {
        check_parents(&state, asker.owner, judged.parents(), &mut errors).await?;
        errors.extend(too_large(&asker, judged.chunks()));
    }
    let judged = match judged {
        _ if !errors.is_empty() => return Err(Problem::invalid(errors)),
        Ok(Some(judged)) => judged,
        // Neither a job nor anything wrong: judging does not let that happen.
        Ok(None) => return Err(Problem::internal()),
        Err(missing) => return Err(Problem::new(StatusCode::FORBIDDEN, missing.to_string())),
    };
    if dry_run {
        return Ok(Json(judged.foresee(&state).await?).into_response());
    }
    drop(members);
    let job = judged.into_new_job(&state.storage, traceparent::read(&headers), &asker);
    let too_large = too_large(&asker, job.chunks.len());
    let submitted = state.store.job_submit(job).await?;
    drop(turn);
    // Only now, for a repeated request finds its job also where the quota has become smaller since.
    if let (Submitted::OverQuota(_), Some(too_large)) = (&submitted, too_large) {
        return Err(Problem::invalid(vec![too_large]));
    }
    let job = stored(&state, &caller, submitted).await?;
    jobs::accepted(&state, job).await
}

/// The job that a submission led to.
async fn stored(state: &AppState, caller: &Caller, submitted: Submitted) -> Result<Job, Problem> {
    match submitted {
        Submitted::Created(job) => {
            tracing::info!(job = %job.job_id, job_type = job.job_type, chunks = job.counts.total, "api.job_submitted");
            state.delivery.announce();
            Ok(job)
        }
        Submitted::Existing(job) if job.status == JobStatus::Failed => redrive(state, caller, job).await,
        Submitted::Existing(job) => Ok(job),
        Submitted::Duplicate(job) if access::allow_on(caller, Act::Read, &job).is_ok() => Ok(job),
        Submitted::Duplicate(_) => Err(Problem::conflict(
            "somebody else's equal job has not ended; this job type allows one at a time",
        )),
        Submitted::OverQuota(open) => Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!("you have {open} open chunks, and this job's would be more than `limits.max_open_chunks`: wait until some are done"),
        )
        .with_header(RETRY_AFTER, HeaderValue::from_static("30"))),
        Submitted::NoSuchParents(missing) => Err(Problem::invalid(no_such_parents(&missing))),
        Submitted::KeyConflict => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "this idempotency key was used for a different request",
        )),
    }
}

/// What is wrong with a job that is larger than all that its owner may have open: no waiting helps it.
fn too_large(asker: &Asker<'_>, chunks: usize) -> Option<FieldError> {
    let quota = asker.quota.filter(|quota| chunks as u64 > *quota)?;
    let message = format!(
        "makes {chunks} chunks, but you may have at most {quota} open (`limits.max_open_chunks`): submit smaller jobs"
    );
    Some(FieldError::new("/items", message))
}

/// What storing the job would find wrong with its parents, without storing it.
async fn check_parents(
    state: &AppState,
    owner: &str,
    parents: &[JobId],
    errors: &mut Vec<FieldError>,
) -> Result<(), Problem> {
    if parents.is_empty() {
        return Ok(());
    }
    let found = state.store.jobs_get(parents).await?;
    let is_there = |parent: &&JobId| found.iter().any(|job| job.job_id == **parent && job.owner == owner);
    let missing: Vec<JobId> = parents.iter().filter(|parent| !is_there(parent)).cloned().collect();
    errors.extend(no_such_parents(&missing));
    Ok(())
}

fn no_such_parents(missing: &[JobId]) -> Vec<FieldError> {
    // True of another's job as of one that never was, whoever asks.
    missing
        .iter()
        .map(|job| FieldError::new("/dependsOn", format!("{job} is no job that you submitted")))
        .collect()
}

/// The store's update is guarded: of many that come at once, one redrives, and all get the job as it
/// is afterwards.
async fn redrive(state: &AppState, caller: &Caller, job: Job) -> Result<Job, Problem> {
    let recorded = access::record(state, caller, AuditAct::Redrive, Some(&job.job_id), None).await?;
    match state.store.job_redrive(&job.job_id).await? {
        Redriven::Yes(chunks) => {
            tracing::info!(job = %job.job_id, chunks, "api.job_redriven");
            state.delivery.announce();
        }
        Redriven::Nothing | Redriven::Unknown => recorded.not_done("somebody else was faster").await,
        Redriven::Duplicate => recorded.not_done("an equal job has not ended").await,
    }
    Ok(state.store.job_get(&job.job_id).await?.unwrap_or(job))
}
