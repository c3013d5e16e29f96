//! `outhaul history ID`: every transition of a job's chunks, oldest first.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::client::{Client, Target, job_path};
use super::failure::Failure;
use super::table::{self, say, text};

/// Whose history.
#[derive(Args, Debug)]
pub(crate) struct History {
    #[command(flatten)]
    target: Target,
    /// The job.
    #[arg(value_name = "ID")]
    job_id: String,
    /// Only this chunk, such as `main`.
    #[arg(long, value_name = "KEY")]
    chunk_key: Option<String>,
}

pub(crate) async fn run(args: History) -> Result<ExitCode, Failure> {
    let client = args.target.client()?;
    let items = of(&client, &args.job_id, args.chunk_key).await?;
    if args.target.json {
        table::json(&json!({ "items": items }));
    } else {
        show(&items);
    }
    Ok(ExitCode::SUCCESS)
}

/// The transitions of a job's chunks, or of one of them.
pub(crate) async fn of(
    client: &Client,
    job_id: &str,
    chunk_key: Option<String>,
) -> Result<Vec<Value>, Failure> {
    let query: Vec<_> = chunk_key.into_iter().map(|key| ("chunkKey", key)).collect();
    Ok(client.all(&job_path(job_id, "/history")?, &query).await?)
}

/// Prints transitions as a table.
pub(crate) fn show(items: &[Value]) {
    if items.is_empty() {
        return say("no history");
    }
    let row = |item: &Value| {
        let columns = ["at", "chunkKey", "from", "to", "attempt", "worker", "step", "cause"];
        columns.iter().map(|name| text(item, name)).collect()
    };
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    say(table::table(&["AT", "CHUNK", "FROM", "TO", "ATTEMPT", "WORKER", "STEP", "CAUSE"], &rows));
}
