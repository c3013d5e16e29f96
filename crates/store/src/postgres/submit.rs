//! Submission: any number of jobs with all their chunks in one transaction, each either stored or
//! found to be there already.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use outhaul_core::id::JobId;
use outhaul_core::job::{Job, NewChunk, NewJob, OnParentFailure};
use outhaul_core::store::{StoreError, StoreResult, Submitted};
use sqlx::{Connection, PgConnection};

use super::PostgresStore;
use super::pool::begin;
use super::row::{JobRow, interval};
use super::schema::Schema;
use crate::error::{Undone, from_sqlx, undone};

/// Chunks inserted by one statement.
const CHUNKS_PER_STATEMENT: usize = 10_000;

impl PostgresStore {
    pub(super) async fn submit(&self, job: NewJob) -> StoreResult<Submitted> {
        let mut answers = self.submit_all(vec![job]).await?;
        answers.pop().ok_or_else(|| StoreError::Refused("a submission without an answer".into()))
    }

    pub(super) async fn submit_all(&self, jobs: Vec<NewJob>) -> StoreResult<Vec<Submitted>> {
        let queues = self.bounded(|| self.queues_of(&jobs)).await?;
        let batch = Arc::new(self.batch_in(jobs, queues));
        self.bounded(|| self.store_batch(batch.clone())).await
    }

    async fn store_batch(&self, batch: Arc<Batch>) -> StoreResult<Vec<Submitted>> {
        let pool = self.pool();
        // Spawned: a client that hangs up must not leave a transaction half-way.
        let work = tokio::spawn(async move {
            let mut connection = pool.acquire().await.map_err(from_sqlx)?;
            let mut tx = begin(&mut connection).await.map_err(from_sqlx)?;
            let answers = batch.submit(&mut tx).await?;
            tx.commit().await.map_err(from_sqlx)?;
            Ok(answers)
        });
        work.await.map_err(|error| StoreError::Refused(error.into()))?
    }

    /// Submits inside a transaction of the caller's, on a connection to the same database: the job is
    /// there if and only if the caller commits.
    pub async fn job_submit_in(&self, connection: &mut PgConnection, job: NewJob) -> StoreResult<Submitted> {
        let stored = self.batch(vec![job]).await?.submit(connection).await;
        if stored.as_ref().is_err_and(|error| undone(error) == Some(Undone::StalePlan)) {
            // This transaction is lost; the caller's next one prepares its statements again. If clearing fails, the
            // connection is broken, and its next use fails too.
            let _ = connection.clear_cached_statements().await;
        }
        let mut answers = stored?;
        answers.pop().ok_or_else(|| StoreError::Refused("a submission without an answer".into()))
    }

    /// How many connections there are for everything that is asked at once. A submission holds one while it is
    /// stored, and may wait for another of its owner's meanwhile: whoever lets many submit should leave some to others.
    pub fn most_connections(&self) -> u32 {
        self.pool().pool.options().get_max_connections()
    }

    /// Looks up what a submission needs to know. Outside of transactions: it may use another connection.
    pub(super) async fn batch(&self, jobs: Vec<NewJob>) -> StoreResult<Batch> {
        let queues = self.queues_of(&jobs).await?;
        Ok(self.batch_in(jobs, queues))
    }

    async fn queues_of(&self, jobs: &[NewJob]) -> StoreResult<HashMap<String, i32>> {
        let mut queues = HashMap::new();
        for name in jobs.iter().flat_map(|job| &job.chunks).map(|chunk| &chunk.queue) {
            if !queues.contains_key(name) {
                queues.insert(name.clone(), self.queue_key(name).await?);
            }
        }
        Ok(queues)
    }

    fn batch_in(&self, jobs: Vec<NewJob>, queues: HashMap<String, i32>) -> Batch {
        let (window, step) = (self.settings.idempotency_window, self.settings.fairness_step);
        Batch { schema: self.schema, jobs, queues, window, step, predecessor: None }
    }
}

/// Jobs to be stored in one transaction.
pub(super) struct Batch {
    schema: Schema,
    jobs: Vec<NewJob>,
    queues: HashMap<String, i32>,
    window: Duration,
    step: Duration,
    /// The job that the engine makes these jobs wait for.
    predecessor: Option<JobId>,
}

