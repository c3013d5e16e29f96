//! The command line: one file per command. Results go to stdout, everything else to stderr.

mod act;
mod audit;
mod bearer;
mod check;
mod client;
mod dead_letters;
mod demo;
mod events;
mod failure;
mod files;
mod hash;
mod history;
mod init;
mod input;
mod jobs;
mod manifest;
mod migrate;
mod progress;
mod sample;
mod schedules;
mod serve;
mod status;
mod submit;
mod table;
mod token;
mod triggers;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use outhaul::Registry;

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
    /// Submit an export, or a job of a custom type.
    Submit(submit::Submit),
    /// List jobs, newest first.
    Jobs(jobs::Jobs),
    /// Show a job, or follow it to its end.
    Status(status::Status),
    /// List a job's files, or download them.
    Files(files::Files),
    /// Cancel a job.
    Cancel(act::Cancel),
    /// Change a job's priority.
    Priority(act::Priority),
    /// Queue a job's dead and held chunks again.
    Retry(act::Retry),
    /// Show what happened to a job's chunks.
    History(history::History),
    /// List, show and redrive what failed for good.
    DeadLetters(dead_letters::DeadLetters),
    /// List, make and run schedules: jobs that are submitted again and again.
    Schedules(schedules::Schedules),
    /// List and make triggers: jobs that are submitted when others have completed.
    Triggers(triggers::Triggers),
    /// Show who did what, newest first.
    Audit(audit::Audit),
    /// Compare files with their recorded checksums.
    Verify(verify::Verify),
    /// Write a commented configuration file.
    Init(init::Init),
    /// Connect to everything the configuration names, and say what is wrong.
    Check(check::Check),
    /// Make a token for development.
    Token(token::Token),
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

/// Reads the command line and runs it to its exit code; `registry` has the job types written in Rust.
pub fn main(registry: Registry) -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(run(cli.command, registry));
    // Not waited for: a handler that blocks its thread would keep the process from ending.
    runtime.shutdown_background();
    match ended {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.code()
        }
    }
}

async fn run(command: Command, registry: Registry) -> Result<ExitCode, Failure> {
    match command {
        Command::Demo(args) => demo::run(args).await,
        Command::Serve(args) => serve::run(args, registry).await,
        Command::Submit(args) => submit::run(args).await,
        Command::Jobs(args) => jobs::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Files(args) => files::run(args).await,
        Command::Cancel(args) => act::cancel(args).await,
        Command::Priority(args) => act::priority(args).await,
        Command::Retry(args) => act::retry(args).await,
        Command::History(args) => history::run(args).await,
        Command::DeadLetters(args) => dead_letters::run(args).await,
        Command::Schedules(args) => schedules::run(args).await,
        Command::Triggers(args) => triggers::run(args).await,
        Command::Audit(args) => audit::run(args).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Init(args) => init::run(&args),
        Command::Check(args) => check::run(args, registry).await,
        Command::Token(args) => token::run(args).await,
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
            "demo",
            "serve",
            "submit",
            "jobs",
            "status",
            "files",
            "cancel",
            "priority",
            "retry",
            "history",
            "dead-letters",
            "schedules",
            "triggers",
            "audit",
            "verify",
            "init",
            "check",
            "token",
            "migrate",
        ] {
            assert!(names.contains(&name), "{name}");
        }
    }
}
