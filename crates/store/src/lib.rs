//! The databases that Outhaul keeps its jobs in. `postgres/` and `sqlite/` have the same file names
//! side by side; stores hold SQL and nothing else.

mod error;
mod firing;
mod open;
mod page;
pub mod postgres;
pub mod sqlite;

pub use open::{OpenOptions, Opened, open};
