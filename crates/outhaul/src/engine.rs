//! The running engine: starts and stops every duty of this process.

/// A started engine.
pub struct Engine;
