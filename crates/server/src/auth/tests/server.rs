//! A JWKS server on loopback that counts what it is asked, and can be changed, broken and stopped.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use url::Url;

#[derive(Default)]
struct Shown {
    status: u16,
    location: Option<String>,
    body: Bytes,
}

#[derive(Clone)]
struct Shared {
    shown: Arc<Mutex<Shown>>,
    asked: Arc<AtomicUsize>,
    arrived: Arc<Notify>,
    /// Answers wait here while it is closed.
    door: Arc<tokio::sync::RwLock<()>>,
}

pub(super) struct Server {
    pub(super) url: Url,
    shared: Shared,
    task: JoinHandle<()>,
}

impl Server {
    pub(super) async fn start(keys: Value) -> Self {
        let shared = Shared {
            shown: Arc::default(),
            asked: Arc::default(),
            arrived: Arc::default(),
            door: Arc::default(),
        };
        let app = Router::new().route("/jwks", get(answer)).with_state(shared.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks", listener.local_addr().unwrap()).parse().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let server = Self { url, shared, task };
        server.show(keys);
        server
    }

    /// These keys from now on.
    pub(super) fn show(&self, keys: Value) {
        self.reply(200, json!({"keys": keys}).to_string());
    }

    pub(super) fn reply(&self, status: u16, body: impl Into<Bytes>) {
        *self.shared.shown.lock().unwrap() = Shown { status, location: None, body: body.into() };
    }

    pub(super) fn redirect(&self, location: &Url) {
        let location = Some(location.to_string());
        *self.shared.shown.lock().unwrap() = Shown { status: 302, location, body: Bytes::new() };
    }

    pub(super) fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }

    /// Waits until it was asked so many times.
    pub(super) async fn until_asked(&self, times: usize) {
        loop {
            let arrived = self.shared.arrived.notified();
            if self.asked() >= times {
                return;
            }
            arrived.await;
        }
    }

    /// Lets nobody have an answer until the guard is dropped.
    pub(super) async fn hold(&self) -> tokio::sync::OwnedRwLockWriteGuard<()> {
        self.shared.door.clone().write_owned().await
    }

    /// Gone: connections are refused.
    pub(super) async fn stop(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(shared): State<Shared>) -> Response {
    shared.asked.fetch_add(1, Ordering::SeqCst);
    shared.arrived.notify_waiters();
    let _open = shared.door.read().await;
    let shown = shared.shown.lock().unwrap();
    let mut response = Response::builder().status(shown.status);
    if let Some(location) = &shown.location {
        response = response.header("location", location);
    }
    response.body(Body::from(shown.body.clone())).unwrap()
}
