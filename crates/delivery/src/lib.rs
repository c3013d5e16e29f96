//! How workers learn that a chunk is ready. Every delivery here is a source of hints: losing one, or
//! all of them, costs a poll interval and nothing else.

mod database;

pub use database::DatabaseDelivery;
