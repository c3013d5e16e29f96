//! `outhaul triggers [show|put|delete]`: jobs that are submitted when others have completed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::client::{Target, named_path};
use super::failure::Failure;
use super::input;
use super::schedules::delete;
use super::table::{self, plain, say, text};

const SECTION: &str = "triggers";

const EXAMPLES: &str = "\
Examples:
  outhaul triggers
  outhaul triggers put payroll --after dataset:timesheets --after dataset:rates --match businessDate --job job.json
  outhaul triggers show payroll

job.json is what POST /jobs takes, and may name what completed:
  {\"jobType\": \"PAYROLL\", \"payload\": {\"day\": \"{{label.businessDate}}\", \"from\": \"{{parents.0.jobId}}\"}}";

/// What to do with triggers; without a command, list them.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Triggers {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List triggers with what each waits for.
    List(List),
    /// Show a trigger, what it waits for and what it submitted.
    Show(Named),
    /// Make a trigger, or say anew all that it says: what is left out has its default.
    Put(Box<Put>),
    /// Delete a trigger; the jobs it submitted stay.
    Delete(Named),
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
    /// The trigger.
    #[arg(value_name = "NAME")]
    name: String,
}

const PUT_EXAMPLES: &str = "\
Examples:
  outhaul triggers put report --after dataset:positions --job job.json
  outhaul triggers put payroll --after dataset:timesheets --after dataset:rates --match businessDate --within 24h --job job.json
  outhaul triggers put payroll --file payroll.toml";

/// What the trigger says, as a whole: what is left out has its default, whatever it was before.
#[derive(Args, Debug)]
#[command(after_help = PUT_EXAMPLES)]
struct Put {
    #[command(flatten)]
    target: Target,
    /// The trigger.
    #[arg(value_name = "NAME")]
    name: String,
    /// All of it from a file in JSON or TOML, or from stdin with `-`; flags go over it.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// What must complete: dataset:NAME or job:TYPE; may be repeated, then all of them must.
    #[arg(long, required_unless_present = "file", value_name = "TERM")]
    after: Vec<String>,
    /// The label whose value must be the same on all of them; needed where there are several.
    #[arg(long = "match", value_name = "LABEL")]
    match_label: Option<String>,
    /// How far apart they may complete, such as 24h; any time unless said.
    #[arg(long, value_name = "DURATION")]
    within: Option<String>,
    /// The job in a file in JSON or TOML, or from stdin with `-`: what POST /jobs takes, with {{label.NAME}}.
    #[arg(long, required_unless_present = "file", value_name = "FILE")]
    job: Option<PathBuf>,
    /// The identity of the server's configuration that its jobs run as; needed where callers need tokens.
    #[arg(long, value_name = "IDENTITY")]
    run_as: Option<String>,
}

pub(crate) async fn run(args: Triggers) -> Result<ExitCode, Failure> {
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
    }
}

