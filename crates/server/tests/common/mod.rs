//! Outhaul as its users run it: real processes of the built binary, talked to over HTTP. Each test
//! gets a folder, a database and a storage prefix of its own.

#![allow(dead_code, reason = "each test binary uses its own part of the harness")]
#![expect(unreachable_pub, reason = "a harness is shared by test binaries, which have no outside")]

pub mod gate;
pub mod history;
pub mod killing;
pub mod large_export;
pub mod s3;
pub mod sql;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use outhaul_testkit::servers::{self, PrivatePostgres};
use outhaul_testkit::test_db::TestDb;
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes on a slow machine; reaching it is a failure, never a measure.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// A port that the system chooses, so that nobody else can have it.
const ANY_PORT: &str = "127.0.0.1:0";
/// What a process says, in JSON, before the URL at which it listens.
const LISTENING: &str = "serve.listening on ";

/// Where jobs and files are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SQLite and local files: the embedded default.
    Embedded,
    /// PostgreSQL and local files.
    PostgresLocal,
    /// PostgreSQL and S3: production.
    PostgresS3,
}

/// One installation: a configuration that any number of processes share.
pub struct Stack {
    pub dir: TempDir,
    pub kind: Kind,
    pub prefix: String,
    /// What the environment says to processes started from now on.
    pub environment: Vec<(&'static str, String)>,
    postgres_url: Option<String>,
    keep: Vec<Box<dyn Send + Sync>>,
}

/// How processes work and retry, with leases of this length.
macro_rules! brisk {
    ($lease:literal) => {
        concat!(
            "[worker]\nconcurrency = 4\nlease = \"",
            $lease,
            "\"\nheartbeat = \"1s\"\npoll_interval = \"200ms\"\n\n\
             [retry]\nmax_attempts = 3\nbackoff = { kind = \"fixed\", base = \"100ms\" }\n\n"
        )
    };
}

/// Short leases, for tests that kill or stop their owners and wait until one runs out. A machine that is too
/// busy to run a process for three seconds takes its leases too, so these tests count no attempts.
pub const BRISK: &str = brisk!("3s");
/// The same where nobody is killed: leases that are not lost on a busy machine either, so that attempts can
/// be counted.
pub const STEADY: &str = brisk!("60s");

/// Makes two tests of each function: one on the embedded default, one on PostgreSQL and S3.
#[macro_export]
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(super::Kind::Embedded).await;
            })*
        }
        mod production {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(super::Kind::PostgresS3).await;
            })*
        }
    };
}

impl Stack {
    /// A new installation; `sections` is appended to its configuration.
    pub async fn new(kind: Kind, sections: &str) -> Self {
        let (url, keep): (Option<String>, Vec<Box<dyn Send + Sync>>) = match kind {
            Kind::Embedded => (None, vec![]),
            Kind::PostgresLocal | Kind::PostgresS3 => {
                let db = TestDb::migrated().await;
                (Some(db.url().to_owned()), vec![Box::new(db)])
            }
        };
        Self::with_database(kind, url, keep, sections)
    }

    /// The same on a server of the test's own, which it may kill.
    pub fn on_server(kind: Kind, server: &PrivatePostgres, sections: &str) -> Self {
        Self::with_database(kind, Some(server.url().to_owned()), vec![], sections)
    }

    fn with_database(
        kind: Kind,
        url: Option<String>,
        keep: Vec<Box<dyn Send + Sync>>,
        sections: &str,
    ) -> Self {
        let dir = tempfile::tempdir().expect("make a folder for the installation");
        let prefix = servers::unique_prefix();
        let stack = Self { dir, kind, prefix, environment: Vec::new(), postgres_url: url, keep };
        stack.configure(sections);
        stack
    }

