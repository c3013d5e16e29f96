//! The client side of the HTTP API: one place that speaks it, and turns refusals into words.

use std::fmt;
use std::time::Duration;

use clap::Args;
use reqwest::header::{AUTHORIZATION, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::bearer::{Bearer, BearerFlags};
use super::failure::{Failure, with_causes};

/// How long an answer in JSON may take; the server itself gives up earlier.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a connection may take: longer than a server that is full of idle ones needs to let another in.
const CONNECT: Duration = Duration::from_secs(40);
/// How long a download, or a stream of events, may send nothing.
const SILENCE: Duration = Duration::from_secs(60);

/// Where the server is and how to print what it says; shared by all client commands.
#[derive(Args, Clone, Debug)]
pub(crate) struct Target {
    /// The server's address.
    #[arg(
        long,
        env = "OUTHAUL_SERVER",
        // It may hold a password.
        hide_env_values = true,
        default_value = "http://127.0.0.1:8080",
        value_name = "URL"
    )]
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) bearer: BearerFlags,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Target {
    /// A client of this server.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Client::new(&self.server)?.with_bearer(self.bearer.find()?)
    }
}

/// One server.
pub(crate) struct Client {
    /// With the user and the password that may be in it: never to be shown.
    base: String,
    shown: String,
    bearer: Option<Bearer>,
    http: reqwest::Client,
}

/// Why a call did not succeed.
#[derive(Debug)]
pub(crate) enum ClientError {
    /// No answer came.
    Unreachable {
        /// Whom we asked.
        server: String,
        /// What happened.
        cause: String,
    },
    /// The server refused.
    Refused(Refusal),
}

/// A refusal as the server words it (RFC 9457).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Refusal {
    /// The HTTP status.
    pub(crate) status: u16,
    title: String,
    detail: Option<String>,
    errors: Vec<FieldError>,
    #[serde(skip)]
    had_token: bool,
    /// Seconds to wait, where the server says so.
    #[serde(skip)]
    retry_after: Option<u64>,
}

impl Refusal {
    /// What a person can do about it.
    fn advice(&self) -> Option<String> {
        let advice = match (self.status, self.had_token) {
            (401, false) => {
                "Send a token: --token-file FILE or OUTHAUL_TOKEN; `outhaul token` makes one for development."
            }
            (401, true) => {
                "The token that was sent is no good there: get a new one where you got it, or from `outhaul token`."
            }
            (403, true) => {
                "The token is good, and does not allow this: another role or another claim is needed, see [auth]."
            }
            (429, _) => {
                let wait = self.retry_after.map_or("a while".to_owned(), |seconds| format!("{seconds} s"));
                return Some(format!(
                    "You asked for more than [limits] lets one caller have: try again in {wait}."
                ));
            }
            _ => return None,
        };
        Some(advice.to_owned())
    }
}

#[derive(Debug, Deserialize)]
struct FieldError {
    #[serde(default)]
    pointer: String,
    message: String,
}

impl ClientError {
    /// Whether asking again soon may help.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused(refusal) => matches!(refusal.status, 429 | 502..=504),
        }
    }

    /// The status of a refusal.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Unreachable { .. } => None,
            Self::Refused(refusal) => Some(refusal.status),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { server, cause } => {
                write!(
                    f,
                    "no answer from {server}: {cause}\n  Is `outhaul serve` running there? See --server."
                )
            }
            Self::Refused(refusal) => {
                write!(f, "{} ({})", super::table::plain(&refusal.title), refusal.status)?;
                if let Some(detail) = &refusal.detail {
                    write!(f, "\n  {}", super::table::plain(detail))?;
                }
                // A single problem is often the detail itself.
                let said = refusal.detail.as_deref().unwrap_or_default();
                let errors = refusal.errors.iter().filter(|error| !said.contains(&error.message));
                for error in errors {
                    let message = super::table::plain(&error.message);
                    if error.pointer.is_empty() {
                        write!(f, "\n  {message}")?;
                    } else {
                        write!(f, "\n  {}: {message}", super::table::plain(&error.pointer))?;
                    }
                }
                refusal.advice().map_or(Ok(()), |advice| write!(f, "\n  {advice}"))
            }
        }
    }
}