async fn list(target: &Target) -> Result<ExitCode, Failure> {
    let items = target.client()?.all("/triggers", &[]).await?;
    if target.json {
        table::json(&json!({ "items": items }));
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    if rows.is_empty() {
        say("no triggers");
    } else {
        say(table::table(&["NAME", "AFTER", "MATCH", "WITHIN", "WAITING", "LAST FIRED", "ORIGIN"], &rows));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(trigger: &Value) -> Vec<String> {
    let waiting = trigger["waiting"].as_array().map_or(0, Vec::len);
    vec![
        text(trigger, "name"),
        words(&trigger["after"]),
        text(trigger, "match"),
        text(trigger, "within"),
        waiting.to_string(),
        text(&trigger["fired"][0], "at"),
        text(trigger, "origin"),
    ]
}

/// A list of texts on one line.
fn words(list: &Value) -> String {
    let words: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    words.join(", ")
}

/// The request; flags go over what the file says.
fn body(args: &Put) -> Result<Map<String, Value>, Failure> {
    let mut body = args.file.as_deref().map_or_else(|| Ok(Map::new()), input::object)?;
    if let Some(file) = &args.job {
        body.insert("job".to_owned(), Value::Object(input::object(file)?));
    }
    if !args.after.is_empty() {
        body.insert("after".to_owned(), args.after.clone().into());
    }
    // A file may use the configuration's spelling, and must not say it twice.
    if args.run_as.is_some() {
        body.remove("run_as");
    }
    let flags = [("match", &args.match_label), ("within", &args.within), ("runAs", &args.run_as)];
    for (name, value) in flags {
        body.extend(value.clone().map(|value| (name.to_owned(), Value::String(value))));
    }
    Ok(body)
}

/// Prints a trigger.
fn show(trigger: &Value, json: bool) {
    if json {
        return table::json(trigger);
    }
    let lines = [
        ("trigger", text(trigger, "name")),
        ("after", words(&trigger["after"])),
        ("match", text(trigger, "match")),
        ("within", text(trigger, "within")),
        ("run as", text(trigger, "runAs")),
        ("origin", text(trigger, "origin")),
        ("created", text(trigger, "createdAt")),
        ("updated", text(trigger, "updatedAt")),
        ("job", text(trigger, "job")),
    ];
    for (name, value) in lines.into_iter().filter(|(_, value)| !value.is_empty()) {
        say(format!("{name:<10} {}", plain(&value)));
    }
    let waiting: Vec<Vec<String>> = trigger["waiting"].as_array().into_iter().flatten().map(wait).collect();
    if !waiting.is_empty() {
        say("");
        say(table::table(&["VALUE", "ARRIVED", "WAITS FOR"], &waiting));
    }
    let fired: Vec<Vec<String>> = trigger["fired"].as_array().into_iter().flatten().map(fire).collect();
    if !fired.is_empty() {
        say("");
        say(table::table(&["VALUE", "STATE", "JOB", "AT", "PARENTS", "DETAIL"], &fired));
    }
}

fn wait(wait: &Value) -> Vec<String> {
    let arrived = wait["arrived"].as_array().into_iter().flatten();
    let arrived: Vec<String> =
        arrived.map(|job| format!("{} {}", text(job, "term"), text(job, "jobId"))).collect();
    vec![text(wait, "value"), arrived.join(", "), words(&wait["missing"])]
}

fn fire(fire: &Value) -> Vec<String> {
    let parents = words(&fire["parents"]);
    let of = |name| text(fire, name);
    vec![of("value"), of("state"), of("jobId"), of("at"), parents, of("detail")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        triggers: Triggers,
    }

    fn parsed(words: &[&str]) -> Result<Triggers, clap::Error> {
        Whole::try_parse_from([&["triggers"], words].concat()).map(|whole| whole.triggers)
    }

    fn put(words: &[&str]) -> Value {
        match parsed(&[&["put", "payroll"], words].concat()).unwrap().command {
            Some(Command::Put(args)) => Value::Object(body(&args).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_become_the_trigger_and_go_over_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let job = folder.path().join("job");
        std::fs::write(&job, r#"{"jobType": "PAYROLL"}"#).unwrap();
        let job = job.to_str().unwrap();
        let flags = "--after dataset:a --after job:B --match day --within 24h --job";
        let expected = json!({"after": ["dataset:a", "job:B"], "match": "day", "within": "24h",
            "job": {"jobType": "PAYROLL"}});
        assert_eq!(put(&flags.split_whitespace().chain([job]).collect::<Vec<_>>()), expected);
        let whole = folder.path().join("whole.toml");
        std::fs::write(&whole, "after = [\"dataset:a\"]\nwithin = \"1h\"\njob = {}").unwrap();
        let whole = whole.to_str().unwrap();
        assert_eq!(put(&["--file", whole]), json!({"after": ["dataset:a"], "within": "1h", "job": {}}));
        let expected = json!({"after": ["job:B"], "within": "2h", "job": {"jobType": "PAYROLL"}});
        assert_eq!(put(&["--file", whole, "--after", "job:B", "--within", "2h", "--job", job]), expected);
    }

    #[test]
    fn without_a_command_triggers_are_listed() {
        assert!(matches!(parsed(&["--json"]).unwrap(), Triggers { command: None, target } if target.json));
        assert!(matches!(parsed(&["list"]).unwrap().command, Some(Command::List(_))));
        for words in [
            &["show"][..],
            &["put", "x"],
            &["put", "x", "--after", "job:B"],
            &["put", "x", "--job", "f"],
            &["pause", "x"],
            &["--json", "show", "x"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn what_is_waited_for_and_what_fired_fit_a_line() {
        let waiting = json!({"value": "20250215", "missing": ["job:B", "job:C"],
            "arrived": [{"term": "dataset:a", "jobId": "J1", "at": "2026-01-01T00:00:00Z"}]});
        assert_eq!(wait(&waiting), ["20250215", "dataset:a J1", "job:B, job:C"]);
        let fired = json!({"value": "20250215", "parents": ["J1", "J2"], "state": "fired", "jobId": "J3",
            "detail": null, "at": "2026-01-01T00:00:00Z"});
        assert_eq!(fire(&fired), ["20250215", "fired", "J3", "2026-01-01T00:00:00Z", "J1, J2", ""]);
        let trigger = json!({"name": "t", "after": ["dataset:a"], "match": null, "within": null,
            "waiting": [waiting], "fired": [fired], "origin": "config"});
        assert_eq!(row(&trigger), ["t", "dataset:a", "", "", "1", "2026-01-01T00:00:00Z", "config"]);
    }
}
