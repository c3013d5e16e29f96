//! The SQLite store beyond what every store must do: its one process, its schema, its statements.

#![expect(clippy::unwrap_used, reason = "whatever fails in a helper fails its test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};
use futures::FutureExt;
use outhaul_core::file::{FileBegin, FileBegun, FileIdentity, FileOutcome, FilePlace, PublishedFile};
use outhaul_core::id::{JobId, QueueId, WorkerId};
use outhaul_core::job::{EXPORT, JobStatus, NewChunk, NewJob, OnFailure};
use outhaul_core::queue::QueueSpec;
use outhaul_core::reuse::Reuse;
use outhaul_core::state::{ChunkState, ChunkStatus};
use outhaul_core::store::{Store, StoreError, StoreSettings, Submitted};
use outhaul_core::worker::{ClaimedChunk, Failure, Finish, NewWorker, Want};
use outhaul_store::sqlite::SqliteStore;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection, Executor, Row};

const SQL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sqlite/sql");

struct Database {
    folder: tempfile::TempDir,
}

impl Database {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("data/outhaul.db")
    }

    async fn open(&self) -> Result<SqliteStore, StoreError> {
        let settings = StoreSettings {
            lease: Duration::from_secs(60),
            fairness_step: Duration::from_millis(100),
            idempotency_window: Duration::from_secs(86_400),
            parking: false,
        };
        SqliteStore::open(&self.path(), settings).await
    }

    /// A connection beside the store, as an operator's tool would make one.
    async fn beside(&self) -> SqliteConnection {
        SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(self.path())).await.unwrap()
    }
}

fn job(number: u64, chunks: usize) -> NewJob {
    NewJob {
        job_id: JobId::new(DateTime::<Utc>::UNIX_EPOCH, number),
        job_type: EXPORT.into(),
        dataset: Some("positions".into()),
        owner: "anonymous".into(),
        idempotency: None,
        unique_key: None,
        request: serde_json::json!({"items": []}).into(),
        params: serde_json::json!({"format": "CSV"}).into(),
        priority: 5,
        on_failure: OnFailure::Stop,
        labels: BTreeMap::from([("team".into(), "a".into())]),
        parents: Vec::new(),
        on_parent_failure: Default::default(),
        run_at: None,
        base_path: Some("file:/exports/".into()),
        identity: None,
        scope: String::new(),
        made_by: None,
        quota: None,
        chunks: (0..chunks)
            .map(|n| NewChunk {
                chunk_key: format!("key=K{n}:date=20250315"),
                queue: "source:warehouse".into(),
                key: Some(format!("K{n}")),
                effective_date: NaiveDate::from_ymd_opt(2025, 3, 15),
            })
            .collect(),
    }
}

async fn prepare(store: &SqliteStore) -> (WorkerId, QueueId) {
    let spec = QueueSpec { name: "source:warehouse".into(), max_concurrent: Some(2) };
    let queues = store.queues_sync(&[spec]).await.unwrap();
    let worker = NewWorker { host: "here".into(), roles: "worker".into(), concurrency: 8 };
    (store.worker_register(&worker).await.unwrap(), queues["source:warehouse"])
}

async fn claim(store: &SqliteStore, worker: WorkerId, queue: QueueId, limit: u32) -> Vec<ClaimedChunk> {
    store.chunks_claim(worker, &[Want { queue, limit }], limit).await.unwrap()
}

fn identity(chunk: &ClaimedChunk) -> FileIdentity {
    FileIdentity {
        dataset: "positions".into(),
        scope: String::new(),
        key: chunk.key.clone().unwrap(),
        effective_date: chunk.effective_date.unwrap(),
        variant: String::new(),
    }
}

fn place(chunk: &ClaimedChunk) -> FilePlace {
    FilePlace { base_path: "exports/".into(), path: published(identity(chunk)).path }
}

fn published(identity: FileIdentity) -> PublishedFile {
    PublishedFile {
        path: format!("exports/{}.csv", identity.key),
        identity,
        rows: 10,
        bytes: 100,
        sha256: "ab".repeat(32),
        etag: Some("\"e\"".into()),
        format: "CSV".into(),
        definition: "d1".into(),
    }
}