impl Client {
    /// A client of the server at this address.
    pub(crate) fn new(server: &str) -> Result<Self, Failure> {
        let url = Url::parse(server)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some())
            .ok_or_else(|| {
                let shown = without_user(server);
                Failure::new(format!("`{shown}` is not a server's address; write http://host:port"))
            })?;
        let builder = || {
            let builder = reqwest::Client::builder()
                .user_agent(concat!("outhaul/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(CONNECT)
                .read_timeout(SILENCE);
            // A proxy is for the world outside, never for this machine.
            if is_loopback(&url) { builder.no_proxy() } else { builder }
        };
        // A machine without root certificates can still talk to itself.
        let http = builder().build().or_else(|_| builder().tls_certs_only([]).build());
        let http = http.map_err(|error| Failure::new(with_causes(&error)))?;
        let base = url.as_str().trim_end_matches('/').to_owned();
        let shown = without_user(&base);
        Ok(Self { base, shown, bearer: None, http })
    }

    /// The same client, with a token that it sends to that server and to no other.
    pub(crate) fn with_bearer(mut self, bearer: Option<Bearer>) -> Result<Self, Failure> {
        let has_user = |url: Url| !url.username().is_empty() || url.password().is_some();
        if bearer.is_some() && Url::parse(&self.base).is_ok_and(has_user) {
            let message = "there is a token, and a user in the server's address too; one of them must do";
            return Err(Failure::new(message));
        }
        self.bearer = bearer;
        Ok(self)
    }

    /// The server's address, as it may be shown.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Asks for JSON.
    pub(crate) async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, ClientError> {
        self.json(self.request(Method::GET, path, query)).await
    }

    /// Asks for something to be done.
    pub(crate) async fn post(
        &self,
        path: &str,
        query: &[(&str, String)],
        idempotency_key: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let mut request = self.request(Method::POST, path, query);
        if let Some(key) = idempotency_key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        self.json(request).await
    }

    /// Asks for something to be as the body says.
    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.json(self.request(Method::PUT, path, &[]).json(body)).await
    }

    /// Asks for something to be gone.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, path, &[]).timeout(PATIENCE)).await.map(drop)
    }

    /// Asks for a file's bytes; `path` is what the manifest calls `url`.
    pub(crate) async fn download(&self, path: &str) -> Result<Response, ClientError> {
        self.send(self.request(Method::GET, path, &[])).await
    }

    /// Asks for a stream of events; `last_id` is the last one that was seen.
    pub(crate) async fn events(&self, path: &str, last_id: Option<&str>) -> Result<Response, ClientError> {
        let mut request = self.request(Method::GET, path, &[]).header("Accept", "text/event-stream");
        if let Some(id) = last_id {
            request = request.header("Last-Event-ID", id);
        }
        self.send(request).await
    }

    /// What a stream that ended too early means.
    pub(crate) fn broken_off(&self) -> ClientError {
        ClientError::Unreachable { server: self.shown.clone(), cause: "the connection broke off".to_owned() }
    }

    /// All items of a list, page by page.
    pub(crate) async fn all(
        &self,
        path: &str,
        filters: &[(&str, String)],
    ) -> Result<Vec<Value>, ClientError> {
        let mut items = Vec::new();
        let mut query = vec![("limit", "200".to_owned())];
        query.extend_from_slice(filters);
        loop {
            let mut page = self.get(path, &query).await?;
            if let Some(Value::Array(found)) = page.get_mut("items").map(Value::take) {
                items.extend(found);
            }
            match page.get("nextCursor").and_then(Value::as_str) {
                None => return Ok(items),
                Some(cursor) => {
                    query.truncate(1 + filters.len());
                    query.push(("cursor", cursor.to_owned()));
                }
            }
        }
    }

    fn request(&self, method: Method, path: &str, query: &[(&str, String)]) -> RequestBuilder {
        let absolute = path.starts_with("http://") || path.starts_with("https://");
        let mut address = if absolute { path.to_owned() } else { format!("{}{path}", self.base) };
        for (i, (name, value)) in query.iter().enumerate() {
            let value: String = url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
            address.push_str(if i == 0 { "?" } else { "&" });
            address.push_str(&format!("{name}={value}"));
        }
        let request = self.http.request(method, &address);
        match &self.bearer {
            Some(bearer) if self.is_ours(&address) => request.header(AUTHORIZATION, bearer.header()),
            _ => request,
        }
    }

    /// Whether an address is the server's; what is elsewhere, such as a file, gets no token.
    fn is_ours(&self, address: &str) -> bool {
        match (Url::parse(address), Url::parse(&self.base)) {
            (Ok(address), Ok(base)) => address.origin() == base.origin(),
            _ => false,
        }
    }

    async fn json(&self, request: RequestBuilder) -> Result<Value, ClientError> {
        let response = self.send(request.timeout(PATIENCE)).await?;
        response.json().await.map_err(|error| self.unreachable(&error))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|seconds| seconds.to_str().ok()?.trim().parse().ok());
        let body = response.text().await.unwrap_or_default();
        let body = self.bearer.as_ref().map_or(body.clone(), |bearer| bearer.hide(&body));
        let mut refusal: Refusal = serde_json::from_str(&body).unwrap_or_default();
        refusal.status = status.as_u16();
        (refusal.had_token, refusal.retry_after) = (self.bearer.is_some(), retry_after);
        if refusal.title.is_empty() {
            refusal.title = title(status);
        }
        Err(ClientError::Refused(refusal))
    }

    fn unreachable(&self, error: &reqwest::Error) -> ClientError {
        // The innermost cause says it best, and holds no presigned address.
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let cause = if cause.source().is_none() && std::ptr::addr_eq(cause, error) {
            if error.is_timeout() {
                "it took too long".to_owned()
            } else {
                "the connection failed".to_owned()
            }
        } else {
            cause.to_string()
        };
        ClientError::Unreachable { server: self.shown.clone(), cause }
    }
}

