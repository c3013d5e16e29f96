//! `outhaul serve`: runs until it is told to stop.

use std::process::ExitCode;

use clap::Args;

use super::ConfigFlag;
use super::failure::{Failure, with_causes};
use crate::config::Environment;
use crate::roles::Roles;
use crate::{log, serve};

/// How to run.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    #[command(flatten)]
    config: ConfigFlag,
    /// What this process does: one or more of api,worker,scheduler.
    #[arg(long, default_value = "api,worker,scheduler", value_name = "ROLES")]
    roles: Roles,
    /// Let other machines in without [auth].
    #[arg(long)]
    insecure: bool,
}

pub(crate) async fn run(args: Serve) -> Result<ExitCode, Failure> {
    let environment = Environment::of_process();
    log::start(&environment, "info");
    // A process without the API listens nowhere.
    let config = args.config.load(environment, args.insecure || !args.roles.api)?;
    if args.roles.api && !config.listen.ip().is_loopback() {
        tracing::warn!(listen = %config.listen, "serve.insecure: anyone who reaches {} may use it", config.listen);
    }
    if config.export.datasets.is_empty() {
        tracing::warn!(
            "serve.no_datasets: nothing can be exported until the configuration names a [datasets.…]"
        );
    }
    let run = serve::run(config, args.roles).await;
    run.map_err(|error| Failure::new(with_causes(&error)))?;
    Ok(ExitCode::SUCCESS)
}
