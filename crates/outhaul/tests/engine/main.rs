//! The engine's behaviour, on a store in memory that fails on command.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod broken;
mod broker;
mod delivery;
mod fake;
mod jobs;
mod leases;
mod progress;
mod recording;
mod running;
mod sqlite;
