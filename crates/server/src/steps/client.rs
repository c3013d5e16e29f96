//! The one HTTP client of all steps in a process: no proxy, no redirects, no decompression, and a
//! resolver that passes on only addresses that may be called.

use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use url::Url;

use super::allow::{Allow, Refused};
use super::dial::{Guard, Lookup, system};
use super::threads::Threads;

/// How long a connection may take to come about, name service and TLS included.
pub(super) const TO_CONNECT: Duration = Duration::from_secs(10);
/// Idle connections kept per host, and for how long.
const IDLE: usize = 16;
const IDLE_FOR: Duration = Duration::from_secs(30);

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// TLS or the resolver.
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    /// Threads.
    #[error(transparent)]
    Threads(#[from] std::io::Error),
}

/// Calls steps. Cheap to clone; connections are shared.
#[derive(Clone)]
pub struct Client {
    pub(super) http: reqwest::Client,
    pub(super) threads: Threads,
    allow: Arc<Allow>,
}

impl Client {
    /// A client that calls public addresses and what `[http] allow` names.
    pub fn new(allow: Allow) -> Result<Self, ClientError> {
        Self::with_lookup(allow, system())
    }

    pub(super) fn with_lookup(allow: Allow, lookup: Lookup) -> Result<Self, ClientError> {
        let allow = Arc::new(allow);
        let guard = Arc::new(Guard { allow: allow.clone(), lookup });
        let builder = || {
            reqwest::Client::builder()
                .user_agent(concat!("outhaul/", env!("CARGO_PKG_VERSION")))
                .dns_resolver(guard.clone())
                // A proxy would dial for us, past every check.
                .no_proxy()
                .redirect(Policy::none())
                .referer(false)
                .connect_timeout(TO_CONNECT)
                .pool_max_idle_per_host(IDLE)
                .pool_idle_timeout(IDLE_FOR)
        };
        // A machine without root certificates can still call plain http.
        let http = builder().build().or_else(|_| builder().tls_certs_only([]).build())?;
        Ok(Self { http, threads: Threads::start()?, allow })
    }

    /// Why a step at this address would fail as things are; names are judged only when they are called.
    pub(crate) fn refusal(&self, url: &Url) -> Option<String> {
        self.check(url).err().map(|refused| refused.to_string())
    }

    /// Whether the address in a URL may be called, for URLs that hold one.
    pub(super) fn check(&self, url: &Url) -> Result<(), Refused> {
        self.allow.check_host(url.host())
    }
}
