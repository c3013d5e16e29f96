//! Job types whose steps are HTTP calls: `[job_types.NAME]` and `[http]`. The graph of steps is judged
//! here; where a URL leads is judged at every call, for addresses change.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use outhaul_core::retry::RetryPolicy;
use outhaul_core::secret::Secret;
use outhaul_core::step::{MAX_RESULT_BYTES, name_problem};
use toml::Value;
use url::Url;

use super::exports::retry_policy;
use super::raw;
use super::reader::Reader;
use super::secrets::{Given, Secrets};
use crate::steps::{Allow, graph, sign};

/// Job types that are there already.
const RESERVED: [&str; 2] = ["EXPORT", "REPORT"];
/// The most steps of one job type.
const MAX_STEPS: usize = 100;
/// The secrets that may be in use at once: the present one and its successor.
const MAX_SECRETS: usize = 2;

/// What steps may call.
#[derive(Clone, Debug, Default)]
pub struct HttpConfig {
    /// Addresses and names beside the public internet.
    pub allow: Allow,
}

/// One job type.
#[derive(Clone, Debug)]
pub struct JobType {
    /// Its steps, as listed.
    pub steps: Vec<Step>,
    /// How often and how fast it is tried again.
    pub retry: RetryPolicy,
    /// How long one attempt may take as a whole.
    pub timeout: Duration,
    /// How many of its jobs may run at once across all workers.
    pub max_concurrent: Option<u32>,
    /// What its calls are signed with; two while a secret is rotated.
    pub secrets: Vec<Secret>,
    /// The most bytes of one answer.
    pub max_response_bytes: usize,
}

/// One step: a POST.
#[derive(Clone)]
pub struct Step {
    /// Its name, unique in its job type.
    pub name: String,
    /// Where to.
    pub url: Url,
    /// How long one call may take.
    pub timeout: Duration,
    /// The steps that must be done before it, whether they were written or follow from the order.
    pub needs: Vec<String>,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The query may hold a key.
        let mut url = self.url.clone();
        url.set_query(None);
        let Self { name, timeout, needs, .. } = self;
        f.debug_struct("Step")
            .field("name", name)
            .field("url", &url.as_str())
            .field("timeout", timeout)
            .field("needs", needs)
            .finish()
    }
}

pub(super) fn http(raw: raw::Http, reader: &mut Reader<'_>) -> HttpConfig {
    let mut allow = Allow::default();
    // A list cannot come from the environment; `a, b` can.
    let entries = raw.allow.map(|texts| texts.split_commas()).unwrap_or_default();
    for entry in entries {
        if let Err(problem) = allow.add(&entry) {
            reader.problems.add("http.allow", problem);
        }
    }
    HttpConfig { allow }
}

pub(super) fn job_types(
    raw: BTreeMap<String, raw::JobType>,
    secrets: &Secrets<'_>,
    retry: &RetryPolicy,
    reader: &mut Reader<'_>,
) -> BTreeMap<String, JobType> {
    let judged = |(name, raw): (String, raw::JobType)| {
        let path = format!("job_types.{name}");
        check_name(&path, &name, reader);
        let judged = job_type(&path, raw, secrets, retry, reader);
        (name, judged)
    };
    raw.into_iter().map(judged).collect()
}

fn job_type(
    path: &str,
    raw: raw::JobType,
    secrets: &Secrets<'_>,
    retry: &RetryPolicy,
    reader: &mut Reader<'_>,
) -> JobType {
    let steps = steps(&format!("{path}.steps"), raw.steps, reader);
    if raw.timeout.0.is_zero() {
        reader.problems.add(format!("{path}.timeout"), "must be longer than nothing, such as \"15m\"");
    }
    if raw.max_concurrent == Some(0) {
        reader
            .problems
            .add(format!("{path}.max_concurrent"), "must be at least 1; leave it out for no limit");
    }
    if !(1..=MAX_RESULT_BYTES).contains(&raw.max_response_bytes) {
        let message = format!("must be between 1 and {MAX_RESULT_BYTES}");
        reader.problems.add(format!("{path}.max_response_bytes"), message);
    }
    let retry = match raw.retry {
        None => retry.clone(),
        Some(table) => retry_policy(&format!("{path}.retry"), table, retry, reader),
    };
    JobType {
        steps,
        retry,
        timeout: raw.timeout.0,
        max_concurrent: raw.max_concurrent,
        secrets: find_secrets(
            &format!("{path}.secret"),
            raw.secret,
            raw.secret_file,
            raw.secret_env,
            secrets,
            reader,
        ),
        max_response_bytes: raw.max_response_bytes,
    }
}

/// A step as far as it could be read.
struct Written {
    path: String,
    name: String,
    url: Option<Url>,
    timeout: Duration,
    needs: Option<Vec<String>>,
}

fn steps(path: &str, listed: Vec<Value>, reader: &mut Reader<'_>) -> Vec<Step> {
    if listed.is_empty() {
        let right = "needs at least one step: { name = \"send\", http = \"https://host/path\" }";
        reader.problems.add(path, right);
    }
    if listed.len() > MAX_STEPS {
        reader.problems.add(path, format!("has {} steps, {MAX_STEPS} are allowed", listed.len()));
        return Vec::new();
    }
    let mut steps: Vec<Written> = Vec::new();
    for (index, value) in listed.into_iter().enumerate() {
        if let Some(step) = step(format!("{path}[{index}]"), value, reader) {
            if !step.name.is_empty() && steps.iter().any(|other| other.name == step.name) {
                reader.problems.add(format!("{}.name", step.path), format!("`{}` is there twice", step.name));
            }
            steps.push(step);
        }
    }
    let needs = judge_needs(path, &steps, reader);
    let names: Vec<String> = steps.iter().map(|step| step.name.clone()).collect();
    let named = |needs: Vec<usize>| needs.into_iter().map(|step| names[step].clone()).collect();
    let judged = steps.into_iter().zip(needs).filter_map(|(step, needs)| {
        Some(Step { name: step.name, url: step.url?, timeout: step.timeout, needs: named(needs) })
    });
    judged.collect()
}

