//! A custom job as the engine sees it: one handler, one queue, one chunk. The job itself runs on the
//! jobs' threads; here it is only waited for, so that an attempt can always be ended and recorded.

use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::json::Json;
use outhaul_core::queue::QueueSpec;
use outhaul_core::retry::RetryPolicy;
use outhaul_core::step::result_problem;
use tokio::task::JoinError;
use tracing::{Instrument, Span};

use super::context::Context;
use super::error::JobError;
use super::runtime::{Attempt, Who};
use super::state::Shared;
use super::{Job, JobOptions, payload, unique_key_of};
use crate::context::ChunkContext;
use crate::envelope::Envelope;
use crate::handler::{Failed, Handler, Outcome};
use crate::submission::queue_of;

/// How long an aborted job is waited for before its outcome is recorded without it.
const TO_END: Duration = Duration::from_secs(1);

/// Runs the jobs of one type.
pub(crate) struct JobHandler<J> {
    options: JobOptions,
    shared: Arc<Shared>,
    job: PhantomData<fn() -> J>,
}

impl<J: Job> JobHandler<J> {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { options: J::options(), shared, job: PhantomData }
    }
}

#[async_trait]
impl<J: Job> Handler for JobHandler<J> {
    fn job_type(&self) -> &str {
        J::TYPE
    }

    fn queues(&self) -> Vec<QueueSpec> {
        vec![QueueSpec { name: queue_of(J::TYPE), max_concurrent: self.options.budget() }]
    }

    fn retry(&self, _dataset: Option<&str>) -> RetryPolicy {
        self.options.own_retry().cloned().unwrap_or_else(|| self.shared.retry())
    }

    fn timeout(&self, _dataset: Option<&str>) -> Option<Duration> {
        self.options.limit()
    }

    fn stall_timeout(&self, _dataset: Option<&str>) -> Option<Duration> {
        None
    }

    async fn run(&self, chunk: &ChunkContext) -> Result<Outcome, Failed> {
        let claimed = chunk.chunk();
        let who = Who { job_id: claimed.job_id.clone(), job_type: claimed.job_type.clone() };
        // Without the threads: a stuck job must not keep alive what it is stuck on.
        let context = Context::new(chunk.clone().with_jobs(None), self.shared.values());
        let watching = context.watching();
        let work = async move { outcome(attempt::<J>(&context).await) };
        let mut attempt = Attempt::start(chunk.jobs(), who, work.instrument(Span::current()));
        tokio::select! {
            ended = attempt.ended() => return settle(ended),
            _ = chunk.stopped() => {}
        }
        if watching.load(Ordering::Acquire) {
            // It looks for the word itself. If it takes too long, the engine drops this future.
            return settle(attempt.ended().await);
        }
        attempt.abort();
        match tokio::time::timeout(TO_END, attempt.ended()).await {
            Ok(ended) => settle(ended),
            Err(_) => Err(Failed::Stopped),
        }
    }

    fn unique_key(&self, payload: &Json) -> Option<String> {
        unique_key_of::<J>(payload)
    }
}

/// Reads the payload and runs the job.
pub(crate) async fn attempt<J: Job>(context: &Context) -> Result<J::Output, JobError> {
    let stored = Envelope::from_params(&context.chunk().chunk().params).map_err(JobError::fatal)?;
    let job: J = payload::read(&stored.payload).map_err(JobError::fatal)?;
    job.run(context).await
}

/// What is recorded of the job's own answer.
fn outcome<T: serde::Serialize>(answer: Result<T, JobError>) -> Result<Outcome, Failed> {
    let output = match answer {
        Ok(output) => output,
        Err(error) => return error.into_outcome(),
    };
    let text = match serde_json::to_string(&output) {
        Ok(text) => text,
        Err(error) => return JobError::fatal(format!("its result is no JSON: {error}")).into_outcome(),
    };
    if let Some(problem) = result_problem(&text) {
        return Err(Failed::Retryable(problem.into()));
    }
    let result = (text != "null").then_some(text);
    Ok(Outcome::Done { file: None, reason: String::new(), result })
}

fn settle(ended: Result<Result<Outcome, Failed>, JoinError>) -> Result<Outcome, Failed> {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(outcome) => outcome,
        // Goes on where the engine catches it; the panic's hook has run already.
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_aborted)) => Err(Failed::Stopped),
    }
}
