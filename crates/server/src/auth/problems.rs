//! What is wrong with `[auth]`: all of it at once, each with its place. Above all that secrets and public
//! keys never share a list of algorithms.

use std::collections::BTreeSet;
use std::time::Duration;

use jsonwebtoken::Algorithm;
use outhaul_core::duration::short;
use outhaul_core::secret::Secret;
use url::{Host, Url};

use super::caller::Role;
use super::claim::can_be_kept;
use super::keys::{Key, KeyKind, MACS, SIGNATURES};
use super::settings::{AuthSettings, JwtSettings, Keys, Mode, NamedIdentity};
use super::token::name_problem;

type Found = Vec<(String, String)>;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

impl AuthSettings {
    /// Everything that is wrong, as (path, message); empty: tokens can be verified with it.
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = Found::new();
        if let Mode::Jwt(jwt) = &self.mode {
            jwt.judge(&mut found);
        }
        for (name, identity) in &self.identities {
            judge_identity(name, identity, &mut found);
        }
        found
    }
}

impl JwtSettings {
    fn judge(&self, found: &mut Found) {
        let mut add = |path: &str, message: String| found.push((format!("auth.{path}"), message));
        if self.issuer.trim().is_empty() {
            add("issuer", "must be the `iss` of the tokens, such as \"https://id.example.com/\"".into());
        }
        if self.audience.is_empty() || self.audience.iter().any(|name| name.trim().is_empty()) {
            add("audience", "must name what tokens for this server have in `aud`".into());
        }
        for (path, message) in self.key_problems() {
            add(path, message);
        }
        let paths = [
            ("claims.subject", &self.claims.subject),
            ("claims.roles", &self.claims.roles),
            ("claims.department", &self.claims.department),
        ];
        for (path, claim) in paths.into_iter().chain(self.keep.iter().map(|claim| ("keep", claim))) {
            if let Some(problem) = claim.problem() {
                add(path, problem.into());
            }
        }
        let mut names = BTreeSet::new();
        for claim in self.keep.iter().filter(|claim| !names.insert(claim.as_str())) {
            add("keep", format!("has `{}` twice", claim.as_str()));
        }
        for role in Role::ALL {
            let names = self.roles.of(role);
            if names.is_empty() || names.iter().any(|name| name.trim().is_empty()) {
                let message = "must list the values of the roles claim that give this role";
                add(&format!("roles.{role}"), message.into());
            }
        }
        let mut spans = vec![
            ("leeway", self.leeway, Duration::ZERO, MINUTE),
            ("jwks_refresh", self.jwks_refresh, SECOND, DAY),
            ("jwks_cooldown", self.jwks_cooldown, SECOND, 60 * MINUTE),
            ("jwks_max_age", self.jwks_max_age, self.jwks_refresh.max(SECOND), 30 * DAY),
            ("snapshot_max_age", self.snapshot_max_age, SECOND, 365 * DAY),
        ];
        if let Some(recheck) = &self.recheck {
            if let Some(problem) = url_problem(&recheck.url) {
                add("recheck.url", problem.into());
            }
            spans.push(("recheck.max_age", recheck.max_age, Duration::ZERO, 60 * MINUTE));
            spans.push(("recheck.timeout", recheck.timeout, SECOND, MINUTE));
        }
        for (path, value, least, most) in spans {
            if !(least..=most).contains(&value) {
                add(path, format!("must be between \"{}\" and \"{}\"", short(least), short(most)));
            }
        }
    }

    fn key_problems(&self) -> Vec<(&'static str, String)> {
        let mut found: Vec<_> = self.keys.problem(&self.algorithms).into_iter().collect();
        let kind = match &self.keys {
            Keys::Jwks(_) => None,
            Keys::PublicKey(pem) => Key::public(pem).ok().map(|key| key.kind),
            Keys::Secret(_) => Some(KeyKind::Secret),
        };
        if self.algorithms.is_empty() {
            found.push(("algorithms", "must have at least one; leave it out for the usual ones".into()));
        }
        for algorithm in &self.algorithms {
            let fits = kind.map_or(SIGNATURES.contains(algorithm), |kind| kind.fits(*algorithm));
            if !fits {
                let with = kind.map_or("public keys", KeyKind::name);
                found.push(("algorithms", format!("{algorithm:?} is not used with {with}")));
            }
        }
        found
    }
}

