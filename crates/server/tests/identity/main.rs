//! Who asks, what they may see, and whose rows end up in the file: whole servers with `[auth] mode = "jwt"`, asked
//! over HTTP by several people. Servers run in this process, but where their logs matter.

#![expect(clippy::unwrap_used, reason = "in a test, what is missing is a failure")]

#[path = "../common/mod.rs"]
mod common;

mod audit;
mod canary;
mod counties;
mod hook;
mod keys;
mod limits;
mod others;
mod people;
mod recheck;
mod routes;
mod row_security;
mod runs;
mod server;
mod turns;
mod undone;
mod words;
