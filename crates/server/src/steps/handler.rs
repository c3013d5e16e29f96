//! Runs a job's steps: whatever is ready and not yet recorded, independent steps at the same time. Each
//! answer is recorded as it arrives, so an attempt that ends early leaves the next one less to do.

use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use outhaul::{Cause, ChunkContext, Envelope, Failed, Handler, Outcome, StepSpec, queue_of};
use outhaul_core::clock;
use outhaul_core::json::Json;
use outhaul_core::queue::QueueSpec;
use outhaul_core::retry::RetryPolicy;
use url::Url;

use super::call::Call;
use super::client::Client;
use super::graph::{Needs, Progress};
use super::sign::Signer;
use super::trace::traceparent;
use crate::config::JobType;

/// Steps of one job that run at the same time.
const PARALLEL: usize = 16;

/// A job type of the configuration.
pub struct HttpJob {
    job_type: String,
    queue: QueueSpec,
    retry: RetryPolicy,
    timeout: Duration,
    steps: Vec<Step>,
    needs: Needs,
    signer: Signer,
    max_response_bytes: usize,
    client: Client,
}

struct Step {
    name: String,
    url: Url,
    timeout: Duration,
}

/// What one attempt sends with every call.
struct Attempt<'a> {
    context: &'a ChunkContext,
    payload: Json,
    traceparent: Option<String>,
}

impl HttpJob {
    /// Makes the handler of `[job_types.NAME]`. Warns of steps that cannot be called as things are.
    pub fn new(name: &str, settings: &JobType, client: Client) -> Self {
        for step in &settings.steps {
            if let Err(refused) = client.check(&step.url) {
                let step = &step.name;
                tracing::warn!(job_type = name, %step, "step {step} of {name} will fail: {refused}");
            }
        }
        let position = |name: &String| settings.steps.iter().position(|step| step.name == *name);
        let needs = settings.steps.iter().map(|step| step.needs.iter().filter_map(position).collect());
        let steps = settings.steps.iter().map(|step| Step {
            name: step.name.clone(),
            url: step.url.clone(),
            timeout: step.timeout,
        });
        Self {
            job_type: name.to_owned(),
            queue: QueueSpec { name: queue_of(name), max_concurrent: settings.max_concurrent },
            retry: settings.retry.clone(),
            timeout: settings.timeout,
            needs: needs.collect(),
            steps: steps.collect(),
            signer: Signer::new(&settings.secrets),
            max_response_bytes: settings.max_response_bytes,
            client,
        }
    }

    async fn run_steps(&self, attempt: &Attempt<'_>) -> Result<Outcome, Failed> {
        let recorded = attempt.context.recorded_steps().await?;
        let mut results: Vec<(String, String)> =
            recorded.into_iter().map(|step| (step.name, step.result)).collect();
        let mut progress =
            Progress::new(&self.needs, |step| results.iter().any(|(name, _)| *name == self.steps[step].name));
        let mut in_flight = FuturesUnordered::new();
        let mut failed: Option<Failed> = None;
        loop {
            // After a failure nothing new starts, but what is in flight may end and is kept.
            while failed.is_none()
                && in_flight.len() < PARALLEL
                && let Some(step) = progress.start_next()
            {
                let body = self.body(attempt, &self.steps[step].name, &results);
                in_flight.push(async move { (step, self.run_step(attempt, &self.steps[step], body).await) });
            }
            match in_flight.next().await {
                None => break,
                Some((step, Ok(result))) => {
                    progress.done(step);
                    results.push((self.steps[step].name.clone(), result));
                }
                Some((_, Err(Failed::Stopped))) => return Err(Failed::Stopped),
                Some((_, Err(also))) => failed = Some(worse(failed, also)),
            }
        }
        if let Some(failed) = failed {
            return Err(failed);
        }
        let last = self.steps.last().map(|step| step.name.as_str());
        let result = results.into_iter().find(|(name, _)| Some(name.as_str()) == last);
        Ok(Outcome::Done { file: None, reason: String::new(), result: result.map(|(_, result)| result) })
    }

