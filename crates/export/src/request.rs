//! From what a client asked for to a plan of chunks. Every problem is named at once, by the place in
//! the request that it is about, up to a number that still helps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Datelike as _, NaiveDate, Utc};
use outhaul_core::file::{FileIdentity, FileRecord};
use outhaul_core::identity::Identity;
use outhaul_core::job::NewChunk;
use outhaul_core::json::Json;
use outhaul_core::key;
use outhaul_core::reuse::Reuse;
use serde::{Deserialize as _, Serialize};
use serde_json::{Value, json};

use crate::dataset::{Dataset, Exports};
use crate::format::Format;
use crate::rights::{self, MissingClaims};

/// How many problems are listed at most: a request may have millions.
pub const MAX_PROBLEMS: usize = 1000;

/// An export as a client asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportRequest {
    /// The dataset; none means the default one.
    pub dataset: Option<String>,
    /// What to export.
    pub items: Vec<Item>,
    /// How.
    pub output: Output,
}

/// One key and its dates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The key; white space around it does not count.
    pub key: String,
    /// Dates as `yyyyMMdd`.
    pub effective_dates: Vec<String>,
}

/// How the files are to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The format's name; none means CSV.
    pub format: Option<String>,
    /// Generate, even where a file could be reused.
    pub force: bool,
}

/// Something wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, as a JSON pointer.
    pub pointer: String,
    /// What, for people.
    pub message: String,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The request is wrong.
    Problems(Vec<Problem>),
    /// The request is right, but the caller may not ask for it.
    MissingClaims(MissingClaims),
}

/// A request that was found good.
#[derive(Clone, Debug)]
pub struct ExportPlan {
    /// The dataset it means.
    pub dataset: Arc<Dataset>,
    /// The format it asks for.
    pub format: Format,
    /// Whether files must be generated anew.
    pub force: bool,
    /// The chunks, in the order of the request.
    pub chunks: Vec<NewChunk>,
    /// What is stored of the caller, where rows depend on it.
    caller: Option<Caller>,
}

/// What is stored of a caller with a job whose rows depend on it.
#[derive(Clone, Debug)]
struct Caller {
    identity: Identity,
    scope: String,
}

/// What a job would do, from the recorded files alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRun {
    /// Files in all.
    pub total: usize,
    /// Files that would be reused.
    pub reuse: usize,
    /// Files that would be generated.
    pub generate: usize,
    /// The same in a sentence.
    pub verdict: String,
}

/// What a chunk's handler gets of the request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    /// The format.
    pub format: Format,
    /// Whether the file must be generated anew.
    pub force: bool,
    /// Who submitted it, with the claims that rows depend on; none where they depend on nobody.
    pub identity: Option<Identity>,
    /// The scope it was submitted with; empty where rows depend on nobody.
    pub scope: String,
}

impl Params {
    /// As it is stored with the job.
    pub fn to_json(&self) -> Json {
        let mut params = json!({ "format": self.format.as_str(), "force": self.force });
        if let Some(identity) = &self.identity {
            params["identity"] = json!(identity);
            params["scope"] = json!(self.scope);
        }
        params.into()
    }

    /// Reads what was stored; the error names what only a newer version can read.
    pub fn from_json(params: &Json) -> Result<Self, &'static str> {
        let params: Value = params.read().map_err(|_| "the form of the request")?;
        let format = match params.get("format") {
            None => Format::default(),
            Some(format) => format.as_str().and_then(Format::parse).ok_or("the output format")?,
        };
        let force = params.get("force").and_then(Value::as_bool).unwrap_or(false);
        let unreadable = "the form of the caller's identity";
        let identity =
            params.get("identity").map(Identity::deserialize).transpose().map_err(|_| unreadable)?;
        let scope = params.get("scope").map_or(Some(""), Value::as_str).ok_or(unreadable)?.to_owned();
        Ok(Self { format, force, identity, scope })
    }
}

impl ExportRequest {
    /// Checks the request and plans its chunks, or lists its problems, the first [`MAX_PROBLEMS`].
    pub fn validate(&self, exports: &Exports) -> Result<ExportPlan, Vec<Problem>> {
        self.validate_beside(exports, MAX_PROBLEMS, &|_| false)
    }

    /// The same for a caller that has found problems of its own: those at places that `is_known` says
    /// are not listed again, and the search ends with the problem number `most`.
    ///
    /// Nobody in particular asks: a dataset that shows each caller its own rows is refused.
    pub fn validate_beside(
        &self,
        exports: &Exports,
        most: usize,
        is_known: &dyn Fn(&str) -> bool,
    ) -> Result<ExportPlan, Vec<Problem>> {
        self.plan(exports, None, most, is_known).map_err(|error| match error {
            PlanError::Problems(problems) => problems,
            PlanError::MissingClaims(missing) => {
                vec![Problem { pointer: "/dataset".to_owned(), message: missing.to_string() }]
            }
        })
    }

