//! Data exports on Outhaul's engine: datasets, sources, formats and storage. Uses the engine as any
//! guest would, through `outhaul::Handler`.

pub mod base_path;
pub mod dataset;
pub mod format;
pub mod handler;
mod not_yet;
mod pace;
pub mod reason;
pub mod request;
pub mod rights;
pub mod scope;
pub mod settings;
pub mod source;
pub mod storage;
#[cfg(test)]
mod testing;

pub use base_path::ForeignBasePath;
pub use dataset::{Dataset, Exports, ExportsError};
pub use handler::ExportHandler;
pub use request::{ExportPlan, ExportRequest, PlanError};
pub use rights::{MissingClaims, scope_of};