    async fn run_step(&self, attempt: &Attempt<'_>, step: &Step, body: String) -> Result<String, Failed> {
        let job_id = attempt.context.chunk().job_id.as_str();
        let id = format!("{job_id}/{}", step.name);
        let mut headers = self.signer.headers(&id, clock::now().timestamp(), &body);
        headers.push(("idempotency-key", id));
        let parent = attempt.traceparent.as_deref();
        headers.push(("traceparent", traceparent(parent, job_id, rand::random())));
        let call = Call {
            url: step.url.clone(),
            timeout: step.timeout,
            headers,
            body,
            max_bytes: self.max_response_bytes,
        };
        // Where a timeout of the whole attempt finds it.
        attempt.context.enter_step(&step.name);
        let answered = self.client.call(call).await;
        attempt.context.leave_step(&step.name);
        let answered = answered.map_err(|failed| of_step(failed, &step.name))?;
        let recorded = attempt.context.record_step(&step.name, &answered).await;
        recorded.map_err(|failed| of_step(failed, &step.name))?;
        Ok(answered)
    }

    /// The body contains payload and results as their original text: parsing and printing them again could change them.
    fn body(&self, attempt: &Attempt<'_>, step: &str, results: &[(String, String)]) -> String {
        let text = |text: &str| serde_json::to_string(text).expect("text is JSON");
        let chunk = attempt.context.chunk();
        let results: Vec<String> =
            results.iter().map(|(name, result)| format!("{}:{result}", text(name))).collect();
        format!(
            r#"{{"jobId":{},"jobType":{},"step":{},"attempt":{},"payload":{},"results":{{{}}}}}"#,
            text(chunk.job_id.as_str()),
            text(&self.job_type),
            text(step),
            chunk.attempt,
            attempt.payload.as_str(),
            results.join(",")
        )
    }
}

/// Names the step in a failure.
fn of_step(failed: Failed, step: &str) -> Failed {
    let named = |cause: Cause| Cause { step: Some(step.to_owned()), ..cause };
    match failed {
        Failed::Retryable(cause) => Failed::Retryable(named(cause)),
        Failed::Fatal(cause) => Failed::Fatal(named(cause)),
        Failed::Stopped => Failed::Stopped,
    }
}

/// Of two failures the fatal one, else the first, which then waits as long as either asks for.
fn worse(first: Option<Failed>, also: Failed) -> Failed {
    match (first, also) {
        (Some(Failed::Retryable(first)), Failed::Retryable(also)) => {
            Failed::Retryable(Cause { retry_in: first.retry_in.max(also.retry_in), ..first })
        }
        (Some(first @ Failed::Fatal(_)), _) => first,
        (_, also) => also,
    }
}

#[async_trait]
impl Handler for HttpJob {
    fn job_type(&self) -> &str {
        &self.job_type
    }

    fn queues(&self) -> Vec<QueueSpec> {
        vec![self.queue.clone()]
    }

    fn retry(&self, _dataset: Option<&str>) -> RetryPolicy {
        self.retry.clone()
    }

    fn timeout(&self, _dataset: Option<&str>) -> Option<Duration> {
        Some(self.timeout)
    }

    fn stall_timeout(&self, _dataset: Option<&str>) -> Option<Duration> {
        None
    }

    async fn run(&self, context: &ChunkContext) -> Result<Outcome, Failed> {
        // A newer process can read what this one cannot, so another attempt may help.
        let envelope = Envelope::from_params(&context.chunk().params)
            .map_err(|problem| Failed::Retryable(problem.into()))?;
        let attempt = Attempt { context, payload: envelope.payload, traceparent: envelope.traceparent };
        // A call that is cut off here is made again with the same `Idempotency-Key`.
        tokio::select! {
            biased;
            _ = context.stopped() => Err(Failed::Stopped),
            ended = self.run_steps(&attempt) => ended,
        }
    }

    fn steps(&self) -> Vec<StepSpec> {
        let needs = self.needs.iter().map(|needs| needs.iter().map(|step| self.steps[*step].name.clone()));
        let named = self.steps.iter().zip(needs);
        named.map(|(step, needs)| StepSpec { name: step.name.clone(), needs: needs.collect() }).collect()
    }
}
