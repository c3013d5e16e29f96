//! Data exports on Outhaul's engine: datasets, sources, formats and storage. Uses the engine as any
//! guest would, through `outhaul::Handler`.

pub mod settings;
pub mod storage;
