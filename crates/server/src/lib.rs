//! The Outhaul server as a library: configuration, wiring, HTTP API and command line. The binary is
//! a few lines around it, and tests start whole servers in their own process through [`serve`].

pub mod api;
pub mod cli;
pub mod config;
mod listen;
pub mod log;
pub mod metrics;
pub mod roles;
pub mod serve;
