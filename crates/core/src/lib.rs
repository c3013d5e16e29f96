//! The words, rules and ports of Outhaul: everything that is true whatever the database, broker or
//! storage. Nothing here does input or output, and nothing reads the clock or the environment.

pub mod announcement;
pub mod audit;
pub mod clock;
pub mod dead_letter;
pub mod delivery;
pub mod duration;
pub mod fault;
pub mod file;
pub mod history;
pub mod id;
pub mod identity;
pub mod job;
pub mod json;
pub mod key;
pub mod outbox;
pub mod progress;
pub mod queue;
pub mod retry;
pub mod reuse;
pub mod schedule;
pub mod secret;
pub mod state;
pub mod step;
pub mod store;
pub mod trigger;
pub mod turn;
pub mod vacuum;
pub mod vitals;
pub mod worker;
