//! The one who asks: an identity and the roles that the configuration makes of its claims. Without a role
//! a caller may do nothing.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use outhaul_core::identity::Identity;
use serde_json::Value;

/// What somebody is to this system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Submits jobs, and sees and changes their own.
    Submitter,
    /// Sees the jobs and files of their department.
    Viewer,
    /// Sees and does everything.
    Operator,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Submitter, Self::Viewer, Self::Operator];

    /// Its name, as configurations and tokens write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Submitter => "submitter",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }

    fn bit(self) -> u8 {
        match self {
            Self::Submitter => 1,
            Self::Viewer => 2,
            Self::Operator => 4,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|role| role.name() == text)
            .ok_or_else(|| format!("`{text}` is not a role; roles are submitter, viewer and operator"))
    }
}

/// The roles of a caller.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles(u8);

impl Roles {
    /// No role: nothing is allowed.
    pub const NONE: Self = Self(0);

    /// All roles.
    pub fn all() -> Self {
        Role::ALL.into_iter().collect()
    }

    /// Whether the role is among them.
    pub fn has(self, role: Role) -> bool {
        self.0 & role.bit() != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        Self(roles.into_iter().fold(0, |bits, role| bits | role.bit()))
    }
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Role::ALL.into_iter().filter(|role| self.has(*role))).finish()
    }
}

/// `[auth.roles]`: the values of the roles claim that give a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleNames {
    /// Those that make a submitter.
    pub submitter: Vec<String>,
    /// Those that make a viewer.
    pub viewer: Vec<String>,
    /// Those that make an operator.
    pub operator: Vec<String>,
}

impl Default for RoleNames {
    fn default() -> Self {
        let own = |role: Role| vec![role.name().to_owned()];
        Self { submitter: own(Role::Submitter), viewer: own(Role::Viewer), operator: own(Role::Operator) }
    }
}

impl RoleNames {
    /// The values that give a role.
    pub fn of(&self, role: Role) -> &[String] {
        match role {
            Role::Submitter => &self.submitter,
            Role::Viewer => &self.viewer,
            Role::Operator => &self.operator,
        }
    }

    /// The roles in a claim: a list, or names with spaces between them. Anything else gives none.
    pub(super) fn roles(&self, claim: Option<&Value>) -> Roles {
        let given: Vec<&str> = match claim {
            Some(Value::String(text)) => text.split_whitespace().collect(),
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let has = |role: &Role| self.of(*role).iter().any(|name| given.contains(&name.as_str()));
        Role::ALL.into_iter().filter(has).collect()
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    /// What was kept of the token.
    pub identity: Identity,
    /// What they are to this system.
    pub roles: Roles,
    /// When the token is no longer good; `None`: there is none.
    pub until: Option<DateTime<Utc>>,
}

impl Caller {
    /// Whoever it is, where callers cannot be told apart: everything is allowed.
    pub fn anonymous(now: DateTime<Utc>) -> Self {
        Self { identity: Identity::anonymous(now), roles: Roles::all(), until: None }
    }

    /// The owner of the jobs that they submit.
    pub fn subject(&self) -> &str {
        &self.identity.subject
    }

    /// Their department; an empty one is none.
    pub(super) fn department(&self) -> Option<&str> {
        self.identity.department.as_deref().filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names() -> RoleNames {
        RoleNames {
            submitter: vec!["staff".into(), "exports:write".into()],
            viewer: vec!["auditor".into()],
            operator: vec!["staff-admin".into()],
        }
    }

    fn roles(claim: Value) -> Vec<Role> {
        let found = names().roles(Some(&claim));
        Role::ALL.into_iter().filter(|role| found.has(*role)).collect()
    }

    #[test]
    fn values_of_the_claim_give_roles() {
        assert_eq!(roles(json!(["staff", "other"])), [Role::Submitter]);
        assert_eq!(roles(json!("other exports:write auditor")), [Role::Submitter, Role::Viewer]);
        assert_eq!(roles(json!(["staff-admin"])), [Role::Operator]);
        assert_eq!(roles(json!(["staff", "staff-admin", "auditor"])), Role::ALL);
    }

    #[test]
    fn anything_else_gives_none() {
        for claim in [
            json!([]),
            json!(""),
            json!(["submitter", "operator"]),
            json!(["STAFF", "staff ", "staf", "staff auditor"]),
            json!([["staff"], {"staff": true}, null, 1]),
            json!({"staff": true}),
            json!(true),
            json!(1),
            json!(null),
        ] {
            assert!(roles(claim.clone()).is_empty(), "{claim}");
        }
        assert!(names().roles(None).is_empty());
    }

    #[test]
    fn without_a_table_a_role_has_its_own_name() {
        let found = RoleNames::default().roles(Some(&json!("viewer operator")));
        assert_eq!(format!("{found:?}"), "{Viewer, Operator}");
    }

    #[test]
    fn the_anonymous_caller_may_do_everything() {
        let caller = Caller::anonymous(DateTime::UNIX_EPOCH);
        assert!(Role::ALL.into_iter().all(|role| caller.roles.has(role)));
        assert_eq!(caller.subject(), outhaul_core::identity::ANONYMOUS);
    }
}
