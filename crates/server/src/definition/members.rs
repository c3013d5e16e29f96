//! The members of a definition, each read once; every problem is kept, so that all are told at once.

use std::time::Duration;

use outhaul::PlanProblem;
use outhaul_core::duration;
use outhaul_core::json::{Json, Object};
use serde_json::{Map, Value};

use crate::api::json::{child, kind};

/// More unknown members than this are not listed.
const MAX_UNKNOWN: usize = 100;
/// Nor more problems of a job than this.
const MAX_PROBLEMS: usize = 1001;

/// A definition that is being read.
pub(super) struct Members<'a> {
    members: &'a Map<String, Value>,
    problems: Vec<PlanProblem>,
}

impl<'a> Members<'a> {
    /// Starts reading. What is not among `known` is refused; what only answers have is told apart, for
    /// people change what they were shown and send it back.
    pub(super) fn new(members: &'a Map<String, Value>, known: &[&str], shown: &[&str]) -> Self {
        let mut reader = Self { members, problems: Vec::new() };
        let unknown = members.keys().filter(|name| !known.contains(&name.as_str()));
        for name in unknown.take(MAX_UNKNOWN) {
            let message = match shown.contains(&name.as_str()) {
                true => "is only shown, and cannot be set: leave it out".to_owned(),
                false => format!("there is no such field; known here: {}", known.join(", ")),
            };
            reader.wrong(&child("", name), message);
        }
        reader
    }

    /// Adds a problem.
    pub(super) fn wrong(&mut self, pointer: &str, message: impl Into<String>) {
        self.problems.push(PlanProblem { pointer: pointer.to_owned(), message: message.into() });
    }

    /// Adds problems of a part of the definition.
    pub(super) fn wrong_below(&mut self, pointer: &str, problems: Vec<PlanProblem>) {
        for problem in problems.into_iter().take(MAX_PROBLEMS) {
            self.wrong(&format!("{pointer}{}", problem.pointer), problem.message);
        }
    }

    /// A member as it stands.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name)
    }

    /// A member that may be left out; a problem is kept.
    pub(super) fn read<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'a Value) -> Result<T, String>,
    ) -> Option<T> {
        match read(self.members.get(name)?) {
            Ok(value) => Some(value),
            Err(message) => {
                self.wrong(&child("", name), message);
                None
            }
        }
    }

    /// A member that must be there.
    pub(super) fn need<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'a Value) -> Result<T, String>,
    ) -> Option<T> {
        if !self.members.contains_key(name) {
            self.wrong(&child("", name), "is required");
        }
        self.read(name, read)
    }

    /// The job, which must be there and is kept as text.
    pub(super) fn job<'d>(&mut self, definition: &'d Object) -> Option<&'d Json> {
        let job = definition.text("job");
        match job {
            None => self.wrong("/job", "is required"),
            Some(job) if job.is_object() => return Some(job),
            Some(job) => self.wrong("/job", format!("must be an object, not {}", job.kind())),
        }
        None
    }

    /// What was read, if nothing is wrong.
    pub(super) fn finish<T>(self, read: Option<T>) -> Result<T, Vec<PlanProblem>> {
        match read {
            Some(read) if self.problems.is_empty() => Ok(read),
            _ => Err(self.problems),
        }
    }
}

/// A value that must be text.
pub(super) fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("must be text, not {}", kind(value)))
}

/// A duration such as `90s`.
pub(super) fn span(value: &Value) -> Result<Duration, String> {
    let text = text(value)?;
    let span = if text == text.trim() { duration::parse(text) } else { Err(String::new()) };
    span.map_err(|_| "must be a whole number and ms, s, m, h or d, such as \"90s\"".to_owned())
}
