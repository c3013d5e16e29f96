//! `[auth]`, read into its final types. Whether the values make sense is judged where tokens are, by
//! `AuthSettings::problems`; here it is only that each is there, once, and can be read.

use std::collections::BTreeMap;

use toml::{Table, Value};
use url::Url;

use super::definitions::json;
use super::job_types::find_secrets;
use super::problem::Problems;
use super::raw;
use super::reader::Reader;
use super::secrets::{Given, Secrets};
use crate::auth::{
    Algorithm, AuthSettings, ClaimNames, ClaimPath, JwtSettings, Keys, Mode, NamedIdentity, RecheckSettings,
    RoleNames,
};

/// What `[auth]` may say where nobody is asked for a token.
const WITHOUT_TOKENS: [&str; 2] = ["mode", "identities"];
/// The forms of the keys, of which there must be one.
const KEYS: [&[&str]; 3] = [&["jwks_url"], &["public_key_file"], &["secret", "secret_file", "secret_env"]];

pub(super) fn judge(table: &mut Table, secrets: &Secrets<'_>, reader: &mut Reader<'_>) -> AuthSettings {
    let written = table.get("auth").and_then(Value::as_table);
    let written: Vec<String> = written.into_iter().flat_map(Table::keys).cloned().collect();
    let mut raw: raw::Auth = reader.section(table, "auth");
    let identities = identities(raw.identities.take(), reader);
    let mode = match raw.mode.as_deref() {
        None if !written.iter().any(|name| name == "mode") => Mode::None,
        Some("none") => Mode::None,
        // Whoever wrote something else wants tokens; what else is wrong is said at once.
        mode => {
            if mode.is_some_and(|mode| mode != "jwt") {
                reader.problems.add("auth.mode", "must be \"none\" or \"jwt\"");
            }
            Mode::Jwt(Box::new(jwt(raw, &written, secrets, reader)))
        }
    };
    let settings = AuthSettings { mode, identities };
    let mut found = settings.problems();
    match settings.jwt() {
        Some(jwt) => found.extend(claims_of_nobody(&settings, jwt)),
        // Nobody should believe that tokens are asked for when they are not.
        None => {
            found.extend(written.iter().filter(|name| !WITHOUT_TOKENS.contains(&name.as_str())).map(|name| {
                let message =
                    "is of no use while auth.mode is \"none\"; write mode = \"jwt\" to ask for tokens";
                (format!("auth.{name}"), message.to_owned())
            }))
        }
    }
    add_new(found, reader.problems);
    settings
}

/// Notes problems, but no second one about a setting that could not even be read.
fn add_new(found: Vec<(String, String)>, problems: &mut Problems) {
    let known: Vec<String> = problems.iter().map(|problem| problem.path.clone()).collect();
    for (path, message) in found.into_iter().filter(|(path, _)| !known.contains(path)) {
        problems.add(path, message);
    }
}

fn jwt(raw: raw::Auth, written: &[String], secrets: &Secrets<'_>, reader: &mut Reader<'_>) -> JwtSettings {
    let secret = Given { text: raw.secret, file: raw.secret_file, env: raw.secret_env };
    let mut keys = keys(raw.jwks_url, raw.public_key_file, secret, written, secrets, reader.problems);
    let algorithms = raw.algorithms.map(|names| algorithms(&names.split_commas(), reader.problems));
    if keys.len() > 1 {
        let given = algorithms.as_deref().unwrap_or_default();
        let found = keys.drain(..).filter_map(|keys| keys.problem(given));
        found.for_each(|(name, message)| reader.problems.add(format!("auth.{name}"), message));
    }
    let issuer = raw.issuer.unwrap_or_default();
    let audience = raw.audience.map(|names| names.0).unwrap_or_default();
    let (keys, algorithms) = match keys.pop() {
        Some(keys) => (keys, algorithms),
        // Algorithms cannot be judged without their keys; that there is none can.
        None => (Keys::Jwks(nowhere()), algorithms.filter(Vec::is_empty)),
    };
    let usual = JwtSettings::new(issuer, audience, keys);
    let mut jwt = JwtSettings { algorithms: algorithms.unwrap_or_else(|| usual.algorithms.clone()), ..usual };
    jwt.claims = claim_names(raw.claims, reader);
    jwt.roles = role_names(raw.roles, reader);
    jwt.keep = raw.keep.iter().flat_map(raw::Texts::split_commas).map(ClaimPath::new).collect();
    for (setting, given) in [
        (&mut jwt.leeway, raw.leeway),
        (&mut jwt.jwks_refresh, raw.jwks_refresh),
        (&mut jwt.jwks_cooldown, raw.jwks_cooldown),
        (&mut jwt.jwks_max_age, raw.jwks_max_age),
        (&mut jwt.snapshot_max_age, raw.snapshot_max_age),
    ] {
        *setting = given.map_or(*setting, |given| given.0);
    }
    jwt.recheck = raw.recheck.map(|given| recheck(given, secrets, reader));
    jwt
}

/// Stands in for an address about which a problem was noted, so that the rest is judged.
fn nowhere() -> Url {
    Url::parse("https://nowhere.invalid/").expect("it is a URL")
}

/// Reads an address; `None` where a problem was noted.
fn address(path: &str, raw::Hidden(url): &raw::Hidden, problems: &mut Problems) -> Option<Url> {
    match Url::parse(url.expose().trim()) {
        Ok(url) => Some(url),
        Err(error) => {
            problems.add(path, format!("is not a URL ({error}); write https://…"));
            None
        }
    }
}

