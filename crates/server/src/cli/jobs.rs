//! `outhaul jobs`: lists jobs, newest first.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::client::Target;
use super::failure::Failure;
use super::table::{self, bytes, count, number, say, text};

/// Which jobs to list.
#[derive(Args, Debug)]
pub(crate) struct Jobs {
    #[command(flatten)]
    target: Target,
    /// Only this status: SUBMITTED, IN_PROGRESS, COMPLETED, FAILED or CANCELLED.
    #[arg(long)]
    status: Option<String>,
    /// Only this job type.
    #[arg(long)]
    job_type: Option<String>,
    /// Only this dataset.
    #[arg(long)]
    dataset: Option<String>,
    /// Only this owner.
    #[arg(long)]
    owner: Option<String>,
    /// Only jobs created at or after this moment (RFC 3339).
    #[arg(long, value_name = "TIME")]
    created_after: Option<String>,
    /// Only jobs created before this moment (RFC 3339).
    #[arg(long, value_name = "TIME")]
    created_before: Option<String>,
    /// At most this many.
    #[arg(long)]
    limit: Option<u32>,
    /// Where to go on, as the page before said.
    #[arg(long)]
    cursor: Option<String>,
}

pub(crate) async fn run(args: Jobs) -> Result<ExitCode, Failure> {
    let status = args.status.map(|status| status.to_uppercase());
    let filters = [
        ("status", status),
        ("jobType", args.job_type),
        ("dataset", args.dataset),
        ("owner", args.owner),
        ("createdAfter", args.created_after),
        ("createdBefore", args.created_before),
        ("limit", args.limit.map(|limit| limit.to_string())),
        ("cursor", args.cursor),
    ];
    let query: Vec<(&str, String)> =
        filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let page = args.target.client()?.get("/jobs", &query).await?;
    if args.target.json {
        table::json(&page);
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = page["items"].as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        say("no jobs");
    } else {
        say(table::table(&["JOB", "STATUS", "WHAT", "DONE", "FAILED", "ROWS", "BYTES", "CREATED"], &rows));
    }
    if let Some(cursor) = page["nextCursor"].as_str() {
        say(format!("more: --cursor {}", table::plain(cursor)));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(job: &Value) -> Vec<String> {
    let what = if job["dataset"].is_null() { "jobType" } else { "dataset" };
    vec![
        text(job, "jobId"),
        text(job, "status"),
        text(job, what),
        format!("{}/{}", number(job, "done"), number(job, "total")),
        count(job, "failed"),
        count(job, "rows"),
        bytes(job, "bytes"),
        text(job, "createdAt"),
    ]
}
