//! How a job fails: worth another attempt, or not. Like `anyhow::Error` it is not an `Error` itself, so
//! that `?` turns every error into one.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::LONGEST;
use crate::handler::{Cause, Failed, Outcome};

/// Why a job's attempt ended without a result.
///
/// `?` on any error makes a retryable one. Its text, with the causes of the error behind it, is shown to
/// whoever may see the job: keep secrets out of it.
///
/// ```
/// use outhaul::{Classify, JobError};
///
/// fn port(text: &str) -> Result<u16, JobError> {
///     if text.is_empty() {
///         return Err(JobError::fatal("there is no port"));
///     }
///     text.parse::<u16>().fatal() // no attempt can make it a number
/// }
/// assert!(port("http").is_err_and(|error| error.is_fatal()));
/// ```
pub struct JobError(Kind);

enum Kind {
    Retryable(Cause),
    Fatal(Cause),
    Sleeping(Duration),
    Stopped,
}

impl JobError {
    /// Worth another attempt, as the retry policy says.
    pub fn retryable(cause: impl fmt::Display) -> Self {
        Self(Kind::Retryable(one_line(&cause.to_string()).into()))
    }

    /// No attempt can help: the job fails at once.
    pub fn fatal(cause: impl fmt::Display) -> Self {
        Self(Kind::Fatal(one_line(&cause.to_string()).into()))
    }

    /// Not to be tried again sooner than this, because somebody asked for it. A fatal error stays one.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        if let Kind::Retryable(cause) = &mut self.0 {
            cause.retry_in = Some(wait.min(LONGEST));
        }
        self
    }

    /// Whether no attempt can help.
    pub fn is_fatal(&self) -> bool {
        matches!(self.0, Kind::Fatal(_))
    }

    /// The attempt ends here and another one goes on later: not a failure.
    pub(crate) fn sleeping(wait: Duration) -> Self {
        Self(Kind::Sleeping(wait))
    }

    /// The attempt was told to stop.
    pub(crate) fn stopped() -> Self {
        Self(Kind::Stopped)
    }

    /// Names the step that failed, unless one inside it was named already.
    pub(crate) fn in_step(mut self, name: &str) -> Self {
        if let Kind::Retryable(cause) | Kind::Fatal(cause) = &mut self.0 {
            cause.step.get_or_insert_with(|| name.to_owned());
        }
        self
    }

    /// From the engine's own word. No `From`: every error already is a retryable one.
    pub(crate) fn from_failed(failed: Failed) -> Self {
        Self(match failed {
            Failed::Retryable(cause) => Kind::Retryable(cause),
            Failed::Fatal(cause) => Kind::Fatal(cause),
            Failed::Stopped => Kind::Stopped,
        })
    }

    /// What the engine makes of it.
    pub(crate) fn into_outcome(self) -> Result<Outcome, Failed> {
        match self.0 {
            Kind::Retryable(cause) => Err(Failed::Retryable(cause)),
            Kind::Fatal(cause) => Err(Failed::Fatal(cause)),
            Kind::Sleeping(wait) => Ok(Outcome::Snooze(wait)),
            Kind::Stopped => Err(Failed::Stopped),
        }
    }
}

impl<E: Error> From<E> for JobError {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            // Many errors show their cause themselves.
            let shown = cause.to_string();
            if !text.contains(&shown) {
                text.push_str(": ");
                text.push_str(&shown);
            }
            source = cause.source();
        }
        Self::retryable(text)
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Retryable(cause) | Kind::Fatal(cause) => match &cause.step {
                Some(step) => write!(f, "step={step}: {cause}"),
                None => write!(f, "{cause}"),
            },
            Kind::Sleeping(wait) => write!(f, "sleeps for {wait:?}"),
            Kind::Stopped => f.write_str("stopped"),
        }
    }
}

impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.0 {
            Kind::Retryable(_) => "retryable: ",
            Kind::Fatal(_) => "fatal: ",
            Kind::Sleeping(_) | Kind::Stopped => "",
        };
        write!(f, "{kind}{self}")
    }
}

/// Says of any error whether another attempt can help.
pub trait Classify<T> {
    /// Worth another attempt; what `?` alone does.
    fn retryable(self) -> Result<T, JobError>;

    /// No attempt can help: the job fails at once.
    fn fatal(self) -> Result<T, JobError>;
}

impl<T, E: Into<JobError>> Classify<T> for Result<T, E> {
    fn retryable(self) -> Result<T, JobError> {
        self.map_err(|error| match error.into() {
            JobError(Kind::Fatal(cause)) => JobError(Kind::Retryable(cause)),
            other => other,
        })
    }

    fn fatal(self) -> Result<T, JobError> {
        self.map_err(|error| match error.into() {
            JobError(Kind::Retryable(cause)) => JobError(Kind::Fatal(cause)),
            // Sleeping and being stopped are no failures.
            other => other,
        })
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no answer\nfrom the mailer")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("connection refused")]
    struct Inner;

    fn failing() -> Result<(), JobError> {
        Err(Outer(Inner))?;
        Ok(())
    }

    #[test]
    fn any_error_is_retryable_with_its_sources_in_one_line() {
        let error = failing().unwrap_err();
        assert_eq!(error.to_string(), "no answer from the mailer: connection refused");
        let failed = error.into_outcome().unwrap_err();
        assert_eq!(failed, Failed::Retryable("no answer from the mailer: connection refused".into()));
    }

    #[test]
    fn the_innermost_step_is_named_and_a_fatal_error_stays_fatal() {
        let error = JobError::fatal("no").in_step("inner").in_step("outer").after(Duration::from_secs(1));
        let expected = Cause { step: Some("inner".to_owned()), ..Cause::from("no") };
        assert_eq!(error.into_outcome().unwrap_err(), Failed::Fatal(expected));
    }

    #[test]
    fn classifying_changes_failures_only() {
        assert!(Err::<(), _>(Inner).fatal().unwrap_err().is_fatal());
        assert!(!Err::<(), _>(JobError::fatal("x")).retryable().unwrap_err().is_fatal());
        let asleep = Err::<(), _>(JobError::sleeping(Duration::from_secs(1))).fatal().unwrap_err();
        assert!(matches!(asleep.into_outcome(), Ok(Outcome::Snooze(_))));
        let waits = JobError::retryable("busy").after(Duration::from_secs(7)).into_outcome().unwrap_err();
        let Failed::Retryable(cause) = waits else { panic!("{waits:?}") };
        assert_eq!(cause.retry_in, Some(Duration::from_secs(7)));
    }
}
