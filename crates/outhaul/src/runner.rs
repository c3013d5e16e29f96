//! Runs one claimed chunk: the handler in a task of its own, so that a panic is an outcome like any
//! other, and a verdict from how it ended and what it was told. Writing it down is the recorder's.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use outhaul_core::delivery::Delivery;
use outhaul_core::duration::short;
use outhaul_core::store::Store;
use tokio::task::JoinError;
use tracing::{Instrument, debug, info_span, warn};

use crate::context::{ChunkContext, Stop};
use crate::descriptors;
use crate::handler::{Cause, Failed, Handler, Outcome};
use crate::job::runtime::JobRuntime;
use crate::owned::OwnedChunk;
use crate::recorder::{Recorder, Write};

/// How long a handler may take to stop after it was told to.
const TO_STOP: Duration = Duration::from_secs(5);
/// How long an aborted task may take to end; one that never yields is left behind.
const TO_ABORT: Duration = Duration::from_secs(1);
/// When a chunk of an unknown job type is looked at again.
const UNKNOWN_TYPE: Duration = Duration::from_secs(30);

/// How an attempt came to its end.
#[expect(clippy::large_enum_variant, reason = "one per attempt; a box would cost more than the copy")]
#[derive(Debug)]
pub(crate) enum Ended {
    /// The handler returned.
    Returned(Result<Outcome, Failed>),
    /// The handler panicked, with this message.
    Panicked(String),
    /// The handler did not stop when told, and was aborted.
    Aborted,
    /// It was never started.
    NotStarted,
}

/// Starts handlers and hands over how they ended.
#[derive(Clone)]
pub(crate) struct Runner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) delivery: Arc<dyn Delivery>,
    pub(crate) recorder: Recorder,
    /// The threads of custom jobs, if there are any.
    pub(crate) jobs: Option<Arc<JobRuntime>>,
}

impl Runner {
    /// Starts the chunk's handler. The chunk must be in `Owned` already.
    pub(crate) fn start(&self, chunk: Arc<OwnedChunk>) {
        let Some(handler) = chunk.handler.clone() else {
            let (job_id, job_type) = (&chunk.chunk.job_id, &chunk.chunk.job_type);
            warn!(%job_id, %job_type, "job {job_id} has the unknown type {job_type}: leaving it for others");
            return self.recorder.send(chunk, Write::Snooze(UNKNOWN_TYPE));
        };
        if chunk.pulse.lease.is_over() {
            chunk.lose("the claim took too long");
            return self.settle(chunk, Ended::NotStarted);
        }
        let runner = self.clone();
        tokio::spawn(async move {
            chunk.pulse.start();
            let ended = runner.attend(&chunk, handler).await;
            let (rows, bytes) = chunk.pulse.moved();
            let (job_id, chunk_key) = (&chunk.chunk.job_id, &chunk.chunk.chunk_key);
            debug!(%job_id, %chunk_key, rows, bytes, ?ended, "attempt ended");
            let ended = tolerate(ended);
            if matches!(&ended, Ended::Returned(Err(Failed::Retryable(cause))) if cause.no_descriptors) {
                let _ =
                    tokio::time::timeout(descriptors::PAUSE, chunk.stop_signal().wait_for(Option::is_some))
                        .await;
            }
            runner.settle(chunk, ended);
        });
    }

    /// Hands over how an attempt ended.
    pub(crate) fn settle(&self, chunk: Arc<OwnedChunk>, ended: Ended) {
        let write = verdict(&chunk, ended);
        self.recorder.send(chunk, write);
    }

