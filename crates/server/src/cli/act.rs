//! `outhaul cancel ID` and `outhaul retry ID`: what people do to a job that exists.

use std::process::ExitCode;

use clap::Args;

use super::client::{Target, job_path};
use super::failure::Failure;
use super::{progress, status};

/// Which job to cancel.
#[derive(Args, Debug)]
pub(crate) struct Cancel {
    #[command(flatten)]
    target: Target,
    /// The job.
    #[arg(value_name = "ID")]
    job_id: String,
}

/// Which job to try again.
#[derive(Args, Debug)]
pub(crate) struct Retry {
    #[command(flatten)]
    target: Target,
    /// The job.
    #[arg(value_name = "ID")]
    job_id: String,
    /// Follow it to its end; exit code 0 only if it is COMPLETED.
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn cancel(args: Cancel) -> Result<ExitCode, Failure> {
    act(&args.target, &args.job_id, "cancel", false).await
}

pub(crate) async fn retry(args: Retry) -> Result<ExitCode, Failure> {
    act(&args.target, &args.job_id, "retry", args.watch).await
}

async fn act(target: &Target, job_id: &str, verb: &str, watch: bool) -> Result<ExitCode, Failure> {
    let client = target.client()?;
    let mut job = client.post(&job_path(job_id, &format!("/{verb}"))?, &[], None, None).await?;
    if watch {
        job = progress::follow(&client, job_id, target.json).await?;
    }
    status::show(&job, target.json);
    Ok(if watch { status::verdict(&job) } else { ExitCode::SUCCESS })
}
