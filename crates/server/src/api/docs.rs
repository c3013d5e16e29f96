//! `/openapi.json` and `/docs`. The page needs nothing from elsewhere, and its script is a file of
//! ours, so that no inline script has to be allowed.

use axum::body::Body;
use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use swagger_ui_dist::{ApiDefinition, OpenApiSource, generate_routes};
use tower::ServiceExt as _;

use super::problem::Problem;

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

const START: &str = "window.ui = SwaggerUIBundle({ url: '/openapi.json', dom_id: '#swagger-ui', validatorUrl: null });\n";

/// The page.
pub async fn page() -> Response {
    html("text/html; charset=utf-8", PAGE)
}

/// The files that the page loads.
pub async fn asset(Path(name): Path<String>) -> Response {
    match name.as_str() {
        "start.js" => html("text/javascript; charset=utf-8", START),
        "swagger-ui.css" | "swagger-ui-bundle.js" => bundled(&name).await,
        _ => Problem::not_found("there is nothing here").into_response(),
    }
}

fn html(media_type: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    ];
    (StatusCode::OK, headers, text).into_response()
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