    async fn attend(&self, chunk: &Arc<OwnedChunk>, handler: Arc<dyn Handler>) -> Ended {
        let claimed = &chunk.chunk;
        let slot_name = chunk
            .slot
            .map(|slot| format!("outhaul:{}:{}:{}", self.store.installation(), slot.queue, slot.number));
        let mut stop = chunk.stop_signal();
        let context = ChunkContext::new(
            claimed.clone(),
            chunk.slot,
            slot_name,
            self.store.clone(),
            stop.clone(),
            chunk.pulse.clone(),
        )
        .with_jobs(self.jobs.clone())
        .with_delivery(self.delivery.clone());
        let span = info_span!(
            "chunk",
            job_id = %claimed.job_id,
            chunk_key = %claimed.chunk_key,
            fence = claimed.lease.fence,
            attempt = claimed.attempt
        );
        let mut task = tokio::spawn(async move { handler.run(&context).await }.instrument(span));
        tokio::select! {
            ended = &mut task => return ended.map_or_else(broken, Ended::Returned),
            _ = stop.wait_for(Option::is_some) => {}
        }
        if let Ok(ended) = tokio::time::timeout(TO_STOP, &mut task).await {
            return ended.map_or_else(broken, Ended::Returned);
        }
        warn!(job_id = %claimed.job_id, chunk_key = %claimed.chunk_key, "the handler did not stop: aborting it");
        task.abort();
        match tokio::time::timeout(TO_ABORT, task).await {
            Ok(ended) => ended.map_or_else(broken, Ended::Returned),
            Err(_) => Ended::Aborted,
        }
    }
}

fn broken(error: JoinError) -> Ended {
    match error.try_into_panic() {
        Ok(payload) => Ended::Panicked(first_line(payload.as_ref())),
        Err(_) => Ended::Aborted,
    }
}

pub(crate) fn first_line(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// Marks a failure that happened while the process had no descriptors left. Many errors do not say that themselves.
fn tolerate(mut ended: Ended) -> Ended {
    if let Ended::Returned(Err(Failed::Retryable(cause))) = &mut ended {
        cause.no_descriptors = cause.no_descriptors || descriptors::are_short();
    }
    ended
}

/// What to record, from how the attempt ended and what it was told.
fn verdict(chunk: &OwnedChunk, ended: Ended) -> Write {
    let fail = |cause: Cause| Write::Fail { cause, fatal: false };
    // The handler could not say where it was.
    let cut_off = |text: String| fail(Cause { step: chunk.pulse.step(), ..text.into() });
    let dataset = chunk.chunk.dataset.as_deref();
    let limit = |limit: fn(&dyn Handler, Option<&str>) -> Option<Duration>| {
        chunk.handler.as_deref().and_then(|handler| limit(handler, dataset)).map_or_else(String::new, short)
    };
    match (chunk.told(), ended) {
        // The store would refuse it too; whoever owns the chunk now must not be disturbed.
        (Some(Stop::LeaseLost), _) => Write::Nothing,
        // Also when told to stop: it was published before the word arrived.
        (_, Ended::Returned(Ok(Outcome::Done { file, reason, result }))) => {
            Write::Finish { file, reason, result }
        }
        (Some(Stop::Cancelled), _) => Write::Cancel,
        (_, Ended::Returned(Ok(Outcome::Snooze(wait)))) => Write::Snooze(wait),
        (_, Ended::Returned(Err(Failed::Fatal(cause)))) => Write::Fail { cause, fatal: true },
        (_, Ended::Panicked(line)) => cut_off(format!("the handler panicked: {line}")),
        (Some(Stop::TimedOut), _) => cut_off(format!("timed out after {}", limit(|h, d| h.timeout(d)))),
        (Some(Stop::Stalled), _) => cut_off(format!("no data for {}", limit(|h, d| h.stall_timeout(d)))),
        (Some(Stop::Shutdown), _) | (None, Ended::NotStarted) => Write::Return { stopping: true },
        (None, Ended::Returned(Err(Failed::Retryable(cause)))) if cause.no_descriptors => {
            let (job_id, chunk_key) = (&chunk.chunk.job_id, &chunk.chunk.chunk_key);
            let cause = cause.for_operators();
            warn!(%job_id, %chunk_key, cause, "worker.no_descriptors: job {job_id} {chunk_key} is put back uncounted");
            Write::Snooze(descriptors::LATER)
        }
        (None, Ended::Returned(Err(Failed::Retryable(cause)))) => fail(cause),
        // The store told the handler, not we: its job was cancelled, or its lease is gone.
        (None, Ended::Returned(Err(Failed::Stopped))) => Write::Unexplained,
        (None, Ended::Aborted) => fail("the handler was aborted".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_show_their_first_line_only() {
        assert_eq!(first_line(&"one\ntwo"), "one");
        assert_eq!(first_line(&String::from("three\nfour")), "three");
        assert_eq!(first_line(&7), "");
    }
}