fn statements() -> Vec<(String, String)> {
    let mut files: Vec<_> = std::fs::read_dir(SQL)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn every_statement_prepares_and_is_used() {
    let database = Database::new();
    let _store = database.open().await.unwrap();
    let mut connection = database.beside().await;
    let sources: String = std::fs::read_dir(Path::new(SQL).parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let statements = statements();
    assert!(statements.len() > 40, "{} files", statements.len());
    for (name, sql) in statements {
        use sqlx::SqlSafeStr;
        connection
            .prepare(AssertSqlSafe(sql).into_sql_str())
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(sources.contains(&format!("\"sql/{name}\"")), "{name} is not used");
    }
}

/// Tables that grow with the work are only ever searched, or walked along an index made for it.
#[tokio::test]
async fn no_statement_reads_a_large_table_whole() {
    let database = Database::new();
    let _store = database.open().await.unwrap();
    let mut connection = database.beside().await;
    let mut walked = Vec::new();
    for (name, sql) in statements() {
        let plan = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}")))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        for row in plan {
            let detail: String = row.get("detail");
            let harmless = ["VIRTUAL TABLE", "CONSTANT ROW", "SCAN (sub", " INDEX "];
            if detail.starts_with("SCAN") && !harmless.iter().any(|word| detail.contains(word)) {
                walked.push(format!("{name}: {detail}"));
            }
            if ["chunks_claim.sql", "announcements_take.sql"].contains(&&*name)
                && detail.starts_with("SEARCH h ")
            {
                assert!(detail.contains("chunk_claim"), "{detail}");
            }
        }
    }
    // Subqueries by their names, the small tables of queues, workers, schedules and triggers, and what
    // waits for a broker: a window of announcements, and an outbox whose head is read.
    let small = [
        "announcements_doubt.sql: SCAN announcement",
        "announcements_take.sql: SCAN head",
        "chunks_claim.sql: SCAN head",
        "chunks_stage_cancel_count.sql: SCAN moved",
        "delivery_lag.sql: SCAN a",
        "delivery_lag.sql: SCAN o",
        "history_list.sql: SCAN told",
        "job_counts_due.sql: SCAN r",
        "open_is_migrated.sql: SCAN sqlite_master",
        "open_release_slots.sql: SCAN queue_slot",
        "outbox_park.sql: SCAN dead",
        "outbox_take.sql: SCAN o",
        "queues_sync_slots.sql: SCAN slot",
        "queues_sync_slots.sql: SCAN slot",
        "schedule_fire_unfinished.sql: SCAN l",
        "schedules_configured.sql: SCAN schedule",
        "trigger_waits.sql: SCAN rule",
        "trigger_waits.sql: SCAN rule",
        "trigger_waits.sql: SCAN rule",
        "trigger_waits.sql: SCAN t",
        "trigger_waits.sql: SCAN term",
        "trigger_waits.sql: SCAN term",
        "trigger_waits.sql: SCAN w",
        "triggers_configured.sql: SCAN trigger_rule",
        "triggers_match.sql: SCAN d",
        "worker_leave_slots.sql: SCAN queue_slot",
        "workers_list.sql: SCAN w",
        "workers_list.sql: SCAN r",
        "workers_prune.sql: SCAN worker",
    ];
    walked.sort();
    let mut expected = small.map(String::from);
    expected.sort();
    assert_eq!(walked, expected);
}

#[tokio::test]
async fn a_second_process_is_refused_until_the_first_is_gone() {
    let database = Database::new();
    let first = database.open().await.unwrap();
    let installation = first.installation().to_owned();
    let error = database.open().await.unwrap_err();
    let StoreError::Unsafe(message) = &error else { panic!("{error}") };
    assert!(message.contains("outhaul.db.lock"), "{message}");
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");

    let clone = first.clone();
    drop(first);
    assert!(matches!(database.open().await, Err(StoreError::Unsafe(_))), "a clone still serves");
    drop(clone);
    let again = database.open().await.unwrap();
    assert_eq!(again.installation(), installation);
}

