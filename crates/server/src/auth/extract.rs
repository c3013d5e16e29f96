//! The door of the API: every request but those to open routes has a caller behind it before a handler
//! runs. A handler that asks for a [`Caller`] where nobody stood at the door gets none and fails.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use chrono::{DateTime, Utc};
use outhaul_core::clock;

use super::caller::Caller;
use super::rate::Rate;
use super::refusal::Refusal;

/// Routes that need no caller: they tell about the program, not about anybody's work. Metrics are among
/// them, for what collects them has no token: their labels name routes and queues, never a key or a caller.
const OPEN: [&str; 6] = ["/healthz", "/readyz", "/metrics", "/docs", "/docs/{name}", "/openapi.json"];

/// Whether a route needs no caller.
pub fn is_open(route: &str) -> bool {
    OPEN.contains(&route)
}

/// The one route that answers under any host name, because probes may use any name.
pub const PROBED: &str = "/healthz";

/// Tells who sent a request.
#[async_trait]
pub trait Auth: Send + Sync {
    /// Whether requests under this `Host` are answered at all, also on open routes.
    fn answers_to(&self, _headers: &HeaderMap) -> bool {
        true
    }

    /// The caller, by the headers of a request.
    async fn caller(&self, headers: &HeaderMap, now: DateTime<Utc>) -> Result<Caller, Refusal>;

    /// Whether callers can be told at all; the error says why not, for `/readyz`.
    fn ready(&self, now: DateTime<Utc>) -> Result<(), String>;
}

/// `mode = "none"`: everybody is the same, and may do everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anyone {
    /// Whether only this machine can reach us. Then a page of the web must not either, by letting its own name
    /// point here: only local names and addresses are answered to.
    pub local: bool,
}

#[async_trait]
impl Auth for Anyone {
    async fn caller(&self, headers: &HeaderMap, now: DateTime<Utc>) -> Result<Caller, Refusal> {
        if self.answers_to(headers) { Ok(Caller::anonymous(now)) } else { Err(Refusal::ForeignHost) }
    }

    fn answers_to(&self, headers: &HeaderMap) -> bool {
        !self.local || names_this_machine(headers)
    }

    fn ready(&self, _: DateTime<Utc>) -> Result<(), String> {
        Ok(())
    }
}

/// Whether every `Host` is this machine's own name or an address. A web page whose host name was made to
/// point here (DNS rebinding) sends that name.
pub(crate) fn names_this_machine(headers: &HeaderMap) -> bool {
    headers.get_all(HOST).iter().all(|host| is_local(host.as_bytes()))
}

/// Whether a `Host` is `localhost` or an address, with or without a port.
fn is_local(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => return address.parse::<Ipv6Addr>().is_ok(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok()
}

/// The token of the one `Authorization: Bearer …` header.
pub(super) fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (value, other) = (given.next().ok_or(Refusal::NoToken)?, given.next());
    let (scheme, token) =
        value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(Refusal::NotBearer)?;
    let token = token.trim_matches(' ');
    if other.is_some() || !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Err(Refusal::NotBearer);
    }
    Ok(token)
}

/// What the door knows.
#[derive(Clone)]
pub struct Gate {
    /// Tells who it is.
    pub auth: Arc<dyn Auth>,
    /// How many requests each may make; `None`: as many as they like.
    pub rate: Option<Arc<Rate>>,
    /// Makes an answer of a refusal.
    pub refuse: fn(Refusal) -> Response,
}

impl Gate {
    async fn admit(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let caller = self.auth.caller(headers, clock::now()).await?;
        if let Some(rate) = &self.rate {
            rate.take(caller.subject(), Instant::now()).map_err(Refusal::TooMany)?;
        }
        // Before any route looks anything up, so that it tells nothing about what there is.
        if caller.roles.is_empty() { Err(Refusal::NoRole) } else { Ok(caller) }
    }
}

/// The middleware: lets in callers with a role, and puts the [`Caller`] where handlers find it.
pub async fn gate(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let answered = route == Some(PROBED) || gate.auth.answers_to(request.headers());
    if answered && route.is_some_and(is_open) {
        return next.run(request).await;
    }
    let admitted = if answered { gate.admit(request.headers()).await } else { Err(Refusal::ForeignHost) };
    match admitted {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => {
            tracing::debug!(status = refusal.status().as_u16(), why = refusal.detail(), "auth.refused");
            (gate.refuse)(refusal)
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            tracing::error!("auth.no_gate");
            StatusCode::INTERNAL_SERVER_ERROR
        })
    }
}
