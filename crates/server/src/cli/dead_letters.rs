//! `outhaul dead-letters list|show|redrive`: what failed for good, why, and having it run again.

use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Map, Value, json};

use super::client::{Client, Target, job_path};
use super::failure::Failure;
use super::history;
use super::table::{self, count, number, plain, say, text};

/// How many chunks are named when one has to be chosen.
const MAX_NAMED: usize = 20;

/// What to do with dead letters.
#[derive(Args, Debug)]
pub(crate) struct DeadLetters {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List dead letters, newest first.
    List(List),
    /// Show one dead letter and what happened to its chunk.
    Show(Show),
    /// Queue dead letters again.
    Redrive(Redrive),
}

/// Which dead letters.
#[derive(Args, Clone, Debug, Default)]
struct Filter {
    /// Only jobs of this type.
    #[arg(long)]
    job_type: Option<String>,
    /// Only exports of this dataset.
    #[arg(long)]
    dataset: Option<String>,
    /// Only those whose cause, step, job id or chunk key contains this text.
    #[arg(long)]
    text: Option<String>,
    /// Only those that failed for good at or after this moment (RFC 3339).
    #[arg(long, value_name = "TIME")]
    after: Option<String>,
    /// Only those that failed for good before this moment (RFC 3339).
    #[arg(long, value_name = "TIME")]
    before: Option<String>,
    /// Only this job.
    #[arg(long, value_name = "ID")]
    job_id: Option<String>,
}

impl Filter {
    /// The filters that were given, by the names that the API has for them.
    fn given(self) -> impl Iterator<Item = (&'static str, String)> {
        let all = [
            ("jobType", self.job_type),
            ("dataset", self.dataset),
            ("text", self.text),
            ("after", self.after),
            ("before", self.before),
            ("jobId", self.job_id),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}

#[derive(Args, Debug)]
struct List {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    filter: Filter,
    /// At most this many.
    #[arg(long)]
    limit: Option<u32>,
    /// Where to go on, as the page before said.
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Args, Debug)]
struct Show {
    #[command(flatten)]
    target: Target,
    /// The job.
    #[arg(value_name = "ID")]
    job_id: String,
    /// Which of its chunks; not needed where only one is dead.
    #[arg(value_name = "CHUNK_KEY")]
    chunk_key: Option<String>,
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("which").required(true).multiple(true)
    .args(["job_type", "dataset", "text", "after", "before", "job_id", "all"]))]
struct Redrive {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    filter: Filter,
    /// All of them.
    #[arg(long, conflicts_with_all = ["job_type", "dataset", "text", "after", "before", "job_id"])]
    all: bool,
    /// At most this many, the oldest first; 100 unless said, 1000 at most.
    #[arg(long)]
    limit: Option<u32>,
    /// Say how many there are, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: DeadLetters) -> Result<ExitCode, Failure> {
    match args.command {
        Command::List(args) => list(args).await,
        Command::Show(args) => show(args).await,
        Command::Redrive(args) => redrive(args).await,
    }
}