fn title(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or("The server refused").to_owned()
}

/// An address without the user and the password that may be in it, whether it makes sense or not.
fn without_user(address: &str) -> String {
    if let Ok(mut url) = Url::parse(address)
        && url.host_str().is_some_and(|host| !host.is_empty())
        && url.set_username("").is_ok()
        && url.set_password(None).is_ok()
    {
        return url.as_str().trim_end_matches('/').to_owned();
    }
    let Some((before, rest)) = address.rsplit_once('@') else { return address.to_owned() };
    let scheme = before.find("://").map_or("", |end| &before[..end + 3]);
    format!("{scheme}{rest}")
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// An id as it may stand in a path; what cannot be an id is refused before it travels.
pub(crate) fn job_path(job_id: &str, rest: &str) -> Result<String, Failure> {
    match outhaul_core::id::JobId::parse(job_id) {
        Some(id) => Ok(format!("/jobs/{id}{rest}")),
        None => Err(Failure::new(format!(
            "`{}` is not a job id, such as J20260102_0123456789ABC; see `outhaul jobs`",
            super::table::plain(job_id)
        ))),
    }
}

/// The path of a schedule or a trigger; what cannot be a name is refused before it travels.
pub(crate) fn named_path(section: &str, name: &str, rest: &str) -> Result<String, Failure> {
    match crate::definition::check_name(name) {
        Ok(()) => Ok(format!("/{section}/{name}{rest}")),
        Err(problem) => Err(Failure::new(format!("`{}` is no name: {problem}", super::table::plain(name)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever answers is not trusted with the terminal.
    #[test]
    fn nothing_of_a_refusal_moves_the_cursor_or_turns_text_round() {
        let hostile = "\u{1b}]0;owned\u{7}\u{202e}x";
        let errors = vec![FieldError { pointer: hostile.into(), message: format!("m{hostile}") }];
        let refusal = Refusal {
            status: 404,
            title: hostile.into(),
            detail: Some(format!("d{hostile}")),
            errors,
            had_token: false,
            retry_after: None,
        };
        let said = ClientError::Refused(refusal).to_string();
        assert!(!said.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{said:?}");
        assert_eq!(said.matches("owned").count(), 4, "{said:?}");
    }

    #[test]
    fn passwords_in_addresses_are_not_shown() {
        for (address, shown) in [
            ("http://ann:hunter2@host:8080/x/", "http://host:8080/x"),
            ("http://ann@host", "http://host"),
            ("https://host/a@b", "https://host/a@b"),
            ("ftp://ann:hunter2@host", "ftp://host"),
            ("http://ann:hunter2/x@host", "http://host"),
            ("http://ann:hunter2@", "http://"),
            ("ann:hunter2@host:8080", "host:8080"),
            ("host", "host"),
        ] {
            assert_eq!(without_user(address), shown);
        }
    }

    #[tokio::test]
    async fn errors_name_the_server_without_its_password() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = taken.local_addr().unwrap();
        drop(taken);
        let client = Client::new(&format!("http://ann:hunter2@{addr}")).unwrap();
        let said = client.get("/jobs", &[]).await.unwrap_err();
        assert!(said.to_string().starts_with(&format!("no answer from http://{addr}: ")), "{said}");
        assert!(!format!("{said} {said:?} {}", client.shown()).contains("hunter2"));
        let Err(both) = client.with_bearer(Bearer::new("hunter2")) else {
            panic!("one of them would be lost")
        };
        assert!(both.to_string().contains("one of them") && !both.to_string().contains("hunter2"));
        for address in ["ftp://ann:hunter2@host", "ann:hunter2@host", "http://ann:hunter2/x@host"] {
            let Err(failure) = Client::new(address) else { panic!("{address} is no address") };
            assert!(!failure.to_string().contains("hunter2"), "{failure}");
        }
    }

    /// Answers with the path's status, with what it was sent as the detail; `/elsewhere` leads to `other`.
    async fn echo(other: Option<String>) -> String {
        use axum::response::IntoResponse as _;
        let answer = move |uri: axum::http::Uri, headers: axum::http::HeaderMap| {
            let other = other.clone();
            async move {
                let sent = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
                let status = uri.path().trim_start_matches('/').parse().unwrap_or(200);
                match other.filter(|_| uri.path() == "/elsewhere") {
                    Some(other) => axum::response::Redirect::temporary(&other).into_response(),
                    None => {
                        let status = StatusCode::from_u16(status).unwrap();
                        let body = axum::Json(serde_json::json!({ "title": "No", "detail": sent }));
                        (status, [("retry-after", "7")], body).into_response()
                    }
                }
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let router = axum::Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    #[tokio::test]
    async fn a_token_goes_to_the_server_and_nowhere_else() {
        let other = echo(None).await;
        let server = echo(Some(format!("{other}/file"))).await;
        let client = Client::new(&server).unwrap().with_bearer(Bearer::new("hunter2")).unwrap();
        let sent = async |path: &str| client.get(path, &[]).await.unwrap()["detail"].clone();
        assert_eq!(sent("/jobs").await, "Bearer hunter2");
        assert_eq!(sent("/elsewhere").await, Value::Null, "a presigned address is its own key");
        assert_eq!(sent(&format!("{other}/file")).await, Value::Null);
        let nobody = Client::new(&server).unwrap();
        assert_eq!(nobody.get("/jobs", &[]).await.unwrap()["detail"], Value::Null);
    }

    #[tokio::test]
    async fn refusals_say_what_to_do_and_never_the_token() {
        let server = echo(None).await;
        let with = Client::new(&server).unwrap().with_bearer(Bearer::new("hunter2")).unwrap();
        let without = Client::new(&server).unwrap();
        for (client, path, advice) in [
            (&with, "/401", "The token that was sent is no good there"),
            (&without, "/401", "Send a token: --token-file FILE or OUTHAUL_TOKEN"),
            (&with, "/403", "another role or another claim is needed"),
            (&with, "/429", "try again in 7 s."),
            (&without, "/429", "try again in 7 s."),
        ] {
            let error = client.get(path, &[]).await.unwrap_err();
            let said = format!("{error} {error:?}");
            assert!(said.contains(advice), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
        let plain = without.get("/403", &[]).await.unwrap_err().to_string();
        assert_eq!(plain, "No (403)", "nothing to say about tokens where there is none");
    }
}
