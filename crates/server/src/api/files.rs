//! `/jobs/{jobId}/files`: the manifest of a job and the files themselves. The recorded checksum names
//! the bytes, so a file that a generation with other bytes replaced is never handed out under the old name.

use std::ops::Range;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    LOCATION,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use outhaul_core::audit::AuditAct;
use outhaul_core::file::{FileRecord, ManifestRow};
use outhaul_core::id::JobId;
use outhaul_core::identity::Visible;
use outhaul_export::storage::{Link, StorageError};
use serde::Serialize;
use utoipa::ToSchema;

use super::AppState;
use super::page::{Cursors, PageView};
use super::path::{FilePath, JobPath, file_id};
use super::problem::described::{BadRequest, NotFound};
use super::problem::{Problem, ProblemBody, error_chain};
use super::query::{NoQuery, Query};
use super::range::{Wanted, wanted};
use super::{access, etag};
use crate::auth::{Act, Caller, visible};

/// How long a presigned link lives; the client follows it at once.
const LINK_TTL: Duration = Duration::from_secs(5 * 60);

/// One file of a job.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileView {
    /// What it is called in this job.
    #[schema(example = "f17")]
    pub file_id: String,
    /// The key of an export.
    #[schema(required)]
    pub key: Option<String>,
    /// The date of an export, `yyyyMMdd`.
    #[schema(required, example = "20250215")]
    pub effective_date: Option<String>,
    /// Its key in the storage.
    #[schema(example = "exports/2025/02/15/ABC_20250215.csv")]
    pub path: String,
    /// Rows, without the header.
    pub rows: i64,
    /// Size in bytes.
    pub bytes: i64,
    /// Checksum in hex.
    pub sha256: String,
    /// The storage's ETag, where it has one.
    #[schema(required)]
    pub etag: Option<String>,
    /// `CSV` and the like.
    #[schema(example = "CSV")]
    pub format: String,
    /// Whether it was there already.
    pub reused: bool,
    /// Why it was reused or generated.
    pub reason: String,
    /// When it was generated.
    pub generated_at: DateTime<Utc>,
    /// Whether the storage still holds these bytes. A newer job may have generated the same bytes again; `path` and
    /// `etag` are then those of its file.
    pub current: bool,
    /// Where to get it from this server.
    #[schema(example = "/jobs/J20260102_0123456789ABC/files/f17")]
    pub url: String,
}

impl FileView {
    fn new(job_id: &JobId, row: ManifestRow) -> Self {
        let file_id = file_id(row.id);
        Self {
            url: format!("/jobs/{job_id}/files/{file_id}"),
            file_id,
            key: row.key,
            effective_date: row.effective_date.map(|date| date.format("%Y%m%d").to_string()),
            path: row.file.path,
            rows: row.file.rows,
            bytes: row.file.bytes,
            sha256: row.file.sha256,
            etag: row.file.etag,
            format: row.file.format,
            reused: row.file.reused,
            reason: row.file.reason,
            generated_at: row.file.generated_at,
            current: row.current,
        }
    }
}

/// Lists a job's files.
#[utoipa::path(
    get, path = "/jobs/{jobId}/files", tag = "files", operation_id = "listFiles",
    params(
        ("jobId" = String, Path, description = "The job", example = "J20260102_0123456789ABC"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200, description = "Items per page; 50 unless said"),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{16,}$", description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "The files by chunk key", body = PageView<FileView>), BadRequest, NotFound)
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    JobPath(job_id): JobPath,
    mut query: Query,
) -> Result<Json<PageView<FileView>>, Problem> {
    let cursors = Cursors::new(state.store.installation(), "files", job_id.as_str());
    let (limit, after) = cursors.take(&mut query);
    query.finish()?;
    access::job_with_files(&state, &caller, &job_id).await?;
    let page = state.store.files_list(&job_id, after.as_deref(), limit).await?;
    Ok(Json(PageView {
        next_cursor: page.next.map(|position| cursors.make(&position)),
        items: page.items.into_iter().map(|row| FileView::new(&job_id, row)).collect(),
    }))
}

