//! Whole jobs through the handler: files of two scopes never meet, and what fails closed does so.

use std::time::Duration;

use chrono::TimeDelta;
use outhaul::testing::{Drained, TempStore, drain};
use outhaul::{Handler as _, Registry};
use outhaul_core::clock;
use outhaul_core::id::JobId;
use outhaul_core::identity::Identity;
use outhaul_core::job::{EXPORT, Job, JobStatus, NewJob, OnFailure, OnParentFailure};
use outhaul_core::json::Json;
use outhaul_core::state::ChunkState;
use outhaul_export::request::{ExportRequest, Item, MAX_PROBLEMS};
use outhaul_export::settings::{ExportSettings, ScopeSettings};
use outhaul_export::storage::Storage;
use outhaul_export::{ExportHandler, ExportPlan, Exports};
use serde_json::json;
use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;

use crate::common::sqlite;
use crate::stage::{Stage, by, caller, exports, secured};

const QUERY: &str = "select n from t where county = :claims.county and :key <> '' order by n";

struct Works {
    folder: TempDir,
    store: TempStore,
    settings: ExportSettings,
}

impl Works {
    /// On a SQLite source with two rows, one of each county.
    async fn on_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("source.db");
        let url = format!("sqlite:{}?mode=rwc", path.display());
        let mut admin = SqliteConnection::connect(&url).await.unwrap();
        let sql = "create table t (n int, county text); insert into t values (1, 'kent'), (2, 'essex')";
        sqlx::raw_sql(sql).execute(&mut admin).await.unwrap();
        admin.close().await.unwrap();
        let settings = exports(sqlite(path), QUERY, by(&["county"]), folder.path().join("files"));
        Self { folder, store: TempStore::open().await.unwrap(), settings }
    }

    fn handler(&self) -> ExportHandler {
        let storage = Storage::open(&self.settings.storage).unwrap();
        let storage = storage.claim(self.store.store().installation(), &[]).unwrap();
        ExportHandler::new(&self.settings, storage).unwrap()
    }

    fn plan(&self, identity: &Identity) -> ExportPlan {
        let items = vec![Item { key: "A".into(), effective_dates: vec!["20250215".into()] }];
        let request = ExportRequest { items, ..ExportRequest::default() };
        let exports = Exports::new(&self.settings).unwrap();
        request.plan(&exports, Some(identity), MAX_PROBLEMS, &|_| false).unwrap()
    }

    /// Stores a job for a plan, runs all there is with the present settings, and returns the job.
    async fn run(&self, plan: &ExportPlan, params: Json) -> Job {
        let job_id = self.submit(plan, params).await;
        self.drain().await;
        self.job(&job_id).await
    }

    async fn submit(&self, plan: &ExportPlan, params: Json) -> JobId {
        let job_id = JobId::new(clock::now(), u64::from(rand()));
        let job = NewJob {
            job_id: job_id.clone(),
            job_type: EXPORT.to_owned(),
            dataset: Some(plan.dataset.name.clone()),
            owner: "ann".to_owned(),
            idempotency: None,
            unique_key: None,
            request: plan.canonical(),
            params,
            priority: 5,
            on_failure: OnFailure::default(),
            labels: Default::default(),
            parents: Vec::new(),
            on_parent_failure: OnParentFailure::default(),
            run_at: None,
            base_path: None,
            identity: None,
            scope: plan.scope().to_owned(),
            made_by: None,
            quota: None,
            chunks: plan.chunks.clone(),
        };
        let handler = self.handler();
        self.store.store().queues_sync(&handler.queues()).await.unwrap();
        self.store.store().job_submit(job).await.unwrap();
        job_id
    }

    async fn drain(&self) {
        self.drain_with(self.handler()).await;
    }

    async fn drain_with(&self, handler: ExportHandler) -> Drained {
        drain(&self.store.store(), &Registry::new().with(handler)).await.unwrap()
    }

    async fn state(&self, job_id: &JobId) -> ChunkState {
        self.store.store().chunks_list(job_id, None, None, 10).await.unwrap().items[0].state
    }

    async fn job(&self, job_id: &JobId) -> Job {
        self.store.store().job_get(job_id).await.unwrap().unwrap()
    }

    /// The path and the content of a job's one file.
    async fn file(&self, job: &Job) -> (String, String) {
        let files = self.store.store().files_list(&job.job_id, None, 10).await.unwrap();
        let path = files.items[0].file.path.clone();
        let content = std::fs::read_to_string(self.folder.path().join("files").join(&path)).unwrap();
        (path, content)
    }
}

fn rand() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

fn of(county: &str) -> Identity {
    Identity { verified_at: clock::now(), ..caller(&[("county", json!(county))]) }
}

#[tokio::test]
async fn two_scopes_have_two_files_for_one_key_and_date() {
    let works = Works::on_sqlite().await;
    let (kent, essex) = (works.plan(&of("kent")), works.plan(&of("essex")));
    assert_ne!(kent.scope(), essex.scope());
    let mut paths = Vec::new();
    // Again for Kent: an old date, so that a file may be reused, but only its own.
    for (plan, content, reused) in
        [(&kent, "n\n1\n", 0), (&essex, "n\n2\n", 0), (&kent, "n\n1\n", 1), (&essex, "n\n2\n", 1)]
    {
        let job = works.run(plan, plan.params()).await;
        assert_eq!((job.status, &job.error_message), (JobStatus::Completed, &None));
        assert_eq!(job.counts.reused, reused);
        let file = works.file(&job).await;
        assert_eq!(
            file,
            (format!("exports/scope={}/2025/02/15/A_20250215.csv", plan.scope()), content.into())
        );
        paths.push(file.0);
        let recorded =
            works.store.store().files_recorded("positions", plan.scope(), "", &plan.wanted()).await;
        assert_eq!(recorded.unwrap().len(), 1);
    }
    assert!(paths[0] != paths[1] && paths[0] == paths[2]);
    let none = works.store.store().files_recorded("positions", "", "", &kent.wanted()).await.unwrap();
    assert_eq!(none.len(), 0, "nothing is anybody's");
}