    /// Writes the configuration anew, for processes started from now on.
    pub fn configure(&self, sections: &str) {
        let stack = self;
        let mut text = String::from("data_dir = \"data\"\n\n");
        if let Some(url) = &stack.postgres_url {
            text += &format!("[database]\nurl = \"{url}\"\n\n");
        }
        if stack.kind == Kind::PostgresS3 {
            let s3 = servers::s3();
            text += &format!(
                "[storage]\nurl = \"s3://{}\"\nbase_path = \"{}/exports/\"\nendpoint = \"{}\"\nregion = \"us-east-1\"\n\
                 access_key_id = \"{}\"\nsecret_access_key = \"{}\"\nallow_http = true\n\n",
                s3.bucket, stack.prefix, s3.endpoint, s3.access_key_id, s3.secret_access_key
            );
        }
        text += &sections.replace("{postgres}", stack.postgres_url.as_deref().unwrap_or(""));
        std::fs::write(stack.config(), text).expect("write the configuration");
    }

    pub fn config(&self) -> PathBuf {
        self.dir.path().join("outhaul.toml")
    }

    pub fn postgres_url(&self) -> &str {
        self.postgres_url.as_deref().expect("this installation has a PostgreSQL")
    }

    /// Where local files are published.
    pub fn files(&self) -> PathBuf {
        self.dir.path().join("data/files")
    }

    /// The storage path of what is at `exports/` + `rest` for clients of the default dataset.
    pub fn path(&self, rest: &str) -> String {
        match self.kind {
            Kind::PostgresS3 => format!("{}/exports/{rest}", self.prefix),
            _ => format!("exports/{rest}"),
        }
    }

    /// Paths of everything that is published.
    pub fn published(&self) -> Vec<String> {
        match self.kind {
            Kind::PostgresS3 => s3::objects_below(&self.prefix),
            _ => {
                files_below(&self.files()).into_iter().filter(|path| !path.starts_with(".staging/")).collect()
            }
        }
    }

    /// What attempts have written and not published: staged files, or open uploads.
    pub fn staged(&self) -> Vec<String> {
        match self.kind {
            Kind::PostgresS3 => open_uploads(&self.prefix),
            _ => {
                let staging = files_below(&self.files().join(".staging")).into_iter();
                // The marker that says whose folder it is stays.
                staging.filter(|path| path != "installation").collect()
            }
        }
    }

    /// Removes a published file behind Outhaul's back.
    pub fn remove(&self, path: &str) {
        match self.kind {
            Kind::PostgresS3 => s3::remove(path),
            _ => std::fs::remove_file(self.files().join(path)).expect("it is there"),
        }
    }

    /// Starts a process with these roles; one with `api` listens on a port that the system chooses.
    pub fn spawn(&self, name: &str, roles: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outhaul"));
        command.args(["serve", "--roles", roles, "--config"]).arg(self.config());
        self.spawn_command(name, command)
    }

    /// Starts any server on this installation. Whatever listens has a port that the system chooses: one that
    /// the test looks for may be somebody else's before the process has it.
    pub fn spawn_command(&self, name: &str, mut command: Command) -> Process {
        let log = self.dir.path().join(format!("{name}.log"));
        let sink = File::options().create(true).append(true).open(&log).expect("open the log");
        let said_before = sink.metadata().expect("the log is there").len();
        let child = command
            .env("OUTHAUL__SERVER__LISTEN", ANY_PORT)
            // The log says where it listens.
            .env("OUTHAUL_LOG", "info")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(sink.try_clone().expect("the log once more"))
            .stderr(sink)
            .spawn()
            .expect("start the program");
        Process { child, log, said_before, base: String::new() }
    }

    /// Starts a process without the API that answers for its health, at [`Process::base`].
    pub fn spawn_watched(&self, name: &str, roles: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outhaul"));
        command.args(["serve", "--roles", roles, "--health-listen", ANY_PORT, "--config"]).arg(self.config());
        self.spawn_command(name, command)
    }

    /// Starts a process of which a part panics, once, at this fault point.
    pub fn spawn_faulty(&self, point: &str, roles: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outhaul"));
        command.args(["serve", "--roles", roles, "--config"]).arg(self.config()).env("OUTHAUL_FAULT", point);
        self.spawn_command("faulty", command)
    }

    /// Starts a process with the API and waits until it is ready.
    pub async fn serve(&self, name: &str, roles: &str) -> Process {
        let mut process = self.spawn(name, roles);
        process.ready().await;
        process
    }
}

