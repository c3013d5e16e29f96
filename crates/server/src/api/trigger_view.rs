//! Triggers as clients write and see them. The request is read by `definition`, so that every problem is
//! found; a test holds the two together.

use chrono::{DateTime, Utc};
use outhaul_core::duration;
use outhaul_core::json::Json;
use outhaul_core::trigger::{FireState, Trigger, TriggerFire, TriggerWait};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::schedule_view::OriginView;
use crate::auth::named;

/// A job that is submitted when others have completed.
#[derive(ToSchema, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"after": ["dataset:positions", "job:SEND_EMAIL"], "match": "businessDate", "within": "24h",
    "job": {"jobType": "SEND_EMAIL", "payload": {"date": "{{label.businessDate}}", "after": "{{parents.0.jobId}}"}}}))]
#[expect(dead_code, reason = "describes only")]
pub(super) struct TriggerRequest {
    /// What must have completed: an export of a dataset, or a job of a type. One of them, or all of several.
    #[schema(min_items = 1, max_items = 10, example = json!(["dataset:positions"]))]
    after: Vec<TermText>,
    /// The label whose value they must share; required where `after` names several.
    #[schema(
        rename = "match",
        min_length = 1,
        max_length = 64,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]*$",
        example = "businessDate"
    )]
    #[serde(rename = "match")]
    match_label: Option<String>,
    /// How far apart they may have completed; any time where it is left out.
    #[schema(pattern = "^[0-9]+(ms|s|m|h|d)$", example = "24h")]
    within: Option<String>,
    /// The body of a `POST /jobs`. In its texts `{{label.businessDate}}` stands for a label of the parents,
    /// `{{parents.0.jobId}}` for the first of them.
    #[schema(value_type = Object)]
    job: Value,
    /// The identity of the configuration that its job runs as; without one it runs as whoever owns all of its
    /// parents.
    #[schema(example = "nightly")]
    run_as: Option<String>,
}

/// What a job answers to: `dataset:NAME` or `job:TYPE`.
#[derive(ToSchema, serde::Deserialize)]
#[schema(pattern = "^(dataset|job):.+$", example = "dataset:positions")]
#[expect(dead_code, reason = "describes only")]
pub(super) struct TermText(String);

/// A rule that submits a job when others have completed. No `Debug`: payloads are never shown.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TriggerView {
    /// Its name.
    #[schema(example = "mail-positions")]
    pub name: String,
    /// What must have completed.
    #[schema(example = json!(["dataset:positions"]))]
    pub after: Vec<String>,
    /// The label whose value they must share.
    #[schema(required, rename = "match", example = "businessDate")]
    #[serde(rename = "match")]
    pub match_label: Option<String>,
    /// How far apart they may have completed; null: any time.
    #[schema(required, example = "24h")]
    pub within: Option<String>,
    /// The body of a `POST /jobs`, as it was written; null in lists.
    #[schema(required, value_type = Option<Object>)]
    pub job: Option<Json>,
    /// The identity of the configuration that its job runs as; null: whoever owns all of its parents.
    #[schema(required, example = "nightly")]
    pub run_as: Option<String>,
    /// Who may change it.
    pub origin: OriginView,
    /// Values for which some have completed and some not, the newest arrival first.
    #[schema(max_items = 20)]
    pub waiting: Vec<WaitView>,
    /// The last firings, newest first.
    #[schema(max_items = 20)]
    pub fired: Vec<FireView>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When what it says last changed.
    pub updated_at: DateTime<Utc>,
}

impl TriggerView {
    /// As lists show it.
    pub(super) fn listed(trigger: Trigger, waiting: Vec<TriggerWait>, fired: Vec<TriggerFire>) -> Self {
        let Trigger { name, spec, origin, owner, created_at, updated_at, .. } = trigger;
        Self {
            name,
            after: spec.after,
            match_label: spec.match_label,
            within: spec.within.map(duration::short),
            job: None,
            run_as: named(&owner).map(str::to_owned),
            origin: origin.into(),
            waiting: waiting.into_iter().map(WaitView::from).collect(),
            fired: fired.into_iter().map(FireView::from).collect(),
            created_at,
            updated_at,
        }
    }

    /// The whole of it.
    pub(super) fn whole(trigger: Trigger, waiting: Vec<TriggerWait>, fired: Vec<TriggerFire>) -> Self {
        let job = Some(trigger.spec.job.clone());
        Self { job, ..Self::listed(trigger, waiting, fired) }
    }
}

/// A value for which a trigger waits for the rest.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WaitView {
    /// The value of the label.
    #[schema(example = "20250215")]
    pub value: String,
    /// What has completed.
    pub arrived: Vec<ArrivalView>,
    /// What has not.
    #[schema(example = json!(["job:SEND_EMAIL"]))]
    pub missing: Vec<String>,
}

/// The newest job of its kind that has completed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ArrivalView {
    /// What was waited for.
    #[schema(example = "dataset:positions")]
    pub term: String,
    /// The job.
    #[schema(example = "J20260102_0123456789ABC")]
    pub job_id: String,
    /// When it completed.
    pub at: DateTime<Utc>,
}

impl From<TriggerWait> for WaitView {
    fn from(wait: TriggerWait) -> Self {
        let arrival = |(term, job_id, at): (String, outhaul_core::id::JobId, DateTime<Utc>)| ArrivalView {
            term,
            job_id: job_id.to_string(),
            at,
        };
        Self {
            value: wait.value,
            arrived: wait.arrived.into_iter().map(arrival).collect(),
            missing: wait.missing,
        }
    }
}

/// Where a firing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FireStateView {
    /// The job is about to be submitted.
    Due,
    /// The job was submitted.
    Fired,
    /// No job could be made.
    Refused,
}

/// One firing of a trigger.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct FireView {
    /// The value that the parents share; empty where none was asked for.
    #[schema(example = "20250215")]
    pub value: String,
    /// The jobs that completed, in the order of `after`.
    #[schema(example = json!(["J20260102_0123456789ABC"]))]
    pub parents: Vec<String>,
    /// Where it stands.
    pub state: FireStateView,
    /// The job that was submitted.
    #[schema(required, example = "J20260102_0123456789ABD")]
    pub job_id: Option<String>,
    /// Why none could be made, in a sentence.
    #[schema(required)]
    pub detail: Option<String>,
    /// When that was recorded.
    pub at: DateTime<Utc>,
}

impl From<TriggerFire> for FireView {
    fn from(fire: TriggerFire) -> Self {
        Self {
            value: fire.value,
            parents: fire.parents.iter().map(ToString::to_string).collect(),
            state: match fire.state {
                FireState::Due => FireStateView::Due,
                FireState::Fired => FireStateView::Fired,
                FireState::Refused => FireStateView::Refused,
            },
            job_id: fire.job_id.map(|job| job.to_string()),
            detail: fire.detail,
            at: fire.at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_and_the_reader_know_the_same_fields() {
        use utoipa::PartialSchema;
        let schema = serde_json::to_value(TriggerRequest::schema()).unwrap();
        let mut described: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut read = [&crate::definition::TRIGGER_MEMBERS[..], &["runAs"]].concat();
        described.sort_unstable();
        read.sort_unstable();
        assert_eq!(described, read);
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["required"], serde_json::json!(["after", "job"]));
    }
}