impl Batch {
    /// Makes every job of the batch wait for the end of one more job, good or bad. That job may have any owner, because
    /// the engine asks for the wait and not the owner of the jobs.
    pub(super) fn wait_for(&mut self, parent: &JobId) {
        self.predecessor = Some(parent.clone());
        for job in self.jobs.iter_mut().filter(|job| !job.parents.contains(parent)) {
            job.on_parent_failure = OnParentFailure::Run;
            job.parents.push(parent.clone());
        }
    }

    pub(super) async fn submit(&self, connection: &mut PgConnection) -> StoreResult<Vec<Submitted>> {
        self.release_keys(connection).await?;
        let parents = self.lock_parents(connection).await?;
        let quotas = self.quotas(connection).await?;
        let keys = self.insert_jobs(connection, &parents, &quotas).await?;
        self.insert_chunks(connection, &keys).await?;
        self.insert_parents(connection, &keys, &parents).await?;
        let mut stored = self.stored(connection, &keys).await?;
        let mut answers = Vec::with_capacity(self.jobs.len());
        for job in &self.jobs {
            let missing = parents.missing(job);
            answers.push(match stored.remove(job.job_id.as_str()) {
                Some(created) => Submitted::Created(created),
                // A repeated request finds its job, also when a parent has been pruned since.
                None => match found(self.schema, connection, job).await? {
                    Some(found) => found,
                    None if !missing.is_empty() => Submitted::NoSuchParents(missing),
                    None if quotas.forbid(job) => Submitted::OverQuota(quotas.open(job)),
                    None => return Err(in_the_way(job)),
                },
            });
        }
        Ok(answers)
    }

    async fn release_keys(&self, connection: &mut PgConnection) -> StoreResult<()> {
        let keyed = self.jobs.iter().filter_map(|job| Some((job.owner.as_str(), job.idempotency.as_ref()?)));
        let (owners, keys): (Vec<&str>, Vec<&str>) =
            keyed.map(|(owner, idempotency)| (owner, idempotency.key.as_str())).unzip();
        if owners.is_empty() {
            return Ok(());
        }
        sqlx::query(self.schema.sql(include_str!("sql/jobs_submit_release_keys.sql")))
            .bind(owners)
            .bind(keys)
            .bind(interval(self.window))
            .execute(connection)
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }

    /// Finds the parents of all jobs, and keeps them from being pruned until this transaction has ended.
    async fn lock_parents(&self, connection: &mut PgConnection) -> StoreResult<Parents> {
        let named: BTreeSet<&str> =
            self.jobs.iter().flat_map(|job| &job.parents).map(|parent| parent.as_str()).collect();
        if named.is_empty() {
            return Ok(Parents::default());
        }
        let rows: Vec<(i64, String, String)> =
            sqlx::query_as(self.schema.sql(include_str!("sql/jobs_submit_lock_parents.sql")))
                .bind(named.into_iter().collect::<Vec<_>>())
                .fetch_all(connection)
                .await
                .map_err(from_sqlx)?;
        let found = rows.into_iter().map(|(id, job_id, owner)| (job_id, (id, owner))).collect();
        Ok(Parents { found, predecessor: self.predecessor.clone() })
    }

    /// What the owners with quotas have open, counted under a lock that lasts until the commit.
    async fn quotas(&self, connection: &mut PgConnection) -> StoreResult<Quotas> {
        let owners: BTreeSet<&str> =
            self.jobs.iter().filter(|job| job.quota.is_some()).map(|job| job.owner.as_str()).collect();
        if owners.is_empty() {
            return Ok(Quotas::default());
        }
        let owners: Vec<&str> = owners.into_iter().collect();
        sqlx::query(self.schema.sql(include_str!("sql/jobs_submit_quota_lock.sql")))
            .bind(&owners)
            .execute(&mut *connection)
            .await
            .map_err(from_sqlx)?;
        let open: Vec<(String, i64)> =
            sqlx::query_as(self.schema.sql(include_str!("sql/jobs_submit_open.sql")))
                .bind(&owners)
                .fetch_all(connection)
                .await
                .map_err(from_sqlx)?;
        Ok(Quotas(open.into_iter().map(|(owner, open)| (owner, open.max(0).unsigned_abs())).collect()))
    }

    async fn insert_parents(
        &self,
        connection: &mut PgConnection,
        keys: &BTreeMap<String, i64>,
        parents: &Parents,
    ) -> StoreResult<()> {
        let waits = self.jobs.iter().filter_map(|job| Some((*keys.get(job.job_id.as_str())?, job)));
        let waits = waits.flat_map(|(child, job)| parents.of(job).map(move |parent| (child, parent)));
        let (children, parents): (Vec<i64>, Vec<i64>) = waits.unzip();
        if children.is_empty() {
            return Ok(());
        }
        sqlx::query(self.schema.sql(include_str!("sql/jobs_submit_parents.sql")))
            .bind(children)
            .bind(parents)
            .execute(connection)
            .await
            .map_err(from_sqlx)?;
        Ok(())
    }