#[cfg(unix)]
#[tokio::test]
async fn another_name_of_the_same_file_is_the_same_database() {
    let database = Database::new();
    let _first = database.open().await.unwrap();
    let other = Database::new();
    std::fs::create_dir_all(other.path().parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(database.path(), other.path()).unwrap();
    assert!(matches!(other.open().await, Err(StoreError::Unsafe(_))));
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let database = Database::new();
    database.open().await.unwrap().close().await;
    let mut connection = database.beside().await;
    sqlx::query("INSERT INTO _sqlx_migrations VALUES (9999, 'later', '2030-01-01', true, x'00', 1)")
        .execute(&mut connection)
        .await
        .unwrap();
    let error = database.open().await.unwrap_err();
    assert!(matches!(error, StoreError::NewerSchema { found: 9999, known } if known < 9999), "{error}");
}

#[tokio::test]
async fn a_database_of_a_development_version_is_refused() {
    let database = Database::new();
    let first = tempfile::tempdir().unwrap();
    std::fs::write(first.path().join("0001_engine.sql"), "CREATE TABLE job (id INTEGER)").unwrap();
    std::fs::create_dir_all(database.path().parent().unwrap()).unwrap();
    std::fs::write(database.path(), "").unwrap();
    let mut connection = database.beside().await;
    sqlx::migrate::Migrator::new(first.path()).await.unwrap().run(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let refused = database.open().await.unwrap_err().to_string();
    assert!(refused.contains("earlier development version"), "{refused}");
}

#[tokio::test]
async fn a_database_that_cannot_be_opened_is_unavailable_and_named() {
    let database = Database::new();
    std::fs::create_dir_all(database.path()).unwrap();
    let error = database.open().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    assert!(error.to_string().contains("outhaul.db"), "{error}");
}

#[tokio::test]
async fn a_call_after_close_is_unavailable() {
    let database = Database::new();
    let store = database.open().await.unwrap();
    store.ready().await.unwrap();
    store.close().await;
    assert!(matches!(store.ready().await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.queues_list().await, Err(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn what_a_previous_process_was_running_has_expired() {
    let database = Database::new();
    let store = database.open().await.unwrap();
    let (worker, queue) = prepare(&store).await;
    store.job_submit(job(1, 2)).await.unwrap();
    let before = claim(&store, worker, queue, 1).await;
    assert_eq!(store.slots_take(worker, queue, 9).await.unwrap().len(), 2);
    assert_eq!(store.chunks_expired(&[], Duration::ZERO, 10).await.unwrap(), []);
    drop(store);

    let store = database.open().await.unwrap();
    let (worker, queue) = prepare(&store).await;
    let expired = store.chunks_expired(&[], Duration::ZERO, 10).await.unwrap();
    assert_eq!(expired.iter().map(|chunk| chunk.lease).collect::<Vec<_>>(), [before[0].lease]);
    assert_eq!(store.slots_take(worker, queue, 9).await.unwrap().len(), 2, "slots are free again");
    assert_eq!(
        store.workers_list(Duration::from_secs(60)).await.unwrap().len(),
        1,
        "the old one is forgotten"
    );
    assert!(!store.chunk_may_publish(before[0].lease).await.unwrap());
    let failure = Failure {
        lease: before[0].lease,
        expired: true,
        retry_in: Some(Duration::ZERO),
        cause: "gone".into(),
        step: None,
        detail: None,
    };
    let settled = store.chunks_fail(&[failure]).await.unwrap();
    assert_eq!(settled[0].state, ChunkState::Retry);
    assert_eq!(store.chunks_stage(10).await.unwrap().queued, 1);
    let again = claim(&store, worker, queue, 9).await;
    let again: Vec<_> = again.iter().map(|chunk| (chunk.attempt, chunk.lost, chunk.lease.fence)).collect();
    assert_eq!(again, [(2, 1, 2), (1, 0, 1)], "its turn is kept, its fence raised");
}

#[tokio::test]
async fn a_job_runs_from_submission_to_its_manifest() {
    let database = Database::new();
    let store = database.open().await.unwrap();
    let (worker, queue) = prepare(&store).await;
    let Submitted::Created(created) = store.job_submit(job(1, 2)).await.unwrap() else { panic!() };
    assert_eq!((created.status, created.counts.total), (JobStatus::Submitted, 2));
    assert_eq!(created.labels["team"], "a");

    let claimed = claim(&store, worker, queue, 8).await;
    assert_eq!(claimed.iter().map(|chunk| chunk.key.clone().unwrap()).collect::<Vec<_>>(), ["K0", "K1"]);
    let shown = store.job_get(&created.job_id).await.unwrap().unwrap();
    assert_eq!((shown.status, shown.counts.running), (JobStatus::InProgress, 2));
    assert!(shown.started_at.is_some() && shown.version == created.version, "claims leave the row alone");

    let mut finishes = Vec::new();
    for chunk in &claimed {
        let begin = FileBegin {
            lease: chunk.lease,
            identity: identity(chunk),
            place: place(chunk),
            definition: "d1".into(),
            reuse: Reuse::ClaimedAfter(chunk.submitted_at),
        };
        let FileBegun::Write(grant) = store.file_begin(&begin).await.unwrap() else { panic!() };
        assert_eq!((grant.recorded, grant.leftover), (None, None));
        finishes.push(Finish {
            lease: chunk.lease,
            claimed_at: chunk.claimed_at,
            file: Some(FileOutcome::Generated(published(identity(chunk)))),
            reason: "generated".into(),
            result: None,
        });
    }
    finishes.push(finishes[0].clone());
    assert_eq!(store.chunks_finish(&finishes).await.unwrap().len(), 2, "the same finish twice counts once");
    assert_eq!(store.chunks_finish(&finishes).await.unwrap(), []);

    let done = store.job_get(&created.job_id).await.unwrap().unwrap();
    assert_eq!((done.status, done.counts.done), (JobStatus::Completed, 2));
    assert_eq!((done.counts.rows, done.counts.bytes, done.counts.running), (20, 200, 0));
    assert!(done.completed_at.is_some());
    let page = store.files_list(&created.job_id, None, 1).await.unwrap();
    assert_eq!((page.items[0].file.path.as_str(), page.items[0].current), ("exports/K0.csv", true));
    let next = store.files_list(&created.job_id, page.next.as_deref(), 1).await.unwrap();
    assert_eq!((next.items[0].file.path.as_str(), next.next), ("exports/K1.csv", None));
    let listed = store.chunks_list(&created.job_id, Some(ChunkStatus::Done), None, 9).await.unwrap();
    assert_eq!(listed.items.len(), 2);

    // A second job reuses what the first one made.
    store.job_submit(job(2, 1)).await.unwrap();
    let chunk = claim(&store, worker, queue, 1).await.remove(0);
    let begin = FileBegin {
        lease: chunk.lease,
        identity: identity(&chunk),
        place: place(&chunk),
        definition: "d1".into(),
        reuse: Reuse::Any,
    };
    let FileBegun::Reusable(record) = store.file_begin(&begin).await.unwrap() else { panic!() };
    assert_eq!((record.generation, &record.job_id), (1, &created.job_id));
    let finish = Finish {
        lease: chunk.lease,
        claimed_at: chunk.claimed_at,
        file: Some(FileOutcome::Reused { identity: identity(&chunk), record }),
        reason: "old".into(),
        result: None,
    };
    assert_eq!(store.chunks_finish(&[finish]).await.unwrap(), [chunk.lease]);
    let second = store.job_get(&chunk.job_id).await.unwrap().unwrap();
    assert_eq!((second.status, second.counts.reused, second.counts.rows), (JobStatus::Completed, 1, 10));
    let file = store.file_get(&chunk.job_id, chunk.lease.chunk).await.unwrap().unwrap();
    assert!(file.current && file.file.reused);
    assert_eq!(file.current_job, Some(created.job_id));
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_no_transaction_open() {
    let database = Database::new();
    let store = database.open().await.unwrap();
    let (worker, queue) = prepare(&store).await;
    for number in 0..20 {
        // Polled once and dropped: the call is under way, and goes on without us.
        assert!(store.job_submit(job(number, 3)).now_or_never().is_none());
    }
    store.ready().await.unwrap();
    let claimed = claim(&store, worker, queue, 100).await;
    assert_eq!(claimed.len(), 60, "writes are served in order, and each one whole");
}
