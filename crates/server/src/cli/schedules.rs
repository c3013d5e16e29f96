//! `outhaul schedules [show|put|delete|pause|resume|run]`: jobs that are submitted again and again.

use std::path::PathBuf;
use std::process::ExitCode;

use chrono::DateTime;
use clap::{Args, Subcommand};
use outhaul::schedule::Times;
use serde_json::{Map, Value, json};

use super::client::{Target, named_path};
use super::failure::Failure;
use super::table::{self, plain, say, text};
use super::{input, progress, status};

const SECTION: &str = "schedules";

const EXAMPLES: &str = "\
Examples:
  outhaul schedules
  outhaul schedules put nightly --cron '0 2 * * MON-FRI' --timezone Europe/Zurich --job job.json
  outhaul schedules show nightly
  outhaul schedules run nightly --watch

job.json is what POST /jobs takes, and may say when:
  {\"dataset\": \"positions\", \"items\": [{\"key\": \"ABC\", \"effectiveDates\": [\"{{slot - 1d}}\"]}]}";

/// What to do with schedules; without a command, list them.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Schedules {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List schedules with the time that each waits for.
    List(List),
    /// Show a schedule, its next times and its last slots.
    Show(Named),
    /// Make a schedule, or say anew all that it says: what is left out has its default.
    Put(Box<Put>),
    /// Delete a schedule; the jobs it submitted stay.
    Delete(Named),
    /// Let a schedule submit nothing until it is resumed.
    Pause(Named),
    /// Let a paused schedule go on with its next time; what passed meanwhile is left out.
    Resume(Named),
    /// Submit a schedule's job now, also while it is paused.
    Run(Run),
}

#[derive(Args, Debug)]
struct List {
    #[command(flatten)]
    target: Target,
}

#[derive(Args, Debug)]
struct Named {
    #[command(flatten)]
    target: Target,
    /// The schedule.
    #[arg(value_name = "NAME")]
    name: String,
}

const PUT_EXAMPLES: &str = "\
Examples:
  outhaul schedules put nightly --cron '0 2 * * MON-FRI' --timezone Europe/Zurich --job job.json
  outhaul schedules put nightly --file nightly.toml --cron '30 2 * * MON-FRI'
  echo '{\"cron\": \"@daily\", \"job\": {\"jobType\": \"TIDY\"}}' | outhaul schedules put tidy --file -";

/// What the schedule says, as a whole: what is left out has its default, whatever it was before.
#[derive(Args, Debug)]
#[command(after_help = PUT_EXAMPLES)]
struct Put {
    #[command(flatten)]
    target: Target,
    /// The schedule.
    #[arg(value_name = "NAME")]
    name: String,
    /// All of it from a file in JSON or TOML, or from stdin with `-`; flags go over it.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// When: minute, hour, day of month, month, day of week; seconds may stand before them.
    #[arg(long, required_unless_present = "file", value_name = "CRON")]
    cron: Option<String>,
    /// Whose clocks that means, such as Europe/Zurich; UTC unless said.
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// The job in a file in JSON or TOML, or from stdin with `-`: what POST /jobs takes, with {{slot}}.
    #[arg(long, required_unless_present = "file", value_name = "FILE")]
    job: Option<PathBuf>,
    /// While an earlier job has not ended: skip (unless said), queue or allow.
    #[arg(long, value_name = "skip|queue|allow")]
    overlap: Option<String>,
    /// Of times at which no scheduler ran: none, last (unless said) or all are made up for.
    #[arg(long, value_name = "none|last|all")]
    catch_up: Option<String>,
    /// The most of them that `all` makes up for; 100 unless said.
    #[arg(long, value_name = "N")]
    catch_up_limit: Option<u32>,
    /// Start up to this much later, such as 90s; nothing unless said.
    #[arg(long, value_name = "DURATION")]
    jitter: Option<String>,
    /// The identity of the server's configuration that its jobs run as; needed where callers need tokens.
    #[arg(long, value_name = "IDENTITY")]
    run_as: Option<String>,
}

