//! What a path names. A name that cannot be one of ours is 404 like one that is not there, so that
//! nothing can be learnt from the difference.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use outhaul_core::id::{ChunkId, JobId};

use super::problem::{FieldError, Problem};
use crate::definition::check_name;

async fn segments(parts: &mut Parts) -> Option<Vec<String>> {
    // Fails on percent-encoded bytes that are not UTF-8, which no name of ours has.
    let params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    Some(params.iter().map(|(_, value)| value.to_owned()).collect())
}

/// `{jobId}`.
#[derive(Debug)]
pub(super) struct JobPath(pub JobId);

impl<S: Send + Sync> FromRequestParts<S> for JobPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let segments = segments(parts).await.unwrap_or_default();
        let job = segments.first().and_then(|text| JobId::parse(text));
        job.map(Self).ok_or_else(Problem::no_such_job)
    }
}

/// `{jobId}/files/{fileId}`.
#[derive(Debug)]
pub(super) struct FilePath(pub JobId, pub ChunkId);

impl<S: Send + Sync> FromRequestParts<S> for FilePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let segments = segments(parts).await.unwrap_or_default();
        let [job, file] = segments.as_slice() else { return Err(Problem::no_such_job()) };
        let job = JobId::parse(job).ok_or_else(Problem::no_such_job)?;
        let file = parse_file_id(file).ok_or_else(|| Problem::not_found("the job has no such file"))?;
        Ok(Self(job, file))
    }
}

/// `{name}` of a queue.
#[derive(Debug)]
pub(super) struct QueuePath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for QueuePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let segments = segments(parts).await.unwrap_or_default();
        // A database would refuse NUL with an error of its own.
        let name = segments.into_iter().next().filter(|name| !name.chars().any(char::is_control));
        name.map(Self).ok_or_else(|| Problem::not_found("there is no such queue"))
    }
}

/// 404 for a schedule.
pub(super) fn no_such_schedule() -> Problem {
    Problem::not_found("there is no such schedule")
}

/// 404 for a trigger.
pub(super) fn no_such_trigger() -> Problem {
    Problem::not_found("there is no such trigger")
}

/// `{name}` of a schedule.
#[derive(Debug)]
pub(super) struct SchedulePath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for SchedulePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        name(parts).await.map(Self).map_err(|_| no_such_schedule())
    }
}

/// `{name}` of a trigger.
#[derive(Debug)]
pub(super) struct TriggerPath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for TriggerPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        name(parts).await.map(Self).map_err(|_| no_such_trigger())
    }
}

/// `{name}` of what may be new: whoever chooses a name is told what it must look like, together with
/// what is wrong with the rest.
#[derive(Debug)]
pub(super) struct NewName(pub Result<String, FieldError>);

impl<S: Send + Sync> FromRequestParts<S> for NewName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(name(parts).await.map_err(|message| FieldError::new("{name}", message))))
    }
}

/// The one name in a path, or what it should look like.
async fn name(parts: &mut Parts) -> Result<String, String> {
    let name = segments(parts).await.unwrap_or_default().into_iter().next().unwrap_or_default();
    check_name(&name).map(|()| name)
}

/// `f<chunk id>`: what clients call a file.
pub(super) fn file_id(id: ChunkId) -> String {
    format!("f{id}")
}

fn parse_file_id(text: &str) -> Option<ChunkId> {
    let digits = text.strip_prefix('f')?;
    let id: i64 = digits.parse().ok()?;
    // One name per file: no signs, no leading zeros.
    (file_id(ChunkId(id)) == text && id >= 0).then_some(ChunkId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_ids_have_one_spelling() {
        assert_eq!(parse_file_id("f17"), Some(ChunkId(17)));
        for text in
            ["", "f", "17", "f-1", "f+1", "f017", "F17", "f1 ", "f99999999999999999999", "f1/..", "f\u{0661}"]
        {
            assert_eq!(parse_file_id(text), None, "{text}");
        }
    }
}
