//! People with tokens, as the issuer of the test server makes them.

use std::time::Duration;

use outhaul_core::clock;
use outhaul_core::secret::Secret;
use outhaul_server::auth::{JwtSettings, Keys, Role, Wanted, issue};
use serde_json::{Map, Value, json};

pub(crate) const ISSUER: &str = "https://id.example.com/";
pub(crate) const AUDIENCE: &str = "outhaul";
pub(crate) const SECRET: &str = "a secret of 32 bytes or more, 012345";

/// What the configuration says of callers, with this secret.
pub(crate) const AUTH: &str = r#"
[auth]
mode = "jwt"
issuer = "https://id.example.com/"
audience = "outhaul"
secret = "a secret of 32 bytes or more, 012345"
keep = ["county"]
"#;

/// Somebody who may get a token.
#[derive(Clone)]
pub(crate) struct Person {
    pub(crate) subject: &'static str,
    pub(crate) roles: Vec<Role>,
    pub(crate) department: Option<&'static str>,
    pub(crate) county: Option<&'static str>,
}

pub(crate) fn submitter(subject: &'static str) -> Person {
    Person { subject, roles: vec![Role::Submitter], department: None, county: None }
}

pub(crate) fn operator() -> Person {
    Person { subject: "olga", roles: vec![Role::Operator], department: None, county: None }
}

impl Person {
    pub(crate) fn with(mut self, role: Role) -> Self {
        self.roles.push(role);
        self
    }

    pub(crate) fn department(self, name: &'static str) -> Self {
        Self { department: Some(name), ..self }
    }

    pub(crate) fn county(self, name: &'static str) -> Self {
        Self { county: Some(name), ..self }
    }

    pub(crate) fn wanted(&self) -> Wanted {
        let claims: Map<String, Value> =
            self.county.iter().map(|county| ("county".to_owned(), json!(county))).collect();
        Wanted {
            subject: self.subject.to_owned(),
            roles: self.roles.clone(),
            department: self.department.map(str::to_owned),
            claims,
            ttl: Duration::from_secs(3600),
            kid: None,
        }
    }

    /// A token of the issuer with the secret.
    pub(crate) fn token(&self) -> String {
        self.token_for(Duration::from_secs(3600))
    }

    /// The same, good for so long.
    pub(crate) fn token_for(&self, ttl: Duration) -> String {
        let settings = JwtSettings::new(ISSUER, vec![AUDIENCE.into()], Keys::Secret(Secret::new(SECRET)));
        issue(&settings, None, &Wanted { ttl, ..self.wanted() }, clock::now()).unwrap()
    }
}
