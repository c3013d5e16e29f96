//! The API over HTTP against a server in this process, everything embedded: what clients and tools
//! rely on beside the jobs themselves (tags, ranges, replaced files, pauses, the description). What they
//! see of custom jobs is in `custom`, what they see while a job runs in `events`, and what submits jobs by
//! itself in `schedules` and `triggers`, on the command line in `schedules_cli`.

#![expect(clippy::unwrap_used, reason = "in a test, what is missing is a failure")]

mod custom;
mod events;
mod schedules;
mod schedules_cli;
mod triggers;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use custom::World;
use outhaul_server::config::{Config, Environment, Load};
use outhaul_server::roles::Roles;
use outhaul_server::serve::{self, Running};
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use sqlx::Connection as _;
use tempfile::TempDir;

const CONFIG: &str = r#"
data_dir = "data"

[server]
listen = "127.0.0.1:0"

[worker]
poll_interval = "50ms"

[sources.warehouse]
url = "sqlite:warehouse.db"
max_concurrent = 2

[datasets.positions]
default = true
source = "warehouse"
query = "select * from positions where key = :key and day = :effective_date"
"#;

/// Looks, 50 milliseconds apart, that take longer than anything here on a slow machine.
const LOOKS: u32 = 12_000;
const OLD: &str = "20250215";
const HEADER_AND_ROW: &[u8] = b"key,day,amount\nABC,2025-02-15,1\n";

struct Server {
    running: Option<Running>,
    base: String,
    http: Client,
    folder: TempDir,
    world: Arc<World>,
}

impl Server {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        make_source(&folder.path().join("warehouse.db")).await;
        Self::start_in(folder, 0).await
    }

    /// Starts on a port on which it can come back: below those that the system hands out, so that nobody has it
    /// by chance meanwhile.
    async fn start_to_come_back() -> Self {
        let folder = tempfile::tempdir().unwrap();
        make_source(&folder.path().join("warehouse.db")).await;
        let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let mut ports = std::iter::repeat_with(|| rand::random_range(12_000..32_000));
        Self::start_in(folder, ports.find(is_free).unwrap()).await
    }

    /// Starts with more in the configuration.
    async fn start_with(sections: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        make_source(&folder.path().join("warehouse.db")).await;
        Self::start_on(folder, 0, &format!("{CONFIG}{sections}")).await
    }

    /// Starts on what an earlier server left in its folder.
    async fn start_in(folder: TempDir, port: u16) -> Self {
        Self::start_on(folder, port, CONFIG).await
    }

    async fn start_on(folder: TempDir, port: u16, config: &str) -> Self {
        let load = Load { file: None, insecure: false, environment: Environment::default() };
        let mut config =
            Config::parse(config, folder.path(), &load).unwrap_or_else(|wrong| panic!("{wrong}"));
        config.listen.set_port(port);
        let world = Arc::new(World::default());
        let running = serve::start(config, Roles::ALL, custom::registry(&world)).await.unwrap();
        let base = format!("http://{}", running.addr().unwrap());
        let http = Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { running: Some(running), base, http, folder, world }
    }

    async fn stop(self) {
        drop(self.stop_and_keep().await);
    }

    /// Stops; what it left is in the folder.
    async fn stop_and_keep(mut self) -> TempDir {
        self.running.take().unwrap().stop().await;
        self.folder
    }

    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    async fn get(&self, path: &str) -> Response {
        self.ask(Method::GET, path, &[]).await
    }

    async fn json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status(), 200, "{path}");
        answer.json().await.unwrap()
    }

    async fn submit(&self, body: &Value) -> Value {
        let answer = self.http.post(format!("{}/jobs", self.base)).json(body).send().await.unwrap();
        assert_eq!(answer.status(), 202);
        answer.json().await.unwrap()
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.http.post(format!("{}{path}", self.base)).json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.http.put(format!("{}{path}", self.base)).json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    /// Calls without a body; the answer's status and what it says.
    async fn act(&self, method: Method, path: &str) -> (u16, Value) {
        let answer = self.ask(method, path, &[]).await;
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default())
    }

    /// Submits and waits for the end; the job's path.
    async fn complete(&self, body: &Value) -> String {
        let path = path_of(&self.submit(body).await);
        self.until(&path, |job| job["status"] == "COMPLETED").await;
        path
    }

    /// Looks at a job until it is so, and settled where it has ended.
    async fn until(&self, path: &str, so: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..LOOKS {
            let job = self.json(path).await;
            let ended = ["COMPLETED", "FAILED", "CANCELLED"].contains(&job["status"].as_str().unwrap());
            if so(&job) && (!ended || !job["completedAt"].is_null()) {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{}", self.json(path).await);
    }

    /// Items of a list, page by page.
    async fn pages(&self, path: &str, limit: u32) -> Vec<Vec<Value>> {
        let (mut pages, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.json(&format!("{path}?limit={limit}{cursor}")).await;
            pages.push(page["items"].as_array().unwrap().clone());
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return pages,
            }
        }
    }

    /// The address of a job's first file, and what the manifest says of it.
    async fn file(&self, job: &str) -> (String, Value) {
        let page = self.json(&format!("{job}/files")).await;
        let file = page["items"][0].clone();
        (file["url"].as_str().unwrap().to_owned(), file)
    }
}

