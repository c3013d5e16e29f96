//! Who a schedule or a trigger runs as: an identity that the configuration names, for there is no token
//! when they are due. Their jobs are that identity's, and see the rows that it may see.

use outhaul::PlanProblem;
use outhaul_core::clock;
use outhaul_core::identity::ANONYMOUS;
use outhaul_core::json::Object;
use serde_json::Value;

use super::members::text;
use crate::auth::AuthSettings;

const NAME: &str = "runAs";
/// How the configuration spells it, which is taken everywhere.
const SPELLED: &str = "run_as";

/// Whether a definition must name an identity where callers need tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// A schedule: there is nobody else whose its jobs could be.
    Yes,
    /// A trigger: without one its jobs are those of whoever owns all of its parents.
    No,
}

/// Reads who a definition runs as, and with `read` the rest of it. The owner is that of its jobs.
pub(super) fn with_owner<T>(
    definition: &Object,
    auth: &AuthSettings,
    need: Need,
    read: impl FnOnce(&Object, &str) -> Result<T, Vec<PlanProblem>>,
) -> Result<(T, String), Vec<PlanProblem>> {
    let mut rest = definition.clone();
    let owner = match (rest.members.remove(NAME), rest.members.remove(SPELLED)) {
        (Some(_), Some(_)) => Err(format!("is there twice: `{SPELLED}` is another spelling of it")),
        (given, spelled) => owner(given.or(spelled).as_ref(), auth, need),
    };
    let owner = owner.map_err(|message| PlanProblem { pointer: format!("/{NAME}"), message });
    // The job is judged all the same, so that everything wrong is told at once.
    let read = read(&rest, owner.as_deref().unwrap_or(ANONYMOUS));
    match (read, owner) {
        (Ok(read), Ok(owner)) => Ok((read, owner)),
        (read, owner) => Err(owner.err().into_iter().chain(read.err().into_iter().flatten()).collect()),
    }
}

fn owner(given: Option<&Value>, auth: &AuthSettings, need: Need) -> Result<String, String> {
    match given.filter(|given| !given.is_null()) {
        None if auth.jwt().is_some() && need == Need::Yes => {
            Err(format!("is required, for callers need tokens here; {}", known(auth)))
        }
        None => Ok(ANONYMOUS.to_owned()),
        Some(name) => {
            let identity = auth.identity(text(name)?, clock::now());
            identity
                .map(|identity| identity.subject)
                .ok_or_else(|| format!("is no identity; {}", known(auth)))
        }
    }
}

fn known(auth: &AuthSettings) -> String {
    let names: Vec<&str> = auth.identities.keys().map(String::as_str).collect();
    if names.is_empty() {
        return "name one that [auth.identities.NAME] makes, of which there are none".to_owned();
    }
    format!("there are: {}", names.join(", "))
}
