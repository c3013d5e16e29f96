//! `outhaul submit`: sends one job, from flags or from a body in a file. A payload is sent and never
//! shown.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};

use super::client::Target;
use super::failure::Failure;
use super::table::{self, count, say, text};
use super::{input, progress, status};

/// The flags that have no place beside a custom job's.
const OF_EXPORT: [&str; 5] = ["dataset", "keys", "dates", "file", "force"];

/// What to submit.
#[derive(Args, Debug)]
pub(crate) struct Submit {
    #[command(flatten)]
    target: Target,
    /// The dataset; not needed where one is the default.
    #[arg(long)]
    dataset: Option<String>,
    /// A key; may be repeated. Every key is exported for every date.
    #[arg(long = "key", required_unless_present_any = ["file", "job_type"])]
    keys: Vec<String>,
    /// An effective date, yyyyMMdd; may be repeated.
    #[arg(long = "date", required_unless_present_any = ["file", "job_type"], value_name = "YYYYMMDD")]
    dates: Vec<String>,
    /// A custom job of this type instead of an export.
    #[arg(long, conflicts_with_all = OF_EXPORT, value_name = "TYPE")]
    job_type: Option<String>,
    /// What the custom job gets, as JSON. Others on this machine can see it; a file is safer.
    // Not only `requires`: that is not asked for where the required flag itself would be refused.
    #[arg(long, requires = "job_type", conflicts_with = "payload_file", conflicts_with_all = OF_EXPORT, value_name = "JSON")]
    payload: Option<Payload>,
    /// The same from a file, or from stdin with `-`.
    #[arg(long, requires = "job_type", conflicts_with_all = OF_EXPORT, value_name = "FILE")]
    payload_file: Option<PathBuf>,
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

/// JSON that only the job's handler may see.
#[derive(Clone)]
struct Payload(String);

impl From<String> for Payload {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(a payload)")
    }
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
            if args.job_type.is_none() {
                say(format!("{total} chunks: {reuse} to reuse, {generate} to generate"));
            }
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
    let mut body = match (&args.file, &args.job_type) {
        (Some(file), _) => input::from_json(file, &input::text(file)?)?,
        (None, Some(job_type)) => custom(args, job_type)?,
        (None, None) => {
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

/// The request for a custom job.
fn custom(args: &Submit, job_type: &str) -> Result<Map<String, Value>, Failure> {
    let mut body = Map::from_iter([("jobType".to_owned(), job_type.into())]);
    let (place, text) = match (&args.payload, &args.payload_file) {
        (Some(payload), _) => ("--payload".to_owned(), payload.0.clone()),
        (None, Some(file)) => (file.display().to_string(), input::text(file)?),
        (None, None) => return Ok(body),
    };
    // The reader's messages name a place in the text, and nothing of it.
    let payload = serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("{place} does not hold JSON: {error}")))?;
    body.insert("payload".to_owned(), payload);
    Ok(body)
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
    fn a_custom_job_is_its_type_and_its_payload() {
        let found = parsed(&["--job-type", "SEND_EMAIL", "--payload", r#"{"to": "x"}"#, "--priority", "9"]);
        let expected = json!({"jobType": "SEND_EMAIL", "payload": {"to": "x"}, "priority": 9});
        assert_eq!(Value::Object(found), expected);
        assert_eq!(Value::Object(parsed(&["--job-type", "A"])), json!({"jobType": "A"}));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("payload.json");
        std::fs::write(&file, "[1]").unwrap();
        let found = parsed(&["--job-type", "A", "--payload-file", file.to_str().unwrap()]);
        assert_eq!(Value::Object(found), json!({"jobType": "A", "payload": [1]}));
    }

    #[test]
    fn a_payload_is_not_shown_when_it_is_wrong_or_debugged() {
        let words = ["submit", "--job-type", "A", "--payload", r#"{"password": hunter2}"#];
        let whole = Whole::try_parse_from(words).unwrap();
        let said = body(&whole.submit).unwrap_err().to_string();
        assert!(said.starts_with("--payload does not hold JSON: "), "{said}");
        assert!(!format!("{said} {:?}", whole.submit).contains("hunter2"));
    }

    #[test]
    fn what_to_submit_must_be_said_in_one_way() {
        for words in [
            &[][..],
            &["--key", "A"],
            &["--date", "20250101"],
            &["--file", "x", "--key", "A"],
            &["--payload", "{}"],
            &["--key", "A", "--date", "20250101", "--payload", "{}"],
            &["--file", "x", "--payload-file", "y"],
            &["--job-type", "A", "--key", "A"],
            &["--job-type", "A", "--dataset", "A"],
            &["--job-type", "A", "--file", "x"],
            &["--job-type", "A", "--force"],
            &["--job-type", "A", "--payload", "1", "--payload-file", "x"],
        ] {
            assert!(Whole::try_parse_from([&["submit"], words].concat()).is_err(), "{words:?}");
        }
    }
}