fn step(path: String, value: Value, reader: &mut Reader<'_>) -> Option<Written> {
    let Value::Table(table) = value else {
        reader.problems.add(path, "must be a table: { name = \"send\", http = \"https://host/path\" }");
        return None;
    };
    let raw: raw::Step = reader.table(&path, table);
    match raw.name.as_deref() {
        None => reader.problems.add(format!("{path}.name"), "is missing"),
        Some(name) => {
            if let Some(problem) = name_problem(name) {
                reader.problems.add(format!("{path}.name"), problem);
            }
        }
    }
    let url = raw.http.as_ref().ok_or("is missing; write where to POST, such as \"https://host/path\"");
    let url = url.and_then(|raw::Hidden(text)| step_url(text.expose()));
    let url = url.map_err(|problem| reader.problems.add(format!("{path}.http"), problem)).ok();
    if raw.timeout.0.is_zero() {
        reader.problems.add(format!("{path}.timeout"), "must be longer than nothing, such as \"30s\"");
    }
    let name = raw.name.unwrap_or_default();
    Some(Written { path, name, url, timeout: raw.timeout.0, needs: raw.needs })
}

/// Where a step goes; the error repeats nothing of the URL, which may hold a key.
fn step_url(text: &str) -> Result<Url, &'static str> {
    // The parser would quietly leave them out.
    if text.trim().contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err("must hold no white space or control characters");
    }
    let url = Url::parse(text.trim()).map_err(|_| "is not a URL; write \"https://host/path\"")?;
    if !matches!(url.scheme(), "http" | "https") || !text.contains("://") {
        return Err("must begin with http:// or https://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user or a password; calls are signed with a secret instead");
    }
    if url.fragment().is_some() {
        return Err("must not have a part after #: it would never be sent");
    }
    Ok(url)
}

/// As soon as one step says what it needs, the graph is what they say; else the order of the list is.
fn judge_needs(path: &str, steps: &[Written], reader: &mut Reader<'_>) -> graph::Needs {
    if steps.iter().all(|step| step.needs.is_none()) {
        return graph::in_order(steps.len());
    }
    let mut graph = graph::Needs::new();
    for step in steps {
        let place = format!("{}.needs", step.path);
        let mut needs = Vec::new();
        for name in step.needs.iter().flatten() {
            match steps.iter().position(|other| other.name == *name) {
                _ if *name == step.name => reader.problems.add(&place, "a step cannot need itself"),
                None => reader.problems.add(&place, no_such_step(name, steps)),
                Some(needed) if needs.contains(&needed) => {
                    reader.problems.add(&place, format!("`{name}` is there twice"));
                }
                Some(needed) => needs.push(needed),
            }
        }
        graph.push(needs);
    }
    if let Some(cycle) = graph::cycle(&graph) {
        let members: Vec<&str> = cycle.into_iter().map(|step| steps[step].name.as_str()).collect();
        reader.problems.add(path, format!("wait for each other: {}", members.join(" → ")));
    }
    graph
}

fn no_such_step(name: &str, steps: &[Written]) -> String {
    let known: Vec<&str> =
        steps.iter().map(|step| step.name.as_str()).filter(|name| !name.is_empty()).collect();
    format!("there is no step `{name}`; there are: {}", known.join(", "))
}

/// One secret, or two while it is rotated, each in one of the three forms.
pub(super) fn find_secrets(
    path: &str,
    text: Option<raw::Hiddens>,
    file: Option<raw::Texts>,
    env: Option<raw::Texts>,
    secrets: &Secrets<'_>,
    reader: &mut Reader<'_>,
) -> Vec<Secret> {
    let forms = [text.is_some(), file.is_some(), env.is_some()];
    if forms.into_iter().filter(|given| *given).count() > 1 {
        reader.problems.add(path, "give only one of secret, secret_file and secret_env");
        return Vec::new();
    }
    let texts = text.into_iter().flat_map(|texts| texts.0);
    let texts = texts.map(|text| ("", Given { text: Some(text), file: None, env: None }));
    let files = file.into_iter().flat_map(|files| files.0);
    let files = files.map(|file| ("_file", Given { text: None, file: Some(file.into()), env: None }));
    let variables = env.into_iter().flat_map(|names| names.split_commas());
    let variables = variables.map(|name| ("_env", Given { text: None, file: None, env: Some(name) }));
    let given: Vec<(&str, Given)> = texts.chain(files).chain(variables).collect();
    if forms.contains(&true) && !(1..=MAX_SECRETS).contains(&given.len()) {
        let message = "must be one secret, or a list of two while it is rotated";
        reader.problems.add(path, message);
    }
    let mut found = Vec::new();
    for (form, given) in given {
        let Some(secret) = secrets.find(path, given, reader.problems) else { continue };
        match sign::key(&secret) {
            Ok(_) => found.push(secret),
            Err(problem) => reader.problems.add(format!("{path}{form}"), problem),
        }
    }
    found
}

/// Names of types become parts of queue names and are what clients write.
fn check_name(path: &str, name: &str, reader: &mut Reader<'_>) {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let rest = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !first || !rest || name.len() > 64 {
        let right =
            "is not a name: begin with a letter, go on with letters, digits, _ and -, at most 64 characters";
        reader.problems.add(path, right);
    }
    if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        reader.problems.add(path, "is reserved; choose another name");
    }
}

#[cfg(test)]
mod tests;
