//! A schedule: a job that is submitted again and again, once per slot. A *slot* is a moment at which the
//! schedule is due; each is a unique row, so that any number of schedulers submit one job for it.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::job::NewJob;
use crate::json::Json;

/// Internal key of a schedule; a name that is deleted and made again gets another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScheduleId(pub i64);

/// What happens to a slot while the job of an earlier one has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// The slot is left out.
    #[default]
    Skip,
    /// Its job waits until the earlier one has ended, well or badly.
    Queue,
    /// Its job runs beside it.
    Allow,
}

impl Overlap {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Skip, Self::Queue, Self::Allow];

    /// The word in SQL and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Queue => "queue",
            Self::Allow => "allow",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.as_str() == text)
    }
}

/// What happens to slots that passed while no scheduler ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    /// They are left out.
    None,
    /// The newest of them is made up for.
    #[default]
    Last,
    /// All of them are, the newest `catch_up_limit` at most, oldest first.
    All,
}

impl CatchUp {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::None, Self::Last, Self::All];

    /// The word in SQL and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Last => "last",
            Self::All => "all",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.as_str() == text)
    }
}

/// Who may change a schedule or a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It came through the API, which may change it.
    Api,
    /// It stands in the configuration, and is changed there.
    Config,
}

impl Origin {
    /// The word in SQL and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Config => "config",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Api, Self::Config].into_iter().find(|word| word.as_str() == text)
    }
}

/// What a schedule says. `Debug` shows no payload.
#[derive(Clone, PartialEq)]
pub struct ScheduleSpec {
    /// When, as a cron expression.
    pub cron: String,
    /// Whose clocks it means: a name of the IANA database.
    pub timezone: String,
    /// A `POST /jobs` body in which date words may stand.
    pub job: Json,
    /// What happens to a slot while an earlier one's job has not ended.
    pub overlap: Overlap,
    /// What happens to slots that passed unseen.
    pub catch_up: CatchUp,
    /// The most slots that are made up for at once.
    pub catch_up_limit: u32,
    /// Slots are fired up to this much later, so that not everything starts at the full hour.
    pub jitter: Duration,
}

impl fmt::Debug for ScheduleSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleSpec")
            .field("cron", &self.cron)
            .field("timezone", &self.timezone)
            .field("overlap", &self.overlap)
            .field("catch_up", &self.catch_up)
            .field("catch_up_limit", &self.catch_up_limit)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}

/// The slot a schedule waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextSlot {
    /// The slot.
    pub slot: DateTime<Utc>,
    /// When it is to be fired: the slot and its share of the jitter.
    pub fire_at: DateTime<Utc>,
}

/// A schedule to be stored under its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSchedule {
    /// Its name.
    pub name: String,
    /// What it says.
    pub spec: ScheduleSpec,
    /// Where it comes from.
    pub origin: Origin,
    /// Whose jobs it submits.
    pub owner: String,
    /// What it waits for if it is new or its times have changed; `None`: its time will not come.
    pub next: Option<NextSlot>,
}

/// A schedule as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Internal key.
    pub id: ScheduleId,
    /// Its name.
    pub name: String,
    /// What it says.
    pub spec: ScheduleSpec,
    /// Where it comes from.
    pub origin: Origin,
    /// Whose jobs it submits.
    pub owner: String,
    /// Whether it fires nothing.
    pub paused: bool,
    /// What it waits for.
    pub next: Option<NextSlot>,
    /// Rises when what it says changes.
    pub version: i64,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When what it says, or whether it is paused, last changed.
    pub updated_at: DateTime<Utc>,
}

/// What became of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotOutcome {
    /// A job was submitted.
    Fired,
    /// Left out, because an earlier or an equal job had not ended.
    Skipped,
    /// Left out, because no scheduler ran at its time.
    Missed,
    /// The job could not be made: the schedule's `job` no longer fits the configuration.
    Refused,
}

impl SlotOutcome {
    /// The word in SQL and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fired => "fired",
            Self::Skipped => "skipped",
            Self::Missed => "missed",
            Self::Refused => "refused",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Fired, Self::Skipped, Self::Missed, Self::Refused]
            .into_iter()
            .find(|word| word.as_str() == text)
    }
}

/// A slot that has passed.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotRow {
    /// The slot.
    pub slot: DateTime<Utc>,
    /// What became of it.
    pub outcome: SlotOutcome,
    /// The job that was submitted, or that kept it out.
    pub job_id: Option<JobId>,
    /// Why it was left out or refused, in a sentence.
    pub detail: Option<String>,
    /// When that was recorded, by the database's clock.
    pub at: DateTime<Utc>,
}

/// What is to become of a slot.
#[derive(Clone, Debug)]
pub enum SlotPlan {
    /// Submit this, unless the overlap forbids it.
    Run(Box<NewJob>),
    /// Record why it is left out.
    Missed(String),
    /// Record why no job could be made.
    Refused(String),
}

/// Slots of one schedule to be fired in one transaction.
#[derive(Clone, Debug)]
pub struct ScheduleFire {
    /// Which schedule.
    pub id: ScheduleId,
    /// What it said when the jobs were made; if it has changed since, nothing happens.
    pub version: i64,
    /// How its own slots go on; `None`: fired by hand, which changes nothing else, also while it is paused.
    pub advance: Option<Advance>,
    /// What an unfinished job of an earlier firing means.
    pub overlap: Overlap,
    /// The slots, oldest first. Those of one firing do not keep each other out: where they may not run
    /// beside each other, each waits for the one before it.
    pub slots: Vec<(DateTime<Utc>, SlotPlan)>,
}

/// From one slot to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// The slot it must be waiting for.
    pub from: DateTime<Utc>,
    /// What it waits for afterwards.
    pub to: Option<NextSlot>,
}

/// How a firing ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleFired {
    /// What became of the slots, in their order.
    Yes(Vec<SlotRow>),
    /// Somebody else fired, changed, paused or deleted it; nothing was done.
    Lost,
}

/// The schedules whose time has come.
#[derive(Clone, Debug)]
pub struct DueSchedules {
    /// The moment that was asked about; the database's now where none was.
    pub now: DateTime<Utc>,
    /// The schedules, the longest overdue first.
    pub schedules: Vec<Schedule>,
}

/// How storing a schedule or a trigger ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is new.
    Created,
    /// It was there, and is now as asked.
    Replaced,
    /// One of that name stands in the configuration, and only there can it be changed.
    ReadOnly,
}

/// How deleting a schedule or a trigger ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone.
    Yes,
    /// It stands in the configuration, and only there can it be deleted.
    ReadOnly,
    /// There is none of that name.
    Unknown,
}
