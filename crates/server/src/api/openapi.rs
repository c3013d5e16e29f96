//! The API's own description. Made from the handlers, so it cannot name a route that is not there;
//! what every call may answer is added here once.

use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};

use super::problem::{PROBLEM_JSON, ProblemBody};
use crate::auth::{PROBED, is_open};

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

/// Adds what every call may answer, the version that runs, and whether callers need `tokens`.
pub(super) fn complete(mut api: utoipa::openapi::OpenApi, tokens: bool) -> utoipa::openapi::OpenApi {
    api.info.version = env!("CARGO_PKG_VERSION").to_owned();
    if tokens {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("JWT")
            .description(Some("A token of the configured issuer"))
            .build();
        let components = api.components.get_or_insert_default();
        components.add_security_scheme(BEARER, SecurityScheme::Http(bearer));
    }
    for (route, item) in &mut api.paths.paths {
        for (changes, operation) in operations(item) {
            if tokens && !is_open(route) {
                operation.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>(BEARER, [])]);
            }
            let mut add = |status: &str, description: &str| {
                operation
                    .responses
                    .responses
                    .entry(status.to_owned())
                    .or_insert_with(|| problem(description));
            };
            if tokens && !is_open(route) {
                add("401", "There is no token, or not a good one; `WWW-Authenticate` says what is wrong");
            }
            if !tokens && route != PROBED {
                add("421", "A server without tokens on this machine alone answers to local names only");
            }
            if !is_open(route) {
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

#[cfg(test)]
mod tests {
    use super::super::described;
    use super::*;

    #[test]
    fn tokens_are_described_where_they_are_asked_for() {
        for tokens in [true, false] {
            let (_, api) = described().split_for_parts();
            let api = serde_json::to_value(complete(api, tokens)).unwrap();
            let list = &api["paths"]["/jobs"]["get"];
            assert_eq!(list["security"].is_array(), tokens);
            assert_eq!(list["responses"]["401"].is_object(), tokens);
            assert_eq!(list["responses"]["421"].is_object(), !tokens);
            assert_eq!(api["paths"]["/metrics"]["get"]["responses"]["421"].is_object(), !tokens);
            assert!(api["paths"]["/healthz"]["get"]["responses"]["421"].is_null());
            assert!(api["paths"]["/healthz"]["get"]["security"].is_null());
            assert_eq!(api["components"]["securitySchemes"].is_object(), tokens);
        }
    }
}
