//! Schedules as clients write and see them. The request is read by `definition`, so that every problem is
//! found; a test holds the two together.

use chrono::{DateTime, FixedOffset, Utc};
use outhaul_core::duration;
use outhaul_core::json::Json;
use outhaul_core::schedule::{CatchUp, Origin, Overlap, Schedule, SlotOutcome, SlotRow};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::auth::named;

/// A job that is submitted again and again. What is not said is as it is by default.
#[derive(ToSchema, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"cron": "0 6 * * MON-FRI", "timezone": "Europe/Berlin",
    "job": {"items": [{"key": "ABC", "effectiveDates": ["{{slot - 1d}}"]}], "labels": {"businessDate": "{{slot - 1d}}"}},
    "overlap": "skip", "catchUp": "last", "jitter": "30s"}))]
#[expect(dead_code, reason = "describes only")]
pub(super) struct ScheduleRequest {
    /// When: minute, hour, day of the month, month, day of the week; seconds may stand before them.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]*$",
        example = "0 6 * * MON-FRI"
    )]
    cron: String,
    /// Whose clocks the cron expression means: a name of the IANA database.
    #[schema(nullable = false, min_length = 1, max_length = 64, default = "UTC", example = "Europe/Berlin")]
    timezone: Option<String>,
    /// The body of a `POST /jobs`. In its texts `{{slot}}`, `{{slot - 1d}}` or `{{slot | yyyy-MM-dd}}` stand
    /// for the time at which it is due.
    #[schema(value_type = Object)]
    job: Value,
    /// What happens to a slot while the job of an earlier one has not ended.
    #[schema(nullable = false, default = "skip")]
    overlap: Option<OverlapView>,
    /// What happens to slots that passed while no scheduler ran.
    #[schema(nullable = false, default = "last")]
    catch_up: Option<CatchUpView>,
    /// With `catchUp` `all`: the most slots that are made up for, the newest ones.
    #[schema(nullable = false, minimum = 1, maximum = 1000, default = 100)]
    catch_up_limit: Option<u32>,
    /// Each slot is fired up to this much later; shorter than the time between two slots.
    #[schema(nullable = false, pattern = "^[0-9]+(ms|s|m|h|d)$", default = "0s", example = "30s")]
    jitter: Option<String>,
    /// The identity of the configuration that its jobs run as; required where callers have tokens.
    #[schema(example = "nightly")]
    run_as: Option<String>,
}

/// What happens to a slot while the job of an earlier one has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum OverlapView {
    /// It is left out.
    Skip,
    /// Its job waits until the earlier one has ended.
    Queue,
    /// Its job runs beside it.
    Allow,
}

impl From<Overlap> for OverlapView {
    fn from(overlap: Overlap) -> Self {
        match overlap {
            Overlap::Skip => Self::Skip,
            Overlap::Queue => Self::Queue,
            Overlap::Allow => Self::Allow,
        }
    }
}

/// What happens to slots that passed while no scheduler ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum CatchUpView {
    /// They are left out.
    None,
    /// The newest is made up for.
    Last,
    /// All are, oldest first.
    All,
}

impl From<CatchUp> for CatchUpView {
    fn from(catch_up: CatchUp) -> Self {
        match catch_up {
            CatchUp::None => Self::None,
            CatchUp::Last => Self::Last,
            CatchUp::All => Self::All,
        }
    }
}

/// Who may change a schedule or a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum OriginView {
    /// The API.
    Api,
    /// The configuration, which the API does not change.
    Config,
}

impl From<Origin> for OriginView {
    fn from(origin: Origin) -> Self {
        match origin {
            Origin::Api => Self::Api,
            Origin::Config => Self::Config,
        }
    }
}

