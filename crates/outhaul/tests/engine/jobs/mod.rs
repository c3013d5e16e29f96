//! Custom jobs on the real embedded store. `Play` does what its payload says and remembers what it did.

mod client;
mod inline;
mod limits;
mod steps;
mod stuck;

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outhaul::core::id::JobId;
use outhaul::core::job::Job as JobRow;
use outhaul::core::retry::{Backoff, RetryPolicy};
use outhaul::core::store::Store;
use outhaul::testing::TempStore;
use outhaul::{Client, Context, Engine, EngineSettings, Job, JobError, JobOptions, Registry, Stores};
use outhaul_delivery::DatabaseDelivery;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use crate::fake::settings;

const LEASE: Duration = Duration::from_secs(60);

/// What jobs did, shared with the test.
pub(crate) struct Seen {
    events: Mutex<Vec<String>>,
    changed: watch::Sender<u64>,
    gate: Semaphore,
}

impl Seen {
    fn new() -> Arc<Self> {
        let (events, changed, gate) = (Mutex::default(), watch::channel(0).0, Semaphore::new(0));
        Arc::new(Self { events, changed, gate })
    }

    fn note(&self, event: impl Into<String>) {
        self.events.lock().unwrap().push(event.into());
        self.changed.send_modify(|count| *count += 1);
    }

    fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }

    async fn until(&self, event: &str) {
        let mut changed = self.changed.subscribe();
        let wait = changed.wait_for(|_| self.events().iter().any(|seen| seen == event));
        if tokio::time::timeout(Duration::from_secs(30), wait).await.is_err() {
            panic!("never happened: {event}; {:?}", self.events());
        }
    }

    async fn pass_gate(&self) {
        self.gate.acquire().await.unwrap().forget();
    }
}

/// Does what `act` says.
#[derive(Serialize, Deserialize)]
pub(crate) struct Play {
    act: String,
    #[serde(default)]
    note: Option<String>,
}

fn play(act: &str) -> Play {
    Play { act: act.to_owned(), note: None }
}

pub(crate) fn tries(max_attempts: u32) -> RetryPolicy {
    RetryPolicy { max_attempts, backoff: Backoff::Fixed { base: Duration::from_millis(1) } }
}

impl Job for Play {
    const TYPE: &'static str = "PLAY";
    type Output = Value;

    fn options() -> JobOptions {
        JobOptions::default().retry(tries(3))
    }

    async fn run(&self, ctx: &Context) -> Result<Value, JobError> {
        let seen = ctx.state::<Arc<Seen>>()?;
        let step = |name: &'static str, value: Value| {
            ctx.step(name, move || async move {
                seen.note(name);
                Ok(value)
            })
        };
        match self.act.as_str() {
            "fail" | "panic" | "doom" | "wait" | "gate" => {
                let one = step("one", json!(1)).await?;
                ctx.step("two", || async {
                    seen.note(format!("two in attempt {}", ctx.attempt()));
                    match self.act.as_str() {
                        "fail" if ctx.attempt() < 3 => Err(JobError::retryable("not yet")),
                        "panic" if ctx.attempt() < 2 => panic!("boom\nand more"),
                        "doom" => panic!("boom\nand more"),
                        "wait" if seen.gate.available_permits() == 0 => pending().await,
                        "gate" => {
                            seen.pass_gate().await;
                            Ok(())
                        }
                        _ => Ok(()),
                    }
                })
                .await?;
                step("three", json!(3)).await?;
                Ok(json!({ "one": one, "key": ctx.idempotency_key("two") }))
            }
            "nap" | "long-nap" => {
                step("before", json!(null)).await?;
                ctx.sleep(Duration::from_millis(30)).await?;
                seen.note("awake");
                if self.act == "long-nap" {
                    ctx.sleep(Duration::MAX).await?;
                }
                step("after", json!(null)).await?;
                Ok(json!(ctx.attempt()))
            }
            "twice" => {
                step("same", json!(1)).await?;
                step("same", json!(2)).await
            }
            "name" => step("not a name", json!(1)).await,
            "huge" => {
                seen.note("huge");
                Ok(json!("x".repeat(outhaul::core::step::MAX_RESULT_BYTES)))
            }
            "huge-step" => step("big", json!("x".repeat(outhaul::core::step::MAX_RESULT_BYTES))).await,
            "sql" => {
                ctx.transaction("sql", async |_| Ok(())).await?;
                Ok(json!(null))
            }
            "child" => {
                let child = ctx.step("child", || async {
                    let child = ctx.client().enqueue(play("end")).await?;
                    Ok(child.job_id.to_string())
                });
                Ok(json!(child.await?))
            }
            "children" => {
                for _ in 0..20 {
                    ctx.client().enqueue(play("end")).await?;
                }
                Ok(json!(null))
            }
            "polite" => {
                seen.note("waits");
                let stopped = ctx.cancelled().await;
                tokio::task::yield_now().await;
                seen.note("cleaned up");
                Err(stopped)
            }
            "quarter" => {
                // Of a total that is not known, and then is.
                ctx.progress(1, 0);
                ctx.progress(2, 8);
                seen.pass_gate().await;
                Ok(json!(null))
            }
            "fatal" => Err(JobError::fatal("never")),
            "stateless" => Ok(json!(*ctx.state::<u128>()? as u64)),
            _ => {
                seen.note(self.note.clone().unwrap_or_else(|| "end".to_owned()));
                Ok(json!(self.note))
            }
        }
    }
}

pub(crate) struct Stage {
    _temporary: TempStore,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: Client,
    pub(crate) seen: Arc<Seen>,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let temporary = TempStore::open().await.unwrap();
        let store = temporary.store();
        Self { client: Client::new(store.clone()), store, _temporary: temporary, seen: Seen::new() }
    }

    pub(crate) fn registry(&self) -> Registry {
        Registry::new().job::<Play>().state(self.seen.clone())
    }

    pub(crate) async fn engine(&self, registry: Registry, concurrency: u32) -> Engine {
        self.engine_with(registry, settings(concurrency, LEASE)).await
    }

    pub(crate) async fn engine_with(&self, registry: Registry, settings: EngineSettings) -> Engine {
        let store = self.store.clone();
        let delivery = DatabaseDelivery::start(store.clone());
        let stores = Stores { api: store.clone(), engine: store.clone(), keeper: store };
        Engine::start(stores, delivery, registry, settings).await.unwrap()
    }

    /// Looks at the job until it is as it should be: the store has no signal for this.
    pub(crate) async fn until(&self, id: &JobId, test: impl Fn(&JobRow) -> bool) -> JobRow {
        for _ in 0..3000 {
            let job = self.store.job_get(id).await.unwrap().unwrap();
            if test(&job) {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never happened; the job is {:#?}", self.store.job_get(id).await);
    }

    pub(crate) async fn ended(&self, id: &JobId) -> JobRow {
        self.until(id, |job| job.status.is_final()).await
    }

    /// Runs one `Play` on an engine of its own to its end.
    pub(crate) async fn perform(&self, act: &str) -> JobRow {
        let engine = self.engine(self.registry(), 4).await;
        let id = self.client.enqueue(play(act)).await.unwrap().job_id;
        let job = self.ended(&id).await;
        engine.stop().await;
        job
    }
}

pub(crate) fn error(job: &JobRow) -> &str {
    job.error_message.as_deref().unwrap_or_default()
}
