//! Sources, against real databases.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;
mod direct;
mod pg_total;
mod pooled;
mod postgres;
mod spans;
mod sqlite;