/// Gets one file.
#[utoipa::path(
    get, path = "/jobs/{jobId}/files/{fileId}", tag = "files", operation_id = "getFile",
    params(
        ("jobId" = String, Path, description = "The job", example = "J20260102_0123456789ABC"),
        ("fileId" = String, Path, description = "`fileId` of the job's list of files", example = "f17"),
        ("Range" = Option<String>, Header, description = "One range of bytes; local storage only", example = "bytes=0-99"),
        ("If-None-Match" = Option<String>, Header, description = "An `ETag` that the client has"),
        ("If-Range" = Option<String>, Header, description = "The `ETag` that the range belongs to"),
    ),
    responses(
        (status = 200, description = "The file", content_type = "text/csv", body = String, headers(
            ("ETag" = String, description = "Its checksum"), ("Accept-Ranges" = String, description = "`bytes`"),
            ("Content-Disposition" = String, description = "Its name"),
        )),
        (status = 206, description = "The part of the file that was asked for", content_type = "text/csv", body = String, headers(
            ("Content-Range" = String, description = "Which part"),
        )),
        (status = 304, description = "The client has it already"),
        (status = 307, description = "The file, at a link that works for minutes", headers(("Location" = String, description = "The link"))),
        (status = 409, description = "What the storage holds differs from what was recorded", body = ProblemBody, content_type = "application/problem+json"),
        (status = 410, description = "The file was replaced by other bytes; `detail` names the job that did it", body = ProblemBody, content_type = "application/problem+json"),
        (status = 416, description = "The file has no such bytes", body = ProblemBody, content_type = "application/problem+json"),
        BadRequest, NotFound,
    )
)]
pub(super) async fn get(
    State(state): State<AppState>,
    caller: Caller,
    method: Method,
    FilePath(job_id, file): FilePath,
    _: NoQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    access::job_with_files(&state, &caller, &job_id).await?;
    let row = state.store.file_get(&job_id, file).await?;
    let row = row.ok_or_else(|| Problem::not_found("the job has no such file"))?;
    if !row.current {
        let detail = match row.current_job {
            Some(job) if may_know(&state, &caller, &job).await? => {
                format!("a newer file has taken its place; see job {job}")
            }
            Some(_) => "a newer file has taken its place".to_owned(),
            None => "the storage no longer holds this file: an attempt that was cancelled or failed has \
                     replaced it; submit it again to have it generated"
                .to_owned(),
        };
        return Err(Problem::new(StatusCode::GONE, detail));
    }
    if method == Method::HEAD {
        return look(&state, &job_id, &row, &headers).await;
    }
    let size = u64::try_from(row.file.bytes).map_err(|_| Problem::internal())?;
    let link = state.storage.link(&row.file.path, size, row.file.etag.as_deref(), LINK_TTL).await;
    match link.map_err(storage_problem)? {
        // Answer here: the client must not get the storage's own 404.
        Link::Missing => Err(vanished()),
        Link::Differs => Err(differs()),
        Link::Url(link) => {
            let location = redirect(link.as_str())?;
            download(&state, &caller, &job_id, &row, None).await?;
            Ok(location)
        }
        Link::Local => {
            let part = match answered(&row, &headers)? {
                Ok(part) => part,
                Err(unchanged) => return Ok(unchanged),
            };
            // Opened first: what is not there is not downloaded. No byte leaves before the answer does.
            let file = send(&state, &row, part.clone()).await?;
            download(&state, &caller, &job_id, &row, part.as_ref()).await?;
            Ok(file)
        }
    }
}

/// Records that a caller is about to get a file or a part of it. A part that begins later is recorded like any
/// other: whoever leaves out the first byte has downloaded the rest.
async fn download(
    state: &AppState,
    caller: &Caller,
    job_id: &JobId,
    row: &ManifestRow,
    part: Option<&Range<u64>>,
) -> Result<(), Problem> {
    let path = &row.file.path;
    let detail = match part {
        None => path.clone(),
        Some(part) => format!("{path} (bytes {}-{} of {})", part.start, part.end - 1, row.file.bytes),
    };
    access::record(state, caller, AuditAct::Download, Some(job_id), Some(detail)).await?;
    Ok(())
}

/// Whether the caller may hear of a job that made the same file for somebody.
async fn may_know(state: &AppState, caller: &Caller, job_id: &JobId) -> Result<bool, Problem> {
    if visible(caller) == Visible::All {
        return Ok(true);
    }
    let job = state.store.job_get(job_id).await?;
    Ok(job.is_some_and(|job| access::allow_on(caller, Act::Read, &job).is_ok()))
}

fn vanished() -> Problem {
    Problem::not_found("the storage no longer holds this file")
}

/// Not the same as gone: somebody has to know that a file was damaged or replaced behind our back.
fn differs() -> Problem {
    Problem::conflict(
        "the stored object differs from what was recorded for this file; \
         submit it again with `force` to have it made anew",
    )
}

fn storage_problem(error: StorageError) -> Problem {
    match error {
        StorageError::NotFound { .. } => vanished(),
        error => {
            tracing::warn!(error = error_chain(&error), "api.storage_failed");
            Problem::unavailable("the storage is not available now; try again")
        }
    }
}

/// Makes sure that the storage has the very file that was recorded.
async fn is_there(state: &AppState, job_id: &JobId, row: &ManifestRow) -> Result<(), Problem> {
    let file = row.file.clone();
    let record = FileRecord {
        path: file.path,
        rows: file.rows,
        bytes: file.bytes,
        sha256: file.sha256,
        etag: file.etag,
        format: file.format,
        definition: String::new(),
        generation: file.generation,
        generated_at: file.generated_at,
        claimed_at: file.generated_at,
        job_id: job_id.clone(),
    };
    if state.storage.is_there(&record).await.map_err(storage_problem)? {
        return Ok(());
    }
    // Only the look is needed: nothing is read until the bytes are asked for.
    drop(state.storage.read(&record.path, None).await.map_err(storage_problem)?);
    Err(differs())
}

