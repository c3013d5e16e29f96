//! The running engine: starts every duty of this process, and stops them so that nothing is lost and
//! nothing is counted that did not fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outhaul_core::delivery::Delivery;
use outhaul_core::id::WorkerId;
use outhaul_core::queue::QueueSpec;
use outhaul_core::store::{Store, StoreError};
use outhaul_core::vitals::{Broken, Vitals};
use outhaul_core::worker::NewWorker;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::context::Stop;
use crate::duty;
use crate::job::runtime::JobRuntime;
use crate::keeper::Keeper;
use crate::lookout::{self, Wakes};
use crate::owned::Owned;
use crate::planner::Planner;
use crate::pruner::Pruner;
use crate::reaper::Reaper;
use crate::recorder::Recorder;
use crate::registry::Registry;
use crate::repair::Repair;
use crate::runner::Runner;
use crate::schedule::Scheduler;
use crate::settings::{EngineSettings, Stores, WorkerSettings};
use crate::stager::Stager;
use crate::sweeper::Sweeper;
use crate::trigger::Triggers;
use crate::worker::{Named, WorkQueue, Worker};

/// Time on top of the lease for a stop: handlers get a few seconds to return, then are aborted.
const STOPPING: Duration = Duration::from_secs(10);

/// A started engine. Call [`Engine::stop`] before the process ends, so that chunks are given back.
pub struct Engine {
    owned: Arc<Owned>,
    worker: Option<WorkerId>,
    stop: CancellationToken,
    parts: Mutex<Option<Parts>>,
    stopped: watch::Sender<bool>,
    /// The threads of custom jobs, if there are any.
    jobs: Option<Arc<JobRuntime>>,
    vitals: Vitals,
}

/// What has to be waited for.
struct Parts {
    id: WorkerId,
    store: Arc<dyn Store>,
    settings: WorkerSettings,
    /// The claim loop, if this process runs chunks.
    worker: Option<JoinHandle<()>>,
    /// The sweeps.
    duties: Vec<JoinHandle<()>>,
    /// The task that records outcomes.
    recorder: Option<JoinHandle<()>>,
    keeper: std::thread::JoinHandle<()>,
    keeper_stop: CancellationToken,
}

impl Engine {
    /// Makes this process known and starts its duties. A process with neither role only makes sure
    /// that the queues exist.
    pub async fn start(
        stores: Stores,
        delivery: Arc<dyn Delivery>,
        registry: Registry,
        settings: EngineSettings,
    ) -> Result<Self, StoreError> {
        Self::start_with(stores, delivery, registry, settings, None, Vitals::default()).await
    }

    /// The same; with a planner, a process of the scheduler role also fires schedules and triggers. The
    /// parts of the engine are registered in `vitals` as parts that must live as long as the process.
    pub async fn start_with(
        stores: Stores,
        delivery: Arc<dyn Delivery>,
        registry: Registry,
        settings: EngineSettings,
        planner: Option<Arc<dyn Planner>>,
        vitals: Vitals,
    ) -> Result<Self, StoreError> {
        let store = stores.engine.clone();
        let (stop, owned) = (CancellationToken::new(), Arc::new(Owned::new()));
        let queues = sync_queues(&store, &registry).await?;
        let stopped = watch::channel(false).0;
        let parts = Mutex::new(None);
        let mut engine = Self { owned, worker: None, stop, parts, stopped, jobs: None, vitals };
        if !settings.worker_role && !settings.scheduler_role {
            return Ok(engine);
        }
        let known: Vec<_> = queues.iter().map(|queue| (queue.id, queue.name.clone())).collect();
        delivery.queues_known(&known);
        let concurrency = if settings.worker_role { settings.worker.concurrency } else { 0 };
        let known = NewWorker { host: settings.host.clone(), roles: settings.roles.clone(), concurrency };
        if settings.worker_role && registry.needs_job_threads() {
            let jobs = JobRuntime::start(concurrency)
                .map_err(|error| StoreError::Unavailable(format!("no threads for jobs: {error}").into()))?;
            engine.jobs = Some(jobs);
        }
        let id = store.worker_register(&known).await?;
        engine.worker = Some(id);
        let firing = planner.filter(|_| settings.scheduler_role).map(|planner| {
            let triggers = Triggers::new(store.clone(), planner.clone(), delivery.clone());
            (Scheduler::new(store, planner, delivery.clone()), triggers)
        });
        let wakes = Wakes::default();
        let mut parts = engine.start_duties(id, stores, delivery, (registry, queues), settings, &wakes)?;
        if let Some((scheduler, triggers)) = firing {
            let (vitals, stop) = (&engine.vitals, &engine.stop);
            parts.duties.push(duty::start_woken(scheduler, wakes.scheduler, vitals, stop.clone()));
            parts.duties.push(duty::start_woken(triggers, wakes.triggers, vitals, stop.clone()));
        }
        engine.parts = Mutex::new(Some(parts));
        tokio::spawn(watch_over(engine.vitals.clone(), engine.jobs.clone(), engine.stop.clone()));
        Ok(engine)
    }

