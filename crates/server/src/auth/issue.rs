//! Makes a token for development: the same claims in the same places as the configuration expects them,
//! signed with the configured secret or with a private key that only the one who runs this has.

use std::time::Duration;

use chrono::{DateTime, Utc};
use jsonwebtoken::crypto::verify;
use jsonwebtoken::{Algorithm, AlgorithmFamily, EncodingKey, Header, encode};
use serde_json::{Map, Value};

use super::caller::Role;
use super::keys::Key;
use super::settings::{JwtSettings, Keys};

/// Who the token is to speak for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The subject.
    pub subject: String,
    /// The roles; each becomes the first claim value that gives it.
    pub roles: Vec<Role>,
    /// The department.
    pub department: Option<String>,
    /// Further claims, such as those that rows depend on.
    pub claims: Map<String, Value>,
    /// How long it is good.
    pub ttl: Duration,
    /// The key's name at the issuer, for servers that look keys up by it.
    pub kid: Option<String>,
}

/// Why no token was made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// Nothing to sign with.
    #[error("a private key is needed: the server knows only the public one")]
    NoKey,
    /// A key too many.
    #[error("[auth] has a secret, so tokens are signed with that and not with a private key")]
    KeyBesideSecret,
    /// Not a key for the configured algorithms.
    #[error(
        "the private key is not one in PEM form (PKCS #8) for any of auth.algorithms; `openssl pkcs8 -topk8 -nocrypt` converts one"
    )]
    WrongKey,
    /// The key of somebody else.
    #[error("the private key does not belong to auth.public_key_file: the server would refuse the token")]
    OtherKey,
    /// A claim that is set by other means.
    #[error("the claim `{0}` is set by other options or by the configuration")]
    Reserved(String),
    /// A time too long to be written.
    #[error("the time that the token is good for is too long")]
    TooLong,
    /// Anything else.
    #[error("the token cannot be signed")]
    Signing(#[from] jsonwebtoken::errors::Error),
}

/// A token that a server with these settings accepts.
pub fn issue(
    settings: &JwtSettings,
    private_key: Option<&[u8]>,
    wanted: &Wanted,
    now: DateTime<Utc>,
) -> Result<String, IssueError> {
    let claims = claims(settings, wanted, now)?;
    let sign = |algorithm: Algorithm, key: &EncodingKey| {
        encode(&Header { kid: wanted.kid.clone(), ..Header::new(algorithm) }, &claims, key)
    };
    let of_family = |family: AlgorithmFamily| {
        settings.algorithms.iter().copied().filter(move |algorithm| algorithm.family() == family)
    };
    match (&settings.keys, private_key) {
        (Keys::Secret(_), Some(_)) => Err(IssueError::KeyBesideSecret),
        (Keys::Secret(secret), None) => {
            let algorithm = of_family(AlgorithmFamily::Hmac).next().ok_or(IssueError::WrongKey)?;
            Ok(sign(algorithm, &EncodingKey::from_secret(secret.expose().as_bytes()))?)
        }
        (_, None) => Err(IssueError::NoKey),
        (keys, Some(pem)) => {
            let key = EncodingKey::from_rsa_pem(pem)
                .or_else(|_| EncodingKey::from_ec_pem(pem))
                .or_else(|_| EncodingKey::from_ed_pem(pem))
                .map_err(|_| IssueError::WrongKey)?;
            // A curve shows only when it is used: the first algorithm that works is the key's own.
            let signed =
                of_family(key.family()).find_map(|algorithm| Some((sign(algorithm, &key).ok()?, algorithm)));
            let (token, algorithm) = signed.ok_or(IssueError::WrongKey)?;
            if let Keys::PublicKey(public) = keys
                && !is_signed(&token, algorithm, public)
            {
                return Err(IssueError::OtherKey);
            }
            Ok(token)
        }
    }
}

fn is_signed(token: &str, algorithm: Algorithm, public: &[u8]) -> bool {
    let (Some((message, signature)), Ok(key)) = (token.rsplit_once('.'), Key::public(public)) else {
        return false;
    };
    verify(signature, message.as_bytes(), &key.decoding, algorithm).unwrap_or(false)
}

fn claims(
    settings: &JwtSettings,
    wanted: &Wanted,
    now: DateTime<Utc>,
) -> Result<Map<String, Value>, IssueError> {
    let names = &settings.claims;
    let ours = ["iss", "aud", "exp", "iat", "nbf"].into_iter();
    let top = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
    let set = [&names.subject, &names.roles, &names.department].map(|path| path.as_str().to_owned());
    let tops = set.each_ref().map(|path| top(path));
    let reserved: Vec<&str> = ours.chain(set.iter().chain(&tops).map(String::as_str)).collect();
    if let Some(name) = wanted.claims.keys().find(|name| reserved.contains(&name.as_str())) {
        return Err(IssueError::Reserved(name.clone()));
    }
    let ttl = chrono::Duration::from_std(wanted.ttl).map_err(|_| IssueError::TooLong)?;
    let exp = now.checked_add_signed(ttl).ok_or(IssueError::TooLong)?;
    let mut claims = wanted.claims.clone();
    claims.insert("iss".into(), settings.issuer.clone().into());
    claims.insert("aud".into(), settings.audience.first().cloned().into());
    claims.insert("iat".into(), now.timestamp().into());
    claims.insert("exp".into(), exp.timestamp().into());
    let roles = wanted.roles.iter().filter_map(|role| settings.roles.of(*role).first().cloned());
    names.roles.put(&mut claims, roles.collect::<Vec<String>>().into());
    if let Some(department) = &wanted.department {
        names.department.put(&mut claims, department.clone().into());
    }
    names.subject.put(&mut claims, wanted.subject.clone().into());
    Ok(claims)
}