/// A running process of the built binary; killed when dropped.
pub struct Process {
    child: Child,
    log: PathBuf,
    /// The length of the log when it was started: earlier ones of the same name have written there.
    said_before: u64,
    /// Where it listens. Empty before [`Process::listens`].
    pub base: String,
}

impl Process {
    pub fn client(&self) -> Client {
        assert!(!self.base.is_empty(), "nobody has waited until it listens");
        // reqwest ends connections whose data nobody read for 30 seconds; a busy machine may take longer.
        let http = reqwest::Client::builder().tcp_user_timeout(PATIENCE).build().expect("a client");
        Client { base: self.base.clone(), http }
    }

    /// Waits until it listens, and knows where from then on.
    pub async fn listens(&mut self) {
        let start = Instant::now();
        while self.base.is_empty() {
            let log = std::fs::read(&self.log).unwrap_or_default();
            let log = log.get(usize::try_from(self.said_before).expect("small")..).unwrap_or_default();
            let log = String::from_utf8_lossy(log);
            let address = log.split_once(LISTENING).and_then(|(_, address)| address.split_once('"'));
            match address {
                Some((address, _)) => self.base = address.to_owned(),
                None => self.look_later(start, "it listens").await,
            }
        }
    }

    /// Waits until it says that it is ready.
    pub async fn ready(&mut self) {
        self.listens().await;
        let (client, start) = (self.client(), Instant::now());
        while !matches!(client.get("/readyz").await, Ok((200, _))) {
            self.look_later(start, "it is ready").await;
        }
    }

    /// Waits a little, unless it has ended: then there is nothing to wait for.
    async fn look_later(&mut self, start: Instant, what: &str) {
        let ended = self.child.try_wait().expect("ask for the process");
        assert_eq!(ended, None, "a process ended before {what}:\n{}", self.log());
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}:\n{}", self.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log has a text.
    pub async fn says(&self, text: &str) {
        let said =
            eventually(&format!("the log says {text:?}"), || async { self.log().contains(text) }).await;
        said.unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let done = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(done.expect("run kill").success(), "kill -{name}");
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("ask for the process").is_some()
    }

