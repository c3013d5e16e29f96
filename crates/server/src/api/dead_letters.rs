//! `GET /dead-letters`: chunks that failed for good, each with its cause. Running them again is in
//! `redrive`.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use outhaul_core::dead_letter::{DeadLetter, DeadLetterCursor, DeadLetterFilter};
use outhaul_core::id::JobId;
use serde::Serialize;
use utoipa::ToSchema;

use super::page::{Cursors, PageView};
use super::problem::Problem;
use super::problem::described::BadRequest;
use super::query::{MAX_FILTER_CHARS, Query};
use super::{AppState, access};
use crate::auth::{Act, Caller};

/// A chunk that failed for good, waiting for a person.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeadLetterView {
    /// Its job.
    #[schema(example = "J20260102_0123456789ABC")]
    pub job_id: String,
    /// Which chunk of it.
    #[schema(example = "main")]
    pub chunk_key: String,
    /// Its job's type.
    #[schema(example = "SEND_EMAIL")]
    pub job_type: String,
    /// Its job's dataset, for exports.
    #[schema(required)]
    pub dataset: Option<String>,
    /// Why it failed, in a sentence.
    pub cause: String,
    /// Attempts since it was submitted or last redriven.
    #[schema(minimum = 0)]
    pub attempts: u32,
    /// When it first failed since then.
    pub first_failed_at: DateTime<Utc>,
    /// When it failed for good.
    pub last_failed_at: DateTime<Utc>,
    /// The step that failed, for custom jobs.
    #[schema(required)]
    pub step: Option<String>,
}

impl From<DeadLetter> for DeadLetterView {
    fn from(letter: DeadLetter) -> Self {
        Self {
            job_id: letter.job_id.to_string(),
            chunk_key: letter.chunk_key,
            job_type: letter.job_type,
            dataset: letter.dataset,
            cause: letter.cause,
            attempts: letter.attempts,
            first_failed_at: letter.first_failed_at,
            last_failed_at: letter.last_failed_at,
            step: letter.step,
        }
    }
}

/// Reads the id of a job that a filter names.
pub(super) fn read_job_id(text: &str) -> Result<JobId, String> {
    JobId::parse(text).ok_or_else(|| "must be a job id such as J20260102_0123456789ABC".to_owned())
}

/// Reads a text that a filter compares with. An empty one would mean all or none, which nobody wants
/// to find out by trying.
pub(super) fn read_words(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("must not be empty: leave it out instead".into());
    }
    super::json::check_text(text, MAX_FILTER_CHARS).map(|()| text.to_owned())
}

fn take_filter(query: &mut Query) -> DeadLetterFilter {
    DeadLetterFilter {
        job_id: query.take_with("jobId", read_job_id),
        job_type: query.take_with("jobType", read_words),
        dataset: query.take_with("dataset", read_words),
        text: query.take_with("text", read_words),
        after: query.take_time("after"),
        before: query.take_time("before"),
    }
}

fn write_cursor(cursor: DeadLetterCursor) -> String {
    format!("{},{}", cursor.at_micros, cursor.chunk)
}

fn read_cursor(position: &str) -> Option<DeadLetterCursor> {
    let (at_micros, chunk) = position.split_once(',')?;
    Some(DeadLetterCursor { at_micros: at_micros.parse().ok()?, chunk: chunk.parse().ok()? })
}

/// Lists dead letters, newest first.
#[utoipa::path(
    get, path = "/dead-letters", tag = "operations", operation_id = "listDeadLetters",
    params(
        ("jobType" = Option<String>, Query, min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", description = "Only jobs of this type", example = "EXPORT"),
        ("dataset" = Option<String>, Query, min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", description = "Only exports of this dataset"),
        ("text" = Option<String>, Query, min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$",
            description = "Only those whose cause, step, job id or chunk key contains this text, whatever its case"),
        ("after" = Option<DateTime<Utc>>, Query, description = "Only those that failed for good at or after this time"),
        ("before" = Option<DateTime<Utc>>, Query, description = "Only those that failed for good before this time"),
        ("jobId" = Option<String>, Query, pattern = r"^J[0-9]{8}_[0-9A-HJKMNP-TV-Z]{13}$", description = "Only this job"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200, description = "Items per page; 50 unless said"),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{16,}$", description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "The dead letters", body = PageView<DeadLetterView>), BadRequest)
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    mut query: Query,
) -> Result<Json<PageView<DeadLetterView>>, Problem> {
    access::allow(&caller, Act::DeadLetters)?;
    let cursors = Cursors::new(state.store.installation(), "dead-letters", "");
    let filter = take_filter(&mut query);
    let (limit, after) = cursors.take_as(&mut query, read_cursor);
    query.finish()?;
    let page = state.store.dead_letters_list(&filter, after, limit).await?;
    Ok(Json(PageView {
        next_cursor: page.next.map(|position| cursors.make(&write_cursor(position))),
        items: page.items.into_iter().map(DeadLetterView::from).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_back() {
        let place = DeadLetterCursor { at_micros: i64::MIN, chunk: 7 };
        assert_eq!(read_cursor(&write_cursor(place)), Some(place));
        for wrong in ["", "1", "1,2,3", "x,2", "1,"] {
            assert_eq!(read_cursor(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_problem_of_a_filter_is_named() {
        let mut query =
            Query::parse("jobId=x&jobType=&dataset=%00&text=&after=yesterday&before=5&step=deliver");
        assert_eq!(take_filter(&mut query), DeadLetterFilter::default());
        let pointers: Vec<_> = query.into_errors().into_iter().map(|error| error.pointer).collect();
        assert_eq!(pointers, ["?jobId", "?jobType", "?dataset", "?text", "?after", "?before", "?step"]);
    }
}
