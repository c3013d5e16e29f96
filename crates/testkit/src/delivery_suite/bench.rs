//! What every case uses: a store with two queues, processes on it, and short words for common acts.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use outhaul_core::id::QueueId;
use outhaul_core::job::{Job, JobStatus, NewJob, OnFailure};
use outhaul_core::store::{Store, StoreSettings};
use outhaul_core::worker::Want;

use super::{Fixture, Need, Process, UnderTest, Wanted, Wire};
use crate::sample::{self, LONG, job};

pub(super) use crate::sample::{MAIL, QUEUE, plain, register};
pub(super) use crate::waiting::{eventually, in_time};

/// What stores are opened with.
const SETTINGS: StoreSettings = StoreSettings { parking: true, ..sample::SETTINGS };

/// A process that announces and consumes nothing; announcements never run out by themselves.
pub(super) const RELAY_ONLY: Wanted =
    Wanted { window: 1000, expiry: LONG, poll_interval: Duration::from_secs(1), prefetch: None };

/// One that works, too.
pub(super) const WORKING: Wanted = Wanted { prefetch: Some(8), ..RELAY_ONLY };

/// What a case starts from.
pub struct Kit {
    make: Box<dyn Fn(StoreSettings, Need) -> BoxFuture<'static, Fixture> + Send + Sync>,
}

impl Kit {
    /// `make` opens a fresh store, with a place for deliveries.
    pub fn new<F, Made>(make: F) -> Self
    where
        F: Fn(StoreSettings, Need) -> Made + Send + Sync + 'static,
        Made: Future<Output = Fixture> + Send + 'static,
    {
        Self { make: Box::new(move |settings, need| Box::pin(make(settings, need))) }
    }

    pub(super) async fn bench(&self) -> Bench {
        self.bench_with(Need::Queues).await
    }

    /// With a broker of the case's own, which it may kill.
    pub(super) async fn bench_with_own_broker(&self) -> Bench {
        self.bench_with(Need::Broker).await
    }

    async fn bench_with(&self, need: Need) -> Bench {
        let Fixture { store, second, under_test, keep } = (self.make)(SETTINGS, need).await;
        let queues = sample::queues(&*store).await.into_iter().map(|(name, id)| (id, name)).collect();
        Bench { store, second, queues, under_test, _keep: keep }
    }
}

/// A database and queues of the case's own.
pub(super) struct Bench {
    pub(super) store: Arc<dyn Store>,
    pub(super) second: Arc<dyn Store>,
    pub(super) queues: Vec<(QueueId, String)>,
    under_test: Arc<dyn UnderTest>,
    _keep: Box<dyn std::any::Any + Send + Sync>,
}

impl Bench {
    /// A process that knows both queues.
    pub(super) fn start(&self, wanted: Wanted) -> Process {
        self.start_on(&self.store, wanted)
    }

    /// The same, on this handle of the store.
    pub(super) fn start_on(&self, store: &Arc<dyn Store>, wanted: Wanted) -> Process {
        let process = self.start_unaware(store, wanted);
        process.delivery.queues_known(&self.queues);
        process
    }

    /// One that knows no queue, and so announces nothing.
    pub(super) fn start_unaware(&self, store: &Arc<dyn Store>, wanted: Wanted) -> Process {
        self.under_test.start(store.clone(), wanted)
    }

    /// One that knows no queue either, and has done what relays do first: it is connected, and has cast doubt
    /// on what was announced before. With a broker only.
    pub(super) async fn start_settled(&self, store: &Arc<dyn Store>, wanted: Wanted) -> Process {
        let process = self.start_unaware(store, wanted);
        let mail: Vec<_> = self.queues.iter().filter(|(_, name)| name == MAIL).cloned().collect();
        process.delivery.queues_known(&mail);
        self.submit_to(MAIL, 1).await;
        self.announced(1).await;
        // Nobody announces a chunk that is owned.
        let worker = register(&*self.store).await;
        let wants = [Want { queue: mail[0].0, limit: 1 }];
        assert_eq!(self.store.chunks_claim(worker, &wants, 1).await.expect("chunks_claim").len(), 1);
        process.delivery.queues_known(&[]);
        process
    }

    /// The broker, in cases that are only run with one.
    pub(super) fn wire(&self) -> &dyn Wire {
        self.under_test.wire().expect("this case is run with brokers only")
    }

    /// Whether there is a broker.
    pub(super) fn brokered(&self) -> bool {
        self.under_test.wire().is_some()
    }

    /// Submits a job of so many chunks.
    pub(super) async fn submit(&self, chunks: usize) -> Job {
        self.submit_to(QUEUE, chunks).await
    }

    /// The same, to this queue.
    pub(super) async fn submit_to(&self, queue: &str, chunks: usize) -> Job {
        let mut new = NewJob { on_failure: OnFailure::Continue, ..job(chunks) };
        new.chunks.iter_mut().for_each(|chunk| chunk.queue = queue.to_owned());
        sample::submit(&*self.store, new).await
    }

    /// Waits until this job is COMPLETED with all its chunks done.
    pub(super) async fn completed(&self, job: &Job) {
        eventually("the job completes", || async {
            let job = self.store.job_get(&job.job_id).await.expect("job_get").expect("it is there");
            (job.status == JobStatus::Completed).then_some(())
        })
        .await;
    }

    /// Takes messages off the work queue until there were so many.
    pub(super) async fn announced(&self, count: usize) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        while seen.len() < count {
            let more = eventually("messages on the work queue", || async {
                let more = self.wire().drain_work().await;
                (!more.is_empty()).then_some(more)
            });
            seen.extend(more.await);
        }
        seen
    }

    /// Waits until the outbox is empty.
    pub(super) async fn outbox_sent(&self) {
        eventually("the outbox is empty", || async {
            let lag = self.store.delivery_lag().await.expect("delivery_lag");
            (lag.outbox == 0).then_some(())
        })
        .await;
    }
}