/// What the file is, without its bytes and without a link to them: nothing is handed out, so that nothing is
/// recorded.
async fn look(
    state: &AppState,
    job_id: &JobId,
    row: &ManifestRow,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    if let Some(unchanged) = unchanged(row, headers) {
        return Ok(unchanged);
    }
    is_there(state, job_id, row).await?;
    // Parts are there for those who want bytes (RFC 9110, 14.2).
    described(row, None, Body::empty())
}

fn redirect(link: &str) -> Result<Response, Problem> {
    let location = HeaderValue::from_str(link).map_err(|_| Problem::internal())?;
    // The link is a key to the file: nobody may keep it or pass it on.
    let headers = [(LOCATION, location), (CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((StatusCode::TEMPORARY_REDIRECT, headers).into_response())
}

fn tag(row: &ManifestRow) -> String {
    format!("\"{}\"", row.file.sha256)
}

/// The answer to a client that has the file already.
fn unchanged(row: &ManifestRow, headers: &HeaderMap) -> Option<Response> {
    let tag = tag(row);
    etag::has(headers, &tag).then(|| (StatusCode::NOT_MODIFIED, [(ETAG, etag::header(&tag))]).into_response())
}

/// Which part of the file is asked for; else the answer that needs none of it: the client has it already, or there
/// is no such part.
fn answered(row: &ManifestRow, headers: &HeaderMap) -> Result<Result<Option<Range<u64>>, Response>, Problem> {
    if let Some(unchanged) = unchanged(row, headers) {
        return Ok(Err(unchanged));
    }
    let size = u64::try_from(row.file.bytes).map_err(|_| Problem::internal())?;
    let applies = etag::range_applies(headers, &tag(row));
    let wanted = if applies { wanted(headers, size) } else { Wanted::Whole };
    match wanted {
        Wanted::Whole => Ok(Ok(None)),
        Wanted::Part(range) => Ok(Ok(Some(range))),
        Wanted::Unsatisfiable => {
            let length =
                HeaderValue::from_str(&format!("bytes */{size}")).map_err(|_| Problem::internal())?;
            Err(Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, format!("the file has {size} bytes"))
                .with_header(CONTENT_RANGE, length))
        }
    }
}

async fn send(state: &AppState, row: &ManifestRow, part: Option<Range<u64>>) -> Result<Response, Problem> {
    let file = &row.file;
    let size = u64::try_from(file.bytes).map_err(|_| Problem::internal())?;
    let (stored, bytes) = state.storage.read(&file.path, part.clone()).await.map_err(storage_problem)?;
    // A writer replaces the file before it records that it did.
    if !stored.is(size, file.etag.as_deref()) {
        return Err(differs());
    }
    described(row, part.as_ref(), Body::from_stream(bytes))
}

/// A file or a part of it, with what is to be said of it.
fn described(row: &ManifestRow, part: Option<&Range<u64>>, body: Body) -> Result<Response, Problem> {
    let file = &row.file;
    let size = u64::try_from(file.bytes).map_err(|_| Problem::internal())?;
    let status = if part.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut response = (status, body).into_response();
    let answer = response.headers_mut();
    let length = part.map_or(size, |part| part.end - part.start);
    answer.insert(CONTENT_LENGTH, HeaderValue::from(length));
    answer.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(&file.format)));
    answer.insert(CONTENT_DISPOSITION, disposition(&file.path));
    answer.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    answer.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    answer.insert(ETAG, etag::header(&format!("\"{}\"", file.sha256)));
    if let Some(part) = part {
        let part = format!("bytes {}-{}/{size}", part.start, part.end - 1);
        answer.insert(CONTENT_RANGE, HeaderValue::from_str(&part).map_err(|_| Problem::internal())?);
    }
    Ok(response)
}

fn media_type(format: &str) -> &'static str {
    if format == "CSV" { "text/csv; charset=utf-8" } else { "application/octet-stream" }
}

/// `attachment` with the path's last part. File names are percent-encoded keys, so only plain
/// characters are left; anything else would be replaced, not trusted.
fn disposition(path: &str) -> HeaderValue {
    let name = path.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '%');
    let name: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    HeaderValue::from_str(&format!("attachment; filename=\"{name}\""))
        .unwrap_or_else(|_| HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_in_headers_are_harmless() {
        assert_eq!(
            disposition("exports/2025/02/15/ABC_20250215.csv"),
            "attachment; filename=\"ABC_20250215.csv\""
        );
        assert_eq!(disposition("a/%2E.%2Fx_20250215.csv"), "attachment; filename=\"%2E.%2Fx_20250215.csv\"");
        assert_eq!(disposition("a/b\"; filename=x\r\n.csv"), "attachment; filename=\"b___filename_x__.csv\"");
    }
}
