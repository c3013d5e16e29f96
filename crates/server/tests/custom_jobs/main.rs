//! Custom jobs as their users run them: real processes of the built binary and of a user's own, HTTP
//! endpoints that answer as each test says, `kill -9` at every boundary.

#[path = "../common/mod.rs"]
mod common;

mod boundaries;
mod dead_letters;
mod endpoint;
mod faults;
mod lock;
mod memory;
mod own_binary;
mod poison;
mod resubmission;
mod storm;
mod three_steps;
mod transfers;
