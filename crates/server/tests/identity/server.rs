//! A server in this process, and what people ask it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outhaul::core::retry::{Backoff, RetryPolicy};
use outhaul::{Context, Job, JobError, JobOptions, Registry};
use outhaul_server::config::{Config, Environment, Load};
use outhaul_server::roles::Roles;
use outhaul_server::serve::{self, Running};
use outhaul_testkit::test_db::TestDb;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::common::PATIENCE;
use crate::people::{AUTH, Person};

pub(crate) const DAY: &str = "20250215";

/// A dataset for everybody, and one that shows each county its own rows.
const DATA: &str = r#"
data_dir = "data"

[server]
listen = "127.0.0.1:0"

[worker]
poll_interval = "50ms"

[retry]
max_attempts = 1

[sources.warehouse]
url = "sqlite:warehouse.db"

[datasets.positions]
default = true
source = "warehouse"
query = "select * from positions where key = :key and day = :effective_date"

[datasets.people]
source = "warehouse"
row_scope = ["county"]
query = "select name, county from people where key = :key and day = :effective_date and county = :claims.county"
"#;

const ROWS: &str = "create table positions (key text, day text, amount integer); \
    insert into positions values ('ABC', '2025-02-15', 1); \
    create table people (key text, day text, name text, county text); \
    insert into people values ('ABC', '2025-02-15', 'Kay', 'Kent'), ('ABC', '2025-02-15', 'Esther', 'Essex')";

/// Does nothing; equal ones may be there only once.
#[derive(serde::Serialize, serde::Deserialize)]
struct Single {
    n: u32,
}

impl Job for Single {
    const TYPE: &'static str = "SINGLE";
    type Output = ();

    fn options() -> JobOptions {
        JobOptions::default().unique()
    }

    async fn run(&self, _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

/// Fails while the payload's file is not there.
#[derive(serde::Serialize, serde::Deserialize)]
struct Needs {
    file: std::path::PathBuf,
}

impl Job for Needs {
    const TYPE: &'static str = "NEEDS";
    type Output = ();

    fn options() -> JobOptions {
        let backoff = Backoff::Fixed { base: Duration::from_secs(1) };
        JobOptions::default().retry(RetryPolicy { max_attempts: 1, backoff })
    }

    async fn run(&self, _: &Context) -> Result<(), JobError> {
        std::fs::metadata(&self.file)?;
        Ok(())
    }
}

pub(crate) struct Server {
    running: Option<Running>,
    pub(crate) base: String,
    pub(crate) http: Client,
    folder: Arc<TempDir>,
    database: Option<Arc<TestDb>>,
}

/// What was answered: the status, the headers that count, and the body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Server {
    /// With tokens, and more in the configuration.
    pub(crate) async fn start(sections: &str) -> Self {
        Self::start_on(Arc::new(source().await), None, &format!("{DATA}{AUTH}{sections}")).await
    }

    /// The same on PostgreSQL.
    pub(crate) async fn start_on_postgres(sections: &str) -> Self {
        let database = Arc::new(TestDb::migrated().await);
        let url = format!("[database]\nurl = \"{}\"\n", database.url());
        let config = format!("{DATA}{AUTH}{sections}\n{url}");
        Self::start_on(Arc::new(source().await), Some(database), &config).await
    }

    /// With other settings for tokens.
    pub(crate) async fn start_with_auth(auth: &str) -> Self {
        Self::start_on(Arc::new(source().await), None, &format!("{DATA}{auth}")).await
    }

    /// Where nobody is asked for a token.
    pub(crate) async fn start_open() -> Self {
        let open = DATA.split("[datasets.people]").next().unwrap();
        Self::start_on(Arc::new(source().await), None, open).await
    }

    async fn start_on(folder: Arc<TempDir>, database: Option<Arc<TestDb>>, config: &str) -> Self {
        let load = Load { file: None, insecure: false, environment: Environment::default() };
        let config = Config::parse(config, folder.path(), &load).unwrap_or_else(|wrong| panic!("{wrong}"));
        let registry = Registry::new().job::<Single>().job::<Needs>();
        let running = serve::start(config, Roles::ALL, registry).await.unwrap();
        let base = format!("http://{}", running.addr().unwrap());
        let http = Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { running: Some(running), base, http, folder, database }
    }

    /// A server that runs elsewhere.
    pub(crate) fn of(base: &str) -> Self {
        let http = Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self { running: None, base: base.to_owned(), http, folder, database: None }
    }

    pub(crate) async fn stop(mut self) {
        self.running.take().unwrap().stop().await;
    }

    /// Stops, and starts again on what was left, with other sections behind those of every test.
    pub(crate) async fn restart(mut self, sections: &str) -> Self {
        self.running.take().unwrap().stop().await;
        let (folder, database) = (self.folder.clone(), self.database.clone());
        Self::start_on(folder, database, &format!("{DATA}{AUTH}{sections}")).await
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs statements on the source.
    pub(crate) async fn source(&self, sql: &str) {
        on(&self.folder.path().join("warehouse.db"), sql).await;
    }

    /// Where the engine's own tables are; for servers on PostgreSQL.
    pub(crate) fn engine_url(&self) -> &str {
        self.database.as_ref().unwrap().url()
    }

    /// Runs statements on the engine's own tables; for servers on PostgreSQL.
    pub(crate) async fn engine(&self, sql: &'static str) {
        let mut db = PgConnection::connect(self.engine_url()).await.unwrap();
        sqlx::raw_sql(sql).execute(&mut db).await.unwrap();
    }

    /// One text of the engine's own tables; for servers on SQLite.
    pub(crate) async fn recorded(&self, sql: &str) -> String {
        let url = format!("sqlite:{}?mode=ro", self.folder.path().join("data/outhaul.db").display());
        let mut db = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut db).await.unwrap()
    }

    /// A call with a body, by anybody.
    pub(crate) async fn call(
        &self,
        token: Option<&str>,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let method: Method = method.to_uppercase().parse().unwrap();
        let mut call = self.http.request(method, format!("{}{path}", self.base));
        if let Some(token) = token {
            call = call.bearer_auth(token);
        }
        if let Some(body) = body {
            call = call.json(body);
        }
        let answer: Response = call.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Answer { status, headers, body: answer.bytes().await.unwrap().to_vec() }
    }

    /// A person at this server.
    pub(crate) fn at(&self, person: Person) -> At<'_> {
        At { server: self, token: person.token() }
    }
}

