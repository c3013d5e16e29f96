//! A job as clients see it. Never shown: payload, claims, attempts, worker names, leases, fences,
//! stack traces, SQL; so this is made by hand from the fields that may be.

use std::collections::BTreeMap;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use outhaul_core::job::{Job, JobStatus};
use serde::Serialize;
use utoipa::ToSchema;

use super::etag;
use super::steps::StepView;

/// What clients see of a job's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum JobStatusView {
    /// Nothing has started.
    Submitted,
    /// Something has started, and not everything is settled.
    InProgress,
    /// Every chunk is DONE.
    Completed,
    /// A chunk failed for good.
    Failed,
    /// A person cancelled it.
    Cancelled,
}

impl From<JobStatus> for JobStatusView {
    fn from(status: JobStatus) -> Self {
        match status {
            JobStatus::Submitted => Self::Submitted,
            JobStatus::InProgress => Self::InProgress,
            JobStatus::Completed => Self::Completed,
            JobStatus::Failed => Self::Failed,
            JobStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// One submission and how far it is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobView {
    /// What it is called.
    #[schema(example = "J20260102_0123456789ABC")]
    pub job_id: String,
    /// `EXPORT`, or a custom job type.
    #[schema(example = "EXPORT")]
    pub job_type: String,
    /// The dataset of an export.
    #[schema(required, example = "positions")]
    pub dataset: Option<String>,
    /// Where it stands.
    pub status: JobStatusView,
    /// All chunks.
    #[schema(minimum = 0)]
    pub total: i64,
    /// Chunks that have not started, or wait to be tried again.
    #[schema(minimum = 0)]
    pub pending: i64,
    /// Chunks that workers are on.
    #[schema(minimum = 0)]
    pub running: i64,
    /// Chunks whose output is available.
    #[schema(minimum = 0)]
    pub done: i64,
    /// Chunks that failed for good.
    #[schema(minimum = 0)]
    pub failed: i64,
    /// Chunks that were cancelled.
    #[schema(minimum = 0)]
    pub cancelled: i64,
    /// Files that were made for this job.
    #[schema(minimum = 0)]
    pub files_generated: i64,
    /// Files that were there already.
    #[schema(minimum = 0)]
    pub files_reused: i64,
    /// Rows in its files, and so far in those that are being made.
    #[schema(minimum = 0)]
    pub rows: i64,
    /// Size of its files, with what is written so far of those that are being made.
    #[schema(minimum = 0)]
    pub bytes: i64,
    /// The part of the whole that is behind it, with what runs counted as far as it is known; 1 only
    /// when every chunk is settled.
    #[schema(minimum = 0, maximum = 1)]
    pub progress: f64,
    /// Guess of the time that is left, if the rest goes as fast as `progress` went since the start; null
    /// while nothing is known and when it is finished.
    #[schema(required, minimum = 0)]
    pub eta_seconds: Option<i64>,
    /// Where its files are.
    #[schema(required, example = "s3://bucket/exports/")]
    pub s3_base_path: Option<String>,
    /// Why it failed, in a sentence.
    #[schema(required)]
    pub error_message: Option<String>,
    /// What a custom job returned; always null in lists.
    #[schema(required, value_type = serde_json::Value)]
    pub result: Option<outhaul_core::json::Json>,
    /// The steps of a custom job; always empty in lists.
    pub steps: Vec<StepView>,
    /// Who asked for it.
    pub owner: String,
    /// 0 to 9, higher first.
    #[schema(minimum = 0, maximum = 9)]
    pub priority: u8,
    /// The client's own notes.
    pub labels: BTreeMap<String, String>,
    /// When it was submitted.
    pub created_at: DateTime<Utc>,
    /// When something last changed.
    pub updated_at: DateTime<Utc>,
    /// When the first chunk started.
    #[schema(required)]
    pub started_at: Option<DateTime<Utc>>,
    /// When the last chunk settled.
    #[schema(required)]
    pub completed_at: Option<DateTime<Utc>>,
}

impl JobView {
    /// The job as it looks at this moment, without its steps.
    pub(super) fn new(job: Job, now: DateTime<Utc>) -> Self {
        let counts = job.counts;
        let is_export = job.job_type == outhaul_core::job::EXPORT;
        Self {
            eta_seconds: eta_seconds(&job, now),
            job_id: job.job_id.to_string(),
            job_type: job.job_type,
            dataset: job.dataset,
            status: job.status.into(),
            total: counts.total,
            pending: counts.pending(),
            running: counts.running,
            done: counts.done,
            failed: counts.failed,
            cancelled: counts.cancelled,
            files_generated: if is_export { (counts.done - counts.reused).max(0) } else { 0 },
            files_reused: counts.reused,
            // What a custom job counts are no rows of a file.
            rows: counts.rows + if is_export { job.moving.rows } else { 0 },
            bytes: counts.bytes + if is_export { job.moving.bytes } else { 0 },
            progress: counts.progress(&job.moving),
            s3_base_path: job.base_path,
            error_message: job.error_message,
            result: job.result,
            steps: Vec::new(),
            owner: job.owner,
            priority: job.priority,
            labels: job.labels,
            created_at: job.created_at,
            updated_at: job.updated_at,
            started_at: job.started_at,
            completed_at: job.completed_at,
        }
    }

    /// The same with its steps.
    #[must_use]
    pub(super) fn with_steps(mut self, steps: Vec<StepView>) -> Self {
        self.steps = steps;
        self
    }
}

/// The time that is left if the rest goes as fast as what is behind it.
fn eta_seconds(job: &Job, now: DateTime<Utc>) -> Option<i64> {
    let progress = job.counts.progress(&job.moving);
    let elapsed = (now - job.started_at?).to_std().ok()?.as_secs_f64();
    let known = !job.status.is_final() && progress > 0.0;
    known.then(|| (elapsed * (1.0 - progress) / progress).ceil() as i64)
}

fn json(view: &JobView) -> Vec<u8> {
    serde_json::to_vec(view).expect("a job is text, numbers and times")
}

/// A job as JSON on one line, and a weak tag that changes with everything but the guess: that changes
/// with every look, and alone it is no news.
pub(super) fn rendered(job: Job, steps: Vec<StepView>, now: DateTime<Utc>) -> (Vec<u8>, String) {
    let mut view = JobView::new(job, now).with_steps(steps);
    let body = json(&view);
    view.eta_seconds = None;
    (body, etag::weak(&json(&view)))
}

/// Answers `GET`: 200, or 304 when the client has it already.
pub(super) fn shown(headers: &HeaderMap, job: Job, steps: Vec<StepView>, now: DateTime<Utc>) -> Response {
    let finished = job.status.is_final();
    let (body, tag) = rendered(job, steps, now);
    let mut response = if etag::has(headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
    };
    let answer = response.headers_mut();
    answer.insert(ETAG, etag::header(&tag));
    answer.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    if !finished {
        answer.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::api::chunks::ChunkStatusView;
    use axum::http::header::IF_NONE_MATCH;
    use chrono::{TimeDelta, TimeZone};
    use outhaul_core::id::JobId;
    use outhaul_core::job::{Counts, OnFailure};

    /// A job that is half done, for tests.
    pub(in crate::api) fn half_done() -> Job {
        let created_at = Utc.with_ymd_and_hms(2026, 1, 2, 3, 4, 5).unwrap();
        Job {
            job_id: JobId::new(created_at, 7),
            job_type: "EXPORT".into(),
            dataset: Some("positions".into()),
            owner: "anonymous".into(),
            identity: None,
            scope: String::new(),
            status: JobStatus::InProgress,
            on_failure: OnFailure::Stop,
            priority: 5,
            labels: BTreeMap::new(),
            base_path: Some("s3://bucket/exports/".into()),
            error_message: None,
            result: None,
            moving: outhaul_core::progress::Moving::default(),
            counts: Counts {
                total: 4,
                running: 1,
                done: 2,
                reused: 1,
                rows: 61234,
                bytes: 9871234,
                ..Counts::default()
            },
            version: 3,
            shown_version: 3,
            run_at: None,
            created_at,
            updated_at: created_at,
            started_at: Some(created_at),
            completed_at: None,
        }
    }

    #[test]
    fn a_job_shows_every_field_of_the_contract_and_no_other() {
        let job = half_done();
        let now = job.created_at + TimeDelta::seconds(12);
        let expected = serde_json::json!({
            "jobId": "J20260102_0000000000007", "jobType": "EXPORT", "dataset": "positions",
            "status": "IN_PROGRESS", "total": 4, "pending": 1, "running": 1, "done": 2, "failed": 0,
            "cancelled": 0, "filesGenerated": 1, "filesReused": 1, "rows": 61234, "bytes": 9871234,
            "progress": 0.5, "etaSeconds": 12, "s3BasePath": "s3://bucket/exports/", "errorMessage": null,
            "result": null, "steps": [], "owner": "anonymous", "priority": 5, "labels": {},
            "createdAt": "2026-01-02T03:04:05Z", "updatedAt": "2026-01-02T03:04:05Z",
            "startedAt": "2026-01-02T03:04:05Z", "completedAt": null
        });
        let shown = serde_json::to_value(JobView::new(job, now)).unwrap();
        assert_eq!(shown, expected);
        let order =
            |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(order(&shown), order(&expected));
    }

    #[test]
    fn the_guess_needs_a_start_some_progress_and_an_open_end() {
        let now = half_done().created_at + TimeDelta::seconds(10);
        assert_eq!(eta_seconds(&half_done(), now), Some(10));
        for change in [
            |job: &mut Job| job.started_at = None,
            |job: &mut Job| job.counts.done = 0,
            |job: &mut Job| job.status = JobStatus::Completed,
            |job: &mut Job| job.started_at = Some(job.created_at + TimeDelta::days(1)),
        ] {
            let mut job = half_done();
            change(&mut job);
            assert_eq!(eta_seconds(&job, now), None);
        }
    }

    #[test]
    fn the_tag_ignores_the_guess_and_notices_the_rest() {
        let tag = |job: Job, seconds| {
            let now = job.created_at + TimeDelta::seconds(seconds);
            shown(&HeaderMap::new(), job, vec![], now).headers()[ETAG].clone()
        };
        assert_eq!(tag(half_done(), 10), tag(half_done(), 500));
        assert!(tag(half_done(), 10).to_str().unwrap().starts_with("W/\""));
        let mut further = half_done();
        further.counts.running = 0;
        assert_ne!(tag(half_done(), 10), tag(further, 10));
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, tag(half_done(), 10));
        let now = half_done().created_at;
        assert_eq!(shown(&headers, half_done(), vec![], now).status(), 304);
        assert_eq!(shown(&headers, half_done(), vec![], now).headers()[RETRY_AFTER], "1");
        let finished = Job { status: JobStatus::Completed, ..half_done() };
        assert!(!shown(&headers, finished, vec![], now).headers().contains_key(RETRY_AFTER));
    }

    #[test]
    fn the_tag_notices_a_step_and_a_result() {
        let step = |status| StepView { name: "deliver".into(), status, completed_at: None };
        let tag = |job: Job, steps| {
            let now = job.created_at;
            shown(&HeaderMap::new(), job, steps, now).headers()[ETAG].clone()
        };
        let finished = Job { result: Some(serde_json::json!({"sent": 1}).into()), ..half_done() };
        let tags = [
            tag(half_done(), vec![]),
            tag(half_done(), vec![step(ChunkStatusView::Pending)]),
            tag(half_done(), vec![step(ChunkStatusView::Running)]),
            tag(finished, vec![]),
        ];
        for (i, one) in tags.iter().enumerate() {
            assert!(!tags[..i].contains(one));
        }
    }
}
