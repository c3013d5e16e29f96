//! `outhaul status ID`: one job as it is now, or followed to its end.

use std::process::ExitCode;

use clap::Args;
use outhaul_core::job::JobStatus;
use serde_json::Value;

use super::client::{Target, job_path};
use super::failure::Failure;
use super::progress;
use super::table::{self, bytes, count, number, plain, say, text};

/// Which job to show.
#[derive(Args, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    target: Target,
    /// The job.
    #[arg(value_name = "ID")]
    job_id: String,
    /// Follow it to its end; exit code 0 only if it is COMPLETED.
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn run(args: Status) -> Result<ExitCode, Failure> {
    let client = args.target.client()?;
    if args.watch {
        let job = progress::follow(&client, &args.job_id, args.target.json).await?;
        show(&job, args.target.json);
        return Ok(verdict(&job));
    }
    let job = client.get(&job_path(&args.job_id, "")?, &[]).await?;
    show(&job, args.target.json);
    Ok(ExitCode::SUCCESS)
}

/// 0 for a COMPLETED job, 1 for one that ended otherwise.
pub(crate) fn verdict(job: &Value) -> ExitCode {
    if progress::status(job) == Some(JobStatus::Completed) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a job.
pub(crate) fn show(job: &Value, json: bool) {
    if json {
        return table::json(job);
    }
    let mut lines = vec![
        ("job", text(job, "jobId")),
        ("status", text(job, "status")),
        ("dataset", text(job, "dataset")),
        (
            "chunks",
            format!(
                "{} total, {} pending, {} running, {} done, {} failed, {} cancelled",
                count(job, "total"),
                count(job, "pending"),
                count(job, "running"),
                count(job, "done"),
                count(job, "failed"),
                count(job, "cancelled")
            ),
        ),
        (
            "files",
            format!("{} generated, {} reused", count(job, "filesGenerated"), count(job, "filesReused")),
        ),
        ("output", format!("{} rows, {}", count(job, "rows"), bytes(job, "bytes"))),
        ("base path", text(job, "s3BasePath")),
        ("error", text(job, "errorMessage")),
        ("created", text(job, "createdAt")),
        ("completed", text(job, "completedAt")),
    ];
    if job["etaSeconds"].is_u64() {
        lines.push(("time left", format!("about {} s", number(job, "etaSeconds"))));
    }
    for (name, value) in lines.into_iter().filter(|(_, value)| !value.is_empty()) {
        say(format!("{name:<10} {}", plain(&value)));
    }
}