    fn start_duties(
        &self,
        id: WorkerId,
        stores: Stores,
        delivery: Arc<dyn Delivery>,
        (registry, queues): (Registry, Vec<WorkQueue>),
        settings: EngineSettings,
        wakes: &Wakes,
    ) -> Result<Parts, StoreError> {
        let (store, owned, stop, vitals) = (stores.engine, self.owned.clone(), &self.stop, &self.vitals);
        let keeper_stop = CancellationToken::new();
        let keeper = Keeper::new(id, stores.keeper, owned.clone(), settings.worker.clone())
            .start(vitals.part("the lease keeper"), keeper_stop.clone())
            .map_err(|error| StoreError::Unavailable(format!("no thread for heartbeats: {error}").into()))?;

        let reaper =
            Reaper { store: store.clone(), registry: registry.clone(), lease: settings.worker.lease };
        let stager = Stager { store: store.clone(), delivery: delivery.clone() };
        let looking = lookout::run(store.clone(), wakes.clone(), settings.worker.poll_interval, stop.clone());
        let mut duties = vec![
            tokio::spawn(vitals.part("the lookout").run(looking)),
            duty::start_woken(stager, wakes.stager.clone(), vitals, stop.clone()),
            duty::start(reaper, vitals, stop.clone()),
            duty::start(Sweeper { store: store.clone(), registry: registry.clone() }, vitals, stop.clone()),
        ];
        if settings.scheduler_role {
            duties.push(duty::start(Repair { store: store.clone() }, vitals, stop.clone()));
            let pruner = Pruner {
                store: store.clone(),
                keep: settings.retain_jobs,
                keep_audit: settings.retain_audit,
            };
            duties.push(duty::start(pruner, vitals, stop.clone()));
        }
        let running = settings.worker_role.then(|| {
            let part = vitals.part("the recorder");
            let (recorder, recording) =
                Recorder::start(store.clone(), delivery.clone(), owned.clone(), wakes.lookout.clone(), part);
            let (store, jobs) = (store.clone(), self.jobs.clone());
            let runner = Runner { store: store.clone(), delivery: delivery.clone(), recorder, jobs };
            let worker = Worker {
                id,
                store,
                delivery,
                registry,
                settings: settings.worker.clone(),
                queues,
                owned,
                runner,
                named: Named::default(),
            };
            let claiming = vitals.part("the claim loop").run(worker.run(stop.clone()));
            (tokio::spawn(claiming), recording)
        });
        let (worker, recorder) = running.unzip();
        info!(worker = %id, roles = %settings.roles, "worker {id} started");
        let settings = settings.worker;
        Ok(Parts { id, store, settings, worker, duties, recorder, keeper, keeper_stop })
    }

    /// How many chunks this process owns right now.
    pub fn running(&self) -> usize {
        self.owned.len()
    }

    /// Waits until this process should be restarted, and says why. There are two reasons. Either *stuck* jobs (stopped,
    /// but still holding their threads) hold half of the `concurrency + 2` threads of jobs; until then the other jobs
    /// go on. Or a part of the engine has panicked; then the engine claims nothing more.
    pub async fn broken(&self) -> Broken {
        self.vitals.broken().await
    }

    /// The identity of this start of the process, if it runs chunks or sweeps.
    pub fn worker(&self) -> Option<WorkerId> {
        self.worker
    }

