//! placeholder

pub mod servers;
pub mod store_suite;
pub mod test_db;