    /// Internal keys by job id, of those that were not there already and whose parents are.
    async fn insert_jobs(
        &self,
        connection: &mut PgConnection,
        parents: &Parents,
        quotas: &Quotas,
    ) -> StoreResult<BTreeMap<String, i64>> {
        let may = |job: &&NewJob| parents.missing(job).is_empty() && !quotas.forbid(job);
        let jobs: Vec<&NewJob> = self.jobs.iter().filter(may).collect();
        if jobs.is_empty() {
            return Ok(BTreeMap::new());
        }
        let total = |job: &&NewJob| i32::try_from(job.chunks.len());
        let totals: Vec<i32> = jobs
            .iter()
            .map(total)
            .collect::<Result<_, _>>()
            .map_err(|error| StoreError::Refused(error.into()))?;
        let labels = |job: &&NewJob| serde_json::to_string(&job.labels).expect("text by text is JSON");
        let identity = |job: &&NewJob| {
            let identity = job.identity.as_ref();
            identity.map(|identity| serde_json::to_string(identity).expect("text and JSON values are JSON"))
        };
        let rows: Vec<(i64, String)> = sqlx::query_as(self.schema.sql(include_str!("sql/jobs_submit.sql")))
            .bind(jobs.iter().map(|job| job.job_id.as_str()).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| job.job_type.as_str()).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| job.dataset.as_deref()).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| job.owner.as_str()).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| job.idempotency.as_ref().map(|i| i.key.as_str())).collect::<Vec<_>>())
            .bind(
                jobs.iter()
                    .map(|job| job.idempotency.as_ref().map(|i| i.request_hash.as_str()))
                    .collect::<Vec<_>>(),
            )
            .bind(jobs.iter().map(|job| job.unique_key.as_deref()).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| job.request.as_str()).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| job.params.as_str()).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| job.on_failure.as_str()).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| i16::from(job.priority)).collect::<Vec<_>>())
            .bind(jobs.iter().map(labels).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| job.base_path.as_deref()).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| job.run_at).collect::<Vec<_>>())
            .bind(totals)
            .bind(
                jobs.iter()
                    .map(|job| i32::try_from(job.parents.len()).unwrap_or(i32::MAX))
                    .collect::<Vec<_>>(),
            )
            .bind(jobs.iter().map(|job| job.on_parent_failure.as_str()).collect::<Vec<_>>())
            .bind(jobs.iter().map(identity).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| job.scope.as_str()).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| job.made_by.as_deref()).collect::<Vec<_>>())
            .fetch_all(connection)
            .await
            .map_err(from_sqlx)?;
        Ok(rows.into_iter().map(|(key, job_id)| (job_id, key)).collect())
    }

    async fn insert_chunks(
        &self,
        connection: &mut PgConnection,
        keys: &BTreeMap<String, i64>,
    ) -> StoreResult<()> {
        let of_job = |job: &'_ NewJob| keys.get(job.job_id.as_str()).copied();
        let chunks: Vec<(i64, i32, &NewJob, &NewChunk)> = self
            .jobs
            .iter()
            .filter_map(|job| Some((of_job(job)?, job)))
            .flat_map(|(key, job)| (0..).zip(&job.chunks).map(move |(place, chunk)| (key, place, job, chunk)))
            .collect();
        for chunks in chunks.chunks(CHUNKS_PER_STATEMENT) {
            let queue = |name: &str| self.queues.get(name).copied().unwrap_or(-1);
            sqlx::query(self.schema.sql(include_str!("sql/jobs_submit_chunks.sql")))
                .bind(chunks.iter().map(|(key, ..)| *key).collect::<Vec<_>>())
                .bind(chunks.iter().map(|(_, place, ..)| *place).collect::<Vec<_>>())
                .bind(chunks.iter().map(|(.., chunk)| chunk.chunk_key.as_str()).collect::<Vec<_>>())
                .bind(chunks.iter().map(|(.., chunk)| queue(&chunk.queue)).collect::<Vec<_>>())
                .bind(chunks.iter().map(|(.., chunk)| chunk.key.as_deref()).collect::<Vec<_>>())
                .bind(chunks.iter().map(|(.., chunk)| chunk.effective_date).collect::<Vec<_>>())
                .bind(chunks.iter().map(|(_, _, job, _)| i16::from(job.priority)).collect::<Vec<_>>())
                .bind(chunks.iter().map(|(_, _, job, _)| job.run_at).collect::<Vec<_>>())
                .bind(interval(self.step))
                .bind(chunks.iter().map(|(_, _, job, _)| !job.parents.is_empty()).collect::<Vec<_>>())
                .execute(&mut *connection)
                .await
                .map_err(from_sqlx)?;
        }
        Ok(())
    }

    /// The jobs as they were stored, by job id.
    async fn stored(
        &self,
        connection: &mut PgConnection,
        keys: &BTreeMap<String, i64>,
    ) -> StoreResult<HashMap<String, Job>> {
        let rows: Vec<JobRow> = sqlx::query_as(self.schema.sql(include_str!("sql/jobs_submitted.sql")))
            .bind(keys.values().copied().collect::<Vec<_>>())
            .fetch_all(connection)
            .await
            .map_err(from_sqlx)?;
        let job = |row: JobRow| row.into_job().map(|job| (job.job_id.as_str().to_owned(), job));
        rows.into_iter().map(job).collect()
    }
}

