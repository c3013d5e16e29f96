//! The threads that custom jobs run on, apart from the engine's: a job that blocks its thread for ever
//! can hold up neither claims nor recording nor the API. One that does not even stop when aborted is
//! counted as stuck; with half of the threads gone the process had better be started anew.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Wake, Waker};
use std::time::Duration;

use outhaul_core::id::JobId;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinHandle};
use tracing::{error, info};

/// The most threads for jobs that block; more of them wait for each other, not for anyone else.
const MOST: usize = 64;
/// Threads beyond those that running jobs can block, so that waiting jobs still get their answers.
const SPARE: usize = 2;
/// How long an aborted job may take to let go of its thread.
const TO_LET_GO: Duration = Duration::from_secs(5);
/// How often an idle thread is woken while jobs run.
const TURN: Duration = Duration::from_millis(50);

/// A runtime for jobs, and how many of them are stuck on it.
pub(crate) struct JobRuntime {
    runtime: Option<Runtime>,
    /// At so many stuck jobs the process is wedged.
    limit: usize,
    stuck: watch::Sender<usize>,
    running: watch::Sender<usize>,
    turner: AbortHandle,
    wakes: mpsc::UnboundedSender<Waker>,
}

impl JobRuntime {
    /// Starts the threads. Needs a running tokio runtime, the engine's.
    pub(crate) fn start(concurrency: u32) -> io::Result<Arc<Self>> {
        let threads = usize::try_from(concurrency).unwrap_or(MOST).clamp(1, MOST) + SPARE;
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("outhaul-job")
            .enable_all()
            .build()?;
        let (stuck, running) = (watch::channel(0).0, watch::channel(0).0);
        let turner = tokio::spawn(turn(running.subscribe(), runtime.handle().clone())).abort_handle();
        let (wakes, mut asked) = mpsc::unbounded_channel::<Waker>();
        tokio::spawn(async move {
            while let Some(waker) = asked.recv().await {
                waker.wake();
            }
        });
        let limit = (threads / 2).max(1);
        Ok(Arc::new(Self { limit, runtime: Some(runtime), stuck, running, turner, wakes }))
    }

    /// Waits until so many jobs are stuck that the process should be started anew; returns how many.
    pub(crate) async fn wedged(&self) -> usize {
        let mut stuck = self.stuck.subscribe();
        // Cannot fail: the sender lives in `self`.
        stuck.wait_for(|&count| count >= self.limit).await.map_or(self.limit, |count| *count)
    }
}

impl Drop for JobRuntime {
    fn drop(&mut self) {
        self.turner.abort();
        // Never waits: a stuck job would not let it end.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Wakes an idle thread again and again while jobs run. The thread that waits for sockets and timers may
/// pick up a job that blocks it; another takes its place only when something wakes it.
async fn turn(mut running: watch::Receiver<usize>, jobs: Handle) {
    while running.wait_for(|&count| count > 0).await.is_ok() {
        tokio::time::sleep(TURN).await;
        drop(jobs.spawn(async {}));
    }
}

/// Whose attempt it is, for the log.
#[derive(Clone)]
pub(crate) struct Who {
    pub(crate) job_id: JobId,
    pub(crate) job_type: String,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} of type {}", self.job_id, self.job_type)
    }
}

/// Counts a job for as long as its future lives, also if it is stuck.
struct Running(watch::Sender<usize>);

impl Running {
    fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A job that is woken by the engine's threads only. A wake-up on a job thread would put it into the one
/// place from which no other thread can take it (tokio's LIFO slot), and if that thread is then blocked by
/// another job, it would never run.
struct WokenFromOutside<F> {
    work: Pin<Box<F>>,
    wakes: mpsc::UnboundedSender<Waker>,
}

impl<F: Future> Future for WokenFromOutside<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<F::Output> {
        let relay = Relay { task: context.waker().clone(), wakes: self.wakes.clone() };
        let waker = Waker::from(Arc::new(relay));
        self.work.as_mut().poll(&mut task::Context::from_waker(&waker))
    }
}

