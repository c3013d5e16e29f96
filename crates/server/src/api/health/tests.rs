//! What a process says of itself: with a broker, without one, and to those who ask for something else.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use outhaul_core::announcement::DeliveryLag;
use outhaul_core::outbox::NewOutboxMessage;
use outhaul_core::secret::Secret;
use outhaul_core::store::StoreSettings;
use outhaul_delivery::DeliveryHealth;
use outhaul_export::settings::{FileAccess, StorageSettings, StorageTarget};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;

use super::*;

struct Bench {
    folder: TempDir,
    store: Arc<dyn Store>,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let minute = Duration::from_secs(60);
        let settings =
            StoreSettings { lease: minute, fairness_step: minute, idempotency_window: minute, parking: true };
        let url = Secret::new(format!("sqlite:{}", folder.path().join("o.db").display()));
        let store = outhaul_store::open(&url, settings, Default::default()).await.unwrap().api;
        Self { folder, store }
    }

    async fn ask(&self, broker: Option<BrokerHealth>, method: Method, path: &str) -> (StatusCode, Value) {
        let target = StorageTarget::Local(self.folder.path().join("files"));
        let storage = Storage::open(&StorageSettings {
            target,
            base_path: "exports/".into(),
            file_access: FileAccess::Owner,
        })
        .unwrap();
        let health = Health::new(self.store.clone(), storage, broker, crate::metrics::install());
        let router = health_router(Arc::new(health), Duration::from_secs(30), true);
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let answer = router.oneshot(request).await.unwrap();
        let status = answer.status();
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    async fn ready(&self, broker: BrokerHealth) -> (StatusCode, Value) {
        self.ask(Some(broker), Method::GET, "/readyz").await
    }
}

/// Anybody may ask as often as they like, and a look may cost a paid request or a file that is written.
#[tokio::test]
async fn a_look_is_remembered_for_all_who_ask() {
    let bench = Bench::new().await;
    let files = bench.folder.path().join("files");
    let target = StorageTarget::Local(files.clone());
    let storage = Storage::open(&StorageSettings {
        target,
        base_path: "exports/".into(),
        file_access: FileAccess::Owner,
    })
    .unwrap();
    let mut health = Health::new(bench.store.clone(), storage, None, None);
    for (age, after) in [(Duration::from_secs(86_400), 200), (Duration::ZERO, 503)] {
        health.ready_age = age;
        let ready = Arc::new(health);
        let asked = async || match readyz(State(ready.clone())).await {
            Ok(_) => 200,
            Err(problem) => problem.into_response().status().as_u16(),
        };
        assert_eq!(asked().await, 200);
        std::fs::rename(&files, files.with_extension("away")).unwrap();
        std::fs::write(&files, "in the way").unwrap();
        assert_eq!(asked().await, after, "{age:?}");
        std::fs::remove_file(&files).unwrap();
        std::fs::rename(files.with_extension("away"), &files).unwrap();
        health = Arc::into_inner(ready).unwrap();
        health.ready = Recent::default();
    }
}

#[tokio::test]
async fn a_name_of_the_web_that_points_here_gets_nothing() {
    let bench = Bench::new().await;
    let target = StorageTarget::Local(bench.folder.path().join("files"));
    let storage = Storage::open(&StorageSettings {
        target,
        base_path: "exports/".into(),
        file_access: FileAccess::Owner,
    })
    .unwrap();
    let health = Arc::new(Health::new(bench.store.clone(), storage, None, None));
    for (local, path, status) in
        [(true, "/readyz", 421), (true, "/metrics", 421), (true, "/healthz", 200), (false, "/readyz", 200)]
    {
        let router = health_router(health.clone(), Duration::from_secs(30), local);
        let request =
            Request::builder().uri(path).header("host", "evil.example").body(Body::empty()).unwrap();
        assert_eq!(router.oneshot(request).await.unwrap().status(), status, "{local} {path}");
    }
}

fn rabbit() -> BrokerHealth {
    BrokerHealth::of_others("rabbitmq", "amqp://mq:5672/%2f".to_owned())
}

