//! Runs chunks of exports: decide whether a file may be reused, else stream the source into storage
//! and publish. Holds no state between chunks but connections.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt as _;
use outhaul::{Cause, ChunkContext, Failed, Handler, Outcome, Stop};
use outhaul_core::file::{
    FileBegun, FileIdentity, FileOutcome, FileRecord, Leftover, PublishedFile, Upload, WriteGrant,
};
use outhaul_core::id::Lease;
use outhaul_core::job::EXPORT;
use outhaul_core::progress::Total;
use outhaul_core::queue::QueueSpec;
use outhaul_core::retry::RetryPolicy;
use outhaul_core::reuse::Reuse;

use crate::base_path::ForeignBasePath;
use crate::dataset::{Dataset, Exports, ExportsError};
use crate::not_yet::{NotYet, Unfit};
use crate::pace::Pace;
use crate::reason;
use crate::request::Params;
use crate::rights::{self, Rights};
use crate::settings::ExportSettings;
use crate::source::{self, Count, Query, RowSecurityProblem, Sink, Source};
use crate::storage::{Publisher, StagedFile, Storage};

/// How soon to look again when another chunk writes the same file.
const BUSY_WAIT: Duration = Duration::from_millis(500);

/// The handler of `EXPORT` jobs.
pub struct ExportHandler {
    exports: Arc<Exports>,
    sources: BTreeMap<String, Arc<dyn Source>>,
    /// Of each dataset.
    paces: BTreeMap<String, Pace>,
    /// Whether row-level security was found to hold, for each dataset that relies on it.
    proved: BTreeMap<String, AtomicBool>,
    storage: Storage,
    snapshot_max_age: Option<Duration>,
    /// Applies to chunks of unknown datasets whose lease ran out.
    retry: RetryPolicy,
    not_yet: NotYet,
}

impl ExportHandler {
    /// Checks the settings whole; connects to nothing.
    pub fn new(settings: &ExportSettings, storage: Storage) -> Result<Self, ExportsError> {
        let (mut sources, mut problems) = (BTreeMap::new(), Vec::new());
        for (name, settings) in &settings.sources {
            match source::open(settings) {
                Ok(source) => drop(sources.insert(name.clone(), source)),
                Err(problem) => problems.push(problem),
            }
        }
        match Exports::new(settings) {
            Ok(exports) if problems.is_empty() => {
                let paces = exports.datasets().map(|dataset| (dataset.name.clone(), Pace::default()));
                let paces = paces.collect();
                let relying = exports.datasets().filter(|dataset| dataset.relies_on_row_security());
                let proved = relying.map(|dataset| (dataset.name.clone(), AtomicBool::new(false))).collect();
                let (snapshot_max_age, retry) = (settings.snapshot_max_age, settings.retry.clone());
                let exports = Arc::new(exports);
                let not_yet = NotYet::default();
                Ok(Self { exports, sources, paces, proved, storage, snapshot_max_age, retry, not_yet })
            }
            Ok(_) => Err(ExportsError(problems)),
            Err(ExportsError(more)) => Err(ExportsError([problems, more].concat())),
        }
    }

    /// How long a chunk of an unknown dataset may wait for a worker that knows the dataset; default: an hour.
    pub fn unknown_wait(self, patience: Duration) -> Self {
        Self { not_yet: NotYet::with_patience(patience), ..self }
    }

    /// What requests are checked against.
    pub fn exports(&self) -> &Arc<Exports> {
        &self.exports
    }

    /// The sources by name, for checks.
    pub fn sources(&self) -> &BTreeMap<String, Arc<dyn Source>> {
        &self.sources
    }

    /// Where files go.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Why datasets must not rely on their sources' row-level security, of all that do. What is certain is a
    /// reason not to start; what could not be found out now is looked at again before the dataset is used.
    pub async fn check_row_security(&self) -> Vec<RowSecurityProblem> {
        let mut problems = Vec::new();
        for name in self.proved.keys() {
            if let Some(dataset) = self.exports.dataset(name) {
                problems.extend(self.row_security_problems(dataset).await);
            }
        }
        problems
    }

