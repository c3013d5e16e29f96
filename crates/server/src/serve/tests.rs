//! Whole processes in this one: that they start, refuse and stop as they should.

mod brokers;
mod health;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use outhaul::{Context, Job, JobError, JobOptions};
use outhaul_core::retry::{Backoff, RetryPolicy};

use super::*;
use crate::config::{Environment, Load};

fn config(folder: &Path, text: &str) -> Config {
    let load = Load { file: None, insecure: false, environment: Environment::default() };
    let mut config = Config::parse(text, folder, &load).unwrap();
    config.listen.set_port(0);
    config
}

async fn is_ready(addr: SocketAddr) -> bool {
    reqwest::get(format!("http://{addr}/readyz")).await.is_ok_and(|answer| answer.status().is_success())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_answers_until_it_is_stopped_and_can_start_again() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let running = start(config(folder.path(), ""), Roles::ALL, Registry::new()).await.unwrap();
        let addr = running.addr().unwrap();
        assert!(is_ready(addr).await);
        running.stop().await;
        assert!(!is_ready(addr).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_api_there_is_no_address() {
    let folder = tempfile::tempdir().unwrap();
    let roles = Roles { api: false, ..Roles::ALL };
    let running = start(config(folder.path(), ""), roles, Registry::new()).await.unwrap();
    assert_eq!(running.addr(), None);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_the_embedded_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = start(config(folder.path(), ""), Roles::ALL, Registry::new()).await.unwrap();
    let second = start(config(folder.path(), ""), Roles::ALL, Registry::new()).await;
    assert!(matches!(second, Err(StartErrors(all)) if matches!(all[..], [StartError::Database(_)])));
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_said_before_anything_is_claimed() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "");
    config.listen = taken.local_addr().unwrap();
    let Err(error) = start(config, Roles::ALL, Registry::new()).await else { panic!("it must not start") };
    assert!(error.to_string().starts_with(&format!("cannot listen on {}", taken.local_addr().unwrap())));
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_wrong_is_said_and_no_password() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "not a folder").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let text = format!(
        "[database]\nurl = \"postgres://outhaul:hunter2@{taken}/db\"\n[storage]\nurl = \"file:file/below\""
    );
    let Err(error) = start(config(folder.path(), &text), Roles::ALL, Registry::new()).await else {
        panic!("it must not start")
    };
    assert!(matches!(error.0[..], [StartError::Database(_), StartError::Storage(_)]), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

const SCHEDULED: &str = "[job_types.TIDY]\nsteps = [{ name = \"a\", http = \"https://host/a\" }]\n\
    [job_types.TELL]\nsteps = [{ name = \"b\", http = \"https://host/b\" }]\n\
    [schedules.yearly]\ncron = \"0 0 1 1 *\"\ntimezone = \"Asia/Tokyo\"\njob = { jobType = \"TIDY\" }\n\
    [triggers.tell]\nafter = \"job:TIDY\"\njob = { jobType = \"TELL\" }\n";

async fn asked(
    running: &Running,
    method: &str,
    path: &str,
    body: Option<serde_json::Value>,
) -> (u16, serde_json::Value) {
    let address = format!("http://{}{path}", running.addr().unwrap());
    let mut call = reqwest::Client::new().request(method.parse().unwrap(), address);
    if let Some(body) = body {
        call = call.json(&body);
    }
    let answer = call.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_and_triggers_are_those_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let job_types: String = SCHEDULED.lines().take(4).map(|line| format!("{line}\n")).collect();
    let running = start(config(folder.path(), &job_types), Roles::ALL, Registry::new()).await.unwrap();
    let mine = serde_json::json!({"cron": "@daily", "job": {"jobType": "TELL"}});
    for name in ["yearly", "mine"] {
        let (status, answer) =
            asked(&running, "PUT", &format!("/schedules/{name}"), Some(mine.clone())).await;
        assert_eq!(status, 201, "{answer}");
    }
    assert_eq!(asked(&running, "POST", "/schedules/yearly/pause", None).await.0, 200);
    running.stop().await;

    // One of the configuration takes the place of one of the API, which had paused it.
    let running = start(config(folder.path(), SCHEDULED), Roles::ALL, Registry::new()).await.unwrap();
    let (_, yearly) = asked(&running, "GET", "/schedules/yearly", None).await;
    assert_eq!(
        (&yearly["origin"], &yearly["cron"], &yearly["paused"]),
        (&"config".into(), &"0 0 1 1 *".into(), &true.into())
    );
    assert!(yearly["nextTimes"][0].as_str().unwrap().ends_with("-01-01T00:00:00+09:00"), "{yearly}");
    assert_eq!(asked(&running, "PUT", "/schedules/yearly", Some(mine.clone())).await.0, 409);
    assert_eq!(asked(&running, "DELETE", "/triggers/tell", None).await.0, 409);
    assert_eq!(asked(&running, "GET", "/triggers/tell", None).await.1["origin"], "config");
    running.stop().await;

    // What is no longer in the file is gone, and what came through the API stays. A process without the
    // scheduler role leaves all of it alone.
    let running =
        start(config(folder.path(), &job_types), Roles { scheduler: false, ..Roles::ALL }, Registry::new())
            .await;
    let running = running.unwrap();
    assert_eq!(asked(&running, "GET", "/schedules/yearly", None).await.0, 200);
    running.stop().await;
    let running = start(config(folder.path(), &job_types), Roles::ALL, Registry::new()).await.unwrap();
    for (path, status) in [("/schedules/yearly", 404), ("/triggers/tell", 404), ("/schedules/mine", 200)] {
        assert_eq!(asked(&running, "GET", path, None).await.0, status, "{path}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_could_not_run_keeps_a_scheduler_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[schedules.bad]\ncron = \"@daily\"\njob = { jobType = \"NONE\", payload = \"hunter2\" }\n\
                [triggers.bad]\nafter = [\"dataset:none\"]\njob = { items = [{ key = \"A\", effectiveDates = [\"x\"] }] }";
    let Err(error) = start(config(folder.path(), text), Roles::ALL, Registry::new()).await else {
        panic!("it must not start")
    };
    let [StartError::Configuration(problems)] = &error.0[..] else { panic!("{error}") };
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert!(
        paths.contains(&"schedules.bad.job.jobType") && paths.contains(&"triggers.bad.after.0"),
        "{error}"
    );
    assert!(!format!("{error} {error:?}").contains("hunter2"));
    // Others neither fire nor store them.
    let worker = Roles { scheduler: false, ..Roles::ALL };
    start(config(folder.path(), text), worker, Registry::new()).await.unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_way_round_through_triggers_of_the_api_keeps_a_scheduler_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let without: String = SCHEDULED.lines().take(8).map(|line| format!("{line}\n")).collect();
    let running = start(config(folder.path(), &without), Roles::ALL, Registry::new()).await.unwrap();
    let back = serde_json::json!({"after": ["job:TELL"], "job": {"jobType": "TIDY"}});
    assert_eq!(asked(&running, "PUT", "/triggers/back", Some(back)).await.0, 201);
    running.stop().await;
    let Err(error) = start(config(folder.path(), SCHEDULED), Roles::ALL, Registry::new()).await else {
        panic!("it must not start")
    };
    assert!(matches!(&error.0[..], [StartError::TriggerCycle(names)] if names.len() == 2), "{error}");
    let said = error.to_string();
    assert!(
        said.contains("back") && said.contains("tell") && said.contains("take one of them out"),
        "{said}"
    );
}

/// Holds its thread until the test lets go, whatever it is told.
#[derive(serde::Serialize, serde::Deserialize)]
struct Blocks;

static LET_GO: AtomicBool = AtomicBool::new(false);

impl Job for Blocks {
    const TYPE: &'static str = "BLOCKS";
    type Output = ();

    fn options() -> JobOptions {
        let backoff = Backoff::Fixed { base: Duration::from_secs(1) };
        JobOptions::default()
            .timeout(Duration::from_millis(100))
            .retry(RetryPolicy { max_attempts: 1, backoff })
    }

    async fn run(&self, _: &Context) -> Result<(), JobError> {
        while !LET_GO.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_jobs_hold_its_threads_ends_and_asks_to_be_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "");
    config.worker.concurrency = 1;
    let running = start(config, Roles::ALL, Registry::new().job::<Blocks>()).await.unwrap();
    let call = reqwest::Client::new().post(format!("http://{}/jobs", running.addr().unwrap()));
    let answer = call.json(&serde_json::json!({"jobType": "BLOCKS"})).send().await.unwrap();
    assert_eq!(answer.status(), 202);
    let ended = Signals::new().wait_then_stop(running).await;
    LET_GO.store(true, Ordering::SeqCst);
    assert_eq!(ended, Ended::Broken(Broken::Wedged(1)));
    assert!(ended.to_string().contains("should start it again"), "{ended}");
}
