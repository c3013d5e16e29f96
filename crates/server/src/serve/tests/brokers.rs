//! Processes with a broker: who connects to it, and that its absence delays work and nothing else.

use std::io::ErrorKind;

use outhaul_core::job::JobStatus;
use outhaul_testkit::servers;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use super::health::{WORKER, health, listening};
use super::*;

const API: Roles = Roles { api: true, worker: false, scheduler: false };
const SCHEDULER: Roles = Roles { api: false, worker: false, scheduler: true };

/// Does nothing, so that it is done as soon as somebody runs it.
#[derive(serde::Serialize, serde::Deserialize)]
struct Nothing;

impl Job for Nothing {
    const TYPE: &'static str = "NOTHING";
    type Output = ();

    async fn run(&self, _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

fn registry() -> Registry {
    Registry::new().job::<Nothing>()
}

fn delivery(kind: &str, url: &str, queue: &str) -> String {
    format!(
        "[delivery]\nkind = \"{kind}\"\nurl = \"{url}\"\nwork_queue = \"{queue}.work\"\n\
         parking_queue = \"{queue}.parking\"\n"
    )
}

/// A port where nobody answers, as long as the socket is there: it is bound, and does not listen.
fn away(kind: &str) -> (TcpSocket, String) {
    let scheme = if kind == "rabbitmq" { "amqp" } else { "stomp" };
    let taken = TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("{scheme}://zoe:hunter2@{}", taken.local_addr().unwrap());
    (taken, delivery(kind, &url, "outhaul"))
}

async fn submit(running: &Running) -> String {
    let (status, job) = asked(running, "POST", "/jobs", Some(json!({"jobType": "NOTHING"}))).await;
    assert_eq!(status, 202, "{job}");
    job["jobId"].as_str().unwrap().to_owned()
}

/// Asks until the answer is as it should be.
async fn until(running: &Running, path: &str, is: impl Fn(&(u16, Value)) -> bool) -> Value {
    for _ in 0..4000 {
        let answer = health(running, path).await;
        if is(&answer) {
            return answer.1;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} never answered as it should")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_lets_processes_start_and_workers_are_not_ready() {
    for kind in ["activemq", "rabbitmq"] {
        let (_away, text) = away(kind);
        for (roles, who) in [(WORKER, "the relay and the feed are"), (SCHEDULER, "the relay is")] {
            let folder = tempfile::tempdir().unwrap();
            let running = start(listening(folder.path(), &text), roles, registry()).await.unwrap();
            // Its first try may be under way.
            let problem = until(&running, "/readyz", |(_, body)| !body.to_string().contains("not yet")).await;
            let error = &problem["errors"][0];
            assert_eq!((&problem["status"], &error["pointer"]), (&503.into(), &"delivery".into()));
            let message = error["message"].as_str().unwrap();
            assert!(message.starts_with(&format!("{who} not connected to {kind} at ")), "{message}");
            assert!(!message.contains("hunter2") && !message.contains("zoe"), "{message}");
            assert_eq!(health(&running, "/healthz").await.0, 200);
            running.stop().await;
        }
        let folder = tempfile::tempdir().unwrap();
        let running = start(config(folder.path(), &text), Roles::ALL, registry()).await.unwrap();
        submit(&running).await;
        let (status, body) = health(&running, "/readyz").await;
        assert_eq!((status, &body["delivery"]["relayConnected"]), (200, &false.into()), "{body}");
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_connects_to_no_broker_and_runs_nothing() {
    for kind in ["activemq", "rabbitmq"] {
        let broker = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        broker.set_nonblocking(true).unwrap();
        let scheme = if kind == "rabbitmq" { "amqp" } else { "stomp" };
        let url = format!("{scheme}://{}", broker.local_addr().unwrap());
        let text = delivery(kind, &url, "outhaul");
        let folder = tempfile::tempdir().unwrap();

        let running = start(config(folder.path(), &text), API, registry()).await.unwrap();
        let job = submit(&running).await;
        let (status, body) = health(&running, "/readyz").await;
        assert_eq!((status, &body["delivery"]["outbox"]), (200, &0.into()));
        assert_eq!(body["delivery"].get("relayConnected"), None);
        assert_eq!(health(&running, "/workers").await.1["items"], json!([]), "nobody who could run it");
        assert_eq!(health(&running, &format!("/jobs/{job}")).await.1["running"], 0);
        running.stop().await;
        assert_eq!(broker.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nobody connected");

        // A process that runs chunks does connect.
        let folder = tempfile::tempdir().unwrap();
        let running = start(listening(folder.path(), &text), WORKER, registry()).await.unwrap();
        let broker = TcpListener::from_std(broker).unwrap();
        drop(broker.accept().await.unwrap());
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_cannot_be_used_are_said_to_those_who_need_them() {
    let ca = "-----BEGIN CERTIFICATE-----\nhunter2\n-----END CERTIFICATE-----\n";
    for (kind, scheme) in [("activemq", "stomps"), ("rabbitmq", "amqps")] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), ca).unwrap();
        let text = delivery(kind, &format!("{scheme}://127.0.0.1"), "outhaul") + "ca_file = \"ca.pem\"\n";
        let Err(error) = start(config(folder.path(), &text), WORKER, registry()).await else {
            panic!("it must not start")
        };
        assert!(matches!(error.0[..], [StartError::Broker(_)]), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        start(config(folder.path(), &text), API, registry()).await.unwrap().stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_through_each_broker() {
    for (kind, url) in [("activemq", servers::activemq_url()), ("rabbitmq", servers::rabbitmq_url())] {
        let folder = tempfile::tempdir().unwrap();
        let text = delivery(kind, &url, &servers::unique_prefix());
        let running = start(config(folder.path(), &text), Roles::ALL, registry()).await.unwrap();
        let job = submit(&running).await;
        let completed = JobStatus::Completed.as_str();
        until(&running, &format!("/jobs/{job}"), |(_, job)| job["status"] == completed).await;
        let body = until(&running, "/readyz", |(_, body)| body["delivery"]["announced"] == 0).await;
        assert_eq!(body["delivery"]["kind"], kind);
        assert_eq!(body["delivery"]["feedConnected"], true, "{body}");
        running.stop().await;

        // Those that only tell of chunks, and those that run them, are ready too.
        for roles in [WORKER, SCHEDULER] {
            let folder = tempfile::tempdir().unwrap();
            let running = start(listening(folder.path(), &text), roles, registry()).await.unwrap();
            until(&running, "/readyz", |(status, _)| *status == 200).await;
            running.stop().await;
        }
    }
}
