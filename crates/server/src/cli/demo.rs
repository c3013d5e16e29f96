//! `outhaul demo`: a sample database, a server in this process, one export over HTTP, and its files.
//! Needs nothing else on the machine, and can be run again.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use outhaul::Registry;
use outhaul_core::job::JobStatus;
use serde_json::{Value, json};

use super::client::Client;
use super::failure::{Failure, with_causes};
use super::table::{self, bytes, count, number, say, short_hash, text};
use super::{progress, sample};
use crate::config::{Config, DEFAULT_FILE, Environment, Load};
use crate::log;
use crate::roles::Roles;
use crate::serve::{self, Running, Signals};

/// The demo's configuration; its first line tells our file from somebody else's.
const CONFIG: &str = include_str!("demo.toml");

/// Where and how long.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Leave the server up until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// The folder for everything the demo makes.
    #[arg(long, default_value = "outhaul-demo", value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) async fn run(args: Demo) -> Result<ExitCode, Failure> {
    let environment = Environment::of_process();
    log::start(&environment, "warn");
    let config = prepare(&args.dir).await?;
    let signals = args.keep.then(Signals::new);
    let running = serve::start(config, Roles::ALL, Registry::new()).await?;
    let shown = show(&running, &args).await;
    match signals {
        Some(signals) if shown.is_ok() => {
            signals.wait_then_stop(running).await;
        }
        _ => running.stop().await,
    }
    shown
}

/// Sample data and a configuration in the demo's folder.
async fn prepare(folder: &Path) -> Result<Config, Failure> {
    let cannot =
        |error: std::io::Error| Failure::new(format!("{} cannot be written: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(cannot)?;
    let file = folder.join(DEFAULT_FILE);
    let marker = CONFIG.lines().next().unwrap_or_default();
    match std::fs::read_to_string(&file) {
        Ok(text) if !text.starts_with(marker) => {
            let message = format!("{} is not the demo's own; choose another --dir", file.display());
            return Err(Failure::new(message));
        }
        _ => std::fs::write(&file, CONFIG).map_err(cannot)?,
    }
    let rows =
        sample::fill(&folder.join("sample.db")).await.map_err(|error| Failure::new(with_causes(&error)))?;
    say(format!("sample data    {} rows in {}", HumanCount(rows), folder.join("sample.db").display()));
    // The demo is the same everywhere: the environment has no say in it.
    let load = Load { file: Some(file), insecure: false, environment: Environment::default() };
    let mut config = Config::load(&load)?;
    config.listen.set_port(0);
    Ok(config)
}

async fn show(running: &Running, args: &Demo) -> Result<ExitCode, Failure> {
    let addr = running.addr().ok_or_else(|| Failure::new("the server has no address"))?;
    let client = Client::new(&format!("http://{addr}"))?;
    say(format!("server         {}", client.shown()));
    let dates: Vec<String> = sample::dates().iter().map(|date| date.format("%Y%m%d").to_string()).collect();
    let items: Vec<Value> =
        sample::KEYS.iter().map(|key| json!({ "key": key, "effectiveDates": dates })).collect();
    let started = Instant::now();
    let job = client.post("/jobs", &[], None, Some(&json!({ "items": items }))).await?;
    let job_id = text(&job, "jobId");
    say(format!(
        "job            {job_id}: {} chunks ({} keys, {} dates)",
        count(&job, "total"),
        sample::KEYS.len(),
        dates.len()
    ));
    let job = progress::follow(&client, &job_id, false).await?;
    let seconds = started.elapsed().as_secs_f64();
    if progress::status(&job) != Some(JobStatus::Completed) {
        let message = format!("job {job_id} is {}: {}", text(&job, "status"), text(&job, "errorMessage"));
        return Err(Failure::new(message));
    }
    let files = client.all(&format!("/jobs/{job_id}/files"), &[]).await?;
    say("");
    show_files(&files, &args.dir);
    say("");
    let reused = match number(&job, "filesReused") {
        0 => String::new(),
        n => format!("; {n} were reused, as their dates are older than 7 days"),
    };
    say(format!(
        "{} files, {} rows, {} in {seconds:.1} s{reused}",
        files.len(),
        count(&job, "rows"),
        HumanBytes(number(&job, "bytes"))
    ));
    if args.keep {
        try_next(client.shown(), &job_id, &files);
    } else {
        let config = args.dir.join(DEFAULT_FILE);
        say(format!("next: outhaul demo --keep, or outhaul serve --config {}", config.display()));
    }
    Ok(ExitCode::SUCCESS)
}

fn show_files(files: &[Value], folder: &Path) {
    let row = |file: &Value| {
        let place = folder.join("data/files").join(text(file, "path"));
        vec![
            count(file, "rows"),
            bytes(file, "bytes"),
            short_hash(file),
            text(file, "reused"),
            place.display().to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = files.iter().map(row).collect();
    say(table::table(&["ROWS", "BYTES", "SHA256", "REUSED", "FILE"], &rows));
}

fn try_next(base: &str, job_id: &str, files: &[Value]) {
    say("");
    say("the server stays up until Ctrl-C; try:");
    say(format!("  curl -s {base}/jobs/{job_id}"));
    say(format!("  curl -s {base}/jobs/{job_id}/files"));
    if let Some(file) = files.first() {
        say(format!("  curl -sL {base}{} | head", text(file, "url")));
    }
    let body = r#"{"items": [{"key": "ALPHA", "effectiveDates": ["20250215"]}], "output": {"force": true}}"#;
    say(format!("  curl -s {base}/jobs -H 'content-type: application/json' -d '{body}'"));
    say(format!("  browse {base}/docs"));
}
