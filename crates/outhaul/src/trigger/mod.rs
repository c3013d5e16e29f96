//! Triggers: jobs that are submitted when others have completed. What became due is for the store to say;
//! the duty here makes the jobs and hands them back.

mod duty;
pub mod words;

pub use duty::Triggers;
