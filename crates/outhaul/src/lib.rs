//! Outhaul's engine as a library: durable chunks of work that run under leases, are tried again, and
//! never get lost. Exports are a guest of the same interface, [`Handler`].

mod context;
mod engine;
mod handler;
mod registry;
mod settings;

pub use context::{ChunkContext, Stop};
pub use engine::Engine;
pub use handler::{Failed, Handler, Outcome};
pub use outhaul_core as core;
pub use registry::Registry;
pub use settings::{EngineSettings, Stores, WorkerSettings};