    /// Stops: claims nothing more, lets running chunks go on for `shutdown_grace`, gives back the
    /// rest, and returns when all of it is recorded. A second call waits for the first. If a part of the
    /// engine has panicked, the engine gives all chunks back at once.
    pub async fn stop(&self) {
        self.vitals.stopping();
        self.stop.cancel();
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut parts) = parts {
            if matches!(self.vitals.look(), Some(Broken::Ended(_))) {
                parts.settings.shutdown_grace = Duration::ZERO;
            }
            let (owned, stopped) = (self.owned.clone(), self.stopped.clone());
            // A task of its own: a caller that gives up waiting must not cut off a database call.
            tokio::spawn(async move {
                parts.stop(&owned).await;
                stopped.send_replace(true);
            });
        } else if self.worker.is_none() {
            return;
        }
        // Cannot fail: the sender lives in `self`.
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }
}

impl Parts {
    async fn stop(self, owned: &Owned) {
        if let Some(worker) = self.worker {
            ended(worker).await;
        }
        if tokio::time::timeout(self.settings.shutdown_grace, owned.until_empty()).await.is_err() {
            owned.all().iter().for_each(|chunk| {
                chunk.tell(Stop::Shutdown);
            });
            // Outcomes are recorded for as long as their leases live, so this has an end.
            if tokio::time::timeout(self.settings.lease + STOPPING, owned.until_empty()).await.is_err() {
                warn!(left = owned.len(), "chunks could not be given back; their leases will run out");
            }
        }
        if let Some(recorder) = self.recorder
            && owned.len() == 0
        {
            ended(recorder).await;
        }
        self.keeper_stop.cancel();
        let _ = tokio::task::spawn_blocking(move || self.keeper.join()).await;
        // Last: a sweep may wait for a storage that is away, and nothing depends on its end.
        for duty in self.duties {
            let abort = duty.abort_handle();
            if tokio::time::timeout(STOPPING, ended(duty)).await.is_err() {
                abort.abort();
            }
        }
        let slots = owned.slots.drain_idle(Duration::ZERO);
        if !slots.is_empty()
            && let Err(error) = self.store.slots_release(self.id, &slots).await
        {
            warn!(%error, "budget slots could not be given back; their leases will run out");
        }
        match self.store.worker_leave(self.id).await {
            Ok(()) => info!(worker = %self.id, "worker {} stopped", self.id),
            Err(error) => warn!(%error, "worker {} stopped, and could not say so", self.id),
        }
    }
}

/// Reports when the process is wedged, and stops claiming when a part has ended.
async fn watch_over(vitals: Vitals, jobs: Option<Arc<JobRuntime>>, stop: CancellationToken) {
    let wedged = async {
        match jobs {
            Some(jobs) => jobs.wedged().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        stuck = wedged => vitals.report(Broken::Wedged(stuck)),
        broken = vitals.broken() => if matches!(broken, Broken::Ended(_)) { stop.cancel() },
    }
}

async fn ended(task: JoinHandle<()>) {
    if let Err(error) = task.await {
        warn!(%error, "a duty had ended by a panic");
    }
}

impl Drop for Engine {
    /// Without [`Engine::stop`]: nothing is claimed any more, and leases run out.
    fn drop(&mut self) {
        self.vitals.stopping();
        self.stop.cancel();
        if let Some(parts) = self.parts.get_mut().unwrap_or_else(PoisonError::into_inner) {
            parts.keeper_stop.cancel();
            self.owned.all().iter().for_each(|chunk| {
                chunk.tell(Stop::LeaseLost);
            });
        }
    }
}

/// Makes sure that the queues exist. A queue that two job types share gets the smaller budget.
async fn sync_queues(store: &Arc<dyn Store>, registry: &Registry) -> Result<Vec<WorkQueue>, StoreError> {
    let mut budgets: BTreeMap<String, Option<u32>> = BTreeMap::new();
    for QueueSpec { name, max_concurrent } in registry.queues() {
        let budget = budgets.entry(name).or_insert(max_concurrent);
        *budget = (*budget).into_iter().chain(max_concurrent).min();
    }
    let specs: Vec<QueueSpec> = budgets
        .iter()
        .map(|(name, &max_concurrent)| QueueSpec { name: name.clone(), max_concurrent })
        .collect();
    let ids = store.queues_sync(&specs).await?;
    let queues = specs.into_iter().filter_map(|spec| {
        let id = *ids.get(&spec.name)?;
        Some(WorkQueue { id, name: spec.name, budget: spec.max_concurrent, slots_again: None })
    });
    Ok(queues.collect())
}
