//! What the engine is told at start. Nothing reads the environment later.

use std::sync::Arc;
use std::time::Duration;

use outhaul_core::store::Store;

/// How a process takes part in running chunks.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerSettings {
    /// Chunks at once.
    pub concurrency: u32,
    /// The most chunks that one claim takes; `None`: as many as there is room for.
    pub claim_limit: Option<u32>,
    /// How long a claim holds without a heartbeat.
    pub lease: Duration,
    /// How often leases are renewed.
    pub heartbeat: Duration,
    /// How often to look for work that no hint told of.
    pub poll_interval: Duration,
    /// How long running chunks may go on after a stop was asked for, before they are given back.
    pub shutdown_grace: Duration,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            concurrency: 8,
            claim_limit: None,
            lease: Duration::from_secs(60),
            heartbeat: Duration::from_secs(15),
            poll_interval: Duration::from_secs(1),
            shutdown_grace: Duration::from_secs(5),
        }
    }
}

/// Which duties a process has, and how it does them.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSettings {
    /// Run chunks.
    pub worker_role: bool,
    /// Run the pruner and the repair of counts, and fire schedules and triggers.
    pub scheduler_role: bool,
    /// The machine's name, for people.
    pub host: String,
    /// The roles by name, for people.
    pub roles: String,
    /// How to run chunks.
    pub worker: WorkerSettings,
    /// How long finished jobs are kept.
    pub retain_jobs: Duration,
    /// How long it is kept who did what.
    pub retain_audit: Duration,
}

/// Connections to the one database, by who must never wait for whom.
#[derive(Clone)]
pub struct Stores {
    /// For the API.
    pub api: Arc<dyn Store>,
    /// For claims, finishes and sweeps.
    pub engine: Arc<dyn Store>,
    /// For heartbeats, cancellations and progress, used on a thread of their own.
    pub keeper: Arc<dyn Store>,
}
