//! Sources, against real databases.

mod common;
mod postgres;
mod sqlite;
