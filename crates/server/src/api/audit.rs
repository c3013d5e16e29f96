//! `GET /audit`: who did what, for operators. Nothing is recorded where callers cannot be told apart.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use outhaul_core::audit::{AuditAct, AuditFilter, AuditRow};
use serde::Serialize;
use utoipa::ToSchema;

use super::AppState;
use super::access::{allow, reader};
use super::dead_letters::read_job_id;
use super::page::{Cursors, PageView};
use super::problem::Problem;
use super::problem::described::BadRequest;
use super::query::Query;
use crate::auth::{Act, Caller};

/// What somebody did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum AuditActView {
    /// Submitted a job.
    Submit,
    /// Cancelled a job.
    Cancel,
    /// Ran failed and held chunks again.
    Redrive,
    /// Gave a job another priority.
    Prioritise,
    /// Downloaded a file.
    Download,
    /// Paused, resumed, changed or ran a queue, a schedule or a trigger.
    Operate,
    /// Was still good for their job before it ran, by what `detail` says: `snapshot` or `hook`.
    Verified,
    /// Was no longer good for their job, which did not run, by what `detail` says.
    Refused,
}

impl From<AuditAct> for AuditActView {
    fn from(act: AuditAct) -> Self {
        match act {
            AuditAct::Submit => Self::Submit,
            AuditAct::Cancel => Self::Cancel,
            AuditAct::Redrive => Self::Redrive,
            AuditAct::Prioritise => Self::Prioritise,
            AuditAct::Download => Self::Download,
            AuditAct::Operate => Self::Operate,
            AuditAct::Verified => Self::Verified,
            AuditAct::Refused => Self::Refused,
        }
    }
}

/// Something that somebody was allowed to do, asked for and was about to be done. A later entry of the same actor
/// and act whose detail begins with `not done: ` takes it back; where a process or the database failed in
/// between, it may stand for something that did not happen.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditView {
    /// When.
    pub at: DateTime<Utc>,
    /// The subject of their token.
    #[schema(example = "ann")]
    pub actor: String,
    /// What it was.
    pub act: AuditActView,
    /// The job, where it was one.
    #[schema(required, example = "J20260102_0123456789ABC")]
    pub job_id: Option<String>,
    /// More about it: a file's path, a queue, a filter, what decided. It begins with `not done: ` where the act
    /// before, of the same actor, could not be done after all.
    #[schema(required)]
    pub detail: Option<String>,
}

impl From<AuditRow> for AuditView {
    fn from(row: AuditRow) -> Self {
        let entry = row.entry;
        Self {
            at: row.at,
            actor: entry.actor,
            act: entry.act.into(),
            job_id: entry.job_id.map(|job| job.to_string()),
            detail: entry.detail,
        }
    }
}

fn read_act(text: &str) -> Result<AuditAct, String> {
    AuditAct::parse(text).ok_or_else(|| {
        let words: Vec<&str> = AuditAct::ALL.into_iter().map(AuditAct::as_str).collect();
        format!("must be one of {}", words.join(", "))
    })
}

/// Lists who did what, newest first.
#[utoipa::path(
    get, path = "/audit", tag = "operations", operation_id = "listAudit",
    params(
        ("actor" = Option<String>, Query, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", description = "Only what this subject did", example = "ann"),
        ("jobId" = Option<String>, Query, pattern = r"^J[0-9]{8}_[0-9A-HJKMNP-TV-Z]{13}$", description = "Only what was done to this job"),
        ("act" = inline(Option<AuditActView>), Query, description = "Only this act"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200, description = "Items per page; 50 unless said"),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{16,}$", description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "What was recorded; nothing, where callers have no tokens", body = PageView<AuditView>), BadRequest)
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    mut query: Query,
) -> Result<Json<PageView<AuditView>>, Problem> {
    allow(&caller, Act::Operate)?;
    let cursors = Cursors::new(state.store.installation(), "audit", reader(&caller));
    let filter = AuditFilter {
        actor: query.take_text("actor"),
        job_id: query.take_with("jobId", read_job_id),
        act: query.take_with("act", read_act),
    };
    let (limit, before) = cursors.take_as(&mut query, |position| position.parse().ok());
    query.finish()?;
    let page = state.store.audit_list(&filter, before, limit).await?;
    Ok(Json(PageView {
        next_cursor: page.next.map(|position| cursors.make(&position.to_string())),
        items: page.items.into_iter().map(AuditView::from).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_act_is_read_by_the_word_it_is_shown_with() {
        for act in AuditAct::ALL {
            let shown = serde_json::to_value(AuditActView::from(act)).unwrap();
            assert_eq!(read_act(shown.as_str().unwrap()), Ok(act));
        }
        assert_eq!(
            read_act("look").unwrap_err(),
            "must be one of submit, cancel, redrive, prioritise, download, operate, verified, refused"
        );
    }
}
