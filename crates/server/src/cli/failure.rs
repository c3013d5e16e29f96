//! How a command ends badly: what to tell the person, and with which exit code.

use std::fmt;
use std::process::ExitCode;

use crate::config::Problems;
use crate::serve::{StartError, StartErrors};

/// Something went wrong; printed to stderr.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// An ordinary failure: exit code 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// The process can no longer do its work and should be started again (`EX_SOFTWARE`).
    pub(crate) fn start_again(message: impl Into<String>) -> Self {
        Self { code: 70, message: message.into() }
    }

    /// The message on one line, for lists.
    pub(crate) fn one_line(&self) -> String {
        self.message.lines().map(str::trim).collect::<Vec<_>>().join("; ")
    }

    /// The exit code.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self { code: 2, message: problems.to_string() }
    }
}

impl From<StartErrors> for Failure {
    fn from(errors: StartErrors) -> Self {
        let is_configuration =
            |error: &StartError| matches!(error, StartError::Configuration(_) | StartError::TriggerCycle(_));
        let code = if errors.0.iter().any(is_configuration) { 2 } else { 1 };
        Self { code, message: errors.to_string() }
    }
}

impl From<super::client::ClientError> for Failure {
    fn from(error: super::client::ClientError) -> Self {
        Self::new(error.to_string())
    }
}

/// An error with its causes on one line; libraries keep the useful part in the cause.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_several_lines_fits_one() {
        let failure = Failure::new("Not Found (404)\n  the storage no longer holds this file");
        assert_eq!(failure.one_line(), "Not Found (404); the storage no longer holds this file");
    }
}