#[derive(Args, Debug)]
struct Run {
    #[command(flatten)]
    target: Target,
    /// The schedule.
    #[arg(value_name = "NAME")]
    name: String,
    /// Follow the job to its end; exit code 0 only if it is COMPLETED.
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn run(args: Schedules) -> Result<ExitCode, Failure> {
    match args.command {
        None => list(&args.target).await,
        Some(Command::List(args)) => list(&args.target).await,
        Some(Command::Show(args)) => {
            let path = named_path(SECTION, &args.name, "")?;
            show(&args.target.client()?.get(&path, &[]).await?, args.target.json);
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Put(args)) => {
            let path = named_path(SECTION, &args.name, "")?;
            let body = Value::Object(body(&args)?);
            show(&args.target.client()?.put(&path, &body).await?, args.target.json);
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Delete(args)) => delete(&args.target, SECTION, &args.name).await,
        Some(Command::Pause(args)) => act(args, "/pause").await,
        Some(Command::Resume(args)) => act(args, "/resume").await,
        Some(Command::Run(args)) => now(args).await,
    }
}

async fn list(target: &Target) -> Result<ExitCode, Failure> {
    let items = target.client()?.all("/schedules", &[]).await?;
    if target.json {
        table::json(&json!({ "items": items }));
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    if rows.is_empty() {
        say("no schedules");
    } else {
        say(table::table(&["NAME", "CRON", "TIMEZONE", "NEXT", "PAUSED", "ORIGIN"], &rows));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(schedule: &Value) -> Vec<String> {
    // A paused schedule has next times as well, but none of them will come as things are.
    let next = if schedule["paused"] == true { String::new() } else { first(&schedule["nextTimes"]) };
    vec![
        text(schedule, "name"),
        text(schedule, "cron"),
        text(schedule, "timezone"),
        next,
        text(schedule, "paused"),
        text(schedule, "origin"),
    ]
}

fn first(times: &Value) -> String {
    times[0].as_str().unwrap_or("never").to_owned()
}

async fn act(args: Named, verb: &str) -> Result<ExitCode, Failure> {
    let path = named_path(SECTION, &args.name, verb)?;
    show(&args.target.client()?.post(&path, &[], None, None).await?, args.target.json);
    Ok(ExitCode::SUCCESS)
}

async fn now(args: Run) -> Result<ExitCode, Failure> {
    let client = args.target.client()?;
    let mut job = client.post(&named_path(SECTION, &args.name, "/run")?, &[], None, None).await?;
    if args.watch {
        job = progress::follow(&client, &text(&job, "jobId"), args.target.json).await?;
    }
    status::show(&job, args.target.json);
    Ok(if args.watch { status::verdict(&job) } else { ExitCode::SUCCESS })
}

/// Deletes a schedule or a trigger.
pub(super) async fn delete(target: &Target, section: &str, name: &str) -> Result<ExitCode, Failure> {
    target.client()?.delete(&named_path(section, name, "")?).await?;
    if target.json {
        table::json(&json!({ "name": name, "deleted": true }));
    } else {
        say(format!("deleted {}", plain(name)));
    }
    Ok(ExitCode::SUCCESS)
}

/// The request; flags go over what the file says.
fn body(args: &Put) -> Result<Map<String, Value>, Failure> {
    let mut body = args.file.as_deref().map_or_else(|| Ok(Map::new()), input::object)?;
    if let Some(file) = &args.job {
        body.insert("job".to_owned(), Value::Object(input::object(file)?));
    }
    let flags = [
        ("cron", args.cron.clone().map(Value::String)),
        ("timezone", args.timezone.clone().map(Value::String)),
        ("overlap", args.overlap.clone().map(Value::String)),
        ("catchUp", args.catch_up.clone().map(Value::String)),
        ("catchUpLimit", args.catch_up_limit.map(Value::from)),
        ("jitter", args.jitter.clone().map(Value::String)),
        ("runAs", args.run_as.clone().map(Value::String)),
    ];
    for (name, value) in flags {
        let Some(value) = value else { continue };
        // A file may use the configuration's spelling, and must not say it twice.
        let spelled = match name {
            "catchUp" => "catch_up",
            "catchUpLimit" => "catch_up_limit",
            "runAs" => "run_as",
            _ => name,
        };
        body.remove(spelled);
        body.insert(name.to_owned(), value);
    }
    Ok(body)
}

/// Prints a schedule.
fn show(schedule: &Value, json: bool) {
    if json {
        return table::json(schedule);
    }
    let catch_up = match text(schedule, "catchUp").as_str() {
        "all" => format!("all, {} at most", text(schedule, "catchUpLimit")),
        other => other.to_owned(),
    };
    let lines = [
        ("schedule", text(schedule, "name")),
        ("cron", text(schedule, "cron")),
        ("timezone", text(schedule, "timezone")),
        ("overlap", text(schedule, "overlap")),
        ("catch up", catch_up),
        ("jitter", text(schedule, "jitter")),
        ("run as", text(schedule, "runAs")),
        ("paused", text(schedule, "paused")),
        ("origin", text(schedule, "origin")),
        ("created", text(schedule, "createdAt")),
        ("updated", text(schedule, "updatedAt")),
        ("job", text(schedule, "job")),
    ];
    // Only where it is said is there anybody that it runs as.
    for (name, value) in lines.into_iter().filter(|(name, value)| *name != "run as" || !value.is_empty()) {
        say(format!("{name:<10} {}", plain(&value)));
    }
    let times: Vec<&Value> = schedule["nextTimes"].as_array().into_iter().flatten().collect();
    for (index, time) in times.iter().enumerate() {
        let head = if index == 0 { "next" } else { "" };
        say(format!("{head:<10} {}", plain(time.as_str().unwrap_or_default())));
    }
    if times.is_empty() {
        say("next       never");
    }
    let slots = schedule["slots"].as_array().into_iter().flatten();
    let slots: Vec<Vec<String>> = slots.map(|row| slot(schedule, row)).collect();
    if !slots.is_empty() {
        say("");
        say(table::table(&["SLOT", "OUTCOME", "JOB", "DETAIL"], &slots));
    }
}

fn slot(schedule: &Value, slot: &Value) -> Vec<String> {
    let rest = ["outcome", "jobId", "detail"].iter().map(|name| text(slot, name));
    std::iter::once(local(schedule, &text(slot, "slot"))).chain(rest).collect()
}

/// A moment on the schedule's own clocks, as its next times are.
fn local(schedule: &Value, moment: &str) -> String {
    let times = Times::parse(&text(schedule, "cron"), &text(schedule, "timezone")).ok();
    let at = DateTime::parse_from_rfc3339(moment).ok();
    times.zip(at).map_or_else(|| moment.to_owned(), |(times, at)| times.shown(at.to_utc()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        schedules: Schedules,
    }

    fn parsed(words: &[&str]) -> Result<Schedules, clap::Error> {
        Whole::try_parse_from([&["schedules"], words].concat()).map(|whole| whole.schedules)
    }

    fn put(words: &[&str]) -> Value {
        match parsed(&[&["put", "nightly"], words].concat()).unwrap().command {
            Some(Command::Put(args)) => Value::Object(body(&args).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_become_the_schedule_and_go_over_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            file.to_str().unwrap().to_owned()
        };
        let job = file("job.toml", "jobType = \"TIDY\"");
        let flags = "--cron @daily --timezone Europe/Zurich --overlap queue --catch-up all \
                     --catch-up-limit 7 --jitter 90s";
        let words: Vec<&str> = flags.split_whitespace().chain(["--job", &job]).collect();
        let expected = json!({
            "cron": "@daily", "timezone": "Europe/Zurich", "overlap": "queue", "catchUp": "all",
            "catchUpLimit": 7, "jitter": "90s", "job": {"jobType": "TIDY"}
        });
        assert_eq!(put(&words), expected);

        let whole = file("whole", "cron = \"@hourly\"\ncatch_up = \"none\"\n[job]\njobType = \"OTHER\"");
        let expected = json!({"cron": "@hourly", "catch_up": "none", "job": {"jobType": "OTHER"}});
        assert_eq!(put(&["--file", &whole]), expected);
        let expected = json!({"cron": "@daily", "catchUp": "all", "job": {"jobType": "TIDY"}});
        assert_eq!(
            put(&["--file", &whole, "--cron", "@daily", "--catch-up", "all", "--job", &job]),
            expected
        );
    }

    #[test]
    fn without_a_command_schedules_are_listed() {
        assert!(matches!(parsed(&["--json"]).unwrap(), Schedules { command: None, target } if target.json));
        assert!(matches!(parsed(&["list"]).unwrap().command, Some(Command::List(_))));
        for words in [
            &["show"][..],
            &["put", "x"],
            &["put", "x", "--cron", "@daily"],
            &["put", "x", "--job", "f"],
            &["run", "x", "y"],
            &["nightly"],
            // It would be unclear for whom the flag is meant.
            &["--json", "show", "x"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn slots_are_shown_on_the_schedules_own_clocks() {
        let schedule = json!({"cron": "0 2 * * *", "timezone": "Europe/Zurich"});
        let row = json!({"slot": "2026-01-02T01:00:00Z", "outcome": "fired", "jobId": "J1", "detail": null});
        assert_eq!(slot(&schedule, &row), ["2026-01-02T02:00:00+01:00", "fired", "J1", ""]);
        let newer = json!({"cron": "0 2 * * *", "timezone": "Mars/Olympus"});
        assert_eq!(local(&newer, "2026-01-02T01:00:00Z"), "2026-01-02T01:00:00Z");
    }

    #[test]
    fn a_paused_schedule_waits_for_nothing() {
        let mut schedule = json!({"name": "a", "cron": "@daily", "timezone": "UTC", "paused": false,
            "nextTimes": ["2026-01-01T00:00:00Z"], "origin": "api"});
        assert_eq!(row(&schedule)[3..], ["2026-01-01T00:00:00Z", "no", "api"]);
        schedule["paused"] = true.into();
        assert_eq!(row(&schedule)[3..], ["", "yes", "api"]);
        schedule = json!({"nextTimes": []});
        assert_eq!(row(&schedule)[3], "never");
    }
}