async fn make_source(path: &Path) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut db = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    for sql in [
        "create table positions (key text, day text, amount integer)",
        "insert into positions values ('ABC', '2025-02-15', 1)",
    ] {
        sqlx::query(sql).execute(&mut db).await.unwrap();
    }
    db.close().await.unwrap();
}

fn one_file() -> Value {
    json!({"items": [{"key": "ABC", "effectiveDates": [OLD]}]})
}

fn path_of(job: &Value) -> String {
    format!("/jobs/{}", job["jobId"].as_str().unwrap())
}

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_sent_again_only_when_it_changed() {
    let server = Server::start().await;
    let waiting =
        server.submit(&json!({"items": one_file()["items"], "runAt": "2999-01-01T00:00:00Z"})).await;
    let path = format!("/jobs/{}", waiting["jobId"].as_str().unwrap());
    let first = server.get(&path).await;
    assert_eq!((first.status().as_u16(), header(&first, "retry-after")), (200, "1"));
    let tag = header(&first, "etag").to_owned();
    assert!(tag.starts_with("W/\""), "weak: {tag}");
    let again = server.ask(Method::GET, &path, &[("if-none-match", &tag)]).await;
    assert_eq!((again.status().as_u16(), header(&again, "etag")), (304, &*tag));
    assert!(again.bytes().await.unwrap().is_empty());

    assert_eq!(server.ask(Method::POST, &format!("{path}/cancel"), &[]).await.status(), 202);
    let changed = server.ask(Method::GET, &path, &[("if-none-match", &tag)]).await;
    assert_eq!((changed.status().as_u16(), header(&changed, "retry-after")), (200, ""));
    assert_eq!(changed.json::<Value>().await.unwrap()["status"], "CANCELLED");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_sent_whole_in_parts_and_by_name() {
    let server = Server::start().await;
    let job = server.complete(&one_file()).await;
    let (url, file) = server.file(&job).await;
    assert_eq!(file["url"], format!("{job}/files/{}", file["fileId"].as_str().unwrap()));
    assert_eq!((&file["effectiveDate"], &file["current"]), (&json!(OLD), &json!(true)));
    let tag = format!("\"{}\"", file["sha256"].as_str().unwrap());

    let whole = server.get(&url).await;
    assert_eq!(whole.status(), 200);
    assert_eq!(header(&whole, "etag"), tag);
    assert_eq!(header(&whole, "accept-ranges"), "bytes");
    assert_eq!(header(&whole, "content-type"), "text/csv; charset=utf-8");
    assert_eq!(header(&whole, "content-disposition"), "attachment; filename=\"ABC_20250215.csv\"");
    assert_eq!(header(&whole, "x-content-type-options"), "nosniff");
    assert_eq!(whole.bytes().await.unwrap(), HEADER_AND_ROW);

    // Parts are of bytes, and there are none here.
    for headers in [&[][..], &[("range", "bytes=0-2")], &[("range", "bytes=1000-")]] {
        let head = server.ask(Method::HEAD, &url, headers).await;
        assert_eq!(
            (head.status().as_u16(), header(&head, "content-length")),
            (200, &*HEADER_AND_ROW.len().to_string())
        );
    }

    let size = HEADER_AND_ROW.len();
    for (range, part) in [("bytes=0-2", 0..3), ("bytes=4-", 4..size), ("bytes=-4", size - 4..size)] {
        let answer = server.ask(Method::GET, &url, &[("range", range), ("if-range", &tag)]).await;
        assert_eq!(answer.status(), 206);
        assert_eq!(header(&answer, "content-range"), format!("bytes {}-{}/{size}", part.start, part.end - 1));
        assert_eq!(answer.bytes().await.unwrap(), &HEADER_AND_ROW[part]);
    }
    let outside = server.ask(Method::GET, &url, &[("range", "bytes=1000-")]).await;
    assert_eq!(
        (outside.status().as_u16(), header(&outside, "content-range")),
        (416, &*format!("bytes */{size}"))
    );
    assert_eq!(header(&outside, "content-type"), "application/problem+json");
    let other = server.ask(Method::GET, &url, &[("range", "bytes=0-2"), ("if-range", "\"other\"")]).await;
    assert_eq!(other.status(), 200, "a part of another version is no use");
    assert_eq!(server.ask(Method::GET, &url, &[("if-none-match", &tag)]).await.status(), 304);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_file_is_gone_and_names_its_successor() {
    let server = Server::start().await;
    let first = server.complete(&one_file()).await;
    let (url, _) = server.file(&first).await;
    let mut forced = one_file();
    forced["output"] = json!({"force": true});
    let same = server.complete(&forced).await;
    let (file, newer) = (server.file(&first).await.1, server.file(&same).await.1);
    assert_eq!((&file["current"], &file["etag"]), (&json!(true), &newer["etag"]), "the same bytes again");
    assert_eq!(server.get(&url).await.bytes().await.unwrap(), "key,day,amount\nABC,2025-02-15,1\n");

    let options =
        sqlx::sqlite::SqliteConnectOptions::new().filename(server.folder.path().join("warehouse.db"));
    let mut source = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::query("update positions set amount = 2").execute(&mut source).await.unwrap();
    source.close().await.unwrap();
    let second = server.complete(&forced).await;
    assert_eq!(server.file(&first).await.1["current"], false);
    let gone = server.get(&url).await;
    assert_eq!(gone.status(), 410);
    let problem: Value = gone.json().await.unwrap();
    let newer = second.trim_start_matches("/jobs/");
    assert!(problem["detail"].as_str().unwrap().contains(newer), "{problem}");

    let (url, file) = server.file(&second).await;
    let stored = server.folder.path().join("data/files").join(file["path"].as_str().unwrap());
    std::fs::write(&stored, "damaged").unwrap();
    let damaged = server.get(&url).await;
    assert_eq!(damaged.status(), 409, "changed behind our back");
    let problem: Value = damaged.json().await.unwrap();
    assert!(problem["detail"].as_str().unwrap().contains("differs from what was recorded"), "{problem}");
    std::fs::remove_file(&stored).unwrap();
    assert_eq!(server.get(&url).await.status(), 404, "deleted behind our back");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_foresees_and_stores_nothing() {
    let server = Server::start().await;
    let foresee = async || -> Value {
        let call = server.http.post(format!("{}/jobs?dryRun=true", server.base)).json(&one_file());
        let answer = call.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.json().await.unwrap()
    };
    let before = foresee().await;
    assert_eq!((&before["total"], &before["reuse"], &before["generate"]), (&json!(1), &json!(0), &json!(1)));
    server.complete(&one_file()).await;
    let after = foresee().await;
    assert_eq!((&after["total"], &after["reuse"], &after["generate"]), (&json!(1), &json!(1), &json!(0)));
    assert!(after["verdict"].is_string());
    assert_eq!(server.json("/jobs").await["items"].as_array().unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_and_steer() {
    let server = Server::start().await;
    let datasets = server.json("/datasets").await;
    let base_path = datasets["items"][0]["basePath"].as_str().unwrap().to_owned();
    assert!(base_path.starts_with("file://") && base_path.ends_with("/exports/"), "{base_path}");
    let expected = json!({"items": [{"name": "positions", "default": true, "source": "warehouse",
        "formats": ["CSV"], "basePath": base_path}], "nextCursor": null});
    assert_eq!(datasets, expected, "and neither query nor address");

    let queue = "/queues/source:warehouse";
    for (act, paused) in [("pause", true), ("pause", true), ("resume", false)] {
        let answer = server.ask(Method::POST, &format!("{queue}/{act}"), &[]).await;
        assert_eq!(answer.json::<Value>().await.unwrap()["paused"], paused);
        let queues = server.json("/queues").await;
        let shown = |name: &str, kind: &str, most: Value, paused: bool| {
            json!({"name": name, "kind": kind, "depth": 0, "oldestSeconds": null,
                "running": 0, "maxConcurrent": most, "paused": paused})
        };
        let all = [
            shown("job:ONCE", "job", Value::Null, false),
            shown("job:ORDER", "job", Value::Null, false),
            shown("source:warehouse", "source", json!(2), paused),
        ];
        assert_eq!(queues, json!({"items": all, "nextCursor": null}));
    }
    assert_eq!(server.ask(Method::POST, "/queues/source:nowhere/pause", &[]).await.status(), 404);
    let elsewhere = [("sec-fetch-site", "cross-site")];
    assert_eq!(server.ask(Method::POST, &format!("{queue}/pause"), &elsewhere).await.status(), 403);

    let workers = server.json("/workers").await;
    let worker = workers["items"][0].as_object().unwrap();
    let members: Vec<&str> = worker.keys().map(String::as_str).collect();
    assert_eq!(
        members,
        ["id", "host", "roles", "startedAt", "lastSeenAt", "concurrency", "running", "queues"]
    );

    for list in ["/datasets", "/queues", "/workers"] {
        let page = server.json(&format!("{list}?limit=1")).await;
        assert_eq!(
            (page["items"].as_array().unwrap().len(), page["nextCursor"].is_null()),
            (1, list != "/queues")
        );
        for wrong in ["limit=0", "limit=201", "limit=x", "cursor=", "cursor=00", "nope=1"] {
            let answer = server.get(&format!("{list}?{wrong}")).await;
            assert_eq!(answer.status(), 400, "{list}?{wrong}");
        }
    }

    assert_eq!(server.json("/healthz").await, json!({"status": "ok"}));
    assert_eq!(server.json("/readyz").await, json!({"status": "ok"}));
    let metrics = server.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("outhaul_queue_depth{queue=\"source:warehouse\"}"), "{metrics}");
    assert!(metrics.contains("outhaul_http_requests_total"), "{metrics}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_changes_nothing_also_where_only_its_origin_is_told() {
    let server = Server::start().await;
    let mut later = one_file();
    later["runAt"] = json!("2999-01-01T00:00:00Z");
    let job = format!("/jobs/{}", server.submit(&later).await["jobId"].as_str().unwrap());
    let calls = [format!("{job}/cancel"), format!("{job}/retry"), "/queues/job:ORDER/pause".to_owned()];
    for origin in ["http://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1:1"] {
        for call in &calls {
            let answer = server.ask(Method::POST, call, &[("origin", origin)]).await;
            assert_eq!(answer.status(), 403, "{call} from {origin}");
        }
        let redrive = server.http.post(format!("{}/dead-letters/redrive", server.base));
        let redrive = redrive.header("origin", origin).json(&json!({"filter": {}})).send().await.unwrap();
        assert_eq!(redrive.status(), 403, "{origin}");
        assert_eq!(server.ask(Method::GET, &job, &[("origin", origin)]).await.status(), 200, "{origin}");
    }
    assert_eq!(server.json(&job).await["status"], "SUBMITTED");
    let own = server.ask(Method::POST, &calls[0], &[("origin", &server.base)]).await;
    assert_eq!(own.status(), 202, "a page of ours may");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_is_away_is_not_ready() {
    let server = Server::start().await;
    let files = server.folder.path().join("data/files");
    std::fs::remove_dir_all(&files).unwrap();
    std::fs::write(&files, "not a folder").unwrap();
    let answer = server.get("/readyz").await;
    assert_eq!(
        (answer.status().as_u16(), header(&answer, "content-type")),
        (503, "application/problem+json")
    );
    assert_ne!(header(&answer, "retry-after"), "");
    assert_eq!(answer.json::<Value>().await.unwrap()["errors"][0]["pointer"], "storage");
    assert_eq!(server.get("/healthz").await.status(), 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_is_served_with_all_that_shows_it() {
    let server = Server::start().await;
    let api = server.json("/openapi.json").await;
    assert!(api["openapi"].as_str().unwrap().starts_with("3.1"));
    let page = server.get("/docs?x=\"onload=\"alert(1)").await;
    assert!(header(&page, "content-security-policy").contains("script-src 'self'"));
    let page = page.text().await.unwrap();
    assert!(!page.contains("alert(1)") && !page.contains("https://"), "nothing from elsewhere: {page}");
    for name in ["swagger-ui.css", "swagger-ui-bundle.js", "start.js"] {
        assert!(page.contains(&format!("/docs/{name}")));
        let asset = server.get(&format!("/docs/{name}")).await;
        assert_eq!(asset.status(), 200, "{name}");
        assert!(!asset.bytes().await.unwrap().is_empty());
    }
    for path in ["/docs/", "/docs/index.html", "/docs/%ff", "/nowhere"] {
        let answer = server.get(path).await;
        assert_eq!(
            (answer.status().as_u16(), header(&answer, "content-type")),
            (404, "application/problem+json"),
            "{path}"
        );
    }
    let wrong = server.ask(Method::DELETE, "/jobs", &[]).await;
    assert_eq!(wrong.status(), 405);
    let mut allowed: Vec<&str> = header(&wrong, "allow").split(',').map(str::trim).collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
    server.stop().await;
}