/// A job that is submitted again and again, once per slot. No `Debug`: payloads are never shown.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScheduleView {
    /// Its name.
    #[schema(example = "nightly-positions")]
    pub name: String,
    /// When, as a cron expression.
    #[schema(example = "0 6 * * MON-FRI")]
    pub cron: String,
    /// Whose clocks it means.
    #[schema(example = "Europe/Berlin")]
    pub timezone: String,
    /// The body of a `POST /jobs`, as it was written; null in lists.
    #[schema(required, value_type = Option<Object>)]
    pub job: Option<Json>,
    /// What happens to a slot while the job of an earlier one has not ended.
    pub overlap: OverlapView,
    /// What happens to slots that passed while no scheduler ran.
    pub catch_up: CatchUpView,
    /// With `all`: the most slots that are made up for.
    #[schema(minimum = 1, maximum = 1000)]
    pub catch_up_limit: u32,
    /// Each slot is fired up to this much later.
    #[schema(example = "30s")]
    pub jitter: String,
    /// The identity of the configuration that its jobs run as; null where callers cannot be told apart.
    #[schema(required, example = "nightly")]
    pub run_as: Option<String>,
    /// Who may change it.
    pub origin: OriginView,
    /// Whether it fires nothing.
    pub paused: bool,
    /// The next slots, at its own clocks; those of a paused one pass.
    #[schema(max_items = 5)]
    pub next_times: Vec<DateTime<FixedOffset>>,
    /// The last slots, newest first; empty in lists.
    #[schema(max_items = 20)]
    pub slots: Vec<SlotView>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When what it says, or whether it is paused, last changed.
    pub updated_at: DateTime<Utc>,
}

impl ScheduleView {
    /// As lists show it.
    pub(super) fn listed(schedule: Schedule, next_times: Vec<DateTime<FixedOffset>>) -> Self {
        let Schedule { name, spec, origin, owner, paused, created_at, updated_at, .. } = schedule;
        Self {
            name,
            cron: spec.cron,
            timezone: spec.timezone,
            job: None,
            overlap: spec.overlap.into(),
            catch_up: spec.catch_up.into(),
            catch_up_limit: spec.catch_up_limit,
            jitter: duration::short(spec.jitter),
            run_as: named(&owner).map(str::to_owned),
            origin: origin.into(),
            paused,
            next_times,
            slots: Vec::new(),
            created_at,
            updated_at,
        }
    }

    /// The whole of it.
    pub(super) fn whole(
        schedule: Schedule,
        next_times: Vec<DateTime<FixedOffset>>,
        slots: Vec<SlotRow>,
    ) -> Self {
        let job = Some(schedule.spec.job.clone());
        let slots = slots.into_iter().map(SlotView::from).collect();
        Self { job, slots, ..Self::listed(schedule, next_times) }
    }
}

/// What became of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum SlotOutcomeView {
    /// A job was submitted.
    Fired,
    /// Left out, because an earlier or an equal job had not ended.
    Skipped,
    /// Left out, because no scheduler ran at its time.
    Missed,
    /// The job could not be made.
    Refused,
}

impl From<SlotOutcome> for SlotOutcomeView {
    fn from(outcome: SlotOutcome) -> Self {
        match outcome {
            SlotOutcome::Fired => Self::Fired,
            SlotOutcome::Skipped => Self::Skipped,
            SlotOutcome::Missed => Self::Missed,
            SlotOutcome::Refused => Self::Refused,
        }
    }
}

/// A slot that has passed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlotView {
    /// When it was due; for a run by hand, when that was.
    pub slot: DateTime<Utc>,
    /// What became of it.
    pub outcome: SlotOutcomeView,
    /// The job that was submitted, or that kept it out.
    #[schema(required, example = "J20260102_0123456789ABC")]
    pub job_id: Option<String>,
    /// Why it was left out or refused, in a sentence.
    #[schema(required)]
    pub detail: Option<String>,
    /// When that was recorded.
    pub at: DateTime<Utc>,
}

impl From<SlotRow> for SlotView {
    fn from(row: SlotRow) -> Self {
        Self {
            slot: row.slot,
            outcome: row.outcome.into(),
            job_id: row.job_id.map(|job| job.to_string()),
            detail: row.detail,
            at: row.at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_and_the_reader_know_the_same_fields() {
        use utoipa::PartialSchema;
        let schema = serde_json::to_value(ScheduleRequest::schema()).unwrap();
        let mut described: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut read = [&crate::definition::SCHEDULE_MEMBERS[..], &["runAs"]].concat();
        described.sort_unstable();
        read.sort_unstable();
        assert_eq!(described, read);
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["required"], serde_json::json!(["cron", "job"]));
    }

    #[test]
    fn words_are_shown_as_they_are_written() {
        for overlap in Overlap::ALL {
            assert_eq!(serde_json::to_value(OverlapView::from(overlap)).unwrap(), overlap.as_str());
        }
        for catch_up in CatchUp::ALL {
            assert_eq!(serde_json::to_value(CatchUpView::from(catch_up)).unwrap(), catch_up.as_str());
        }
    }
}
