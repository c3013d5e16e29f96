//! Verifies a token and keeps what the configuration names of it. The text of the token ends here: it is
//! in no error, no log and no result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use outhaul_core::identity::{ANONYMOUS, Identity};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::claim::can_be_kept;
use super::extract::{Auth, bearer};
use super::jwks::{Jwks, Pace, SetupError};
use super::keys::{Key, KeySet};
use super::refusal::{Refusal, Why};
use super::settings::{JwtSettings, Keys, NAMED};
use super::twice::each_once;

/// The most bytes of a token.
const MAX_TOKEN: usize = 16 * 1024;
/// The most bytes of a key's name.
const MAX_KID: usize = 255;
/// Access tokens; an issuer signs other things with the same key.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// Whether a subject or a department cannot be one.
pub(super) fn name_problem(name: &str) -> bool {
    name.trim().is_empty() || name.chars().count() > 255 || name.contains(char::is_control)
}

/// Verifies the tokens of one issuer.
pub struct Tokens {
    settings: JwtSettings,
    source: Source,
}

enum Source {
    Fixed(KeySet),
    Jwks(Arc<Jwks>),
}

/// The part of a token's header that counts. What would bring a key along (`jwk`, `jku`, `x5c`, `x5u`)
/// does not.
#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

impl Tokens {
    /// A verifier; keys of a JWKS address are not fetched yet.
    pub fn new(settings: JwtSettings) -> Result<Self, SetupError> {
        let source = match &settings.keys {
            Keys::Secret(secret) => Source::Fixed(KeySet(vec![Key::secret(secret)])),
            Keys::PublicKey(pem) => {
                Source::Fixed(KeySet(vec![Key::public(pem).map_err(SetupError::PublicKey)?]))
            }
            Keys::Jwks(url) => {
                let pace = Pace {
                    refresh: settings.jwks_refresh,
                    cooldown: settings.jwks_cooldown,
                    max_age: settings.jwks_max_age,
                };
                Source::Jwks(Arc::new(Jwks::new(url.clone(), pace)?))
            }
        };
        Ok(Self { settings, source })
    }

    /// Who the token speaks for.
    pub async fn verify(&self, token: &str, now: DateTime<Utc>) -> Result<Caller, Refusal> {
        let (head, algorithm) = self.head(token).map_err(Refusal::Token)?;
        let kid = head.kid.as_deref();
        let keys = match &self.source {
            // The one key needs no name, and whatever the token calls it changes nothing.
            Source::Fixed(keys) => {
                let found = keys.find(None, algorithm).map_err(Refusal::Token)?;
                found.into_iter().map(|key| key.decoding.clone()).collect()
            }
            Source::Jwks(jwks) => jwks.find(kid, algorithm, now).await?,
        };
        let claims = self.check_any(token, algorithm, &keys);
        claims.and_then(|claims| self.caller(&claims, now)).map_err(Refusal::Token)
    }

    /// Fetches keys until it is told to stop; nothing to do for a key that is configured.
    pub async fn keep_fresh(&self, stop: CancellationToken) {
        match &self.source {
            Source::Jwks(jwks) => jwks.keep_fresh(stop).await,
            // No keys to renew. The task still waits: it must live as long as the process.
            Source::Fixed(_) => stop.cancelled().await,
        }
    }

    /// Fetches the keys now; `false`: they could not be had.
    pub async fn refresh(&self, now: DateTime<Utc>) -> bool {
        match &self.source {
            Source::Fixed(_) => true,
            Source::Jwks(jwks) => jwks.refresh(now).await,
        }
    }

    /// What can be refused before any key is looked for.
    fn head(&self, token: &str) -> Result<(Head, Algorithm), Why> {
        if token.len() > MAX_TOKEN {
            return Err(Why::TooLarge);
        }
        let head = token.split('.').next().filter(|_| token.split('.').count() == 3);
        let head = head.and_then(|head| URL_SAFE_NO_PAD.decode(head).ok()).ok_or(Why::Malformed)?;
        let head: Head = serde_json::from_slice(&head).map_err(|_| Why::Malformed)?;
        let algorithm: Algorithm = head.alg.parse().map_err(|_| Why::Algorithm)?;
        if !self.settings.algorithms.contains(&algorithm) {
            return Err(Why::Algorithm);
        }
        // `crit` names what must be understood, and we understand nothing beyond the standard.
        let known = head.typ.as_deref().is_none_or(|typ| TYPES.contains(&typ.to_ascii_lowercase().as_str()));
        if !known || head.crit.is_some() {
            return Err(Why::Kind);
        }
        if head.kid.as_deref().is_some_and(|kid| kid.len() > MAX_KID) {
            return Err(Why::UnknownKey);
        }
        Ok((head, algorithm))
    }

    /// The claims by the one of the keys that signed them; what is wrong is said by that key, if there is one.
    fn check_any(
        &self,
        token: &str,
        algorithm: Algorithm,
        keys: &[DecodingKey],
    ) -> Result<Map<String, Value>, Why> {
        let mut checked = keys.iter().map(|key| self.check(token, algorithm, key));
        checked.find(|claims| *claims != Err(Why::Signature)).unwrap_or(Err(Why::Signature))
    }

