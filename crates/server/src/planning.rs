//! Jobs of schedules and triggers: their bodies are judged as those of `POST /jobs` are, by the same code
//! and against the same datasets and job types.

use std::collections::BTreeSet;
use std::sync::Arc;

use outhaul::{PlanProblem, Planner, Registry};
use outhaul_core::clock;
use outhaul_core::identity::{ANONYMOUS, Identity};
use outhaul_core::job::{EXPORT, NewJob};
use outhaul_core::json::Json;
use outhaul_core::trigger::term;
use outhaul_export::Exports;
use outhaul_export::scope::RowScope;
use outhaul_export::storage::Storage;
use serde_json::Value;

use crate::api::{self, Asker};
use crate::auth::{self, AuthSettings};

/// Makes jobs of request bodies. Cheap to clone.
#[derive(Clone)]
pub struct RequestPlanner {
    exports: Arc<Exports>,
    registry: Registry,
    storage: Storage,
    auth: Arc<AuthSettings>,
    quota: Option<u64>,
}

impl RequestPlanner {
    /// A planner that knows these datasets and job types, where callers cannot be told apart.
    pub fn new(exports: Arc<Exports>, registry: Registry, storage: Storage) -> Self {
        Self { exports, registry, storage, auth: Arc::default(), quota: None }
    }

    /// The same where they may be: owners are then the identities that `auth` names, and jobs on behalf of
    /// callers count among the chunks that these may have open.
    #[must_use]
    pub fn with_auth(self, auth: Arc<AuthSettings>, max_open_chunks: Option<u64>) -> Self {
        Self { auth, quota: max_open_chunks, ..self }
    }

    /// The terms that a job may answer to here, which are those that a trigger may wait for.
    pub fn terms(&self) -> BTreeSet<String> {
        let datasets = self.exports.datasets().map(|dataset| term(EXPORT, Some(&dataset.name)));
        datasets.chain(self.registry.job_types().map(|job_type| term(job_type, None))).collect()
    }

    /// Somebody who has every claim that a body's dataset could ask for.
    fn anybody(&self, body: &Json) -> Identity {
        let body = body.object(&["payload", "items"]).unwrap_or_default();
        let asked = match body.members.get("dataset").and_then(Value::as_str) {
            Some(name) => self.exports.dataset(name),
            None => self.exports.default_dataset(),
        };
        let anybody = || "anybody".to_owned();
        let scope = asked.and_then(|dataset| dataset.scope.as_ref());
        let role = scope.and_then(|scope| scope.security()?.role.as_ref());
        let claims = scope.into_iter().flat_map(RowScope::claims).map(|name| {
            let role = role.filter(|role| role.claim == name).and_then(|role| role.allowed.first());
            (name.to_owned(), Value::String(role.cloned().unwrap_or_else(anybody)))
        });
        let claims = claims.collect();
        Identity { subject: anybody(), department: Some(anybody()), claims, verified_at: clock::now() }
    }

    fn plan_for(&self, body: &Json, asker: &Asker<'_>) -> Result<NewJob, Vec<PlanProblem>> {
        api::plan(&self.exports, &self.registry, &self.storage, body, asker)
    }
}

impl Planner for RequestPlanner {
    fn plan(&self, body: &Json, owner: &str) -> Result<NewJob, Vec<PlanProblem>> {
        if self.auth.jwt().is_none() {
            return self.plan_for(body, &Asker::unknown(owner));
        }
        let Some(identity) = self.auth.identity_of(owner, clock::now()) else {
            let message = format!("would run as `{owner}`, which is none of [auth.identities]");
            return Err(vec![PlanProblem { pointer: String::new(), message }]);
        };
        // Whoever writes the configuration knows what its schedules need.
        self.plan_for(body, &Asker { owner, identity: Some(&identity), quota: None })
    }

    fn try_out(&self, body: &Json, owner: &str) -> Result<NewJob, Vec<PlanProblem>> {
        if self.auth.jwt().is_none() || owner != ANONYMOUS {
            return self.plan(body, owner);
        }
        self.plan_for(body, &Asker { owner, identity: Some(&self.anybody(body)), quota: None })
    }