#[tokio::test]
async fn jobs_fail_closed_and_say_why() {
    let mut works = Works::on_sqlite().await;
    let plan = works.plan(&of("kent"));
    let unscoped = json!({ "format": "CSV", "force": false }).into();
    let job = works.run(&plan, unscoped).await;
    let why = "dataset `positions` shows each caller its own rows, and nothing is known of who submitted this job; submit it again, under another idempotency key";
    assert_eq!(failure(&job), why);

    works.settings.snapshot_max_age = Some(Duration::from_secs(3600));
    let old = Identity { verified_at: clock::now() - TimeDelta::hours(2), ..of("kent") };
    let plan = works.plan(&old);
    let job = works.run(&plan, plan.params()).await;
    let why = "the identity this job was submitted with is older than 1h; submit it again, under another idempotency key";
    assert_eq!(failure(&job), why);
    let plan = works.plan(&of("kent"));
    assert_eq!(works.run(&plan, plan.params()).await.status, JobStatus::Completed);

    // A worker whose configuration knows of no scope does not show everything instead.
    let dataset = works.settings.datasets.get_mut("positions").unwrap();
    dataset.scope = ScopeSettings::default();
    dataset.query = "select n from t".into();
    let job_id = works.submit(&plan, plan.params()).await;
    works.drain_with(works.handler().unknown_wait(Duration::ZERO)).await;
    let why = "the rows of dataset `positions` depend on other claims here than where this job was submitted, and no other worker took it for 0s";
    assert_eq!(failure(&works.job(&job_id).await), why);
}

/// A configuration that is rolled out reaches one worker after the other.
#[tokio::test]
async fn what_a_worker_does_not_know_yet_is_left_for_others_uncounted() {
    let mut works = Works::on_sqlite().await;
    let (plan, known) = (works.plan(&of("kent")), works.settings.clone());
    let mut elsewhere = known.clone();
    let mut other = elsewhere.datasets.remove("positions").unwrap();
    other.name = "other".to_owned();
    elsewhere.datasets.insert("other".to_owned(), other);
    let mut unscoped = known.clone();
    let dataset = unscoped.datasets.get_mut("positions").unwrap();
    dataset.scope = ScopeSettings::default();
    dataset.query = "select n from t".into();

    for (unfit, why) in [
        (elsewhere, "dataset `positions` is not known to this worker"),
        (unscoped, "the rows of dataset `positions` depend on other claims here"),
    ] {
        works.settings = known.clone();
        let job_id = works.submit(&plan, plan.params()).await;
        works.settings = unfit;
        assert_eq!(works.drain_with(works.handler()).await, Drained::default(), "no attempt counts: {why}");
        assert_eq!(works.state(&job_id).await, ChunkState::Created, "put back: {why}");
        assert_eq!(works.job(&job_id).await.error_message, None, "{why}");

        // It comes back after a second, when it has waited for as long as it may.
        while works.state(&job_id).await != ChunkState::Dead {
            works.drain_with(works.handler().unknown_wait(Duration::ZERO)).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let job = works.job(&job_id).await;
        let said = failure(&job);
        assert!(said.starts_with(why) && said.ends_with(", and no other worker took it for 0s"), "{said}");

        // A person asks for it again, when somebody knows it.
        works.settings = known.clone();
        works.store.store().job_redrive(&job_id).await.unwrap();
        works.drain().await;
        assert_eq!(works.job(&job_id).await.status, JobStatus::Completed, "{why}");
    }
}

#[tokio::test]
async fn a_job_whose_row_security_does_not_hold_is_not_run() {
    let stage = Stage::new(
        "create table t (n int, county text); insert into t values (1, 'kent'), (2, 'essex');
         alter table t enable row level security; grant select on t to {p}reader;
         create policy c on t using (county = current_setting('request.jwt.claims')::json ->> 'county')",
    )
    .await;
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    let settings =
        |user| exports(stage.settings(user), "select n from t", secured(&["county"]), files.clone());
    let store = TempStore::open().await.unwrap();
    let mut works = Works { folder, store, settings: settings(None) };
    let problems = works.handler().check_row_security().await;
    assert!(problems.len() == 1 && problems[0].is_certain, "{problems:?}");
    let plan = works.plan(&of("kent"));
    let job = works.run(&plan, plan.params()).await;
    assert_eq!(failure(&job), "row-level security of dataset `positions` does not hold");

    works.settings = settings(Some("reader"));
    assert_eq!(works.handler().check_row_security().await, []);
    let job = works.run(&plan, plan.params()).await;
    assert_eq!((job.status, &job.error_message), (JobStatus::Completed, &None));
    assert_eq!(works.file(&job).await.1, "n\n1\n");
}

fn failure(job: &Job) -> &str {
    assert_eq!(job.status, JobStatus::Failed);
    let message = job.error_message.as_deref().unwrap();
    message.strip_prefix("Chunk failed after retries: key=A date=2025-02-15: ").unwrap()
}
