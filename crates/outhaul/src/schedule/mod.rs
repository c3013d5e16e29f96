//! Schedules: jobs that are submitted again and again. The rules are pure ([`Times`] says when, [`due`] what
//! runs, [`words`] what the job is); the [`Scheduler`] is their only part that talks to the store.

mod cron;
pub mod due;
mod fields;
mod scheduler;
pub mod words;
mod zone;

pub use cron::{Times, TimesError};
pub use scheduler::{ByHand, Round, Scheduler};