/// Somebody with a token, at a server.
pub(crate) struct At<'a> {
    pub(crate) server: &'a Server,
    pub(crate) token: String,
}

impl At<'_> {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.server.call(Some(&self.token), "GET", path, None).await
    }

    pub(crate) async fn act(&self, method: &str, path: &str) -> Answer {
        self.server.call(Some(&self.token), method, path, None).await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.server.call(Some(&self.token), method, path, Some(body)).await
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.json());
        answer.json()
    }

    /// Submits and insists on 202; the job's path.
    pub(crate) async fn submit(&self, body: &Value) -> String {
        let answer = self.send("POST", "/jobs", body).await;
        assert_eq!(answer.status, 202, "{}", answer.json());
        format!("/jobs/{}", answer.json()["jobId"].as_str().unwrap())
    }

    /// Looks at a job until it has ended so.
    pub(crate) async fn until(&self, job: &str, status: &str) -> Value {
        let start = Instant::now();
        loop {
            let now = self.json(job).await;
            if now["status"] == status && !now["completedAt"].is_null() {
                return now;
            }
            assert!(start.elapsed() < PATIENCE, "not {status}: {now}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Submits and waits until it has completed.
    pub(crate) async fn complete(&self, body: &Value) -> String {
        let job = self.submit(body).await;
        self.until(&job, "COMPLETED").await;
        job
    }

    /// The items of a list.
    pub(crate) async fn items(&self, path: &str) -> Vec<Value> {
        self.json(path).await["items"].as_array().unwrap().clone()
    }

    /// The first file of a job, as its list shows it.
    pub(crate) async fn file(&self, job: &str) -> Value {
        self.items(&format!("{job}/files")).await.remove(0)
    }

    /// The text of a job's first file.
    pub(crate) async fn text(&self, job: &str) -> String {
        let answer = self.get(self.file(job).await["url"].as_str().unwrap()).await;
        assert_eq!(answer.status, 200, "{}", answer.json());
        String::from_utf8(answer.body).unwrap()
    }
}

async fn source() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    on(&folder.path().join("warehouse.db"), ROWS).await;
    folder
}

async fn on(file: &Path, sql: &str) {
    let url = format!("sqlite:{}?mode=rwc", file.display());
    let mut db = SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut db).await.unwrap();
    db.close().await.unwrap();
}

/// An export for everybody.
pub(crate) fn positions() -> Value {
    json!({"items": [{"key": "ABC", "effectiveDates": [DAY]}]})
}

/// An export of what a caller's county shows.
pub(crate) fn people() -> Value {
    json!({"dataset": "people", "items": [{"key": "ABC", "effectiveDates": [DAY]}]})
}

/// An export that does not start for a long time.
pub(crate) fn later() -> Value {
    json!({"items": [{"key": "ABC", "effectiveDates": [DAY]}], "runAt": "2999-01-01T00:00:00Z"})
}