/// Who is asked about submitters.
fn recheck(given: Value, secrets: &Secrets<'_>, reader: &mut Reader<'_>) -> RecheckSettings {
    let (path, place) = ("auth.recheck", "auth.recheck.url");
    let raw: raw::AuthRecheck = inner(path, Some(given), reader);
    let signed =
        find_secrets("auth.recheck.secret", raw.secret, raw.secret_file, raw.secret_env, secrets, reader);
    let url = raw.url.and_then(|url| address(place, &url, reader.problems));
    // One that is there and no address has been reported.
    if url.is_none() && !reader.problems.iter().any(|problem| problem.path == place || problem.path == path) {
        reader.problems.add(place, "is missing; write where to ask, such as \"https://host/path\"");
    }
    let mut settings = RecheckSettings::new(url.unwrap_or_else(nowhere));
    settings.secrets = signed;
    settings.max_age = raw.max_age.map_or(settings.max_age, |given| given.0);
    settings.timeout = raw.timeout.map_or(settings.timeout, |given| given.0);
    settings
}

/// What tokens are verified with. None, or several, where a problem was noted.
fn keys(
    jwks_url: Option<raw::Hidden>,
    public_key_file: Option<std::path::PathBuf>,
    secret: Given,
    written: &[String],
    secrets: &Secrets<'_>,
    problems: &mut Problems,
) -> Vec<Keys> {
    let is_written = |forms: &&[&str]| forms.iter().any(|form| written.iter().any(|name| name == form));
    match KEYS.iter().filter(|forms| is_written(forms)).count() {
        0 => problems.add("auth", "needs what tokens are verified with: jwks_url, public_key_file or secret"),
        1 => {}
        _ => problems.add("auth", "give only one of jwks_url, public_key_file and secret"),
    }
    let jwks = jwks_url.and_then(|url| address("auth.jwks_url", &url, problems)).map(Keys::Jwks);
    let public = public_key_file.and_then(|file| match std::fs::read(secrets.folder.join(&file)) {
        Ok(pem) => Some(Keys::PublicKey(pem)),
        Err(error) => {
            problems.add("auth.public_key_file", format!("{} cannot be read: {error}", file.display()));
            None
        }
    });
    let secret = secrets.find("auth.secret", secret, problems).map(Keys::Secret);
    [jwks, public, secret].into_iter().flatten().collect()
}

fn algorithms(names: &[String], problems: &mut Problems) -> Vec<Algorithm> {
    let mut read = Vec::new();
    for name in names {
        match name.parse() {
            Ok(algorithm) => read.push(algorithm),
            Err(_) => {
                let message = "has one that is not known; there are RS256, RS384, RS512, PS256, PS384, PS512, \
                               ES256, ES384, EdDSA, and with a secret HS256, HS384, HS512";
                problems.add("auth.algorithms", message);
            }
        }
    }
    read
}

fn claim_names(given: Option<Value>, reader: &mut Reader<'_>) -> ClaimNames {
    let raw: raw::AuthClaims = inner("auth.claims", given, reader);
    let usual = ClaimNames::default();
    ClaimNames {
        subject: raw.subject.map_or(usual.subject, ClaimPath::new),
        roles: raw.roles.map_or(usual.roles, ClaimPath::new),
        department: raw.department.map_or(usual.department, ClaimPath::new),
    }
}

/// Not taken apart at commas: a directory's group names are full of them.
fn role_names(given: Option<Value>, reader: &mut Reader<'_>) -> RoleNames {
    let raw: raw::AuthRoles = inner("auth.roles", given, reader);
    let usual = RoleNames::default();
    RoleNames {
        submitter: raw.submitter.map_or(usual.submitter, |names| names.0),
        viewer: raw.viewer.map_or(usual.viewer, |names| names.0),
        operator: raw.operator.map_or(usual.operator, |names| names.0),
    }
}

fn inner<T: serde::de::DeserializeOwned + Default>(
    path: &str,
    given: Option<Value>,
    reader: &mut Reader<'_>,
) -> T {
    reader.section(&mut under(path, given), path)
}

/// A table in which the reader finds a section by its whole path.
fn under(path: &str, given: Option<Value>) -> Table {
    given.into_iter().map(|given| (path.to_owned(), given)).collect()
}

fn identities(given: Option<Value>, reader: &mut Reader<'_>) -> BTreeMap<String, NamedIdentity> {
    let path = "auth.identities";
    let raw: BTreeMap<String, raw::AuthIdentity> = reader.sections(&mut under(path, given), path);
    let mut read = BTreeMap::new();
    for (name, raw) in raw {
        let mut claims = BTreeMap::new();
        for (claim, value) in raw.claims {
            let value = json(&format!("{path}.{name}.claims.{claim}"), value, reader.problems);
            claims.insert(claim, value);
        }
        read.insert(name, NamedIdentity { department: raw.department, claims });
    }
    read
}

/// Claims of identities that no row could depend on; most likely they are written wrong.
fn claims_of_nobody<'a>(
    settings: &'a AuthSettings,
    jwt: &'a JwtSettings,
) -> impl Iterator<Item = (String, String)> + 'a {
    settings.identities.iter().flat_map(move |(name, identity)| {
        let is_kept = |claim: &str| jwt.keep.iter().any(|kept| kept.as_str() == claim);
        identity.claims.keys().filter(move |claim| !is_kept(claim)).map(move |claim| {
            let path = format!("auth.identities.{name}.claims.{claim}");
            (path, "is not in auth.keep, so that nothing can depend on it".to_owned())
        })
    })
}

#[cfg(test)]
mod tests;
