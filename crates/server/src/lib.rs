//! The Outhaul server as a library: configuration, wiring, HTTP API and command line. The binary is
//! a few lines around it, and tests start whole servers in their own process through [`serve`].
//!
//! A binary with job types of its own is [`run`] with a registry that has them:
//!
//! ```no_run
//! use outhaul::{Context, Job, JobError, Registry};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Greet {
//!     name: String,
//! }
//!
//! impl Job for Greet {
//!     const TYPE: &'static str = "GREET";
//!     type Output = String;
//!
//!     async fn run(&self, _: &Context) -> Result<String, JobError> {
//!         Ok(format!("Hello, {}!", self.name))
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     outhaul_server::run(Registry::new().job::<Greet>())
//! }
//! ```

use std::process::ExitCode;

use outhaul::Registry;

pub mod api;
pub mod auth;
pub mod cli;
pub mod config;
mod data_dir;
pub mod definition;
mod descriptors;
mod listen;
pub mod log;
pub mod metrics;
pub mod planning;
pub mod roles;
pub mod serve;
pub mod steps;
mod warnings;

/// The whole program: reads the command line and does what it says. Every command of `outhaul` is
/// there, and `serve` runs the job types of `registry` beside those of the configuration.
pub fn run(registry: Registry) -> ExitCode {
    cli::main(registry)
}
