//! The command line: one file per command. Results go to stdout, everything else to stderr.

mod act;
mod check;
mod client;
mod demo;
mod failure;
mod files;
mod hash;
mod init;
mod jobs;
mod manifest;
mod migrate;
mod progress;
mod sample;
mod serve;
mod status;
mod submit;
mod table;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::failure::Failure;
use crate::config::{Config, Environment, Load};

/// Moves large results out of databases without holding a request open, and never loses the work.
#[derive(Debug, Parser)]
#[command(name = "outhaul", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show it working: sample data, one export, everything embedded.
    Demo(demo::Demo),
    /// Run the server: API, workers and scheduler in one process, or some of them.
    Serve(serve::Serve),
    /// Submit an export.
    Submit(submit::Submit),
    /// List jobs, newest first.
    Jobs(jobs::Jobs),
    /// Show a job, or follow it to its end.
    Status(status::Status),
    /// List a job's files, or download them.
    Files(files::Files),
    /// Cancel a job.
    Cancel(act::Cancel),
    /// Queue a job's dead and held chunks again.
    Retry(act::Retry),
    /// Compare files with their recorded checksums.
    Verify(verify::Verify),
    /// Write a commented configuration file.
    Init(init::Init),
    /// Connect to everything the configuration names, and say what is wrong.
    Check(check::Check),
    /// Bring the database's schema up to date.
    Migrate(migrate::Migrate),
}

/// Where the configuration is; shared by the commands that need it.
#[derive(Clone, Debug, clap::Args)]
struct ConfigFlag {
    /// The configuration file; else OUTHAUL_CONFIG, else ./outhaul.toml if it is there.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFlag {
    fn load(self, environment: Environment, insecure: bool) -> Result<Config, Failure> {
        Ok(Config::load(&Load { file: self.config, insecure, environment })?)
    }
}

/// Reads the command line and runs it to its exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(cli.command)) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.code()
        }
    }
}

async fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Demo(args) => demo::run(args).await,
        Command::Serve(args) => serve::run(args).await,
        Command::Submit(args) => submit::run(args).await,
        Command::Jobs(args) => jobs::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Files(args) => files::run(args).await,
        Command::Cancel(args) => act::cancel(args).await,
        Command::Retry(args) => act::retry(args).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Init(args) => init::run(&args),
        Command::Check(args) => check::run(args).await,
        Command::Migrate(args) => migrate::run(args).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_opens_with_what_it_is_for_and_shows_no_password() {
        let help = Cli::command().render_help().to_string();
        assert!(help.starts_with("Moves large results out of databases"), "{help}");
        let mut command = Cli::command();
        let jobs = command.find_subcommand_mut("jobs").unwrap();
        let server = jobs.get_arguments().find(|arg| arg.get_id() == "server").unwrap();
        assert!(server.is_hide_env_values_set());
    }

    #[test]
    fn every_command_of_the_contract_is_there() {
        let command = Cli::command();
        let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        for name in [
            "demo", "serve", "submit", "jobs", "status", "files", "cancel", "retry", "verify", "init",
            "check", "migrate",
        ] {
            assert!(names.contains(&name), "{name}");
        }
    }
}
