//! `/openapi.json` and `/docs`. The page needs nothing from elsewhere, and its script is a file of
//! ours, so that no inline script has to be allowed.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use swagger_ui_dist::{ApiDefinition, OpenApiSource, generate_routes};
use tower::ServiceExt as _;

use super::problem::Problem;
use super::problem::described::NotFound;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
    img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

const PAGE: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Outhaul API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"#;

const START: &str =
    "window.ui = SwaggerUIBundle({ url: '/openapi.json', dom_id: '#swagger-ui', validatorUrl: null });\n";

/// A page to browse the API with.
#[utoipa::path(
    get, path = "/docs", tag = "description", operation_id = "docs",
    responses((status = 200, description = "The page", content_type = "text/html", body = String))
)]
pub(super) async fn page() -> Response {
    text("text/html; charset=utf-8", PAGE)
}

/// The files that the page loads.
#[utoipa::path(
    get, path = "/docs/{name}", tag = "description", operation_id = "docsAsset",
    params(("name" = String, Path, description = "The file", example = "swagger-ui.css")),
    responses(
        (status = 200, description = "The file", content(
            (String = "text/javascript"), (String = "text/css"),
        )),
        NotFound,
    )
)]
pub(super) async fn asset(name: Result<Path<String>, PathRejection>) -> Response {
    let name = name.map(|Path(name)| name).unwrap_or_default();
    match name.as_str() {
        "start.js" => text("text/javascript; charset=utf-8", START),
        "swagger-ui.css" | "swagger-ui-bundle.js" => bundled(&name).await,
        _ => Problem::not_found("there is nothing here").into_response(),
    }
}

/// Describes the API.
#[utoipa::path(
    get, path = "/openapi.json", tag = "description", operation_id = "openapi",
    responses((status = 200, description = "OpenAPI 3.1", body = Object))
)]
pub(super) async fn openapi(Extension(Description(description)): Extension<Description>) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], description.to_string()).into_response()
}

/// The description, written out once.
#[derive(Clone)]
pub(super) struct Description(pub Arc<str>);

fn text(media_type: &'static str, body: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    ];
    (StatusCode::OK, headers, body).into_response()
}

/// The crate offers its files only through routes of its own; its index page, which repeats the
/// request's address unescaped, is not among those we pass on.
async fn bundled(name: &str) -> Response {
    let routes = generate_routes(ApiDefinition {
        uri_prefix: "/docs",
        api_definition: OpenApiSource::Uri("/openapi.json"),
        title: None,
    });
    let Ok(request) = Request::get(format!("/docs/{name}")).body(Body::empty()) else {
        return Problem::internal().into_response();
    };
    let mut response = routes.oneshot(request).await.into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}