    async fn row_security_problems(&self, dataset: &Dataset) -> Vec<RowSecurityProblem> {
        let (Some(proved), Some(source)) =
            (self.proved.get(&dataset.name), self.sources.get(&dataset.source))
        else {
            return Vec::new();
        };
        let problems = source.check_row_security(dataset).await;
        proved.store(problems.is_empty(), Ordering::Relaxed);
        problems
    }

    /// Looks whether row-level security holds, once for each dataset that relies on it.
    async fn prove_row_security(&self, task: &Task<'_>) -> Result<(), Failed> {
        let proved = self.proved.get(&task.dataset.name);
        if proved.is_none_or(|proved| proved.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let looking = async { Ok::<_, Failed>(self.row_security_problems(task.dataset).await) };
        let problems = task.unless_stopped(looking).await?;
        let worst = problems.iter().find(|problem| problem.is_certain).or(problems.first());
        worst.map_or(Ok(()), |problem| {
            Err(source::insecure(&problem.dataset, &problem.to_string(), problem.is_certain))
        })
    }

    fn task<'a>(&'a self, context: &'a ChunkContext) -> Result<Task<'a>, Unfit> {
        let chunk = context.chunk();
        let (Some(name), Some(key), Some(date)) = (&chunk.dataset, &chunk.key, chunk.effective_date) else {
            return Err(Failed::Fatal("the chunk names no dataset, key and date".into()).into());
        };
        let unknown = |what| Unfit::NotYet(format!("{what} is not known to this worker"));
        let dataset = self.exports.dataset(name).ok_or_else(|| unknown(format!("dataset `{name}`")))?;
        let source = self.sources.get(&dataset.source);
        let source = source.ok_or_else(|| unknown(format!("source `{}`", dataset.source)))?;
        let params = Params::from_json(&chunk.params).map_err(|what| unknown(what.to_owned()))?;
        let pace = self.paces.get(name).ok_or_else(|| unknown(format!("dataset `{name}`")))?;
        let rights = rights::admit(dataset, &params, chunk.claimed_at, self.snapshot_max_age)?;
        let identity = dataset.identity(rights.as_ref().map_or("", Rights::scope), key, date);
        let (source, storage) = (&**source, &self.storage);
        Ok(Task { context, dataset, source, pace, storage, params, rights, identity })
    }
}

#[async_trait]
impl Handler for ExportHandler {
    fn job_type(&self) -> &str {
        EXPORT
    }

    fn queues(&self) -> Vec<QueueSpec> {
        self.exports.queues().to_vec()
    }

    fn retry(&self, dataset: Option<&str>) -> RetryPolicy {
        self.dataset(dataset).map_or(&self.retry, |dataset| &dataset.retry).clone()
    }

    fn timeout(&self, dataset: Option<&str>) -> Option<Duration> {
        self.dataset(dataset)?.timeout
    }

    fn stall_timeout(&self, dataset: Option<&str>) -> Option<Duration> {
        Some(self.dataset(dataset)?.stall_timeout)
    }

