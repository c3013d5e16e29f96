//! The API's own description. Made from the handlers, so it cannot name a route that is not there;
//! what every call may answer is added here once.

use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};

use super::problem::{PROBLEM_JSON, ProblemBody};

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
    for item in api.paths.paths.values_mut() {
        for (changes, operation) in operations(item) {
            let mut add = |status: &str, description: &str| {
                operation
                    .responses
                    .responses
                    .entry(status.to_owned())
                    .or_insert_with(|| problem(description));
            };
            if changes {
                add("403", "A page of another site may not do this");
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
