//! The steps of a custom job as clients see them: those that its type announces, in that order, then
//! whatever else was recorded. Results of steps are the job's own business and are not shown.

use chrono::{DateTime, Utc};
use outhaul::{Registry, StepSpec};
use outhaul_core::dead_letter::DeadLetterFilter;
use outhaul_core::job::{Job, JobStatus};
use outhaul_core::step::{StepRow, name_problem};
use outhaul_core::store::{Store, StoreResult};
use serde::Serialize;
use utoipa::ToSchema;

use super::AppState;
use super::chunks::ChunkStatusView;
use super::problem::Problem;

/// A named stage of a custom job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StepView {
    /// What it is called.
    #[schema(example = "deliver")]
    pub name: String,
    /// Where it stands.
    pub status: ChunkStatusView,
    /// When its result was recorded.
    #[schema(required)]
    pub completed_at: Option<DateTime<Utc>>,
}

/// What is known of a job's steps. It changes only with the job's version.
#[derive(Clone, Default)]
pub(super) struct Known {
    /// What its type announces.
    announced: Vec<StepSpec>,
    /// What is finished.
    recorded: Vec<StepRow>,
    /// Where it failed for good.
    failed: Option<String>,
}

/// The steps of a job; exports have none, and cost nothing here.
pub(super) async fn of(state: &AppState, job: &Job) -> Result<Vec<StepView>, Problem> {
    Ok(Known::of(&*state.store, &state.registry, job).await?.shown(job))
}

impl Known {
    /// Looks what is known of a job's steps.
    pub(super) async fn of(store: &dyn Store, registry: &Registry, job: &Job) -> StoreResult<Self> {
        let mut known = Self::default();
        if job.dataset.is_some() {
            return Ok(known);
        }
        if let Some(handler) = registry.get(&job.job_type) {
            known.announced = handler.steps();
        }
        // Before anything has started there can be nothing to find.
        if job.status != JobStatus::Submitted {
            known.recorded = store.steps_list(&job.job_id).await?;
        }
        if job.status == JobStatus::Failed || job.counts.failed > 0 {
            let of_job = DeadLetterFilter { job_id: Some(job.job_id.clone()), ..DeadLetterFilter::default() };
            let page = store.dead_letters_list(&of_job, None, 1).await?;
            known.failed = page.items.into_iter().next().and_then(|letter| letter.step);
        }
        Ok(known)
    }

    /// The steps as they look while the job is so.
    pub(super) fn shown(&self, job: &Job) -> Vec<StepView> {
        let recorded_at = |name: &str| self.recorded.iter().find(|row| row.name == name);
        let view = |name: &str, needs: &[String]| {
            let done = recorded_at(name);
            let ready = || needs.iter().all(|need| recorded_at(need).is_some());
            let status = match job.status {
                _ if done.is_some() => ChunkStatusView::Done,
                _ if self.failed.as_deref() == Some(name) => ChunkStatusView::Failed,
                JobStatus::Cancelled => ChunkStatusView::Cancelled,
                _ if job.counts.running > 0 && ready() => ChunkStatusView::Running,
                _ => ChunkStatusView::Pending,
            };
            StepView { name: name.to_owned(), status, completed_at: done.map(|row| row.completed_at) }
        };
        let is_announced = |name: &str| self.announced.iter().any(|spec| spec.name == name);
        // A step that was added to the type after the job had completed is none of this job.
        let announced = self.announced.iter().map(|spec| view(&spec.name, &spec.needs));
        let announced =
            announced.filter(|step| job.status != JobStatus::Completed || step.completed_at.is_some());
        // Names that no job can give its steps are the engine's own.
        let recorded = self.recorded.iter().map(|row| row.name.as_str());
        let recorded = recorded.filter(|name| !is_announced(name) && name_problem(name).is_none());
        let failed = self.failed.iter().map(String::as_str);
        let failed = failed.filter(|name| !is_announced(name) && recorded_at(name).is_none());
        announced.chain(recorded.chain(failed).map(|name| view(name, &[]))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::job_view::tests::half_done;
    use super::*;
    use ChunkStatusView::{Cancelled, Done, Failed, Pending, Running};

    fn job(status: JobStatus, running: i64) -> Job {
        let mut job = Job { status, dataset: None, job_type: "SEND_EMAIL".into(), ..half_done() };
        job.counts.running = running;
        job
    }

    /// `render`, then `deliver` and `count` beside each other, then `tell`.
    fn known(recorded: &[&str], failed: Option<&str>) -> Known {
        let spec = |name: &str, needs: &[&str]| StepSpec {
            name: name.to_owned(),
            needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        };
        let row = |name: &&str| StepRow { name: (*name).to_owned(), completed_at: half_done().created_at };
        Known {
            announced: vec![
                spec("render", &[]),
                spec("deliver", &["render"]),
                spec("count", &["render"]),
                spec("tell", &["deliver", "count"]),
            ],
            recorded: recorded.iter().map(row).collect(),
            failed: failed.map(str::to_owned),
        }
    }

    fn statuses(known: &Known, job: &Job) -> Vec<(String, ChunkStatusView)> {
        let shown = known.shown(job);
        assert!(shown.iter().all(|step| step.completed_at.is_some() == (step.status == Done)));
        shown.into_iter().map(|step| (step.name, step.status)).collect()
    }

    fn of(expected: &[(&str, ChunkStatusView)]) -> Vec<(String, ChunkStatusView)> {
        expected.iter().map(|(name, status)| ((*name).to_owned(), *status)).collect()
    }

    #[test]
    fn announced_steps_are_shown_in_their_order_from_the_start() {
        let names = ["render", "deliver", "count", "tell"];
        let waiting = statuses(&known(&[], None), &job(JobStatus::Submitted, 0));
        assert_eq!(waiting, of(&names.map(|name| (name, Pending))));
        let running = statuses(&known(&["render"], None), &job(JobStatus::InProgress, 1));
        assert_eq!(
            running,
            of(&[("render", Done), ("deliver", Running), ("count", Running), ("tell", Pending)])
        );
        let between_attempts = statuses(&known(&["render"], None), &job(JobStatus::InProgress, 0));
        assert_eq!(between_attempts[1].1, Pending);
        let done =
            statuses(&known(&["render", "count", "deliver", "tell"], None), &job(JobStatus::Completed, 0));
        assert_eq!(done, of(&names.map(|name| (name, Done))));
    }

    #[test]
    fn an_end_that_is_not_good_shows_where() {
        let failed = statuses(&known(&["render", "count"], Some("deliver")), &job(JobStatus::Failed, 0));
        assert_eq!(failed, of(&[("render", Done), ("deliver", Failed), ("count", Done), ("tell", Pending)]));
        let cancelled = statuses(&known(&["render"], None), &job(JobStatus::Cancelled, 1));
        assert_eq!(cancelled[0].1, Done);
        assert!(cancelled[1..].iter().all(|(_, status)| *status == Cancelled));
    }

    #[test]
    fn steps_that_nobody_announced_follow_and_the_engines_own_are_not_shown() {
        let mut known = known(&["~sleep-1", "charge", "render"], Some("ship"));
        known.announced.truncate(1);
        let shown = statuses(&known, &job(JobStatus::Failed, 0));
        assert_eq!(shown, of(&[("render", Done), ("charge", Done), ("ship", Failed)]));
    }

    #[test]
    fn a_step_added_after_the_end_is_not_pending_for_ever() {
        let shown = statuses(&known(&["render", "deliver"], None), &job(JobStatus::Completed, 0));
        assert_eq!(shown, of(&[("render", Done), ("deliver", Done)]));
    }
}
