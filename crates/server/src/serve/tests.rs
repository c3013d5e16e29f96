//! Whole processes in this one: that they start, refuse and stop as they should.

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
    assert_eq!(ended, Ended::Wedged(1));
    assert!(ended.to_string().contains("should start it again"), "{ended}");
}
