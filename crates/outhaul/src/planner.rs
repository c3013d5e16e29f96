//! The port through which schedules and triggers make jobs: a `POST /jobs` body becomes the job that the
//! API would have stored for it. The server implements it, because it knows datasets and storage.

use outhaul_core::identity::Identity;
use outhaul_core::job::NewJob;
use outhaul_core::json::Json;

/// One thing that is wrong with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanProblem {
    /// Where, as a JSON pointer into the body.
    pub pointer: String,
    /// What is wrong, for people.
    pub message: String,
}

/// Makes jobs of request bodies.
pub trait Planner: Send + Sync {
    /// The job that the body asks for, owned by `owner`; or everything that is wrong with it, never nothing.
    /// Stores nothing.
    fn plan(&self, body: &Json, owner: &str) -> Result<NewJob, Vec<PlanProblem>>;

    /// The same where it is only tried out whether there could be such a job; its owner may be nobody yet.
    fn try_out(&self, body: &Json, owner: &str) -> Result<NewJob, Vec<PlanProblem>> {
        self.plan(body, owner)
    }

    /// The same for whoever submitted the job that led to this one, with what was kept of them then. Where
    /// callers cannot be told apart, that is their name.
    fn plan_as(&self, body: &Json, identity: &Identity) -> Result<NewJob, Vec<PlanProblem>> {
        self.plan(body, &identity.subject)
    }
}

/// The most characters of a recorded refusal.
const MAX_REFUSAL: usize = 500;

/// Why no job could be made, in one sentence of bounded length.
pub(crate) fn refusal(problems: &[PlanProblem]) -> String {
    let all: Vec<String> = problems
        .iter()
        .map(|PlanProblem { pointer, message }| match pointer.as_str() {
            "" => message.clone(),
            pointer => format!("{pointer} {message}"),
        })
        .collect();
    let sentence = format!("no job could be made: {}", all.join("; "));
    match sentence.char_indices().nth(MAX_REFUSAL) {
        Some((end, _)) => format!("{}…", &sentence[..end]),
        None => sentence,
    }
}

#[cfg(test)]
pub(crate) mod fixture;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_sentence_of_bounded_length() {
        let problem =
            |pointer: &str, message: &str| PlanProblem { pointer: pointer.into(), message: message.into() };
        let two = [problem("/dataset", "is unknown"), problem("", "is no object")];
        assert_eq!(refusal(&two), "no job could be made: /dataset is unknown; is no object");
        let long = refusal(&[problem("/x", &"ä".repeat(10_000))]);
        assert_eq!(long.chars().count(), MAX_REFUSAL + 1);
    }
}
