//! `[auth]`, as it was decided for this process. Everything here is of its final type; `problems` lists
//! what is still wrong with the values and with how they go together.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
pub use jsonwebtoken::Algorithm;
use outhaul_core::identity::Identity;
use outhaul_core::secret::Secret;
use serde_json::Value;
use url::Url;

use super::caller::RoleNames;
use super::claim::ClaimPath;
use super::keys::{Key, MACS, SIGNATURES};
use super::recheck::RecheckSettings;

/// What the subject of a named identity begins with; tokens cannot have such a subject.
pub(super) const NAMED: &str = "identity:";

/// Who is let in, and who schedules and triggers run as.
#[derive(Clone, Debug, Default)]
pub struct AuthSettings {
    /// How callers are told apart.
    pub mode: Mode,
    /// `[auth.identities]`.
    pub identities: BTreeMap<String, NamedIdentity>,
}

/// The name of the identity that a subject is of, if it is that of one.
pub fn named(subject: &str) -> Option<&str> {
    subject.strip_prefix(NAMED)
}

impl AuthSettings {
    /// Which tokens are good; `None`: nobody is asked for one.
    pub fn jwt(&self) -> Option<&JwtSettings> {
        match &self.mode {
            Mode::None => None,
            Mode::Jwt(jwt) => Some(jwt),
        }
    }

    /// The identity that a schedule or a trigger runs as; `None`: there is none of that name.
    pub fn identity(&self, name: &str, now: DateTime<Utc>) -> Option<Identity> {
        let NamedIdentity { department, claims } = self.identities.get(name)?.clone();
        Some(Identity { subject: format!("{NAMED}{name}"), department, claims, verified_at: now })
    }

    /// The same by its subject, which is the owner of its schedules and jobs.
    pub fn identity_of(&self, subject: &str, now: DateTime<Utc>) -> Option<Identity> {
        self.identity(named(subject)?, now)
    }
}

/// How callers are told apart.
#[derive(Clone, Debug, Default)]
pub enum Mode {
    /// Not at all: everybody may do everything.
    #[default]
    None,
    /// By a token.
    Jwt(Box<JwtSettings>),
}

/// An identity that needs no token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedIdentity {
    /// Its department.
    pub department: Option<String>,
    /// Its claims, as a token would have them.
    pub claims: BTreeMap<String, Value>,
}

/// Which tokens are good, and what is taken from them.
#[derive(Clone, Debug)]
pub struct JwtSettings {
    /// `iss` must be this.
    pub issuer: String,
    /// `aud` must have one of these.
    pub audience: Vec<String>,
    /// The algorithms that are accepted; [`Keys::usual_algorithms`] where the configuration has none.
    pub algorithms: Vec<Algorithm>,
    /// What tokens are verified with.
    pub keys: Keys,
    /// Where the claims are that every caller needs.
    pub claims: ClaimNames,
    /// Further claims to keep, by the names they are kept under.
    pub keep: Vec<ClaimPath>,
    /// How far the issuer's clock may be from ours.
    pub leeway: Duration,
    /// How often the keys are fetched.
    pub jwks_refresh: Duration,
    /// At most one fetch per this for keys that are not known.
    pub jwks_cooldown: Duration,
    /// How long known keys are believed while the server is down.
    pub jwks_max_age: Duration,
    /// How long a job may use what was kept of a token.
    pub snapshot_max_age: Duration,
    /// `[auth.recheck]`: who is asked about submitters before their jobs run.
    pub recheck: Option<RecheckSettings>,
    /// `[auth.roles]`.
    pub roles: RoleNames,
}

impl JwtSettings {
    /// The defaults, around what has none.
    pub fn new(issuer: impl Into<String>, audience: Vec<String>, keys: Keys) -> Self {
        Self {
            issuer: issuer.into(),
            audience,
            algorithms: keys.usual_algorithms(),
            keys,
            claims: ClaimNames::default(),
            keep: Vec::new(),
            leeway: Duration::from_secs(30),
            jwks_refresh: Duration::from_secs(5 * 60),
            jwks_cooldown: Duration::from_secs(30),
            jwks_max_age: Duration::from_secs(24 * 3600),
            snapshot_max_age: Duration::from_secs(24 * 3600),
            recheck: None,
            roles: RoleNames::default(),
        }
    }
}

