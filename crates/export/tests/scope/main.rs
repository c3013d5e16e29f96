//! Row filtering against real databases: each caller gets its own rows, whoever used the connection before,
//! and a dataset that would show more is refused.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../sources/common.rs"]
#[expect(dead_code, reason = "shared with the tests of sources, which use all of it")]
mod common;
mod files;
mod filter;
mod hostile;
mod leaks;
mod names;
mod row_security;
mod stage;
mod words;