    fn plan_as(&self, body: &Json, identity: &Identity) -> Result<NewJob, Vec<PlanProblem>> {
        let owner = identity.subject.as_str();
        // What the configuration says of its own identities counts as it stands there now.
        if self.auth.jwt().is_none() || auth::named(owner).is_some() {
            return self.plan(body, owner);
        }
        self.plan_for(body, &Asker { owner, identity: Some(identity), quota: self.quota })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tests::planner;
    use serde_json::json;

    fn pointers(body: Value) -> Vec<String> {
        let problems = planner().plan(&body.into(), "ann").unwrap_err();
        problems.into_iter().map(|problem| problem.pointer).collect()
    }

    #[test]
    fn bodies_become_the_jobs_that_a_client_would_have_submitted() {
        let export = json!({"items": [{"key": "ABC", "effectiveDates": ["20250215"]}], "priority": 7});
        let job = planner().plan(&export.into(), "ann").unwrap();
        assert_eq!((job.job_type.as_str(), job.dataset.as_deref()), (EXPORT, Some("positions")));
        assert_eq!((job.owner.as_str(), job.priority, job.chunks.len()), ("ann", 7, 1));
        assert!(job.base_path.is_some() && job.idempotency.is_none(), "a key is nobody's duty here");
        let custom = json!({"jobType": "ONCE", "payload": 5, "idempotencyKey": "k"});
        let job = planner().plan(&custom.into(), "ann").unwrap();
        assert_eq!((job.job_type.as_str(), job.unique_key.as_deref()), ("ONCE", Some("5")));
        assert_eq!(job.idempotency.unwrap().key, "k");
    }

    #[test]
    fn every_problem_is_pointed_at() {
        assert_eq!(pointers(json!([])), [""]);
        assert_eq!(pointers(json!({})), [""]);
        let wrong = json!({"jobType": "NOPE", "priority": 10, "Payload": 1});
        assert_eq!(pointers(wrong), ["/Payload", "/priority", "/jobType"]);
        let wrong = json!({"items": [{"key": "", "effectiveDates": ["20250230"]}], "dataset": "no"});
        let mut found = pointers(wrong);
        found.sort();
        assert_eq!(found, ["/dataset", "/items/0/effectiveDates/0", "/items/0/key"]);
    }

    #[test]
    fn where_callers_have_tokens_jobs_are_those_of_identities() {
        let keys = crate::auth::Keys::Secret(outhaul_core::secret::Secret::new("x"));
        let jwt = crate::auth::JwtSettings::new("i", vec!["a".into()], keys);
        let kent = crate::auth::NamedIdentity {
            department: Some("sales".into()),
            claims: [("county".to_owned(), json!("Kent"))].into(),
        };
        let auth = AuthSettings {
            mode: crate::auth::Mode::Jwt(Box::new(jwt)),
            identities: [("nightly".to_owned(), kent)].into(),
        };
        let planner = planner().with_auth(Arc::new(auth), Some(5));
        let body = json!({"items": [{"key": "ABC", "effectiveDates": ["20250215"]}]}).into();
        let job = planner.plan(&body, "identity:nightly").unwrap();
        let identity = job.identity.unwrap();
        assert_eq!((job.owner.as_str(), job.quota), ("identity:nightly", None));
        assert_eq!(
            (identity.department.as_deref(), &identity.claims["county"]),
            (Some("sales"), &json!("Kent"))
        );
        for owner in ["anonymous", "nightly", "identity:other", "ann"] {
            let problems = planner.plan(&body, owner).unwrap_err();
            assert!(problems[0].message.contains("[auth.identities]"), "{problems:?}");
        }
        assert!(planner.try_out(&body, "identity:other").is_err());
        assert!(planner.try_out(&body, ANONYMOUS).is_ok(), "whoever that will be");
        let ann = Identity { subject: "ann".into(), ..Identity::anonymous(chrono::DateTime::UNIX_EPOCH) };
        let job = planner.plan_as(&body, &ann).unwrap();
        assert_eq!((job.owner.as_str(), job.identity.as_ref(), job.quota), ("ann", Some(&ann), Some(5)));
        // An identity of the configuration is what it is there now, and gone when it is gone there.
        let was = Identity { subject: "identity:nightly".into(), ..ann.clone() };
        assert_eq!(planner.plan_as(&body, &was).unwrap().identity.unwrap().claims["county"], "Kent");
        let gone = Identity { subject: "identity:gone".into(), ..ann.clone() };
        assert!(planner.plan_as(&body, &gone).is_err());
        let open = crate::api::tests::planner().plan_as(&body, &ann).unwrap();
        assert_eq!((open.owner.as_str(), open.identity, open.quota), ("ann", None, None));
    }

    #[test]
    fn terms_are_datasets_and_custom_job_types() {
        let terms: Vec<String> = planner().terms().into_iter().collect();
        assert_eq!(terms, ["dataset:positions", "job:ONCE", "job:SEND_EMAIL"]);
    }
}
