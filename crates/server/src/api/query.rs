//! Query strings, read strictly: every parameter once, none that is unknown, and all problems at once.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use chrono::{DateTime, Datelike, Utc};

use super::json::check_text;
use super::problem::{FieldError, Problem};

/// The longest text that a filter may compare with.
pub(super) const MAX_FILTER_CHARS: usize = 255;

/// What is left of a query string; `finish` refuses what nobody took.
#[derive(Debug)]
pub(super) struct Query {
    pairs: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

impl Query {
    /// Splits a query string.
    pub(super) fn parse(text: &str) -> Self {
        let pairs = url::form_urlencoded::parse(text.as_bytes()).into_owned().collect();
        Self { pairs, errors: Vec::new() }
    }

    /// Takes a parameter and reads it; a problem is kept for [`Query::finish`].
    pub(super) fn take_with<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let mut values = self.pairs.extract_if(.., |(given, _)| given == name).map(|(_, value)| value);
        let first = values.next();
        let more = values.count() > 0;
        if more {
            self.refuse(FieldError::new(format!("?{name}"), "is there more than once"));
            return None;
        }
        match read(&first?) {
            Ok(value) => Some(value),
            Err(message) => {
                self.refuse(FieldError::new(format!("?{name}"), message));
                None
            }
        }
    }

    /// Takes a text to compare with.
    pub(super) fn take_text(&mut self, name: &str) -> Option<String> {
        self.take_with(name, |text| check_text(text, MAX_FILTER_CHARS).map(|()| text.to_owned()))
    }

    /// Takes a moment.
    pub(super) fn take_time(&mut self, name: &str) -> Option<DateTime<Utc>> {
        self.take_with(name, read_time)
    }

    /// Takes `true` or `false`.
    pub(super) fn take_flag(&mut self, name: &str) -> bool {
        let flag = self.take_with(name, |text| match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("must be `true` or `false`".to_owned()),
        });
        flag.unwrap_or(false)
    }

    /// Adds a problem.
    pub(super) fn refuse(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// Every problem: those of values, and the parameters that nobody took.
    pub(super) fn finish(self) -> Result<(), Problem> {
        let errors = self.into_errors();
        if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
    }

    /// The same as a list, where the body may have more to add.
    pub(super) fn into_errors(mut self) -> Vec<FieldError> {
        for (name, _) in self.pairs {
            let name: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
            self.errors.push(FieldError::new(format!("?{name}"), "there is no such parameter"));
        }
        // A long query must not become a longer answer.
        self.errors.truncate(100);
        self.errors
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default()))
    }
}

/// For calls that take no parameters.
#[derive(Debug)]
pub(super) struct NoQuery;

impl<S: Send + Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Query::parse(parts.uri.query().unwrap_or_default()).finish().map(|()| Self)
    }
}

/// Reads an RFC 3339 moment of the years 1 to 9999, to the microsecond that databases keep.
pub(super) fn read_time(text: &str) -> Result<DateTime<Utc>, String> {
    let time = DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp_micros());
    time.and_then(DateTime::from_timestamp_micros)
        .filter(|time| (1..=9999).contains(&time.year()))
        .ok_or_else(|| "must be an RFC 3339 time such as 2026-01-02T03:04:05Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_named_at_once() {
        let mut query = Query::parse("a=1&b=2&b=3&nope=1&t=yesterday&f=maybe&x=%00");
        assert_eq!(query.take_text("a").as_deref(), Some("1"));
        assert_eq!(query.take_text("b"), None);
        assert_eq!(query.take_time("t"), None);
        assert!(!query.take_flag("f"));
        assert_eq!(query.take_text("x"), None);
        let pointers: Vec<_> = query.into_errors().into_iter().map(|error| error.pointer).collect();
        assert_eq!(pointers, ["?b", "?t", "?f", "?x", "?nope"]);
    }

    #[test]
    fn times_are_utc_and_of_this_era() {
        assert_eq!(read_time("2026-01-02T03:04:05+02:00").unwrap().to_rfc3339(), "2026-01-02T01:04:05+00:00");
        assert!(read_time("2016-12-31T23:59:60Z").is_ok(), "a leap second is a moment like any other");
        for text in [
            "",
            "2026-01-02",
            "2026-13-02T03:04:05Z",
            "0000-01-01T00:00:00Z",
            "2026-01-02T03:04:05",
            "9999-12-31T23:59:59-01:00",
            "1767323045",
        ] {
            assert!(read_time(text).is_err(), "{text}");
        }
    }
}
