//! Who a job runs for: what was kept of a verified token, never the token itself. A job runs with the rights of
//! whoever submitted it, whoever redrives it and whichever process runs it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The owner of everything where callers cannot be told apart.
pub const ANONYMOUS: &str = "anonymous";
/// What rows that depend on the subject name it, whichever claim it was taken from.
pub const SUBJECT: &str = "sub";
/// What rows that depend on the department name it, whichever claim it was taken from.
pub const DEPARTMENT: &str = "department";

/// What was kept of a verified token, at the moment it was verified.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Who it is; the owner of the jobs.
    pub subject: String,
    /// The department, where the token has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub department: Option<String>,
    /// Further claims that are kept, by name: what rows may depend on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, Value>,
    /// When the token was verified.
    pub verified_at: DateTime<Utc>,
}

impl Identity {
    /// Whoever it is, where callers cannot be told apart.
    pub fn anonymous(now: DateTime<Utc>) -> Self {
        Self { subject: ANONYMOUS.to_owned(), department: None, claims: BTreeMap::new(), verified_at: now }
    }

    /// What rows may depend on under a name: [`SUBJECT`] and [`DEPARTMENT`] are this identity's own, all other
    /// names those of kept claims. Where callers cannot be told apart, nothing depends on the subject.
    pub fn claim(&self, name: &str) -> Option<Cow<'_, Value>> {
        let owned = |text: &String| Cow::Owned(Value::String(text.clone()));
        match name {
            SUBJECT => Some(&self.subject).filter(|subject| *subject != ANONYMOUS).map(owned),
            DEPARTMENT => self.department.as_ref().map(owned),
            _ => self.claims.get(name).map(Cow::Borrowed),
        }
    }

    /// The same with nothing but these claims: what is not needed is not stored.
    pub fn only<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut kept =
            Self { subject: self.subject.clone(), department: None, claims: BTreeMap::new(), ..*self };
        for name in names {
            if name == DEPARTMENT {
                kept.department.clone_from(&self.department);
            } else if let Some(value) = self.claims.get(name).filter(|_| name != SUBJECT) {
                kept.claims.insert(name.to_owned(), value.clone());
            }
        }
        kept
    }
}

/// The jobs that a list may show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Visible {
    /// Every job.
    #[default]
    All,
    /// Those of a department, and one's own.
    Department {
        /// The department.
        department: String,
        /// The caller.
        subject: String,
    },
    /// One's own.
    Own(String),
    /// None at all.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_is_kept_and_found_again() {
        let now = DateTime::UNIX_EPOCH;
        let claims = [("county", "kent"), ("sub", "not me"), ("other", "x")];
        let claims = claims.map(|(name, value)| (name.to_owned(), Value::from(value)));
        let ann = Identity {
            subject: "ann".into(),
            department: Some("sales".into()),
            claims: claims.into(),
            verified_at: now,
        };
        let found = |of: &Identity, name| of.claim(name).map(Cow::into_owned);
        assert_eq!(found(&ann, "sub"), Some("ann".into()), "never a claim of the same name");
        let kept = ann.only(["sub", "county", "nothing"]);
        assert_eq!(found(&kept, "sub"), Some("ann".into()));
        assert_eq!(found(&kept, "county"), Some("kent".into()));
        assert_eq!((found(&kept, "department"), found(&kept, "other")), (None, None));
        assert_eq!((kept.claims.len(), kept.verified_at), (1, now));
        assert_eq!(found(&ann.only(["department"]), "department"), Some("sales".into()));
        assert_eq!(found(&Identity::anonymous(now), "sub"), None, "nobody in particular");
    }
}
