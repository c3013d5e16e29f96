//! A scheduler in a process of its own: the test starts its own program once more, as the scheduler that it
//! becomes where the environment gives it one to be. It looks at what is due at the simulated moment until it
//! is killed, or until the test that started it is gone.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use outhaul::schedule::Scheduler;
use outhaul::{PlanProblem, Planner, Submission, SubmitOptions};
use outhaul_core::clock;
use outhaul_core::delivery::Delivery;
use outhaul_core::job::NewJob;
use outhaul_core::json::Json;
use outhaul_core::secret::Secret;
use outhaul_core::store::{Store, StoreSettings};
use outhaul_store::{OpenOptions, open};
use serde_json::Value;

/// The type of the jobs.
pub(crate) const JOB_TYPE: &str = "TICK";
/// Where the process finds its database; the folder is where the clock is, and who won.
const DATABASE: &str = "OUTHAUL_TEST_SCHEDULER_DATABASE";
const FOLDER: &str = "OUTHAUL_TEST_SCHEDULER_FOLDER";
/// The one test that is run in such a process.
const TEST: &str = "simulated_year::each_slot_has_the_fate_that_its_policy_says";
/// Where nothing was due, or others were faster, it looks again after this.
const AGAIN: Duration = Duration::from_millis(10);

/// What [`TEST`] does first: a process that [`start`] started is a scheduler from here on. It does not come
/// back, and never looks like a test that passed.
pub(crate) async fn schedule_if_started() {
    let (Ok(database), Ok(folder)) = (std::env::var(DATABASE), std::env::var(FOLDER)) else { return };
    schedule(&database, Path::new(&folder)).await;
    eprintln!("the test that started this scheduler is gone");
    std::process::exit(1);
}

/// Starts one.
pub(crate) fn start(database: &str, folder: &Path, number: usize) -> Child {
    let log = File::create(folder.join(format!("{number}.log"))).expect("open the log");
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
        .env(DATABASE, database)
        .env(FOLDER, folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("the log once more"))
        .stderr(log)
        .spawn()
        .expect("start the program")
}

/// The store as these processes open it.
pub(crate) async fn store(database: &str, migrate: bool) -> Arc<dyn Store> {
    let minute = Duration::from_secs(60);
    let settings =
        StoreSettings { lease: minute, fairness_step: minute, idempotency_window: minute, parking: false };
    let options = OpenOptions {
        listen: false,
        migrate,
        api_connections: 1,
        engine_connections: 2,
        ..OpenOptions::default()
    };
    open(&Secret::new(database), settings, options).await.expect("open the database").engine
}

/// Moves the clock of all processes.
pub(crate) fn set_clock(folder: &Path, now: DateTime<Utc>) {
    let new = folder.join("clock.new");
    std::fs::write(&new, now.timestamp().to_string()).expect("write the clock");
    std::fs::rename(new, clock_of(folder)).expect("move the clock");
}

/// How many processes lived until they could look.
pub(crate) fn came_up(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("up")).expect("the folder is there").count()
}

/// How many processes have recorded a slot.
pub(crate) fn winners(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("won")).expect("the folder is there").count()
}

fn clock_of(folder: &Path) -> PathBuf {
    folder.join("clock")
}

async fn schedule(database: &str, folder: &Path) {
    let parent = parent_id();
    let store = store(database, false).await;
    let scheduler = Scheduler::new(store, Arc::new(Ticks), Arc::new(Quiet));
    File::create(folder.join("up").join(std::process::id().to_string())).expect("write it down");
    let mut nothing: Option<(DateTime<Utc>, Instant)> = None;
    while parent_id() == parent {
        let now = std::fs::read_to_string(clock_of(folder)).expect("there is a clock");
        let now = DateTime::from_timestamp(now.parse().expect("a number"), 0).expect("a moment");
        if nothing.is_some_and(|(at, asked)| at == now && asked.elapsed() < AGAIN) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        nothing = None;
        match scheduler.round(Some(now)).await {
            Ok(round) if round.slots.is_empty() => nothing = Some((now, Instant::now())),
            Ok(round) => {
                let path = folder.join("won").join(std::process::id().to_string());
                let mut won = File::options().create(true).append(true).open(path).expect("write it down");
                writeln!(won, "{now}: {} slots", round.slots.len()).expect("write it down");
            }
            Err(error) => eprintln!("{now}: {error}"),
        }
    }
}

/// Makes jobs that nobody runs, with the labels of the body.
struct Ticks;

impl Planner for Ticks {
    fn plan(&self, body: &Json, owner: &str) -> Result<NewJob, Vec<PlanProblem>> {
        let body: Value = body.read().expect("a body");
        let labels = serde_json::from_value(body["labels"].clone()).expect("labels");
        let options = SubmitOptions { owner: owner.to_owned(), labels, ..SubmitOptions::default() };
        let payload = body["payload"].clone().into();
        let submission = Submission { job_type: JOB_TYPE.to_owned(), payload, options, unique_key: None };
        Ok(submission.into_new_job(clock::now(), rand::random()))
    }
}

/// Nobody waits for jobs here.
struct Quiet;

impl Delivery for Quiet {
    fn announce(&self) {}

    fn arm(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}
