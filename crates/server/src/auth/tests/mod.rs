//! Tokens as an attacker, a careless issuer and an honest one would send them.

mod door;
mod issued;
pub(super) mod keys;
mod published;
mod refused;
mod server;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use jsonwebtoken::{Algorithm, EncodingKey};
use outhaul_core::secret::Secret;
use serde_json::{Value, json};

use self::keys::Pair;
use super::{Caller, JwtSettings, Keys, Refusal, Tokens, Why};

const ISSUER: &str = "https://id.example.com/";
const AUDIENCE: &str = "outhaul";
const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// The moment at which all is judged.
const NOW: i64 = 1_700_000_000;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(seconds, 0).unwrap()
}

fn settings(keys: Keys) -> JwtSettings {
    JwtSettings::new(ISSUER, vec![AUDIENCE.into()], keys)
}

fn pem(pair: &Pair) -> Keys {
    Keys::PublicKey(pair.public_pem.clone().into_bytes())
}

fn secret() -> Keys {
    Keys::Secret(Secret::new(SECRET))
}

/// Good claims, with changes; `null` takes one away.
fn claims(changes: Value) -> Value {
    let mut claims =
        json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": NOW + 300, "roles": ["submitter"]});
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

fn part(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A token with any header over any key.
fn signed(header: &Value, claims: &Value, key: &EncodingKey, algorithm: Algorithm) -> String {
    let message = format!("{}.{}", part(header.to_string()), part(claims.to_string()));
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), key, algorithm).unwrap();
    format!("{message}.{signature}")
}

fn by(pair: &Pair, header: Value, claims: &Value) -> String {
    let mut full = json!({"alg": pair.algorithm});
    full.as_object_mut().unwrap().extend(header.as_object().unwrap().clone());
    signed(&full, claims, &pair.encoding(), pair.algorithm)
}

async fn judged(tokens: &Tokens, token: &str) -> Result<Caller, Why> {
    judged_at(tokens, token, NOW).await
}

async fn judged_at(tokens: &Tokens, token: &str, now: i64) -> Result<Caller, Why> {
    tokens.verify(token, at(now)).await.map_err(|refusal| match refusal {
        Refusal::Token(why) => why,
        other => panic!("{other:?}"),
    })
}

const SECOND: Duration = Duration::from_secs(1);
