//! The issuer's keys from its JWKS address: loaded in the background, and once in a while because a token
//! names a key we do not know. Known keys outlive a server that is down, but not for ever.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use jsonwebtoken::{Algorithm, DecodingKey};
use outhaul_core::clock;
use reqwest::redirect::Policy;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::jwk;
use super::keys::KeySet;
use super::refusal::{Refusal, Why};

const TO_CONNECT: Duration = Duration::from_secs(5);
const TO_ANSWER: Duration = Duration::from_secs(10);
const MAX_BODY: usize = 1 << 20;

/// How often keys are fetched and how long they are believed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) refresh: Duration,
    pub(super) cooldown: Duration,
    pub(super) max_age: Duration,
}

/// Why tokens cannot be verified at all, as things are configured.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The public key file.
    #[error("auth.public_key_file {0}")]
    PublicKey(String),
    /// TLS.
    #[error("no HTTP client for auth.jwks_url can be made")]
    Http(#[from] reqwest::Error),
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("cannot be fetched")]
    Http(#[source] reqwest::Error),
    #[error("answered {0}")]
    Status(u16),
    #[error("answered with more than {MAX_BODY} bytes")]
    TooLarge,
    #[error("answered with something that is not a JWKS")]
    NotJwks,
}

impl From<reqwest::Error> for FetchError {
    fn from(error: reqwest::Error) -> Self {
        // The address may hold a key in its query.
        Self::Http(error.without_url())
    }
}

/// The keys, and when they came.
pub(super) struct Jwks {
    url: Url,
    http: reqwest::Client,
    pace: Pace,
    state: Mutex<State>,
    /// One fetch at a time, whoever wants it.
    flight: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    keys: Arc<KeySet>,
    /// When they were last fetched with success.
    loaded: Option<DateTime<Utc>>,
    /// When somebody's token last led to a fetch: when that began and, once it is over, when it ended.
    asked: Option<DateTime<Utc>>,
    /// How many fetches have ended, well or not.
    ended: u64,
    /// What went wrong at the last try.
    failed: Option<String>,
}

impl Jwks {
    pub(super) fn new(url: Url, pace: Pace) -> Result<Self, SetupError> {
        let builder = || {
            reqwest::Client::builder()
                .user_agent(concat!("outhaul/", env!("CARGO_PKG_VERSION")))
                .no_proxy()
                .redirect(Policy::none())
                .referer(false)
                .connect_timeout(TO_CONNECT)
                .timeout(TO_ANSWER)
                .pool_max_idle_per_host(0)
        };
        // A machine without root certificates can still use plain http on loopback.
        let http = builder().build().or_else(|_| builder().tls_certs_only([]).build())?;
        Ok(Self { url, http, pace, state: Mutex::default(), flight: tokio::sync::Mutex::default() })
    }

    /// The keys that a token may have been signed with, at least one. For a name that is not known the keys are
    /// fetched again, at most once per cooldown: names in tokens are anybody's to invent.
    pub(super) async fn find(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
        now: DateTime<Utc>,
    ) -> Result<Vec<DecodingKey>, Refusal> {
        let (came, ended) = (Instant::now(), self.state().ended);
        let found = self.look(kid, algorithm, now);
        if !worth_a_fetch(&found) {
            return found;
        }
        let _flight = self.flight.lock().await;
        let found = self.look(kid, algorithm, now);
        // Whoever waited for a fetch has its outcome, whatever that was: one more for each would be made one
        // behind the other, and a server that hangs would keep them all.
        let waited = self.state().ended != ended;
        if waited || !worth_a_fetch(&found) || !self.may_ask(now + came.elapsed()) {
            return found;
        }
        self.load(now).await;
        self.state().asked = Some(now + came.elapsed());
        self.look(kid, algorithm, now)
    }

    /// Whether tokens can be judged; the error says why not.
    pub(super) fn ready(&self, now: DateTime<Utc>) -> Result<(), String> {
        let state = self.state();
        let cause = || state.failed.as_deref().unwrap_or("is not loaded yet");
        match state.loaded {
            Some(loaded) if apart(loaded, now) < self.pace.max_age => Ok(()),
            Some(_) => Err(format!("the keys of auth.jwks_url are too old to be believed: it {}", cause())),
            None => Err(format!("auth.jwks_url {}", cause())),
        }
    }

    /// Fetches until it is told to stop.
    pub(super) async fn keep_fresh(&self, stop: CancellationToken) {
        let for_ever = async {
            loop {
                let loaded = self.refresh(clock::now()).await;
                let Pace { refresh, cooldown, .. } = self.pace;
                tokio::time::sleep(if loaded { refresh } else { refresh.min(cooldown) }).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = for_ever => {}
        }
    }

    /// Fetches now; `false`: what was known stays.
    pub(super) async fn refresh(&self, now: DateTime<Utc>) -> bool {
        let _flight = self.flight.lock().await;
        self.load(now).await
    }

    fn look(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
        now: DateTime<Utc>,
    ) -> Result<Vec<DecodingKey>, Refusal> {
        if self.ready(now).is_err() {
            return Err(Refusal::NoKeys);
        }
        let keys = self.state().keys.clone();
        let found = keys.find(kid, algorithm).map_err(Refusal::Token)?;
        Ok(found.into_iter().map(|key| key.decoding.clone()).collect())
    }

    fn may_ask(&self, now: DateTime<Utc>) -> bool {
        let mut state = self.state();
        let may = state.asked.is_none_or(|asked| apart(asked, now) >= self.pace.cooldown);
        if may {
            state.asked = Some(now);
        }
        may
    }

    /// Only for those who hold the flight.
    async fn load(&self, now: DateTime<Utc>) -> bool {
        let fetched = self.fetch().await;
        self.state().ended += 1;
        match fetched {
            Ok((keys, all)) => {
                tracing::debug!(usable = keys.0.len(), all, "auth.jwks_loaded");
                if keys.0.is_empty() {
                    tracing::warn!(all, "auth.jwks_without_usable_keys");
                }
                let mut state = self.state();
                state.keys = Arc::new(keys);
                state.loaded = Some(now);
                state.failed = None;
                true
            }
            Err(error) => {
                let cause = with_causes(&error);
                tracing::warn!(error = cause, "auth.jwks_failed");
                self.state().failed = Some(cause);
                false
            }
        }
    }

    async fn fetch(&self) -> Result<(KeySet, usize), FetchError> {
        let mut answer = self.http.get(self.url.clone()).header("accept", "application/json").send().await?;
        if answer.status() != reqwest::StatusCode::OK {
            return Err(FetchError::Status(answer.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await? {
            if body.len() + part.len() > MAX_BODY {
                return Err(FetchError::TooLarge);
            }
            body.extend_from_slice(&part);
        }
        jwk::read(&body).ok_or(FetchError::NotJwks)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn worth_a_fetch(found: &Result<Vec<DecodingKey>, Refusal>) -> bool {
    matches!(found, Err(Refusal::NoKeys | Refusal::Token(Why::UnknownKey)))
}

/// How far apart two moments are; a clock that was set back must not make keys young for ever.
fn apart(one: DateTime<Utc>, other: DateTime<Utc>) -> Duration {
    (one - other).abs().to_std().unwrap_or(Duration::MAX)
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