struct Relay {
    task: Waker,
    wakes: mpsc::UnboundedSender<Waker>,
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        if let Err(mpsc::error::SendError(task)) = self.wakes.send(self.task.clone()) {
            task.wake();
        }
    }
}

/// An attempt on its own task. Dropped before its end it is aborted, and watched until it lets go.
pub(crate) struct Attempt<T: Send + 'static> {
    task: Option<JoinHandle<T>>,
    stuck: Option<watch::Sender<usize>>,
    engine: Handle,
    who: Who,
}

impl<T: Send + 'static> Attempt<T> {
    /// Starts it on the jobs' threads, or on the present runtime where there are none (in tests).
    pub(crate) fn start(
        runtime: Option<&Arc<JobRuntime>>,
        who: Who,
        attempt: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        let engine = Handle::current();
        let task = match runtime.and_then(|jobs| Some((jobs.runtime.as_ref()?, jobs))) {
            Some((runtime, jobs)) => {
                let (running, wakes) = (Running::new(&jobs.running), jobs.wakes.clone());
                let work = async move {
                    let _running = running;
                    attempt.await
                };
                runtime.spawn(WokenFromOutside { work: Box::pin(work), wakes })
            }
            None => engine.spawn(attempt),
        };
        Self { task: Some(task), stuck: runtime.map(|jobs| jobs.stuck.clone()), engine, who }
    }

    /// Waits for its end. Must not be called again after it answered.
    pub(crate) async fn ended(&mut self) -> Result<T, JoinError> {
        let task = self.task.as_mut().expect("asked once more after the end");
        let ended = task.await;
        self.task = None;
        ended
    }

    /// Ends it at its next await.
    pub(crate) fn abort(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl<T: Send + 'static> Drop for Attempt<T> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        task.abort();
        self.engine.spawn(watch_over(task, self.stuck.take(), self.who.clone()));
    }
}

/// Counts an aborted task that does not end, for as long as it does not.
async fn watch_over<T>(mut task: JoinHandle<T>, stuck: Option<watch::Sender<usize>>, who: Who) {
    if tokio::time::timeout(TO_LET_GO, &mut task).await.is_ok() {
        return;
    }
    let (job_id, job_type) = (&who.job_id, &who.job_type);
    error!(%job_id, %job_type, "{who} is stuck: it was stopped and still holds its thread (a blocking call or an endless loop)");
    count(stuck.as_ref(), |count| *count += 1);
    // However it ends, the thread is free again.
    let _ = task.await;
    info!(%job_id, %job_type, "{who} is no longer stuck");
    count(stuck.as_ref(), |count| *count -= 1);
}

fn count(stuck: Option<&watch::Sender<usize>>, change: impl FnOnce(&mut usize)) {
    if let Some(stuck) = stuck {
        stuck.send_modify(change);
        metrics::gauge!("outhaul_handlers_stuck").set(*stuck.borrow() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outhaul_core::clock;
    use tokio::sync::oneshot;

    fn who() -> Who {
        Who { job_id: JobId::new(clock::now(), 1), job_type: "TEST".to_owned() }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_job_runs_although_the_one_that_woke_it_blocks() {
        let jobs = JobRuntime::start(4).unwrap();
        let (ready, is_ready) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let mut waits = Attempt::start(Some(&jobs), who(), async move {
            let _ = ready.send(());
            told.await.is_ok()
        });
        is_ready.await.unwrap();
        let mut blocks = Attempt::start(Some(&jobs), who(), async move {
            let _ = tell.send(());
            held.recv().is_ok()
        });
        let ended = tokio::time::timeout(Duration::from_secs(60), waits.ended()).await;
        assert!(ended.expect("it runs on another thread").unwrap());
        release.send(()).unwrap();
        assert!(blocks.ended().await.unwrap());
    }
}
