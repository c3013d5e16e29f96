//! `outhaul audit`: who did what, newest first; for operators.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::client::Target;
use super::failure::Failure;
use super::table::{self, say, text};

/// Which acts.
#[derive(Args, Debug)]
pub(crate) struct Audit {
    #[command(flatten)]
    target: Target,
    /// Only what this one did.
    #[arg(long, value_name = "SUBJECT")]
    actor: Option<String>,
    /// Only what was done to this job.
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// At most this many.
    #[arg(long)]
    limit: Option<u32>,
    /// Where to go on, as the page before said.
    #[arg(long)]
    cursor: Option<String>,
}

impl Audit {
    fn query(&self) -> Vec<(&'static str, String)> {
        let filters = [
            ("actor", self.actor.clone()),
            ("jobId", self.job.clone()),
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("cursor", self.cursor.clone()),
        ];
        filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

pub(crate) async fn run(args: Audit) -> Result<ExitCode, Failure> {
    let page = args.target.client()?.get("/audit", &args.query()).await?;
    if args.target.json {
        table::json(&page);
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = page["items"].as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        say("nothing recorded");
    } else {
        say(table::table(&["AT", "ACTOR", "ACT", "JOB", "DETAIL"], &rows));
    }
    if let Some(cursor) = page["nextCursor"].as_str() {
        say(format!("more: --cursor {}", table::plain(cursor)));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(act: &Value) -> Vec<String> {
    ["at", "actor", "act", "jobId", "detail"].iter().map(|name| text(act, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        audit: Audit,
    }

    #[test]
    fn filters_have_the_names_of_the_api() {
        let asked = |flags: &[&str]| Line::try_parse_from([&["x"], flags].concat()).unwrap().audit.query();
        assert_eq!(asked(&[]), []);
        let all = ["--actor", "ann", "--job", "J1", "--limit", "5", "--cursor", "c"];
        let expected = [("actor", "ann"), ("jobId", "J1"), ("limit", "5"), ("cursor", "c")];
        assert_eq!(asked(&all), expected.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn an_act_is_a_row() {
        let act = serde_json::json!({"at": "2026-01-02T03:04:05Z", "actor": "ann", "act": "submitted",
            "jobId": "J1", "detail": null});
        assert_eq!(row(&act), ["2026-01-02T03:04:05Z", "ann", "submitted", "J1", ""]);
    }
}
