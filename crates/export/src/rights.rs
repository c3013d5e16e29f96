//! From a caller's identity to what a query may know of it, and to the scope, a hash of exactly that. Nothing
//! else of the caller reaches a query, so callers of one scope see the same rows and may share files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use outhaul::Failed;
use outhaul_core::duration;
use outhaul_core::identity::Identity;
use outhaul_core::json;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::dataset::Dataset;
use crate::not_yet::Unfit;
use crate::request::Params;
use crate::scope::RowScope;

/// The longest claim that rows may depend on, as JSON: it is stored with the job and read with every chunk.
const MAX_CLAIM_BYTES: usize = 4096;

/// What helps where a job's stored identity will not do. Under the same idempotency key a failed job is taken
/// up again as it was stored, and fails again.
const AGAIN: &str = "submit it again, under another idempotency key";

/// What the queries of one caller may know of it. Its `Debug` shows no claim.
#[derive(Clone, PartialEq, Eq)]
pub struct Rights {
    scope: String,
    texts: BTreeMap<String, String>,
    security: Option<Assumed>,
}

/// What a PostgreSQL source is told in each transaction, for its row-level security.
#[derive(Clone, PartialEq, Eq)]
pub struct Assumed {
    /// The role that the query runs as; none: the source's own user.
    pub role: Option<String>,
    /// The value of `request.jwt.claims`.
    pub claims: String,
    /// The tables that it may read without row-level security; the source is not told of them.
    pub unsecured: BTreeSet<String>,
}

impl Rights {
    /// The scope: 32 hexadecimal digits.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// The claims as queries bind them, by name.
    pub fn texts(&self) -> &BTreeMap<String, String> {
        &self.texts
    }

    /// What the source is told for its row-level security, where the dataset relies on it.
    pub fn security(&self) -> Option<&Assumed> {
        self.security.as_ref()
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rights").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl fmt::Debug for Assumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assumed").finish_non_exhaustive()
    }
}

/// Claims that a dataset needs and a caller does not have in a form that could be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("dataset `{dataset}` shows each caller its own rows, and the caller's claims do not say which: {}", listed(.problems))]
pub struct MissingClaims {
    /// The dataset.
    pub dataset: String,
    /// What is wrong, claim by claim.
    pub problems: Vec<ClaimProblem>,
}

/// What is wrong with one claim; never its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimProblem {
    /// The claim's name.
    pub claim: String,
    /// What is wrong with it, for people.
    pub problem: &'static str,
}

fn listed(problems: &[ClaimProblem]) -> String {
    let listed = problems.iter().map(|ClaimProblem { claim, problem }| format!("`{claim}` {problem}"));
    listed.collect::<Vec<_>>().join(", ")
}

/// The scope that a caller has on a dataset: empty where rows are the same for everybody. Two callers may
/// reach each other's files of the dataset only if theirs are equal.
pub fn scope_of(dataset: &Dataset, identity: &Identity) -> Result<String, MissingClaims> {
    let rights = rights(dataset, Some(identity))?;
    Ok(rights.map_or_else(String::new, |rights| rights.scope))
}

/// What a caller's queries on a dataset may know of it; `None`: nothing, for rows are the same for everybody.
pub fn rights(dataset: &Dataset, identity: Option<&Identity>) -> Result<Option<Rights>, MissingClaims> {
    let Some(scope) = &dataset.scope else { return Ok(None) };
    let (mut claims, mut problems) = (Map::new(), Vec::new());
    // In the order of their names, as everything in canonical JSON is.
    for name in scope.claims() {
        match claim(scope, name, identity) {
            Ok(value) => drop(claims.insert(name.to_owned(), value)),
            Err(problem) => problems.push(ClaimProblem { claim: name.to_owned(), problem }),
        }
    }
    if !problems.is_empty() {
        return Err(MissingClaims { dataset: dataset.name.clone(), problems });
    }
    let texts: BTreeMap<String, String> =
        claims.iter().map(|(name, value)| (name.clone(), text(value))).collect();
    let security = scope.security().map(|security| {
        let role =
            security.role.as_ref().and_then(|rule| Some(claims.get(&rule.claim)?.as_str()?.to_owned()));
        let unsecured = security.unsecured.clone();
        Assumed { role, claims: Value::Object(claims.clone()).to_string(), unsecured }
    });
    Ok(Some(Rights { scope: hash(&Value::Object(claims)), texts, security }))
}