/// What stands in the way of a job that was not stored, if it can be found.
async fn found(
    schema: Schema,
    connection: &mut PgConnection,
    job: &NewJob,
) -> StoreResult<Option<Submitted>> {
    if let Some(idempotency) = &job.idempotency {
        let existing: Option<JobRow> =
            sqlx::query_as(schema.sql(include_str!("sql/jobs_submit_existing.sql")))
                .bind(&job.owner)
                .bind(&idempotency.key)
                .fetch_optional(&mut *connection)
                .await
                .map_err(from_sqlx)?;
        if let Some(existing) = existing {
            let same = existing.request_hash.as_deref() == Some(idempotency.request_hash.as_str());
            return if same {
                existing.into_job().map(|job| Some(Submitted::Existing(job)))
            } else {
                Ok(Some(Submitted::KeyConflict))
            };
        }
    }
    if let Some(unique_key) = &job.unique_key {
        let duplicate: Option<JobRow> =
            sqlx::query_as(schema.sql(include_str!("sql/jobs_submit_duplicate.sql")))
                .bind(&job.job_type)
                .bind(unique_key)
                .fetch_optional(&mut *connection)
                .await
                .map_err(from_sqlx)?;
        if let Some(duplicate) = duplicate {
            return duplicate.into_job().map(|job| Some(Submitted::Duplicate(job)));
        }
    }
    Ok(None)
}

/// Why a job was not stored although nothing in its way can be found.
fn in_the_way(job: &NewJob) -> StoreError {
    if job.idempotency.is_none() && job.unique_key.is_none() {
        return StoreError::Refused("the job's id is taken".into());
    }
    // Released or ended between the two statements: the client may simply ask again.
    StoreError::Unavailable("a job in the way of this one has just ended".into())
}

/// Open chunks by owner, of those whose jobs have quotas.
#[derive(Default)]
struct Quotas(HashMap<String, u64>);

impl Quotas {
    fn open(&self, job: &NewJob) -> u64 {
        self.0.get(&job.owner).copied().unwrap_or(0)
    }

    fn forbid(&self, job: &NewJob) -> bool {
        job.quota.is_some_and(|quota| self.open(job).saturating_add(job.chunks.len() as u64) > quota)
    }
}

/// The parents that exist.
#[derive(Default)]
struct Parents {
    /// Internal key and owner, by job id.
    found: HashMap<String, (i64, String)>,
    /// The job that the engine makes the jobs wait for; any owner.
    predecessor: Option<JobId>,
}

impl Parents {
    /// A job of another owner does not count as found, unless the engine asked for the wait.
    fn get(&self, job: &NewJob, parent: &JobId) -> Option<i64> {
        let (id, owner) = self.found.get(parent.as_str())?;
        (*owner == job.owner || self.predecessor.as_ref() == Some(parent)).then_some(*id)
    }

    fn missing(&self, job: &NewJob) -> Vec<JobId> {
        job.parents.iter().filter(|parent| self.get(job, parent).is_none()).cloned().collect()
    }

    fn of<'a>(&'a self, job: &'a NewJob) -> impl Iterator<Item = i64> + 'a {
        job.parents.iter().filter_map(|parent| self.get(job, parent))
    }
}