/// Where in a token the claims are that every caller needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimNames {
    /// Who it is.
    pub subject: ClaimPath,
    /// What gives roles.
    pub roles: ClaimPath,
    /// The department.
    pub department: ClaimPath,
}

impl Default for ClaimNames {
    fn default() -> Self {
        let [subject, roles, department] = ["sub", "roles", "department"].map(ClaimPath::new);
        Self { subject, roles, department }
    }
}

/// What tokens are verified with: exactly one of these.
#[derive(Clone)]
pub enum Keys {
    /// The issuer's published keys.
    Jwks(Url),
    /// The issuer's public key: the bytes of a PEM file.
    PublicKey(Vec<u8>),
    /// A secret that the issuer has too.
    Secret(Secret),
}

impl Keys {
    /// The algorithms that go with these keys when the configuration names none.
    pub fn usual_algorithms(&self) -> Vec<Algorithm> {
        match self {
            Self::Jwks(_) => SIGNATURES.to_vec(),
            Self::PublicKey(pem) => match Key::public(pem) {
                Ok(key) => SIGNATURES.into_iter().filter(|algorithm| key.kind.fits(*algorithm)).collect(),
                // The key is a problem of its own; its algorithms need not be one too.
                Err(_) => SIGNATURES.to_vec(),
            },
            Self::Secret(_) => vec![MACS[0]],
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jwks(url) => {
                // The query may hold a key.
                let mut url = url.clone();
                url.set_query(None);
                f.debug_tuple("Jwks").field(&url.as_str()).finish()
            }
            Self::PublicKey(_) => f.write_str("PublicKey"),
            Self::Secret(secret) => f.debug_tuple("Secret").field(secret).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::keys;

    #[test]
    fn debug_shows_no_secret() {
        let secret = Keys::Secret(Secret::new("hunter2"));
        let jwks = Keys::Jwks("https://id.example.com/jwks?key=hunter2".parse().unwrap());
        for keys in [secret, jwks] {
            let mut recheck =
                RecheckSettings::new("https://id.example.com/still?key=hunter2".parse().unwrap());
            recheck.secrets = vec![Secret::new("hunter2")];
            let jwt = JwtSettings::new("i", vec!["a".into()], keys);
            let mode = Mode::Jwt(Box::new(JwtSettings { recheck: Some(recheck), ..jwt }));
            let settings = AuthSettings { mode, ..AuthSettings::default() };
            assert!(!format!("{settings:?}").contains("hunter2"));
        }
    }

    #[test]
    fn a_key_brings_its_algorithms() {
        let usual = |keys: Keys| keys.usual_algorithms();
        assert_eq!(usual(Keys::Secret(Secret::new("x"))), [Algorithm::HS256]);
        assert_eq!(usual(Keys::PublicKey(keys::p384().public_pem.clone().into())), [Algorithm::ES384]);
        let jwks = usual(Keys::Jwks("https://id.example.com".parse().unwrap()));
        assert!(jwks.contains(&Algorithm::RS256) && !jwks.contains(&Algorithm::HS256));
    }

    #[test]
    fn named_identities_have_a_subject_of_their_own() {
        let kent = NamedIdentity {
            department: Some("sales".into()),
            claims: BTreeMap::from([("county".to_owned(), Value::from("Kent"))]),
        };
        let identities = BTreeMap::from([("nightly".to_owned(), kent)]);
        let settings = AuthSettings { identities, ..AuthSettings::default() };
        let identity = settings.identity("nightly", DateTime::UNIX_EPOCH).unwrap();
        assert_eq!(identity.subject, "identity:nightly");
        assert_eq!(identity.department.as_deref(), Some("sales"));
        assert_eq!(identity.claims["county"], "Kent");
        assert_eq!(settings.identity("other", DateTime::UNIX_EPOCH), None);
        assert_eq!(settings.identity_of("identity:nightly", DateTime::UNIX_EPOCH), Some(identity));
        for other in ["nightly", "identity:other", "identity:", "anonymous"] {
            assert_eq!(settings.identity_of(other, DateTime::UNIX_EPOCH), None, "{other}");
        }
    }
}
