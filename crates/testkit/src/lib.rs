//! What the tests of the other crates share, and nobody else uses: it is never published.
//!
//! - [`mod@store_suite`] and [`mod@delivery_suite`] say what every store and every delivery does, as one list of cases
//!   each. A new one is under test when a test binary calls the macro of that name with a way to make it.
//! - [`size`] says how large the long runs are.
//! - [`servers`] are the real servers that tests run against, and [`test_db`] is a database per test on one.

// A case that is not in the list of its suite is dead code, and must not go unnoticed.
#![deny(dead_code)]

pub mod delivery_suite;
mod sample;
pub mod servers;
pub mod size;
pub mod store_suite;
mod suite;
pub mod test_db;
mod waiting;