impl Keys {
    /// What is wrong with them by themselves, as (name, message), where they are used with these algorithms.
    pub(crate) fn problem(&self, algorithms: &[Algorithm]) -> Option<(&'static str, String)> {
        match self {
            Self::Jwks(url) => url_problem(url).map(|problem| ("jwks_url", problem.into())),
            Self::PublicKey(pem) => Key::public(pem).err().map(|problem| ("public_key_file", problem)),
            Self::Secret(secret) => secret_problem(secret, algorithms).map(|problem| ("secret", problem)),
        }
    }
}

/// Keys and answers that came over plain http are whoever's sat in between.
fn url_problem(url: &Url) -> Option<&'static str> {
    let loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match url.scheme() {
        _ if !url.username().is_empty() || url.password().is_some() => Some("must have no user and password"),
        _ if url.fragment().is_some() => Some("must not have a part after #: it would never be sent"),
        "https" => None,
        "http" if loopback => None,
        _ => Some("must begin with https:// (http:// is for this machine only)"),
    }
}

/// RFC 7518: a key as long as the hash.
fn secret_problem(secret: &Secret, algorithms: &[Algorithm]) -> Option<String> {
    let least = match algorithms.iter().filter_map(|one| MACS.iter().position(|mac| mac == one)).max() {
        Some(2) => 64,
        Some(1) => 48,
        _ => 32,
    };
    let message = || format!("must have at least {least} bytes; `openssl rand -base64 {least}` makes one");
    (secret.expose().len() < least).then(message)
}

