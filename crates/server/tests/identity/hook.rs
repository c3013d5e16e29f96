//! The hook of `[auth.recheck]`, inside the test: it writes down every question, and answers as the test says.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Must be seen by nobody but the hook.
pub(crate) const SECRET: &str = "canary-hook-secret-4711";
pub(crate) const KEY: &str = "canary-hook-key-0815";

/// What is answered to the next questions; the last one stays.
#[derive(Clone, Copy)]
pub(crate) enum Says {
    Status(u16),
    Elsewhere,
    Nothing,
}

/// One question.
#[derive(Clone)]
pub(crate) struct Asked {
    headers: HeaderMap,
    raw: Bytes,
    pub(crate) body: Value,
}

impl Asked {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("a question without {name}")).to_str().unwrap()
    }

    /// Checks the signature as a receiver would.
    pub(crate) fn verify(&self) {
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
        for part in [self.header("webhook-id"), ".", self.header("webhook-timestamp"), "."] {
            mac.update(part.as_bytes());
        }
        mac.update(&self.raw);
        let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        assert_eq!(self.header("webhook-signature"), expected);
        assert!(self.headers.get("authorization").is_none(), "no token goes there");
    }
}

/// A running hook; gone when dropped.
pub(crate) struct Hook {
    address: String,
    says: Arc<Mutex<Vec<Says>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: JoinHandle<()>,
}

impl Hook {
    pub(crate) async fn start() -> Self {
        let (says, asked) = (Arc::<Mutex<Vec<Says>>>::default(), Arc::<Mutex<Vec<Asked>>>::default());
        let (answers, book) = (says.clone(), asked.clone());
        let serve = move |uri: Uri, headers: HeaderMap, raw: Bytes| {
            assert_eq!(uri.path_and_query().unwrap().as_str(), format!("/still?key={KEY}"));
            let body = serde_json::from_slice(&raw).unwrap();
            book.lock().unwrap().push(Asked { headers, raw, body });
            let mut answers = answers.lock().unwrap();
            let says = if answers.len() > 1 { answers.remove(0) } else { answers[0] };
            answer(says)
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let app = Router::new().fallback(serve);
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let hook = Self { address, says, asked, task };
        hook.says(&[Says::Status(200)]);
        hook
    }

    /// From now on.
    pub(crate) fn says(&self, says: &[Says]) {
        *self.says.lock().unwrap() = says.to_vec();
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// `[auth.recheck]` with this hook, and leave to call it.
    pub(crate) fn section(&self, more: &str) -> String {
        format!(
            "[auth.recheck]\nurl = \"http://{}/still?key={KEY}\"\nsecret_env = \"HOOK_SECRET\"\n{more}\n\n\
             [http]\nallow = [\"localhost\"]\n\n",
            self.address
        )
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(says: Says) -> Response {
    match says {
        Says::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Says::Elsewhere => {
            let there = [("location", HeaderValue::from_static("/yes"))];
            (StatusCode::TEMPORARY_REDIRECT, there).into_response()
        }
        Says::Nothing => std::future::pending().await,
    }
}
