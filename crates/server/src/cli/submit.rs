//! `outhaul submit`: sends one job, from flags or from a body in a file.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};

use super::client::Target;
use super::failure::Failure;
use super::table::{self, count, say, text};
use super::{progress, status};

/// What to submit.
#[derive(Args, Debug)]
pub(crate) struct Submit {
    #[command(flatten)]
    target: Target,
    /// The dataset; not needed where one is the default.
    #[arg(long)]
    dataset: Option<String>,
    /// A key; may be repeated. Every key is exported for every date.
    #[arg(long = "key", required_unless_present = "file")]
    keys: Vec<String>,
    /// An effective date, yyyyMMdd; may be repeated.
    #[arg(long = "date", required_unless_present = "file", value_name = "YYYYMMDD")]
    dates: Vec<String>,
    /// The whole request body from a file, or from stdin with `-`.
    #[arg(long, conflicts_with_all = ["dataset", "keys", "dates"], value_name = "FILE")]
    file: Option<PathBuf>,
    /// 0 to 9, higher first.
    #[arg(long)]
    priority: Option<u8>,
    /// A label; may be repeated.
    #[arg(long = "label", value_name = "NAME=TEXT", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Makes it safe to submit again: the same key gives the same job.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// What a dead chunk does to the rest: stop or continue.
    #[arg(long, value_name = "stop|continue")]
    on_failure: Option<String>,
    /// Not before this moment (RFC 3339).
    #[arg(long, value_name = "TIME")]
    run_at: Option<String>,
    /// Generate every file, also those that could be reused.
    #[arg(long)]
    force: bool,
    /// Say what would be done, and do nothing.
    #[arg(long, conflicts_with = "watch")]
    dry_run: bool,
    /// Follow the job to its end; exit code 0 only if it is COMPLETED.
    #[arg(long)]
    watch: bool,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as name=text")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) async fn run(args: Submit) -> Result<ExitCode, Failure> {
    let client = args.target.client()?;
    let body = Value::Object(body(&args)?);
    let query: &[(&str, String)] = if args.dry_run { &[("dryRun", "true".to_owned())] } else { &[] };
    let answer = client.post("/jobs", query, args.idempotency_key.as_deref(), Some(&body)).await?;
    if args.dry_run {
        if args.target.json {
            table::json(&answer);
        } else {
            let (total, reuse, generate) =
                (count(&answer, "total"), count(&answer, "reuse"), count(&answer, "generate"));
            say(format!("{total} chunks: {reuse} to reuse, {generate} to generate"));
            say(table::plain(&text(&answer, "verdict")));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !args.watch {
        status::show(&answer, args.target.json);
        return Ok(ExitCode::SUCCESS);
    }
    let job = progress::follow(&client, &text(&answer, "jobId"), args.target.json).await?;
    status::show(&job, args.target.json);
    Ok(status::verdict(&job))
}

/// The request; flags go over what the file says.
fn body(args: &Submit) -> Result<Map<String, Value>, Failure> {
    let mut body = match &args.file {
        Some(file) => read_body(file)?,
        None => {
            let items: Vec<Value> =
                args.keys.iter().map(|key| json!({ "key": key, "effectiveDates": args.dates })).collect();
            Map::from_iter([("items".to_owned(), Value::Array(items))])
        }
    };
    let options = [
        ("dataset", args.dataset.clone().map(Value::String)),
        ("priority", args.priority.map(Value::from)),
        ("onFailure", args.on_failure.clone().map(Value::String)),
        ("runAt", args.run_at.clone().map(Value::String)),
    ];
    for (name, value) in options {
        if let Some(value) = value {
            body.insert(name.to_owned(), value);
        }
    }
    if !args.labels.is_empty() {
        let labels = args.labels.iter().map(|(name, value)| (name.clone(), Value::String(value.clone())));
        body.insert("labels".to_owned(), Value::Object(labels.collect()));
    }
    if args.force {
        let output = body.entry("output").or_insert_with(|| json!({}));
        if let Value::Object(output) = output {
            output.insert("force".to_owned(), Value::Bool(true));
        }
    }
    Ok(body)
}

fn read_body(file: &PathBuf) -> Result<Map<String, Value>, Failure> {
    let cannot = |error: std::io::Error| Failure::new(format!("{} cannot be read: {error}", file.display()));
    let mut text = String::new();
    if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map_err(cannot)?;
    } else {
        text = std::fs::read_to_string(file).map_err(cannot)?;
    }
    serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("{} does not hold a JSON object: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        submit: Submit,
    }

    fn parsed(words: &[&str]) -> Map<String, Value> {
        let whole = Whole::try_parse_from([&["submit"], words].concat()).unwrap();
        body(&whole.submit).unwrap()
    }

    #[test]
    fn flags_become_the_request() {
        let words = "--dataset positions --key ABC --key DEF --date 20250215 --priority 7 --label team=a=b \
                     --on-failure continue --run-at 2026-01-01T00:00:00Z --force";
        let expected = json!({
            "items": [
                { "key": "ABC", "effectiveDates": ["20250215"] },
                { "key": "DEF", "effectiveDates": ["20250215"] }
            ],
            "dataset": "positions", "priority": 7, "onFailure": "continue", "runAt": "2026-01-01T00:00:00Z",
            "labels": { "team": "a=b" }, "output": { "force": true }
        });
        assert_eq!(Value::Object(parsed(&words.split_whitespace().collect::<Vec<_>>())), expected);
    }

    #[test]
    fn flags_go_over_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("body.json");
        std::fs::write(&file, r#"{"items": [], "priority": 1, "output": {"format": "CSV"}}"#).unwrap();
        let found = parsed(&["--file", file.to_str().unwrap(), "--priority", "9", "--force"]);
        let expected = json!({"items": [], "priority": 9, "output": {"format": "CSV", "force": true}});
        assert_eq!(Value::Object(found), expected);
    }

    #[test]
    fn keys_and_dates_or_a_file_are_needed() {
        for words in [&[][..], &["--key", "A"], &["--date", "20250101"], &["--file", "x", "--key", "A"]] {
            assert!(Whole::try_parse_from([&["submit"], words].concat()).is_err(), "{words:?}");
        }
    }
}
