//! Wiring: from a configuration to a running process. Everything is opened before anything is served,
//! and [`Running::stop`] ends it such that nothing is lost.

pub(crate) mod configured;
pub(crate) mod delivery;
pub(crate) mod job_types;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use outhaul::schedule::Scheduler;
use outhaul::{Engine, Instrumented, Planner, Registry, Stores};
use outhaul_core::store::{Store, StoreError};
use outhaul_core::vitals::{Broken, Vitals};
use outhaul_delivery::broker::BrokerError;
use outhaul_export::source::RowSecurityProblem;
use outhaul_export::storage::{Storage, StorageError};
use outhaul_export::{ExportHandler, Exports, ExportsError, ForeignBasePath};
use outhaul_store::{OpenOptions, Opened};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::delivery::Links;
use crate::api::{self, AppState, Health, Watch};
use crate::auth::{Anyone, Auth, AuthSettings, SetupError, Tokens, vouched};
use crate::config::{Config, Problems};
use crate::data_dir;
use crate::descriptors;
use crate::listen::{self, Bounds};
use crate::metrics;
use crate::planning::RequestPlanner;
use crate::roles::Roles;
use crate::warnings;

/// How many connections may wait to be let in. The kernel drops further ones, and their clients try again seconds later.
const BACKLOG: u32 = 1024;
/// How long open requests may go on after a stop was asked for.
const LAST_REQUESTS: Duration = Duration::from_secs(10);

/// Everything that kept a process from starting; never empty.
#[derive(Debug)]
pub struct StartErrors(pub Vec<StartError>);

impl fmt::Display for StartErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n  "))
    }
}

impl std::error::Error for StartErrors {}

impl From<StartError> for StartErrors {
    fn from(error: StartError) -> Self {
        Self(vec![error])
    }
}

