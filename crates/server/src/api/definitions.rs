//! What `PUT /schedules/{name}` and `PUT /triggers/{name}` have in common: the name and the body are judged
//! together, and the answer says whether it is new.

use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use outhaul::PlanProblem;
use outhaul_core::json::{Json, Object};
use outhaul_core::schedule::Put;
use serde::Serialize;

use super::AppState;
use super::json::no_object;
use super::path::NewName;
use super::problem::{FieldError, Problem};
use crate::auth::AuthSettings;
use crate::definition::Judge;

/// Reads one kind of definition.
pub(super) type Read<T> = fn(&Object, &Judge<'_>, &AuthSettings) -> Result<T, Vec<PlanProblem>>;

/// Judges a name and the definition sent for it.
pub(super) fn judge<T>(
    state: &AppState,
    NewName(name): NewName,
    sent: &Json,
    read: Read<T>,
) -> Result<(String, T), Problem> {
    let read = match sent.object(&["job"]) {
        Some(definition) => read(&definition, &state.judge(), &state.auth).map_err(field_errors),
        None => Err(vec![no_object(sent)]),
    };
    match (name, read) {
        (Ok(name), Ok(read)) => Ok((name, read)),
        (name, read) => {
            Err(Problem::invalid(name.err().into_iter().chain(read.err().into_iter().flatten()).collect()))
        }
    }
}

/// What is wrong with a definition or with a job of it, for clients.
pub(super) fn field_errors(problems: Vec<PlanProblem>) -> Vec<FieldError> {
    problems.into_iter().map(|problem| FieldError::new(problem.pointer, problem.message)).collect()
}

/// 201 for a new one, 200 for one that was there.
pub(super) fn stored(put: Put, location: &str, view: impl Serialize) -> Response {
    let location = HeaderValue::from_str(location).expect("a name is plain text");
    match put {
        Put::Created => (StatusCode::CREATED, [(LOCATION, location)], axum::Json(view)).into_response(),
        Put::Replaced | Put::ReadOnly => axum::Json(view).into_response(),
    }
}

/// 409 for what the API may not change.
pub(super) fn read_only(noun: &str) -> Problem {
    Problem::conflict(format!("this {noun} stands in the configuration, and can only be changed there"))
}

/// 409 for what was changed or deleted while the call ran.
pub(super) fn gone(noun: &str) -> Problem {
    Problem::conflict(format!("the {noun} was deleted meanwhile"))
}