fn judge_identity(name: &str, identity: &NamedIdentity, found: &mut Found) {
    let path = format!("auth.identities.{name}");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        let message = "must be named with 1 to 64 letters, digits, `-`, `_` and `.`";
        found.push((path.clone(), message.into()));
    }
    if identity.department.as_deref().is_some_and(name_problem) {
        let message = "must have 1 to 255 characters, not only spaces, and no control characters";
        found.push((format!("{path}.department"), message.into()));
    }
    if !identity.claims.iter().all(|(name, value)| !name.contains('\0') && can_be_kept(value)) {
        let message =
            "must have no NUL characters, no numbers but whole ones of 64 bits, and at most 120 levels";
        found.push((format!("{path}.claims"), message.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::ClaimPath;
    use crate::auth::tests::keys;
    use std::collections::BTreeMap;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn jwt(keys: Keys) -> JwtSettings {
        JwtSettings::new("https://id.example.com/", vec!["outhaul".into()], keys)
    }

    fn jwks(url: &str) -> Keys {
        Keys::Jwks(url.parse().unwrap())
    }

    fn pem(pair: &keys::Pair) -> Keys {
        Keys::PublicKey(pair.public_pem.clone().into_bytes())
    }

    fn problems(jwt: JwtSettings) -> Vec<(String, String)> {
        AuthSettings { mode: Mode::Jwt(Box::new(jwt)), ..AuthSettings::default() }.problems()
    }

    fn paths(jwt: JwtSettings) -> Vec<String> {
        problems(jwt).into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn the_usual_settings_have_none() {
        assert_eq!(AuthSettings::default().problems(), []);
        for keys in [
            jwks("https://id.example.com/jwks"),
            jwks("http://127.0.0.1:9000/jwks"),
            jwks("http://localhost/jwks"),
            jwks("http://[::1]/jwks"),
            pem(keys::rsa()),
            pem(keys::ed25519()),
            Keys::Secret(Secret::new(SECRET)),
        ] {
            assert_eq!(problems(jwt(keys)), []);
        }
    }

    #[test]
    fn macs_and_signatures_are_never_mixed() {
        let with = |keys: Keys, algorithms: &[Algorithm]| JwtSettings {
            algorithms: algorithms.to_vec(),
            ..jwt(keys)
        };
        for mac in MACS {
            assert_eq!(paths(with(pem(keys::rsa()), &[Algorithm::RS256, mac])), ["auth.algorithms"]);
            assert_eq!(paths(with(jwks("https://x"), &[Algorithm::RS256, mac])), ["auth.algorithms"]);
        }
        for signature in SIGNATURES {
            let secret = Keys::Secret(Secret::new(SECRET));
            assert_eq!(paths(with(secret, &[Algorithm::HS256, signature])), ["auth.algorithms"]);
        }
        assert_eq!(paths(with(pem(keys::rsa()), &[Algorithm::ES256])), ["auth.algorithms"]);
        assert_eq!(paths(with(pem(keys::p256()), &[Algorithm::ES384])), ["auth.algorithms"]);
        assert_eq!(paths(with(pem(keys::rsa()), &[])), ["auth.algorithms"]);
    }

    #[test]
    fn secrets_are_as_long_as_the_hash() {
        let with = |length: usize, algorithm| JwtSettings {
            algorithms: vec![Algorithm::HS256, algorithm],
            ..jwt(Keys::Secret(Secret::new("x".repeat(length))))
        };
        let least = [(Algorithm::HS256, 32), (Algorithm::HS384, 48), (Algorithm::HS512, 64)];
        for (algorithm, least) in least {
            assert_eq!(paths(with(least - 1, algorithm)), ["auth.secret"]);
            assert_eq!(problems(with(least, algorithm)), []);
        }
    }

    #[test]
    fn keys_come_over_https_or_from_this_machine() {
        let bad = [
            "http://id.example.com/jwks",
            "http://10.0.0.1/",
            "http://localhost.evil.example/",
            "file:///etc/x",
        ];
        for url in bad.into_iter().chain(["https://user:hunter2@id.example.com/", "https://user@x/"]) {
            let found = problems(jwt(jwks(url)));
            assert_eq!(found.len(), 1, "{url}");
            assert_eq!(found[0].0, "auth.jwks_url");
            assert!(!found[0].1.contains("hunter2"));
        }
    }

    #[test]
    fn every_problem_is_listed_at_once() {
        let mut bad = jwt(Keys::PublicKey(b"hunter2".to_vec()));
        bad.issuer = " ".into();
        bad.audience = vec![String::new()];
        bad.claims.roles = ClaimPath::new("a..b");
        bad.keep = ["county", "county", ""].map(ClaimPath::new).into();
        bad.leeway = Duration::from_secs(61);
        bad.jwks_refresh = Duration::ZERO;
        bad.jwks_cooldown = Duration::ZERO;
        bad.jwks_max_age = Duration::ZERO;
        bad.snapshot_max_age = Duration::ZERO;
        bad.roles.viewer.clear();
        let expected = [
            "issuer",
            "audience",
            "public_key_file",
            "claims.roles",
            "keep",
            "keep",
            "roles.viewer",
            "leeway",
            "jwks_refresh",
            "jwks_cooldown",
            "jwks_max_age",
            "snapshot_max_age",
        ];
        let found = problems(bad);
        assert!(found.iter().all(|(_, message)| !message.contains("hunter2")));
        let paths: Vec<String> = found.into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, expected.map(|path| format!("auth.{path}")));
    }

    #[test]
    fn keys_are_not_believed_for_less_than_the_time_between_fetches() {
        let bad = JwtSettings { jwks_max_age: Duration::from_secs(299), ..jwt(jwks("https://x")) };
        assert_eq!(paths(bad), ["auth.jwks_max_age"]);
    }

    #[test]
    fn identities_are_judged_in_every_mode() {
        let claims = BTreeMap::from([("county".to_owned(), "a\0".into())]);
        let odd = NamedIdentity { department: Some(String::new()), claims };
        let identities =
            BTreeMap::from([("a b".to_owned(), NamedIdentity::default()), ("nightly".to_owned(), odd)]);
        let found = AuthSettings { identities, ..AuthSettings::default() }.problems();
        let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        let expected =
            ["auth.identities.a b", "auth.identities.nightly.department", "auth.identities.nightly.claims"];
        assert_eq!(paths, expected);
    }
}