/// What a chunk's query may know of the caller who submitted its job, from what was stored with it. Whatever
/// does not fit ends the attempt: rows that nobody is known to be allowed to see are not read.
pub(crate) fn admit(
    dataset: &Dataset,
    params: &Params,
    claimed_at: DateTime<Utc>,
    max_age: Option<Duration>,
) -> Result<Option<Rights>, Unfit> {
    let name = &dataset.name;
    if dataset.scope.is_some() {
        let Some(identity) = &params.identity else {
            let cause = format!(
                "dataset `{name}` shows each caller its own rows, and nothing is known of who submitted this job; {AGAIN}"
            );
            return Err(Failed::Fatal(cause.into()).into());
        };
        if let Some(cause) = max_age.and_then(|max_age| too_old(identity, claimed_at, max_age)) {
            return Err(Failed::Fatal(cause.into()).into());
        }
    }
    let rights = rights(dataset, params.identity.as_ref())
        .map_err(|missing| Failed::Fatal(format!("{missing}; {AGAIN}").into()))?;
    let scope = rights.as_ref().map_or("", Rights::scope);
    if scope != params.scope {
        // Other workers may have the configuration that the job was submitted under. This one would read
        // other rows than the job's scope says.
        let cause = format!(
            "the rows of dataset `{name}` depend on other claims here than where this job was submitted"
        );
        return Err(Unfit::NotYet(cause));
    }
    Ok(rights)
}

/// Why what was kept of a caller may no longer be used by a chunk claimed then; `None`: it may.
pub fn too_old(identity: &Identity, claimed_at: DateTime<Utc>, max_age: Duration) -> Option<String> {
    // A snapshot from the future has no age: the clocks differ.
    let age = (claimed_at - identity.verified_at).to_std().unwrap_or_default();
    (age > max_age).then(|| {
        let max_age = duration::short(max_age);
        format!("the identity this job was submitted with is older than {max_age}; {AGAIN}")
    })
}

/// A caller's claim, in canonical form.
fn claim(scope: &RowScope, name: &str, identity: Option<&Identity>) -> Result<Value, &'static str> {
    let value = identity.and_then(|identity| identity.claim(name)).ok_or("is missing")?;
    let value = canonical(&value);
    let is_empty = match &value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    if is_empty {
        return Err("is empty");
    }
    if has_nul(&value) {
        return Err("contains a NUL character");
    }
    let json = value.to_string();
    if json.len() > MAX_CLAIM_BYTES {
        return Err("is too long");
    }
    if json::problem(&json).is_some() {
        return Err("cannot be stored");
    }
    let rule = scope.security().and_then(|security| security.role.as_ref());
    let names_a_role = rule.is_none_or(|rule| {
        rule.claim != name || value.as_str().is_some_and(|role| rule.allowed.contains(role))
    });
    if names_a_role { Ok(value) } else { Err("names no role of this dataset") }
}

/// A claim as queries get it: its text, or its JSON where it has parts.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The same JSON with the members of every object in the order of their names.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(canonical).collect()),
        Value::Object(members) => {
            let members: BTreeMap<&String, &Value> = members.iter().collect();
            Value::Object(members.into_iter().map(|(name, value)| (name.clone(), canonical(value))).collect())
        }
        other => other.clone(),
    }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The first 32 hexadecimal digits of the SHA-256 of canonical JSON: too many for anybody to find two sets of
/// claims that share them.
fn hash(canonical: &Value) -> String {
    let hash = Sha256::digest(canonical.to_string());
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
