//! Processes without the API: whether and where they answer for their health.

use super::*;

pub(super) const WORKER: Roles = Roles { api: false, worker: true, scheduler: false };

/// Such a process on a spare port for its health.
pub(super) fn listening(folder: &Path, text: &str) -> Config {
    let mut config = config(folder, text);
    config.health_listen = Some("127.0.0.1:0".parse().unwrap());
    config
}

/// Asks a process for its health, wherever it shows it.
pub(super) async fn health(running: &Running, path: &str) -> (u16, serde_json::Value) {
    let addr = running.addr().or(running.health_addr()).unwrap();
    let answer = reqwest::get(format!("http://{addr}{path}")).await.unwrap();
    let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_answers_for_its_health_and_nothing_else() {
    for roles in [WORKER, Roles { api: false, worker: false, scheduler: true }] {
        let folder = tempfile::tempdir().unwrap();
        let running = start(listening(folder.path(), SCHEDULED), roles, Registry::new()).await.unwrap();
        assert_eq!(running.addr(), None);
        let ok = (200, serde_json::json!({"status": "ok"}));
        assert_eq!(health(&running, "/healthz").await, ok);
        assert_eq!(health(&running, "/readyz").await, ok, "without a broker there is nothing to say of one");
        let (status, metrics) = health(&running, "/metrics").await;
        let metrics = metrics.as_str().unwrap();
        assert_eq!(status, 200);
        for name in ["outhaul_queue_depth", "outhaul_queue_oldest_seconds", "outhaul_queue_running"] {
            assert!(metrics.contains(&format!("{name}{{queue=\"job:TIDY\"}}")), "{name} in {metrics}");
        }
        for path in ["/jobs", "/workers", "/docs", "/openapi.json"] {
            let (status, problem) = health(&running, path).await;
            assert_eq!((status, &problem["status"]), (404, &404.into()), "{path}");
        }
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_one_of_its_parts_says_so_and_ends() {
    for roles in [WORKER, Roles::ALL] {
        let folder = tempfile::tempdir().unwrap();
        let running = start(listening(folder.path(), ""), roles, Registry::new()).await.unwrap();
        drop(running.vitals.part("the part of this test"));
        let (status, problem) = health(&running, "/healthz").await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(status == 503 && detail.contains("the part of this test of this process ended"), "{problem}");
        let ended = Signals::new().wait_then_stop(running).await;
        assert_eq!(ended, Ended::Broken(Broken::Ended("the part of this test")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_for_health_is_said() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = taken.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "");
    config.health_listen = Some(addr);
    let Err(error) = start(config.clone(), WORKER, Registry::new()).await else {
        panic!("it must not start")
    };
    assert!(error.to_string().starts_with(&format!("cannot listen on {addr}")), "{error}");
    // An API answers on its own port, and leaves this one to others.
    let running = start(config, Roles::ALL, Registry::new()).await.unwrap();
    assert_eq!(running.health_addr(), None);
    assert!(is_ready(running.addr().unwrap()).await);
    running.stop().await;
}
