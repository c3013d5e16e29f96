//! What the tests of the other crates share, and nobody else uses: it is never published.
//!
//! - [`store_suite`] says what every store does, as one list of cases. A new one is under test when one test
//!   calls `exercise` with a way to make it.
//! - [`servers`] are the real servers that tests run against, and [`test_db`] is a database per test on one.

mod sample;
pub mod servers;
pub mod store_suite;
mod suite;
pub mod test_db;
mod waiting;
