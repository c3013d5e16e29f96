//! `outhaul serve`: runs until it is told to stop.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;
use outhaul::Registry;
use outhaul_core::fault;

use super::ConfigFlag;
use super::failure::Failure;
use crate::config::{Environment, address};
use crate::log;
use crate::roles::Roles;
use crate::serve::{self, Ended};

/// How to run.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    #[command(flatten)]
    config: ConfigFlag,
    /// What this process does: one or more of api,worker,scheduler.
    #[arg(long, default_value = "api,worker,scheduler", value_name = "ROLES")]
    roles: Roles,
    /// Where a process without the API answers /healthz, /readyz and /metrics; else server.health_listen.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    health_listen: Option<SocketAddr>,
    /// Let other machines in without tokens.
    #[arg(long)]
    insecure: bool,
}

pub(crate) async fn run(args: Serve, registry: Registry) -> Result<ExitCode, Failure> {
    let environment = Environment::of_process();
    log::start(&environment, "info");
    if let Some(place) = environment.get("OUTHAUL_FAULT") {
        fault::arm(place);
    }
    // A process without the API shows its health at most, and no secret with it.
    let mut config = args.config.load(environment, args.insecure || !args.roles.api)?;
    config.health_listen = args.health_listen.or(config.health_listen);
    if args.roles.api && args.health_listen.is_some() {
        tracing::warn!("serve.health_listen_unused: the API answers for its health on {}", config.listen);
    }
    if args.roles.api && !config.listen.ip().is_loopback() && config.auth.jwt().is_none() {
        tracing::warn!(listen = %config.listen, "serve.insecure: anyone who reaches {} may use it", config.listen);
    }
    if config.export.datasets.is_empty()
        && config.job_types.is_empty()
        && registry.job_types().next().is_none()
    {
        tracing::warn!(
            "serve.nothing_to_do: the configuration names no [datasets.…] and no [job_types.…] yet"
        );
    }
    match serve::run(config, args.roles, registry).await? {
        Ended::Asked => Ok(ExitCode::SUCCESS),
        ended @ Ended::Broken(_) => Err(Failure::start_again(ended.to_string())),
    }
}