    async fn run(&self, context: &ChunkContext) -> Result<Outcome, Failed> {
        let task = match self.task(context) {
            Ok(task) => task,
            Err(Unfit::NotYet(cause)) => return self.not_yet.put_back(context, cause),
            Err(Unfit::Failed(failed)) => return Err(failed),
        };
        self.prove_row_security(&task).await?;
        let chunk = context.chunk();
        let window = self.exports.reuse_window_days;
        let (date, today) = (task.identity.effective_date, chunk.claimed_at.date_naive());
        let rule = Reuse::decide(date, today, window, chunk.submitted_at, task.params.force);
        let mut begun = task.begin(rule).await?;
        let mut gone = false;
        if let FileBegun::Reusable(record) = &begun {
            if task.is_there(record).await? {
                let reason = reason::reused(rule, window);
                let file = FileOutcome::Reused { identity: task.identity, record: record.clone() };
                return Ok(Outcome::Done { file: Some(file), reason, result: None });
            }
            gone = true;
            begun = task.begin(Reuse::Never).await?;
        }
        match begun {
            FileBegun::Write(grant) => {
                let reason = if gone {
                    reason::GONE.to_owned()
                } else {
                    reason::generated(rule, window, grant.recorded.as_ref(), &task.path())
                };
                let file = task.generate(&grant).await?;
                Ok(Outcome::Done { file: Some(FileOutcome::Generated(file)), reason, result: None })
            }
            // A second `Reusable` cannot be; if it were, it would be worth another look.
            FileBegun::Busy | FileBegun::Reusable(_) => Ok(Outcome::Snooze(BUSY_WAIT)),
            FileBegun::Foreign(owner) => {
                let text = format!(
                    "dataset `{}` cannot be published where it is configured to be",
                    task.dataset.name
                );
                let foreign = ForeignBasePath::new(task.dataset, &owner).to_string();
                Err(Failed::Fatal(Cause::with_detail(text, foreign)))
            }
            FileBegun::LeaseLost => Err(Failed::Stopped),
        }
    }

    async fn remove_leftover(&self, leftover: &Leftover) -> Result<(), String> {
        self.storage.remove_leftover(leftover).await.map_err(|error| error.to_string())
    }

    async fn staged_attempts(&self) -> Result<HashSet<Lease>, String> {
        self.storage.staged_attempts().await.map_err(|error| error.to_string())
    }

    async fn remove_staged(&self, ended: HashSet<Lease>) -> Result<u64, String> {
        self.storage.remove_staged(ended).await.map_err(|error| error.to_string())
    }

    async fn is_published(&self, record: &FileRecord) -> Result<bool, String> {
        self.storage.is_there(record).await.map_err(|error| error.to_string())
    }
}

impl ExportHandler {
    fn dataset(&self, name: Option<&str>) -> Option<&Arc<Dataset>> {
        self.exports.dataset(name?)
    }
}

/// One attempt at one chunk.
struct Task<'a> {
    context: &'a ChunkContext,
    dataset: &'a Dataset,
    source: &'a dyn Source,
    pace: &'a Pace,
    storage: &'a Storage,
    params: Params,
    rights: Option<Rights>,
    identity: FileIdentity,
}