    /// The same for whoever `identity` says, whose claims are looked at when nothing else is wrong.
    pub fn plan(
        &self,
        exports: &Exports,
        identity: Option<&Identity>,
        most: usize,
        is_known: &dyn Fn(&str) -> bool,
    ) -> Result<ExportPlan, PlanError> {
        let mut problems = Problems { found: Vec::new(), most, is_known };
        let dataset = self.find_dataset(exports, &mut problems);
        let format = self.find_format(&mut problems);
        let pairs = self.find_pairs(format.unwrap_or_default(), &mut problems);
        if pairs.len() > exports.max_chunks_per_job {
            let (count, most) = (pairs.len(), exports.max_chunks_per_job);
            problems.add("/items", format!("asks for {count} files, but a job may have at most {most}"));
        }
        match (dataset, format) {
            (Some(dataset), Some(format)) if problems.found.is_empty() => {
                let queue = dataset.queue();
                let chunks = pairs.into_iter().map(|(key, date)| NewChunk {
                    chunk_key: key::chunk_key(key, date),
                    queue: queue.clone(),
                    key: Some(key.to_owned()),
                    effective_date: Some(date),
                });
                let chunks = chunks.collect();
                let caller = caller(&dataset, identity).map_err(PlanError::MissingClaims)?;
                Ok(ExportPlan { dataset, format, force: self.output.force, chunks, caller })
            }
            _ => Err(PlanError::Problems(problems.found)),
        }
    }

    fn find_dataset(&self, exports: &Exports, problems: &mut Problems<'_>) -> Option<Arc<Dataset>> {
        let found = match &self.dataset {
            Some(name) => exports.dataset(name),
            None => exports.default_dataset(),
        };
        if found.is_none() {
            let names: Vec<&str> = exports.datasets().map(|dataset| dataset.name.as_str()).collect();
            let known = if names.is_empty() { "none is configured".into() } else { names.join(", ") };
            problems.add(
                "/dataset",
                match &self.dataset {
                    Some(name) => format!("there is no dataset `{}`; known: {known}", brief(name)),
                    None => format!("must be given, for no dataset is the default; known: {known}"),
                },
            );
        }
        found.cloned()
    }

    fn find_format(&self, problems: &mut Problems<'_>) -> Option<Format> {
        let Some(name) = &self.output.format else { return Some(Format::default()) };
        let format = Format::parse(name);
        if format.is_none() {
            let available = Format::ALL.map(Format::as_str).join(", ");
            let message = format!("format `{}` is not available yet; available: {available}", brief(name));
            problems.add("/output/format", message);
        }
        format
    }

    /// All good (key, date) pairs, each once, in the order of the request; not all once there are
    /// enough problems.
    fn find_pairs(&self, format: Format, problems: &mut Problems<'_>) -> Vec<(&str, NaiveDate)> {
        if self.items.is_empty() {
            problems.add("/items", "must not be empty");
        }
        let (mut pairs, mut seen) = (Vec::new(), BTreeMap::<&str, BTreeSet<NaiveDate>>::new());
        for (i, item) in self.items.iter().enumerate() {
            if problems.are_enough() {
                return pairs;
            }
            let key = item.key.trim();
            if let Err(problem) = check_key(key, format) {
                problems.add(format!("/items/{i}/key"), problem);
            }
            if item.effective_dates.is_empty() {
                problems.add(format!("/items/{i}/effectiveDates"), "must not be empty");
            }
            let seen = seen.entry(key).or_default();
            for (j, text) in item.effective_dates.iter().enumerate() {
                if problems.are_enough() {
                    return pairs;
                }
                match parse_date(text) {
                    Ok(date) if seen.insert(date) => pairs.push((key, date)),
                    Ok(_) => {}
                    Err(problem) => problems.add(format!("/items/{i}/effectiveDates/{j}"), problem),
                }
            }
        }
        pairs
    }
}

/// What [`ExportPlan::canonical`] writes. The order and the form of its members are part of stored hashes.
#[derive(Serialize)]
struct Canonical<'a> {
    dataset: &'a str,
    items: Vec<CanonicalItem<'a>>,
    output: CanonicalOutput,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a str>,
}

#[derive(Serialize)]
struct CanonicalItem<'a> {
    #[serde(rename = "effectiveDates")]
    effective_dates: Vec<String>,
    key: &'a str,
}

#[derive(Serialize)]
struct CanonicalOutput {
    force: bool,
    format: &'static str,
}

impl ExportPlan {
    /// What every chunk's handler gets.
    pub fn params(&self) -> Json {
        let identity = self.caller.as_ref().map(|caller| caller.identity.clone());
        Params { format: self.format, force: self.force, identity, scope: self.scope().to_owned() }.to_json()
    }

