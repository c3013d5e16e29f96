//! A handler that does what a chunk's key says, and remembers who ran beside whom.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use outhaul::core::delivery::Delivery;
use outhaul::core::file::Leftover;
use outhaul::core::progress::Total;
use outhaul::core::queue::QueueSpec;
use outhaul::core::retry::{Backoff, RetryPolicy};
use outhaul::core::store::Store;
use outhaul::{
    ChunkContext, Engine, EngineSettings, Failed, Handler, Outcome, Registry, Stop, Stores, WorkerSettings,
};
use outhaul_delivery::DatabaseDelivery;
use tokio::sync::{Semaphore, watch};

/// What happened to chunks, shared with the test.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) started: Mutex<Vec<String>>,
    pub(crate) stopped: Mutex<Vec<(String, Stop)>>,
    pub(crate) now: AtomicUsize,
    pub(crate) most: AtomicUsize,
    /// The most that ran while a key starting with `alone` did.
    pub(crate) beside_alone: AtomicUsize,
    pub(crate) alone_runs: AtomicUsize,
}

#[derive(Clone)]
pub(crate) struct TestHandler {
    pub(crate) seen: Arc<Seen>,
    /// `gate` chunks end when the test lets them.
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) changed: watch::Sender<u64>,
    pub(crate) budget: Option<u32>,
    /// The queues beside its first.
    pub(crate) others: Vec<QueueSpec>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) stall_timeout: Option<Duration>,
    pub(crate) retry_after: Duration,
}

impl TestHandler {
    pub(crate) fn new() -> Self {
        Self {
            seen: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
            changed: watch::channel(0).0,
            budget: None,
            others: Vec::new(),
            timeout: None,
            stall_timeout: None,
            retry_after: Duration::from_secs(3600),
        }
    }

    /// Waits until what the handler has seen passes the test.
    pub(crate) async fn until(&self, what: &str, test: impl Fn(&Seen) -> bool) {
        let mut changed = self.changed.subscribe();
        let wait = changed.wait_for(|_| test(&self.seen));
        if tokio::time::timeout(super::PATIENCE, wait).await.is_err() {
            panic!("never happened: {what}");
        }
    }

    async fn act(&self, context: &ChunkContext) -> Result<Outcome, Failed> {
        let key = context.chunk().chunk_key.clone();
        let done = || Ok(Outcome::Done { file: None, reason: String::new(), result: None });
        match key.split('-').next().unwrap_or_default() {
            "panic" => panic!("boom\nwith a second line"),
            "fail" => Err(Failed::Retryable("no luck".into())),
            "fatal" => Err(Failed::Fatal("never".into())),
            "snooze" => Ok(Outcome::Snooze(Duration::from_secs(3600))),
            "wait" => {
                let reason = context.stopped().await;
                self.seen.stopped.lock().unwrap().push((key, reason));
                Err(Failed::Stopped)
            }
            "late" => {
                context.stopped().await;
                done()
            }
            "publish" => {
                context.may_publish().await?;
                self.seen.started.lock().unwrap().push("publishing".to_owned());
                self.changed.send_modify(|count| *count += 1);
                self.gate.acquire().await.unwrap().forget();
                done()
            }
            // Halfway from its start on, and there it stays until the gate opens.
            "half" => {
                context.expect(Total::Exact(100));
                context.progress(50, 500);
                self.gate.acquire().await.unwrap().forget();
                done()
            }
            // Moves until the gate opens, whatever it is told.
            "moving" => {
                let mut rows = 0;
                while self.gate.available_permits() == 0 {
                    rows += 1;
                    context.progress(rows, 0);
                    if let Some(reason) = context.should_stop()
                        && self.seen.stopped.lock().unwrap().is_empty()
                    {
                        self.seen.stopped.lock().unwrap().push((key.clone(), reason));
                        self.changed.send_modify(|count| *count += 1);
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                done()
            }
            // Moves, and is gone soon.
            "brief" => {
                context.progress(50, 500);
                tokio::time::sleep(Duration::from_millis(5)).await;
                done()
            }
            "gate" => {
                self.gate.acquire().await.unwrap().forget();
                done()
            }
            "refused" => {
                self.gate.acquire().await.unwrap().forget();
                context.may_publish().await?;
                done()
            }
            _ => {
                tokio::task::yield_now().await;
                done()
            }
        }
    }
}

#[async_trait]
impl Handler for TestHandler {
    fn job_type(&self) -> &str {
        "TEST"
    }
    fn queues(&self) -> Vec<QueueSpec> {
        let first = QueueSpec { name: "job:TEST".to_owned(), max_concurrent: self.budget };
        std::iter::once(first).chain(self.others.iter().cloned()).collect()
    }
    fn retry(&self, _: Option<&str>) -> RetryPolicy {
        RetryPolicy { max_attempts: 3, backoff: Backoff::Fixed { base: self.retry_after } }
    }
    fn timeout(&self, _: Option<&str>) -> Option<Duration> {
        self.timeout
    }
    fn stall_timeout(&self, _: Option<&str>) -> Option<Duration> {
        self.stall_timeout
    }
    async fn run(&self, context: &ChunkContext) -> Result<Outcome, Failed> {
        let key = context.chunk().chunk_key.clone();
        let seen = &self.seen;
        let beside = seen.now.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most.fetch_max(beside, Ordering::SeqCst);
        let alone = usize::from(key.starts_with("alone"));
        let lonely = seen.alone_runs.fetch_add(alone, Ordering::SeqCst) + alone;
        if lonely > 0 {
            seen.beside_alone.fetch_max(beside, Ordering::SeqCst);
        }
        seen.started.lock().unwrap().push(key);
        self.changed.send_modify(|count| *count += 1);
        // Also counts down when the handler panics.
        let result = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(self.act(context))).await;
        seen.now.fetch_sub(1, Ordering::SeqCst);
        seen.alone_runs.fetch_sub(alone, Ordering::SeqCst);
        self.changed.send_modify(|count| *count += 1);
        match result {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    async fn remove_leftover(&self, _: &Leftover) -> Result<(), String> {
        Ok(())
    }
}

pub(crate) fn settings(concurrency: u32, lease: Duration) -> EngineSettings {
    EngineSettings {
        worker_role: true,
        scheduler_role: true,
        host: "test".to_owned(),
        roles: "worker,scheduler".to_owned(),
        worker: WorkerSettings {
            concurrency,
            claim_limit: None,
            lease,
            heartbeat: lease / 10,
            poll_interval: Duration::from_millis(20),
            shutdown_grace: Duration::ZERO,
        },
        retain_jobs: Duration::MAX,
        retain_audit: Duration::MAX,
    }
}

pub(crate) async fn start(store: Arc<dyn Store>, handler: &TestHandler, settings: EngineSettings) -> Engine {
    start_on(DatabaseDelivery::start(store.clone()), store, handler, settings).await
}

pub(crate) async fn start_on(
    delivery: Arc<dyn Delivery>,
    store: Arc<dyn Store>,
    handler: &TestHandler,
    settings: EngineSettings,
) -> Engine {
    let stores = Stores { api: store.clone(), engine: store.clone(), keeper: store };
    Engine::start(stores, delivery, Registry::new().with(handler.clone()), settings).await.unwrap()
}