    /// The claims, once signature, issuer and audience are right.
    fn check(&self, token: &str, algorithm: Algorithm, key: &DecodingKey) -> Result<Map<String, Value>, Why> {
        let mut rules = Validation::new(algorithm);
        rules.set_required_spec_claims(&["exp", "iss", "aud"]);
        rules.set_issuer(&[&self.settings.issuer]);
        rules.set_audience(&self.settings.audience);
        rules.validate_aud = true;
        // The library reads the machine's clock; times are judged by `now` in `caller`.
        rules.validate_exp = false;
        rules.validate_nbf = false;
        let verified = decode::<Map<String, Value>>(token, key, &rules);
        let claims = verified.map(|token| token.claims).map_err(|error| match error.kind() {
            ErrorKind::InvalidSignature => Why::Signature,
            ErrorKind::InvalidAlgorithm => Why::Algorithm,
            ErrorKind::InvalidIssuer => Why::Issuer,
            ErrorKind::InvalidAudience => Why::Audience,
            ErrorKind::MissingRequiredClaim(name) => ["exp", "iss", "aud"]
                .into_iter()
                .find(|claim| claim == name)
                .map_or(Why::Malformed, Why::Missing),
            _ => Why::Malformed,
        })?;
        let text = token.split('.').nth(1).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        if !each_once(&text.ok_or(Why::Malformed)?) {
            return Err(Why::Twice);
        }
        Ok(claims)
    }

    fn is_for_us(&self, audience: Option<&Value>) -> bool {
        let us = |name: &Value| {
            name.as_str().is_some_and(|name| self.settings.audience.iter().any(|us| us == name))
        };
        match audience {
            Some(Value::Array(names)) => names.iter().any(us),
            Some(name) => us(name),
            None => false,
        }
    }

    fn caller(&self, claims: &Map<String, Value>, now: DateTime<Utc>) -> Result<Caller, Why> {
        let until = judge_times(claims, self.settings.leeway, now)?;
        // The library reads the claims by looser rules (a list of issuers is fine with it, and it may skip
        // what is of the wrong type), so these two are judged once more on the very claims that are used.
        if claims.get("iss").and_then(Value::as_str) != Some(&self.settings.issuer) {
            return Err(Why::Issuer);
        }
        if !self.is_for_us(claims.get("aud")) {
            return Err(Why::Audience);
        }
        let names = &self.settings.claims;
        let subject = names.subject.find(claims).ok_or(Why::Missing("sub"))?;
        let subject = subject.as_str().filter(|name| !name_problem(name)).ok_or(Why::Subject)?;
        if subject == ANONYMOUS || subject.starts_with(NAMED) {
            return Err(Why::Subject);
        }
        let department = match names.department.find(claims) {
            None => None,
            Some(Value::String(name)) if name.is_empty() => None,
            Some(Value::String(name)) if !name_problem(name) => Some(name.clone()),
            Some(_) => return Err(Why::Department),
        };
        let mut kept = BTreeMap::new();
        for path in &self.settings.keep {
            if let Some(value) = path.find(claims) {
                if !can_be_kept(value) {
                    return Err(Why::Unkeepable);
                }
                kept.insert(path.as_str().to_owned(), value.clone());
            }
        }
        let roles = self.settings.roles.roles(names.roles.find(claims));
        let subject = subject.to_owned();
        let identity = Identity { subject, department, claims: kept, verified_at: now };
        Ok(Caller { identity, roles, until })
    }
}

/// Each within the leeway: not expired, not before its time, not issued in the future. With it comes when it is
/// no longer good, if that is a time at all.
fn judge_times(
    claims: &Map<String, Value>,
    leeway: Duration,
    now: DateTime<Utc>,
) -> Result<Option<DateTime<Utc>>, Why> {
    let seconds = |name: &str| match claims.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_f64().filter(|at| at.is_finite()).map(Some).ok_or(Why::Malformed),
    };
    let (now, leeway) = (now.timestamp_micros() as f64 / 1e6, leeway.as_secs_f64());
    let until = seconds("exp")?.ok_or(Why::Missing("exp"))? + leeway;
    if now >= until {
        return Err(Why::Expired);
    }
    for name in ["nbf", "iat"] {
        if seconds(name)?.is_some_and(|from| from > now + leeway) {
            return Err(Why::NotYet);
        }
    }
    Ok(DateTime::from_timestamp_micros((until * 1e6) as i64))
}

#[async_trait]
impl Auth for Tokens {
    async fn caller(&self, headers: &HeaderMap, now: DateTime<Utc>) -> Result<Caller, Refusal> {
        self.verify(bearer(headers)?, now).await
    }

    fn ready(&self, now: DateTime<Utc>) -> Result<(), String> {
        match &self.source {
            Source::Fixed(_) => Ok(()),
            Source::Jwks(jwks) => jwks.ready(now),
        }
    }
}