fn own(relay: bool, feed: Option<bool>, error: Option<&str>) -> DeliveryHealth {
    DeliveryHealth {
        relay_connected: relay,
        feed_connected: feed,
        last_error: error.map(str::to_owned),
        lag: DeliveryLag { announced: 3, outbox: 2, outbox_oldest: Duration::from_millis(7500) },
    }
}

#[tokio::test]
async fn a_process_without_the_api_answers_three_questions_and_no_other() {
    let bench = Bench::new().await;
    for path in ["/healthz", "/readyz"] {
        let answer = bench.ask(None, Method::GET, path).await;
        assert_eq!(answer, (StatusCode::OK, json!({"status": "ok"})), "{path}");
    }
    let (status, text) = bench.ask(None, Method::GET, "/metrics").await;
    assert!(status == StatusCode::OK && text.is_string(), "{text}");
    for path in ["/", "/jobs", "/docs", "/openapi.json", "/queues", "/healthz/"] {
        let (status, problem) = bench.ask(None, Method::GET, path).await;
        assert_eq!((status, &problem["status"]), (StatusCode::NOT_FOUND, &json!(404)), "{path}");
    }
    assert_eq!(bench.ask(None, Method::POST, "/readyz").await.0, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn who_works_through_a_broker_is_ready_when_connected_to_it() {
    let bench = Bench::new().await;
    let (status, body) = bench.ready(rabbit().connected(true, || own(true, Some(true), None))).await;
    let delivery = json!({
        "kind": "rabbitmq", "relayConnected": true, "feedConnected": true,
        "announced": 3, "outbox": 2, "outboxOldestSeconds": 7,
    });
    assert_eq!((status, &body["delivery"]), (StatusCode::OK, &delivery));
    // A scheduler is handed nothing.
    let (status, body) = bench.ready(rabbit().connected(true, || own(true, None, None))).await;
    assert_eq!((status, body["delivery"].get("feedConnected")), (StatusCode::OK, None));

    for (relay, feed, who) in [
        (false, Some(true), "the relay is not connected"),
        (true, Some(false), "the feed is not connected"),
        (false, Some(false), "the relay and the feed are not connected"),
        (false, None, "the relay is not connected"),
    ] {
        let away = rabbit().connected(true, move || own(relay, feed, Some("connection refused")));
        let (status, problem) = bench.ready(away).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!((&problem["detail"], &problem["status"]), (&json!("not ready: delivery"), &json!(503)));
        assert_eq!(problem["errors"][0]["pointer"], "delivery");
        let message = problem["errors"][0]["message"].as_str().unwrap();
        assert!(message.starts_with(who), "{message}");
        for part in ["rabbitmq at amqp://mq:5672/%2f: connection refused", "3 chunks", "2 messages", "7 s"] {
            assert!(message.contains(part), "{part} in {message}");
        }
    }
}

#[tokio::test]
async fn a_broker_that_is_away_does_not_keep_an_api_from_taking_jobs() {
    let bench = Bench::new().await;
    let away = rabbit().connected(false, || own(false, Some(false), Some("connection refused")));
    let (status, body) = bench.ready(away).await;
    assert_eq!((status, &body["delivery"]["relayConnected"]), (StatusCode::OK, &json!(false)));

    // An API alone has no connections, and asks the database how much waits.
    let message = NewOutboxMessage { message_id: "one".into(), body: "{}".into() };
    bench.store.outbox_put(&[message]).await.unwrap();
    let (status, body) = bench.ready(rabbit()).await;
    let delivery = json!({"kind": "rabbitmq", "announced": 0, "outbox": 1, "outboxOldestSeconds": 0});
    let mut shown = body["delivery"].clone();
    shown["outboxOldestSeconds"] = json!(0);
    assert_eq!((status, shown), (StatusCode::OK, delivery));
    let (_, metrics) = bench.ask(Some(rabbit()), Method::GET, "/metrics").await;
    for name in ["outhaul_announced", "outhaul_outbox_depth", "outhaul_outbox_oldest_seconds"] {
        assert!(metrics.as_str().unwrap().contains(name), "{name} in {metrics}");
    }
}
