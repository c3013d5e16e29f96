//! How handlers ask what a caller may do. Every one does, and all decisions are `auth::may`'s; here they become
//! answers. What may not be seen is answered as if it had never been.

use axum::http::StatusCode;
use outhaul_core::audit::{AuditAct, AuditEntry};
use outhaul_core::id::JobId;
use outhaul_core::identity::ANONYMOUS;
use outhaul_core::job::Job;
use outhaul_core::store::Redriver;
use outhaul_export::scope_of;

use super::AppState;
use super::problem::{Problem, error_chain};
use super::request::Asker;
use crate::auth::{Act, Caller, Owned, Verdict, may, visible};

/// The longest detail of an act that is recorded, in characters.
const MAX_DETAIL: usize = 1000;
/// How the detail of an entry begins that takes another back.
const NOT_DONE: &str = "not done: ";

/// Leave to go on; 403 where none of the caller's roles is for this.
pub(super) fn allow(caller: &Caller, act: Act) -> Result<(), Problem> {
    answer(may(caller, act, None))
}

/// The job, if the caller may do this to it. It is looked for first, among those that they may see, so that another's
/// job is not there whatever they want to do to it, and costs what none costs; only whoever sees no job at all is told
/// so at once.
pub(super) async fn job(state: &AppState, caller: &Caller, act: Act, job_id: &JobId) -> Result<Job, Problem> {
    allow(caller, Act::Read)?;
    let job =
        state.store.job_get_visible(job_id, &visible(caller)).await?.ok_or_else(Problem::no_such_job)?;
    allow_on(caller, act, &job)?;
    Ok(job)
}

/// Leave to do this to a job that was found.
pub(super) fn allow_on(caller: &Caller, act: Act, job: &Job) -> Result<(), Problem> {
    answer(may(caller, act, Some(&Owned::from(job))))
}

fn answer(verdict: Verdict) -> Result<(), Problem> {
    match verdict {
        Verdict::Yes => Ok(()),
        Verdict::Hidden => Err(Problem::no_such_job()),
        Verdict::Forbidden => Err(Problem::new(
            StatusCode::FORBIDDEN,
            "none of your roles allows this; `[auth.roles]` gives them",
        )),
    }
}

/// The job, if the caller may have its files: where rows depend on who asks, only those who would be shown the
/// same rows, whoever else may see the job.
pub(super) async fn job_with_files(
    state: &AppState,
    caller: &Caller,
    job_id: &JobId,
) -> Result<Job, Problem> {
    let job = job(state, caller, Act::Files, job_id).await?;
    if shares_rows(state, caller, &job) {
        return Ok(job);
    }
    Err(Problem::not_found("your claims show you other rows than this job's, so it has no files for you"))
}

/// Whether what rows depend on is the same for the caller as for whoever submitted the job.
pub(super) fn shares_rows(state: &AppState, caller: &Caller, job: &Job) -> bool {
    match job.dataset.as_ref().and_then(|name| state.exports.dataset(name)) {
        Some(dataset) => scope_of(dataset, &caller.identity).is_ok_and(|scope| scope == job.scope),
        // Nobody can say any more what its rows depended on.
        None => job.scope.is_empty(),
    }
}

/// Who the jobs are for that a caller submits.
pub(super) fn asker<'a>(state: &AppState, caller: &'a Caller) -> Asker<'a> {
    match state.auth.jwt() {
        None => Asker::unknown(caller.subject()),
        Some(_) => Asker {
            owner: caller.subject(),
            identity: Some(&caller.identity),
            quota: state.limits.max_open_chunks,
        },
    }
}

/// Whose cursors a list has: those of one caller lead another nowhere.
pub(super) fn reader(caller: &Caller) -> &str {
    Some(caller.subject()).filter(|subject| *subject != ANONYMOUS).unwrap_or_default()
}

/// Records what a caller is about to do, where callers can be told apart: what cannot be recorded is not done.
/// Ask first whether it can be done at all, so that the trail is not full of what nobody could have done.
pub(super) async fn record<'a>(
    state: &'a AppState,
    caller: &Caller,
    act: AuditAct,
    job_id: Option<&JobId>,
    detail: Option<String>,
) -> Result<Recorded<'a>, Problem> {
    let Some(actor) = actor(state, caller) else { return Ok(Recorded { state, entry: None }) };
    let entry = AuditEntry { actor, act, job_id: job_id.cloned(), detail: detail.map(shortened) };
    state.store.audit_record(std::slice::from_ref(&entry)).await?;
    Ok(Recorded { state, entry: Some(entry) })
}

/// The same for what only operators do; `what` names it, such as `pause queue source:crm`.
pub(super) async fn record_operation<'a>(
    state: &'a AppState,
    caller: &Caller,
    what: String,
) -> Result<Recorded<'a>, Problem> {
    record(state, caller, AuditAct::Operate, None, Some(what)).await
}

/// Who redrives dead letters, where callers can be told apart. The store records it, for only there it is known
/// which jobs they were of.
pub(super) fn redriver(state: &AppState, caller: &Caller, detail: String) -> Option<Redriver> {
    Some(Redriver { actor: actor(state, caller)?, detail: Some(shortened(detail)) })
}

fn actor(state: &AppState, caller: &Caller) -> Option<String> {
    state.auth.jwt().map(|_| caller.subject().to_owned())
}

/// What stands in the trail and is done next.
pub(super) struct Recorded<'a> {
    state: &'a AppState,
    /// `None`: nobody is known, so nothing was recorded.
    entry: Option<AuditEntry>,
}

impl Recorded<'_> {
    /// It could not be done after all: things changed since they were looked at. A second entry says so; the first
    /// one stays, for nothing in the trail is ever changed.
    pub(super) async fn not_done(self, why: &str) {
        let Some(mut entry) = self.entry else { return };
        entry.detail = Some(shortened(match entry.detail {
            Some(what) => format!("{NOT_DONE}{what}: {why}"),
            None => format!("{NOT_DONE}{why}"),
        }));
        if let Err(error) = self.state.store.audit_record(&[entry]).await {
            tracing::error!(error = error_chain(&error), "api.audit_says_too_much");
        }
    }

    /// The same, with the answer that says why.
    pub(super) async fn refused(self, refusal: Problem) -> Problem {
        self.not_done(refusal.detail()).await;
        refusal
    }
}

fn shortened(detail: String) -> String {
    match detail.char_indices().nth(MAX_DETAIL) {
        Some((end, _)) => format!("{}…", &detail[..end]),
        None => detail,
    }
}