/// One thing that kept a process from starting. No message holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine's database.
    #[error("the database cannot be used: {0}")]
    Database(#[source] StoreError),
    /// The certificates for the broker.
    #[error("the broker cannot be used: {0}")]
    Broker(#[source] BrokerError),
    /// The place for files.
    #[error("the storage cannot be used: {0}")]
    Storage(#[source] StorageError),
    /// Sources and datasets.
    #[error("{0}")]
    Exports(#[source] ExportsError),
    /// The address of the API, or of the health of a process without one.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// A job type that is there twice.
    #[error("job type {0} {1}")]
    JobType(String, String),
    /// What calls the steps of job types.
    #[error("steps cannot be called: {0}")]
    HttpClient(#[source] crate::steps::ClientError),
    /// What the configuration says of schedules and triggers does not fit its datasets and job types.
    #[error("{0}")]
    Configuration(Problems),
    /// Triggers of the configuration and of the API lead back to themselves.
    #[error("triggers {}", configured::round(.0))]
    TriggerCycle(Vec<String>),
    /// What tokens are verified with.
    #[error("tokens cannot be verified: {0}")]
    Auth(#[source] SetupError),
    /// A dataset that would overwrite another dataset's files.
    #[error("{0}")]
    BasePath(#[source] ForeignBasePath),
    /// A dataset that relies on row-level security which does not hold.
    #[error("{0}")]
    RowSecurity(#[source] RowSecurityProblem),
    /// A folder of the embedded parts.
    #[error("{0} cannot be made: {1}")]
    Folder(String, #[source] std::io::Error),
}

/// A started process.
pub struct Running {
    addr: Option<SocketAddr>,
    health_addr: Option<SocketAddr>,
    engine: Engine,
    links: Links,
    bounds: Bounds,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    /// The parts that must live as long as this process.
    vitals: Vitals,
}

impl Running {
    /// Where the API listens, if this process has one.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.addr
    }

    /// Where a process without the API answers for its health, if it does.
    pub fn health_addr(&self) -> Option<SocketAddr> {
        self.health_addr
    }

    /// Starts a part that must live as long as the process.
    fn add(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(tokio::spawn(self.vitals.part(name).run(part)));
    }

    /// Answers on this port until the process stops.
    fn answer(&mut self, (listener, addr): (TcpListener, SocketAddr), router: Router) -> SocketAddr {
        let answering = listen::answer(listener, router, self.bounds, self.stop.clone());
        self.add("the listener", answering);
        tracing::info!(%addr, "serve.listening on http://{addr}");
        addr
    }

    /// Stops: no new requests, open ones are finished, running chunks are given back. The broker last: what
    /// was recorded on the way is acknowledged.
    pub async fn stop(self) {
        self.vitals.stopping();
        self.stop.cancel();
        let requests = async {
            for task in self.tasks {
                let abort = task.abort_handle();
                if tokio::time::timeout(LAST_REQUESTS, task).await.is_err() {
                    abort.abort();
                    tracing::warn!("serve.requests_cut_off after {LAST_REQUESTS:?}");
                }
            }
        };
        let work = async {
            self.engine.stop().await;
            self.links.stop().await;
        };
        tokio::join!(requests, work);
    }
}

/// Opens the database as the configuration says.
pub async fn open_database(config: &Config, migrate: bool) -> Result<Opened, StartError> {
    let cannot = |error| StartError::Folder(config.data_dir.display().to_string(), error);
    data_dir::prepare(config).map_err(cannot)?;
    let options = OpenOptions {
        listen: config.database.listen,
        schema: config.database.schema.clone(),
        migrate,
        api_connections: config.database.api_connections,
        engine_connections: config.database.engine_connections,
    };
    outhaul_store::open(&config.database.url, config.store, options).await.map_err(StartError::Database)
}

/// The base paths of all datasets. Empty if the datasets' configuration is wrong, which is reported elsewhere.
pub(crate) fn base_paths(config: &Config) -> Vec<String> {
    let exports = Exports::new(&config.export).ok();
    let datasets = exports.iter().flat_map(Exports::datasets);
    datasets.map(|dataset| dataset.base_path.clone()).collect()
}

/// What must be there before anything starts.
struct Parts {
    stores: Stores,
    storage: Storage,
    handler: ExportHandler,
    /// Of the API, or of the health of a process without one.
    listener: Option<(TcpListener, SocketAddr)>,
}

/// Opens everything, and says everything that is wrong. The port is taken here too: one that is not
/// free must not leave a worker behind that has claimed something.
async fn open(config: &Config, roles: Roles) -> Result<Parts, StartErrors> {
    let address = if roles.api { Some(config.listen) } else { config.health_listen };
    let listener = async {
        let Some(address) = address else { return Ok(None) };
        let bound = async {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let listener = socket.listen(BACKLOG)?;
            let addr = listener.local_addr()?;
            Ok(Some((listener, addr)))
        };
        bound.await.map_err(|error| StartError::Listen(address, error))
    };
    let (opened, listener) = tokio::join!(open_database(config, true), listener);
    let storage = Storage::open(&config.export.storage).and_then(|storage| match &opened {
        Ok(opened) => storage.claim(opened.api.installation(), &base_paths(config)),
        Err(_) => Ok(storage),
    });
    let storage = storage.map_err(StartError::Storage);
    let exports = match &storage {
        Ok(storage) => ExportHandler::new(&config.export, storage.clone()).map(Some),
        Err(_) => Exports::new(&config.export).map(|_| None),
    };
    let exports = exports.map_err(StartError::Exports);
    match (opened, storage, exports, listener) {
        (Ok(opened), Ok(storage), Ok(Some(handler)), Ok(listener)) => {
            let instrumented =
                |store: Arc<dyn Store>| -> Arc<dyn Store> { Arc::new(Instrumented::new(store)) };
            let stores = Stores {
                api: instrumented(opened.api),
                engine: instrumented(opened.engine),
                keeper: instrumented(opened.keeper),
            };
            Ok(Parts { stores, storage, handler, listener })
        }
        (opened, storage, exports, listener) => {
            let all = [opened.err(), storage.err(), exports.err(), listener.err()];
            Err(StartErrors(all.into_iter().flatten().collect()))
        }
    }
}

/// Refuses to start where rows would be shown to those who may not see them. What cannot be found out now is
/// looked at again before the rows are read.
async fn check_row_security(handler: &ExportHandler) -> Result<(), StartErrors> {
    let (certain, unknown): (Vec<_>, Vec<_>) =
        handler.check_row_security().await.into_iter().partition(|problem| problem.is_certain);
    for problem in unknown {
        tracing::warn!("serve.row_security_not_known: {problem}");
    }
    if certain.is_empty() {
        return Ok(());
    }
    Err(StartErrors(certain.into_iter().map(StartError::RowSecurity).collect()))
}

/// Refuses to start if a dataset would overwrite another dataset's files, for example because `default` has moved.
async fn check_base_paths(exports: &Exports, store: &dyn Store) -> Result<(), StartErrors> {
    let recorded = store.base_paths().await.map_err(StartError::Database)?;
    let foreign = exports.foreign_base_paths(&recorded);
    if foreign.is_empty() {
        return Ok(());
    }
    Err(StartErrors(foreign.into_iter().map(StartError::BasePath).collect()))
}

/// What tells callers apart, and keeps its keys fresh.
fn callers(
    auth: &AuthSettings,
    listen: SocketAddr,
    running: &mut Running,
) -> Result<Arc<dyn Auth>, SetupError> {
    let Some(jwt) = auth.jwt() else { return Ok(Arc::new(Anyone { local: listen.ip().is_loopback() })) };
    let tokens = Arc::new(Tokens::new(jwt.clone())?);
    let (fresh, stop) = (tokens.clone(), running.stop.clone());
    running.add("the renewal of the keys of tokens", async move { fresh.keep_fresh(stop).await });
    Ok(tokens)
}

/// Starts everything that the roles ask for, and returns once it runs. `registry` has the job types
/// written in Rust; those of the configuration are added to it.
pub async fn start(config: Config, roles: Roles, registry: Registry) -> Result<Running, StartErrors> {
    let metrics = metrics::install();
    let connections = descriptors::connections(descriptors::raise(), &config, roles);
    let bounds = Bounds { connections, ..Bounds::default() };
    // Nothing is opened for a process that could not run its jobs.
    let registry = job_types::complete(&config, registry)?;
    let broker = delivery::needed(&config, roles)?;
    let Parts { stores, storage, handler, listener } = open(&config, roles).await?;
    check_base_paths(handler.exports(), stores.engine.as_ref()).await?;
    check_row_security(&handler).await?;
    let exports = handler.exports().clone();
    warnings::log(&warnings::of(&config, Some(&exports)));
    let registry = registry.with(handler);
    // Only those who run something ask whether they may.
    let registry = match roles.worker {
        true => vouched(registry, &config.auth, &config.http.allow, &stores.engine),
        false => Ok(registry),
    };
    let registry = registry.map_err(StartError::HttpClient)?;
    let auth = Arc::new(config.auth.clone());
    let planner = RequestPlanner::new(exports.clone(), registry.clone(), storage.clone())
        .with_auth(auth.clone(), config.limits.max_open_chunks);
    let planner = Arc::new(planner);
    if roles.scheduler {
        let configured = configured::judge(&config, &planner).map_err(StartError::Configuration)?;
        configured::keep(&configured, stores.engine.as_ref()).await?;
    }
    let vitals = Vitals::default();
    let links = Links::start(&config, roles, broker, stores.engine.clone(), vitals.clone());
    let (delivery, settings) = (links.delivery(), config.engine(roles));
    let firing: Option<Arc<dyn Planner>> = Some(planner.clone());
    let (given, known, watched) = (stores.clone(), registry.clone(), vitals.clone());
    let engine = Engine::start_with(given, delivery.clone(), known, settings, firing, watched);
    let engine = match engine.await {
        Ok(engine) => engine,
        Err(error) => {
            links.stop().await;
            return Err(StartError::Database(error).into());
        }
    };
    let (stop, broker) = (CancellationToken::new(), links.health(&config, roles));
    let tasks = Vec::new();
    let mut running = Running { addr: None, health_addr: None, engine, links, bounds, stop, tasks, vitals };
    if let Some(handle) = metrics.clone() {
        let stop = running.stop.clone();
        running.add("the upkeep of metrics", async move {
            stop.run_until_cancelled(metrics::keep_up(handle)).await;
        });
    }
    let Some(listener) = listener else { return Ok(running) };
    let health =
        Health::new(stores.api.clone(), storage.clone(), broker, metrics).with_vitals(running.vitals.clone());
    if !roles.api {
        let local = listener.1.ip().is_loopback();
        let router = api::health_router(Arc::new(health), config.limits.request_timeout, local);
        running.health_addr = Some(running.answer(listener, router));
        return Ok(running);
    }
    // Only the API is sent tokens, so nobody else needs the keys.
    let callers = match callers(&auth, config.listen, &mut running) {
        Ok(callers) => callers,
        Err(error) => {
            running.stop().await;
            return Err(StartError::Auth(error).into());
        }
    };
    let watch = Watch::new(stores.api.clone(), registry.clone(), running.stop.clone());
    running.add("the watch of jobs", watch.clone().run());
    let state = AppState {
        scheduler: Scheduler::new(stores.api.clone(), planner.clone(), delivery.clone()),
        terms: Arc::new(planner.terms()),
        planner,
        store: stores.api,
        delivery,
        registry,
        exports,
        storage,
        health: Arc::new(health.with_callers(callers.clone())),
        callers,
        auth,
        limits: config.limits,
        idempotency_required: config.idempotency_required,
        watch,
    };
    running.addr = Some(running.answer(listener, api::router(state)));
    Ok(running)
}

/// Why a process came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A signal asked for it.
    Asked,
    /// The process can no longer do its work and should be restarted.
    Broken(Broken),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("asked to end"),
            Self::Broken(broken) => broken.fmt(f),
        }
    }
}

/// Runs until SIGTERM or SIGINT, or until the process can no longer do its work, then stops; a second signal
/// ends the process at once.
pub async fn run(config: Config, roles: Roles, registry: Registry) -> Result<Ended, StartErrors> {
    let mut signals = Signals::new();
    let running = tokio::select! {
        started = start(config, roles, registry) => started?,
        // Nothing has been claimed or promised yet.
        () = signals.next() => return Ok(Ended::Asked),
    };
    Ok(signals.wait_then_stop(running).await)
}

/// The signals that ask a process to end.
pub struct Signals {
    #[cfg(unix)]
    terminate: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    /// Starts catching them.
    #[expect(clippy::new_without_default, reason = "it has an effect, which a default should not have")]
    pub fn new() -> Self {
        Self {
            #[cfg(unix)]
            terminate: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok(),
        }
    }

    /// Waits for one.
    async fn next(&mut self) {
        #[cfg(unix)]
        if let Some(terminate) = &mut self.terminate {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
        // Without a way to hear of it, the process can only be ended from outside.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for a signal or a broken process, then stops; a second signal ends the process at once. A broken
    /// process first gives back its chunks. Until it ends, `/healthz` says what is broken.
    pub async fn wait_then_stop(mut self, running: Running) -> Ended {
        let ended = tokio::select! {
            () = self.next() => Ended::Asked,
            broken = running.vitals.broken() => Ended::Broken(broken),
        };
        match &ended {
            Ended::Asked => {}
            Ended::Broken(Broken::Wedged(_)) => tracing::error!("serve.wedged: {ended}"),
            Ended::Broken(Broken::Ended(_)) => tracing::error!("serve.broken: {ended}"),
        }
        tracing::info!("serve.stopping; a second signal ends the process at once");
        let stopping = async {
            if ended != Ended::Asked {
                running.engine.stop().await;
            }
            running.stop().await;
        };
        let at_once = async {
            // A broken process stops already: the first signal only asks for that.
            if ended != Ended::Asked {
                self.next().await;
            }
            self.next().await;
        };
        tokio::select! {
            () = stopping => tracing::info!("serve.stopped"),
            () = at_once => {
                tracing::warn!("serve.ended_at_once; leases of running chunks will run out");
                std::process::exit(130);
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests;
