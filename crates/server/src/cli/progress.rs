//! Follows a job to its end: a bar on a terminal, else a line when something changed, at most one a second.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use outhaul_core::job::JobStatus;
use serde_json::Value;

use super::client::{Client, job_path};
use super::events::States;
use super::failure::Failure;
use super::table::{self, number, text};

/// How long to wait before asking a server again that did not answer.
const AGAIN: Duration = Duration::from_millis(250);
/// How finely the bar is divided.
const PARTS: f64 = 10_000.0;
/// The shortest time between two plain lines.
const BETWEEN_LINES: Duration = Duration::from_secs(1);
/// How long a server may be away (a restart, a deploy) before following it is given up.
const AWAY: Duration = Duration::from_secs(60);

/// Follows a job until it is COMPLETED, FAILED or CANCELLED, and returns it as it was then.
/// `quiet_stdout`: stdout belongs to something else, such as JSON.
pub(crate) async fn follow(client: &Client, job_id: &str, quiet_stdout: bool) -> Result<Value, Failure> {
    let mut states = States::new(client, job_path(job_id, "")?);
    let mut display = Display::new(quiet_stdout);
    let mut away: Option<Instant> = None;
    loop {
        match states.next().await {
            Ok(job) => {
                away = None;
                let over = status(&job).is_some_and(JobStatus::is_final);
                display.show(&job, over);
                if over {
                    return Ok(job);
                }
            }
            Err(error) if error.is_passing() && away.get_or_insert_with(Instant::now).elapsed() < AWAY => {
                display.waiting();
                tokio::time::sleep(AGAIN).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Where a job stands.
pub(crate) fn status(job: &Value) -> Option<JobStatus> {
    JobStatus::parse(job["status"].as_str()?)
}

/// What has been seen of the job, for rates.
struct Pace {
    first: Option<(Instant, u64)>,
}

impl Pace {
    /// Bytes a second since the job was first seen.
    fn rate(&mut self, bytes: u64) -> Option<u64> {
        let (since, before) = *self.first.get_or_insert((Instant::now(), bytes));
        let seconds = since.elapsed().as_secs_f64();
        let moved = bytes.saturating_sub(before);
        (seconds >= 0.2 && moved > 0).then(|| (moved as f64 / seconds) as u64)
    }
}

enum Display {
    Bar { bar: ProgressBar, pace: Pace },
    Lines { quiet_stdout: bool, pace: Pace, last: Option<(Instant, String)>, waiting: bool },
}

impl Display {
    fn new(quiet_stdout: bool) -> Self {
        let pace = Pace { first: None };
        if !std::io::stderr().is_terminal() {
            return Self::Lines { quiet_stdout, pace, last: None, waiting: false };
        }
        let style = ProgressStyle::with_template("{prefix} [{wide_bar:.cyan/blue}] {percent}%  {msg}")
            .expect("the template is a constant")
            .progress_chars("=> ");
        let bar = ProgressBar::new(PARTS as u64).with_style(style);
        Self::Bar { bar, pace }
    }

    fn show(&mut self, job: &Value, over: bool) {
        match self {
            Self::Bar { bar, pace } => {
                bar.set_position((progress(job) * PARTS) as u64);
                bar.set_prefix(text(job, "status"));
                bar.set_message(format!("{}  {}", chunks(job), details(job, pace, over)));
                if over {
                    bar.finish();
                } else {
                    bar.tick();
                }
            }
            Self::Lines { quiet_stdout, pace, last, waiting } => {
                *waiting = false;
                // What makes a line worth printing: not the rate or the time left, which always move.
                let (status, percent) = (text(job, "status"), (progress(job) * 100.0) as u64);
                let state = format!("{status} {percent} {} {}", settled(job), number(job, "running"));
                let due = match last {
                    None => true,
                    Some((at, before)) => *before != state && (over || at.elapsed() >= BETWEEN_LINES),
                };
                let details = details(job, pace, over);
                if due {
                    let id = text(job, "jobId");
                    let line = format!("{id} {status} {percent}%  {}  {details}", chunks(job));
                    line_out(*quiet_stdout, &line);
                    *last = Some((Instant::now(), state));
                }
            }
        }
    }

    fn waiting(&mut self) {
        match self {
            Self::Bar { bar, .. } => bar.set_message("no answer from the server, trying again"),
            Self::Lines { quiet_stdout, waiting, .. } => {
                if !std::mem::replace(waiting, true) {
                    line_out(*quiet_stdout, "no answer from the server, trying again");
                }
            }
        }
    }
}

fn line_out(quiet_stdout: bool, line: &str) {
    if quiet_stdout { eprintln!("{line}") } else { table::say(line) }
}

/// The part of the job that is behind it, with what runs in it.
fn progress(job: &Value) -> f64 {
    job["progress"].as_f64().unwrap_or(0.0).clamp(0.0, 1.0)
}

fn chunks(job: &Value) -> String {
    format!("{}/{} chunks", settled(job), number(job, "total"))
}

fn settled(job: &Value) -> u64 {
    ["done", "failed", "cancelled"].into_iter().map(|name| number(job, name)).sum()
}

fn details(job: &Value, pace: &mut Pace, over: bool) -> String {
    let bytes = number(job, "bytes");
    let mut parts =
        vec![format!("{} rows", HumanCount(number(job, "rows"))), format!("{}", HumanBytes(bytes))];
    if let Some(rate) = pace.rate(bytes) {
        parts.push(format!("{}/s", HumanBytes(rate)));
    }
    if let Some(seconds) = job["etaSeconds"].as_u64().filter(|_| !over) {
        parts.push(format!("{:#} left", HumanDuration(Duration::from_secs(seconds))));
    }
    if number(job, "failed") > 0 {
        parts.push(format!("{} failed", number(job, "failed")));
    }
    parts.join("  ")
}