    /// Waits until it ends by itself, and returns its exit code.
    pub async fn exit_code(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(ended) = self.child.try_wait().expect("ask for the process") {
                return ended.code();
            }
            assert!(start.elapsed() < PATIENCE, "it does not end:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// SIGTERM; waits for a clean end and returns whether the exit code was 0.
    pub fn terminate(&mut self) -> bool {
        self.signal("TERM");
        let start = Instant::now();
        loop {
            if let Some(ended) = self.child.try_wait().expect("ask for the process") {
                return ended.success();
            }
            assert!(start.elapsed() < PATIENCE, "it does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The most memory it ever held, in bytes (VmHWM).
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux reports VmHWM");
        let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number of KiB");
        kib * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// A client of one API process.
#[derive(Clone)]
pub struct Client {
    pub base: String,
    pub http: reqwest::Client,
}

impl Client {
    pub async fn get(&self, path: &str) -> reqwest::Result<(u16, Value)> {
        let answer = self.http.get(format!("{}{path}", self.base)).send().await?;
        let status = answer.status().as_u16();
        Ok((status, answer.json().await.unwrap_or(Value::Null)))
    }

    pub async fn post(&self, path: &str, body: &Value) -> reqwest::Result<(u16, Value)> {
        let answer = self.http.post(format!("{}{path}", self.base)).json(body).send().await?;
        let status = answer.status().as_u16();
        Ok((status, answer.json().await.unwrap_or(Value::Null)))
    }

    /// Submits and insists on 202; returns the job's id. A server that is too busy to take it says 503, and
    /// is asked again, as clients do.
    pub async fn submit(&self, body: &Value) -> String {
        let said = std::sync::Mutex::new((0, Value::Null));
        let answered = eventually("a submission is taken", || async {
            let answer = self.post("/jobs", body).await.expect("the API answers");
            let busy = answer.0 == 503;
            *said.lock().expect("not poisoned") = answer;
            !busy
        });
        let answered = answered.await;
        let (status, job) = said.into_inner().expect("not poisoned");
        answered.unwrap_or_else(|error| panic!("{error}: {job}"));
        assert_eq!(status, 202, "{job}");
        job["jobId"].as_str().expect("a jobId").to_owned()
    }

    /// The job, as it is.
    pub async fn job(&self, id: &str) -> Value {
        let (status, job) = self.get(&format!("/jobs/{id}")).await.expect("the API answers");
        assert_eq!(status, 200, "{job}");
        job
    }

    /// Waits until the job has a status, and `completedAt` where that status is an end. Patience begins anew
    /// with every chunk that is done: a large job takes as long as it takes, and is lost when it stands still.
    pub async fn wait_for(&self, id: &str, wanted: &str) -> Value {
        let is_end = ["COMPLETED", "FAILED", "CANCELLED"].contains(&wanted);
        let (mut job, mut done, mut start) = (Value::Null, None, Instant::now());
        loop {
            if let Ok((200, now)) = self.get(&format!("/jobs/{id}")).await {
                job = now;
                if job["status"] == wanted && (!is_end || !job["completedAt"].is_null()) {
                    return job;
                }
                // Nothing leaves these, so there is nothing more to wait for.
                let elsewhere = job["status"] == "COMPLETED" || job["status"] == "CANCELLED";
                assert!(!elsewhere || job["status"] == wanted, "it is not {wanted}: {job}");
                if job["done"].as_u64() > done {
                    (done, start) = (job["done"].as_u64(), Instant::now());
                }
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain until {id} is {wanted}: {job}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// All items of a list, page by page.
    pub async fn all(&self, path: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let (status, page) =
                self.get(&format!("{path}?limit=200{cursor}")).await.expect("the API answers");
            assert_eq!(status, 200, "{page}");
            items.extend(page["items"].as_array().expect("items").iter().cloned());
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return items,
            }
        }
    }

    /// All files of a job, by key and date.
    pub async fn files(&self, id: &str) -> Vec<Value> {
        self.all(&format!("/jobs/{id}/files")).await
    }

    /// Submits and waits for its end.
    pub async fn complete(&self, body: &Value) -> Value {
        let id = self.submit(body).await;
        self.wait_for(&id, "COMPLETED").await
    }

    /// The bytes of a file, through the API.
    pub async fn download(&self, url: &str) -> Vec<u8> {
        let answer = self.http.get(format!("{}{url}", self.base)).send().await.expect("the API answers");
        assert_eq!(answer.status(), 200, "{url}");
        answer.bytes().await.expect("the whole body").to_vec()
    }
}

/// Looks until it is so, or patience ends. A signal where none can be had from another process.
pub async fn eventually<F: Future<Output = bool>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> Result<(), String> {
    let start = Instant::now();
    while !look().await {
        if start.elapsed() > PATIENCE {
            return Err(format!("waited in vain until {what}"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// `yyyyMMdd` of n days in 2020, far outside any reuse window.
pub fn dates(n: u32) -> Vec<String> {
    let first = chrono::NaiveDate::from_ymd_opt(2020, 1, 1).expect("a date");
    (0..n).map(|day| (first + chrono::Days::new(day.into())).format("%Y%m%d").to_string()).collect()
}

/// Every regular file below a folder, relative to it.
pub fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder).expect("below").to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

/// Keys of multipart uploads that are open below a prefix of the test bucket.
pub fn open_uploads(prefix: &str) -> Vec<String> {
    // With `=`, though it has no value: curl signs a query as it stands.
    let text = s3::call("GET", "?uploads=");
    assert!(text.contains("ListMultipartUploadsResult"), "the listing was answered: {text}");
    text.split("<Key>")
        .skip(1)
        .filter_map(|rest| rest.split('<').next())
        .filter(|key| key.contains(prefix))
        .map(str::to_owned)
        .collect()
}

/// Lower-case hex of a SHA-256.
pub fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