impl Task<'_> {
    async fn begin(&self, rule: Reuse) -> Result<FileBegun, Failed> {
        let (identity, definition) = (self.identity.clone(), self.dataset.definition.clone());
        let place = self.dataset.place(&identity, self.params.format);
        let begin = self.context.begin_file(identity, place, definition, rule);
        self.unless_stopped(begin).await
    }

    async fn is_there(&self, record: &FileRecord) -> Result<bool, Failed> {
        self.unless_stopped(self.storage.is_there(record)).await
    }

    fn path(&self) -> String {
        self.dataset.file_path(&self.identity, self.params.format)
    }

    async fn generate(&self, grant: &WriteGrant) -> Result<PublishedFile, Failed> {
        let publisher: &dyn Publisher = self;
        let begin = self.storage.begin(publisher, self.context.chunk().lease, self.path(), grant);
        let mut staged = self.unless_stopped(begin).await?;
        let rows = match self.stream(&mut staged).await {
            Ok(rows) if self.context.should_stop().is_none() => rows,
            ended => {
                staged.abort().await;
                return Err(ended.err().unwrap_or(Failed::Stopped));
            }
        };
        // The source is done: how long storage takes to publish says nothing about it.
        let _waiting = self.context.waiting();
        let published = tokio::select! {
            published = staged.publish() => published?,
            () = self.lost() => return Err(Failed::Stopped),
        };
        Ok(PublishedFile {
            identity: self.identity.clone(),
            path: published.path,
            rows,
            bytes: i64::try_from(published.bytes).unwrap_or(i64::MAX),
            sha256: published.sha256,
            etag: published.etag,
            format: self.params.format.as_str().to_owned(),
            definition: self.dataset.definition.clone(),
        })
    }

    async fn stream(&self, staged: &mut StagedFile<'_>) -> Result<i64, Failed> {
        let count = match &self.dataset.count {
            _ if !self.pace.asks() => Count::No,
            Some(template) => Count::Exact(template),
            None => Count::Estimate,
        };
        let query = Query {
            dataset: &self.dataset.name,
            template: &self.dataset.template,
            key: &self.identity.key,
            effective_date: self.identity.effective_date,
            rights: self.rights.as_ref(),
            count,
            slot: self.context.slot_name(),
        };
        let stop = self.context.stopped().map(drop).boxed();
        let mut sink = FileSink { context: self.context, staged, began: None };
        let streamed = self.source.stream(&query, stop, &mut sink).await;
        if let Some(began) = sink.began {
            self.pace.note(began.elapsed(), streamed.is_ok());
        }
        streamed
    }

    /// Work of storage or store, which the source's stall limit does not concern.
    async fn unless_stopped<T, E: Into<Failed>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failed> {
        let _waiting = self.context.waiting();
        tokio::select! {
            biased;
            _ = self.context.stopped() => Err(Failed::Stopped),
            done = work => done.map_err(Into::into),
        }
    }

    /// Waits until publishing must be given up. A cancellation or a shutdown comes too late for that:
    /// the lease still holds, and the file is nearly there.
    async fn lost(&self) {
        if matches!(self.context.stopped().await, Stop::Cancelled | Stop::Shutdown) {
            std::future::pending().await
        }
    }
}

#[async_trait]
impl Publisher for Task<'_> {
    async fn may_publish(&self) -> Result<(), Failed> {
        self.context.may_publish().await
    }

    async fn record_upload(&self, upload: &Upload) -> Result<(), Failed> {
        self.context.record_upload(&self.identity, upload).await
    }
}

/// Passes a source's CSV on to a staged file, and its signs of life to the engine.
struct FileSink<'a, 'b> {
    context: &'a ChunkContext,
    staged: &'a mut StagedFile<'b>,
    /// When the source began with the query.
    began: Option<Instant>,
}

#[async_trait]
impl Sink for FileSink<'_, '_> {
    async fn write(&mut self, csv: Bytes) -> Result<(), Failed> {
        // Slow storage, or uploads of others that come first, are no stall of the source.
        let _waiting = self.context.waiting();
        Ok(self.staged.write(csv).await?)
    }

    fn expect(&mut self, total: Total) {
        self.context.expect(total);
    }

    fn progress(&mut self, rows: i64, bytes: i64) {
        self.began.get_or_insert_with(Instant::now);
        self.context.progress(rows, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::StorageTarget;
    use crate::testing::{dataset, settings};

    /// Another process may know it, and this one must not use up more attempts than were allowed.
    #[test]
    fn a_dataset_that_is_not_known_here_is_retried_as_all_are() {
        let policy = |max_attempts| RetryPolicy { max_attempts, ..RetryPolicy::default() };
        let mut known = dataset("positions", true);
        known.retry = policy(9);
        let folder = tempfile::tempdir().unwrap();
        let mut settings = ExportSettings { retry: policy(3), ..settings([known]) };
        settings.storage.target = StorageTarget::Local(folder.path().to_owned());
        let storage = Storage::open(&settings.storage).unwrap();
        let handler = ExportHandler::new(&settings, storage).unwrap();
        assert_eq!(handler.retry(Some("positions")).max_attempts, 9);
        assert_eq!(handler.retry(Some("elsewhere")).max_attempts, 3);
        assert_eq!(handler.retry(None).max_attempts, 3);
    }
}
