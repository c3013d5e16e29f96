//! `outhaul cancel ID`, `outhaul priority ID N` and `outhaul retry ID`: what people do to a job that exists.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

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

/// Which job to prefer.
#[derive(Args, Debug)]
pub(crate) struct Priority {
    #[command(flatten)]
    target: Target,
    /// The job.
    #[arg(value_name = "ID")]
    job_id: String,
    /// 0 to 9, higher first.
    #[arg(value_name = "N", value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: u8,
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
    act(&args.target, &args.job_id, "cancel", None, false).await
}

pub(crate) async fn priority(args: Priority) -> Result<ExitCode, Failure> {
    let body = json!({ "priority": args.priority });
    act(&args.target, &args.job_id, "priority", Some(&body), false).await
}

pub(crate) async fn retry(args: Retry) -> Result<ExitCode, Failure> {
    act(&args.target, &args.job_id, "retry", None, args.watch).await
}

async fn act(
    target: &Target,
    job_id: &str,
    verb: &str,
    body: Option<&Value>,
    watch: bool,
) -> Result<ExitCode, Failure> {
    let client = target.client()?;
    let mut job = client.post(&job_path(job_id, &format!("/{verb}"))?, &[], None, body).await?;
    if watch {
        job = progress::follow(&client, job_id, target.json).await?;
    }
    status::show(&job, target.json);
    Ok(if watch { status::verdict(&job) } else { ExitCode::SUCCESS })
}