    /// The caller's scope, part of the identity of every file; empty where rows are the same for everybody.
    pub fn scope(&self) -> &str {
        self.caller.as_ref().map_or("", |caller| &caller.scope)
    }

    /// Prefix of its files in the storage; `Storage::display_url` makes it what clients see.
    pub fn base_path(&self) -> &str {
        &self.dataset.base_path
    }

    /// All (key, date) pairs, for a look at the recorded files.
    pub fn wanted(&self) -> Vec<(String, NaiveDate)> {
        self.chunks.iter().filter_map(|chunk| Some((chunk.key.clone()?, chunk.effective_date?))).collect()
    }

    /// The request as it was understood: defaults filled in, keys and dates merged and sorted, members
    /// in alphabetical order. Two requests for the same files have the same text.
    pub fn canonical(&self) -> Json {
        let mut by_key = BTreeMap::<&str, BTreeSet<NaiveDate>>::new();
        for chunk in &self.chunks {
            if let (Some(key), Some(date)) = (&chunk.key, chunk.effective_date) {
                by_key.entry(key).or_default().insert(date);
            }
        }
        let items = by_key.into_iter().map(|(key, dates)| {
            let dates = dates.iter().map(|date| date.format("%Y%m%d").to_string());
            CanonicalItem { effective_dates: dates.collect(), key }
        });
        let canonical = Canonical {
            dataset: &self.dataset.name,
            items: items.collect(),
            output: CanonicalOutput { force: self.force, format: self.format.as_str() },
            scope: self.caller.as_ref().map(|caller| caller.scope.as_str()),
        };
        Json::of(&canonical).expect("it has names of text")
    }

    /// What the job would do if it were submitted now, from the recorded files of its dataset and scope.
    pub fn dry_run(
        &self,
        recorded: &[(FileIdentity, FileRecord)],
        now: DateTime<Utc>,
        window_days: u32,
    ) -> DryRun {
        let usable: BTreeSet<(&str, NaiveDate)> = recorded
            .iter()
            .filter(|(identity, record)| {
                record.definition == self.dataset.definition
                    && record.path == self.dataset.file_path(identity, self.format)
                    && identity.scope == self.scope()
            })
            .map(|(identity, _)| (identity.key.as_str(), identity.effective_date))
            .collect();
        let reusable = |chunk: &&NewChunk| {
            let (Some(key), Some(date)) = (&chunk.key, chunk.effective_date) else { return false };
            let rule = Reuse::decide(date, now.date_naive(), window_days, now, self.force);
            rule == Reuse::Any && usable.contains(&(key.as_str(), date))
        };
        let total = self.chunks.len();
        let reuse = self.chunks.iter().filter(reusable).count();
        let generate = total - reuse;
        let verdict = match (generate, reuse) {
            (_, 0) => format!("all {total} files would be generated"),
            (0, _) => format!("all {total} files would be reused"),
            _ => format!("{generate} of {total} files would be generated, {reuse} reused"),
        };
        DryRun { total, reuse, generate, verdict }
    }
}

struct Problems<'a> {
    found: Vec<Problem>,
    most: usize,
    is_known: &'a dyn Fn(&str) -> bool,
}

impl Problems<'_> {
    fn add(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        let pointer = pointer.into();
        if !self.are_enough() && !(self.is_known)(&pointer) {
            self.found.push(Problem { pointer, message: message.into() });
        }
    }

    fn are_enough(&self) -> bool {
        self.found.len() >= self.most
    }
}

/// What is stored of a caller: only what its rights are made of.
fn caller(dataset: &Dataset, identity: Option<&Identity>) -> Result<Option<Caller>, MissingClaims> {
    let rights = rights::rights(dataset, identity)?;
    Ok(match (rights, &dataset.scope, identity) {
        (Some(rights), Some(scope), Some(identity)) => {
            Some(Caller { identity: identity.only(scope.claims()), scope: rights.scope().to_owned() })
        }
        _ => None,
    })
}

fn check_key(key: &str, format: Format) -> Result<(), String> {
    key::check(key)?;
    let bytes = key::file_name(key, NaiveDate::default(), format.extension()).len();
    if bytes > key::MAX_NAME_BYTES {
        let most = key::MAX_NAME_BYTES;
        return Err(format!(
            "is too long: its file name would have {bytes} bytes encoded, at most {most} will do"
        ));
    }
    Ok(())
}

fn parse_date(text: &str) -> Result<NaiveDate, String> {
    let digits = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(format!("`{}` is not a date in the form yyyyMMdd, such as 20250215", brief(text)));
    }
    NaiveDate::parse_from_str(text, "%Y%m%d")
        .ok()
        // There is no year 0 in the calendar that databases use.
        .filter(|date| date.year() > 0)
        .ok_or_else(|| format!("`{text}` is not a day in the calendar"))
}

/// A client's own text, cut to what helps to find it.
fn brief(text: &str) -> String {
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
