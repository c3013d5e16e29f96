//! `outhaul migrate`: brings the database's schema up to date, for those who do not let servers do it.

use std::process::ExitCode;

use clap::Args;

use super::ConfigFlag;
use super::failure::{Failure, with_causes};
use super::table::say;
use crate::config::Environment;
use crate::{log, serve};

/// Whose database.
#[derive(Args, Debug)]
pub(crate) struct Migrate {
    #[command(flatten)]
    config: ConfigFlag,
}

pub(crate) async fn run(args: Migrate) -> Result<ExitCode, Failure> {
    let environment = Environment::of_process();
    log::start(&environment, "warn");
    let config = args.config.load(environment, true)?;
    serve::open_database(&config, true).await.map_err(|error| Failure::new(with_causes(&error)))?;
    say("the database is up to date");
    Ok(ExitCode::SUCCESS)
}
