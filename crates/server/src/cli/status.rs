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
    // Files are what exports are about; a custom job has steps and a result instead.
    let (what, is_export) = (text(job, "jobType"), !job["dataset"].is_null());
    let of_export = |value: String| if is_export { value } else { String::new() };
    let mut lines = vec![
        ("job", text(job, "jobId")),
        ("status", text(job, "status")),
        ("type", if is_export { String::new() } else { what }),
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
            of_export(format!(
                "{} generated, {} reused",
                count(job, "filesGenerated"),
                count(job, "filesReused")
            )),
        ),
        ("output", of_export(format!("{} rows, {}", count(job, "rows"), bytes(job, "bytes")))),
        ("base path", text(job, "s3BasePath")),
        ("error", text(job, "errorMessage")),
        ("result", text(job, "result")),
        ("created", text(job, "createdAt")),
        ("completed", text(job, "completedAt")),
    ];
    if job["etaSeconds"].is_u64() {
        lines.push(("time left", format!("about {} s", number(job, "etaSeconds"))));
    }
    for (name, value) in lines.into_iter().filter(|(_, value)| !value.is_empty()) {
        say(format!("{name:<10} {}", plain(&value)));
    }
    let steps: Vec<Vec<String>> = job["steps"].as_array().into_iter().flatten().map(step).collect();
    if !steps.is_empty() {
        say("");
        say(table::table(&["STEP", "STATUS", "COMPLETED"], &steps));
    }
}

fn step(step: &Value) -> Vec<String> {
    ["name", "status", "completedAt"].iter().map(|name| text(step, name)).collect()
}