async fn list(args: List) -> Result<ExitCode, Failure> {
    let mut query: Vec<(&str, String)> = args.filter.given().collect();
    query.extend(args.limit.map(|limit| ("limit", limit.to_string())));
    query.extend(args.cursor.map(|cursor| ("cursor", cursor)));
    let page = args.target.client()?.get("/dead-letters", &query).await?;
    if args.target.json {
        table::json(&page);
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = page["items"].as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        say("no dead letters");
    } else {
        say(table::table(&["JOB", "CHUNK", "WHAT", "STEP", "ATTEMPTS", "FAILED", "CAUSE"], &rows));
    }
    if let Some(cursor) = page["nextCursor"].as_str() {
        say(format!("more: --cursor {}", plain(cursor)));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(letter: &Value) -> Vec<String> {
    let what = if letter["dataset"].is_null() { "jobType" } else { "dataset" };
    ["jobId", "chunkKey", what, "step", "attempts", "lastFailedAt", "cause"]
        .iter()
        .map(|name| text(letter, name))
        .collect()
}

async fn show(args: Show) -> Result<ExitCode, Failure> {
    let client = args.target.client()?;
    let letter = find(&client, &args).await?;
    let history = history::of(&client, &args.job_id, Some(text(&letter, "chunkKey"))).await?;
    if args.target.json {
        table::json(&json!({ "deadLetter": letter, "history": history }));
        return Ok(ExitCode::SUCCESS);
    }
    for (name, member) in [
        ("job", "jobId"),
        ("chunk", "chunkKey"),
        ("type", "jobType"),
        ("dataset", "dataset"),
        ("step", "step"),
        ("cause", "cause"),
        ("attempts", "attempts"),
        ("first", "firstFailedAt"),
        ("last", "lastFailedAt"),
    ] {
        let value = text(&letter, member);
        if !value.is_empty() {
            say(format!("{name:<10} {}", plain(&value)));
        }
    }
    say("");
    history::show(&history);
    Ok(ExitCode::SUCCESS)
}

/// The one dead letter that is meant.
async fn find(client: &Client, args: &Show) -> Result<Value, Failure> {
    // Refused here where it cannot be one, and by the server with 404 where there is none.
    client.get(&job_path(&args.job_id, "")?, &[]).await?;
    let mut query = vec![("jobId", args.job_id.clone())];
    // The server finds a chunk key wherever it is part of one; the exact one is chosen here.
    query.extend(args.chunk_key.clone().map(|key| ("text", key)));
    let mut letters = client.all("/dead-letters", &query).await?;
    if let Some(key) = &args.chunk_key {
        letters.retain(|letter| letter["chunkKey"] == key.as_str());
    }
    choose(letters, &args.job_id)
}

fn choose(mut letters: Vec<Value>, job_id: &str) -> Result<Value, Failure> {
    if letters.len() > 1 {
        let named: Vec<String> =
            letters.iter().take(MAX_NAMED).map(|letter| plain(&text(letter, "chunkKey"))).collect();
        let more = if letters.len() > MAX_NAMED { "\n  …" } else { "" };
        let message = format!(
            "{job_id} has {} dead letters; name one of its chunks:\n  {}{more}",
            letters.len(),
            named.join("\n  ")
        );
        return Err(Failure::new(message));
    }
    letters.pop().ok_or_else(|| Failure::new(format!("{job_id} has no such dead letter")))
}

async fn redrive(args: Redrive) -> Result<ExitCode, Failure> {
    let target = args.target.clone();
    let answer = target.client()?.post("/dead-letters/redrive", &[], None, Some(&request(args))).await?;
    if target.json {
        table::json(&answer);
        return Ok(ExitCode::SUCCESS);
    }
    say(format!("{} matched, {} redriven", count(&answer, "matched"), count(&answer, "redriven")));
    if (1..number(&answer, "matched")).contains(&number(&answer, "redriven")) {
        say("there may be more: run it again, or give a higher --limit");
    }
    Ok(ExitCode::SUCCESS)
}

fn request(args: Redrive) -> Value {
    let filter: Map<String, Value> =
        args.filter.given().map(|(name, value)| (name.to_owned(), Value::String(value))).collect();
    let mut request = json!({ "filter": filter, "dryRun": args.dry_run });
    if let Some(limit) = args.limit {
        request["limit"] = limit.into();
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        redrive: Redrive,
    }

    fn parsed(words: &[&str]) -> Result<Value, clap::Error> {
        Whole::try_parse_from([&["redrive"], words].concat()).map(|whole| request(whole.redrive))
    }

    #[test]
    fn flags_become_the_request() {
        let words = "--job-type SEND_EMAIL --dataset d --text 503 --after 2026-01-01T00:00:00Z \
                     --before 2026-02-01T00:00:00Z --job-id J20260102_0123456789ABC --limit 7 --dry-run";
        let expected = json!({"filter": {"jobType": "SEND_EMAIL", "dataset": "d", "text": "503",
            "after": "2026-01-01T00:00:00Z", "before": "2026-02-01T00:00:00Z",
            "jobId": "J20260102_0123456789ABC"}, "dryRun": true, "limit": 7});
        assert_eq!(parsed(&words.split_whitespace().collect::<Vec<_>>()).unwrap(), expected);
        assert_eq!(parsed(&["--all"]).unwrap(), json!({"filter": {}, "dryRun": false}));
    }

    #[test]
    fn nothing_is_redriven_by_leaving_something_out() {
        for words in [&[][..], &["--limit", "5"], &["--dry-run"], &["--all", "--text", "x"]] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn one_of_many_has_to_be_named() {
        let letter = |key: &str| json!({ "chunkKey": key });
        assert_eq!(choose(vec![letter("main")], "J1").unwrap(), letter("main"));
        assert!(choose(vec![], "J1").unwrap_err().to_string().contains("no such dead letter"));
        let many: Vec<Value> = (0..30).map(|i| letter(&format!("key={i}"))).collect();
        let said = choose(many, "J1").unwrap_err().to_string();
        assert!(
            said.contains("30 dead letters") && said.contains("key=19") && !said.contains("key=20"),
            "{said}"
        );
    }
}
