//! The API's own description. Made from the handlers, so it cannot name a route that is not there;
//! what every call may answer is added here once.

use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};

use super::problem::{PROBLEM_JSON, ProblemBody};
use crate::auth::is_open;

/// What the description calls the tokens.
const BEARER: &str = "bearer";

/// Title, words and tags.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Outhaul",
        description = "Moves large results out of databases, and runs jobs of any other type: submit a job, \
            watch it, fetch its files. Errors are RFC 9457 problem details.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    tags(
        (name = "jobs", description = "Submit work and watch it"),
        (name = "schedules", description = "Jobs that are submitted again and again"),
        (name = "triggers", description = "Jobs that are submitted when others have completed"),
        (name = "files", description = "What jobs produced"),
        (name = "operations", description = "What is configured, who is working, and how it is going"),
        (name = "description", description = "This description")
    ),
    components(schemas(ProblemBody))
)]
pub(super) struct Description;

/// Adds what every call may answer, and the version that runs.
pub(super) fn complete(mut api: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
    api.info.version = env!("CARGO_PKG_VERSION").to_owned();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .description(Some("A token of the configured issuer; not asked for where `auth.mode` is `none`"))
        .build();
    let components = api.components.get_or_insert_default();
    components.add_security_scheme(BEARER, SecurityScheme::Http(bearer));
    for (route, item) in &mut api.paths.paths {
        for (changes, operation) in operations(item) {
            if !is_open(route) {
                operation.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>(BEARER, [])]);
            }
            let mut add = |status: &str, description: &str| {
                operation
                    .responses
                    .responses
                    .entry(status.to_owned())
                    .or_insert_with(|| problem(description));
            };
            if !is_open(route) {
                add("401", "There is no token, or not a good one; `WWW-Authenticate` says what is wrong");
                add("429", "Too many requests of this caller; `Retry-After` says when to come back");
            }
            match (is_open(route), changes) {
                (false, true) => add("403", "The caller may not do this, nor may a page of another site"),
                (false, false) => add("403", "The caller may not do this"),
                (true, true) => add("403", "A page of another site may not do this"),
                (true, false) => {}
            }
            add("500", "Something went wrong here; the log has the details");
            add("503", "Something that is needed is not available now; `Retry-After` says when to come back");
        }
    }
    api
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (bool, &mut Operation)> {
    let read = item.get.iter_mut().map(|operation| (false, operation));
    let written = [&mut item.post, &mut item.put, &mut item.delete, &mut item.patch];
    read.chain(written.into_iter().flatten().map(|operation| (true, operation)))
}

fn problem(description: &str) -> RefOr<utoipa::openapi::Response> {
    let schema = Ref::from_schema_name("ProblemBody");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new().description(description).content(PROBLEM_JSON, content).build().into()
}
