//! Outhaul's engine as a library: durable chunks of work that run under leases, are tried again, and
//! never get lost. Exports are a guest of the same interface, [`Handler`].

mod context;
mod duty;
mod engine;
mod handler;
mod instrument;
mod keeper;
mod lease;
mod owned;
mod pruner;
mod reaper;
mod recorder;
mod registry;
mod repair;
mod runner;
mod settings;
mod slots;
mod stager;
mod sweeper;
pub mod testing;
mod worker;

pub use context::{ChunkContext, Stop};
pub use engine::Engine;
pub use handler::{Failed, Handler, Outcome};
pub use instrument::Instrumented;
pub use outhaul_core as core;
pub use registry::Registry;
pub use settings::{EngineSettings, Stores, WorkerSettings};
